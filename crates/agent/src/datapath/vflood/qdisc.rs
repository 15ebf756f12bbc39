//! What holds a VM's packets (vFlood): the qdisc, and the devices that each port has for it.
//!
//! Loaded when the first port asks for it, because it takes a newer kernel than everything else.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use libbpf_rs::{AsRawLibbpf, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramMut, ProgramType};

use super::devices::{self, Devices};
use crate::common::bytes::{as_bytes, from_bytes};
use crate::datapath::error::DatapathError;
use crate::datapath::{intf, map, pins, tcx};
use crate::features::{Features, Part};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/qdisc.bpf.o"));
/// The map of the qdisc's functions, and its pin.
const QDISC: &str = "evenkeel_hold";
/// Programs of a port's devices.
const PROGRAMS: [(&str, &str); 4] =
    [("released", "hold-released"), ("split", "hold-split"), ("joined", "hold-joined"), ("back", "hold-back")];
/// The programs that are attached by tcx, not netkit: they see what comes in at a device.
const BACK: &str = "back";
const JOINED: &str = "joined";
/// Maps that are kept for the next agent.
const PINNED: [&str; 3] = [LISTS[0], LISTS[1], "vflood_devices"];
/// The maps that hold packets.
const LISTS: [&str; 2] = ["queues", "ready"];
/// Maps shared with the other programs.
const SHARED: [&str; 7] =
    ["ports", "counters", "host", "vflood_flows", "vflood_managed", "vflood_ports", "vflood_queues"];
/// How long held packets may take to leave before they are removed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// Packets that have left the queue take less than this through the other devices.
const ON_ITS_WAY: Duration = Duration::from_millis(20);

/// The loaded qdisc.
pub(in crate::datapath) struct Qdisc {
    object: Object,
    pin_dir: PathBuf,
    vms: MapHandle,
    hold_devices: MapHandle,
    flows: MapHandle,
    managed: MapHandle,
}

/// Whether an agent before this one has loaded the qdisc.
pub(in crate::datapath) fn is_pinned(pin_dir: &Path) -> bool {
    pin_dir.join(QDISC).exists()
}

/// Whether something is held, or is about to leave.
pub(in crate::datapath) fn holds(vm: &intf::ek_vflood_queue) -> bool {
    vm.first != 0 || vm.ready != 0
}

/// Whether a device of this name is one of those that hold packets, and so no port.
pub fn is_own_device(name: &str) -> bool {
    devices::port_of(name).is_some()
}

impl Qdisc {
    /// Loads the qdisc, or takes over the one that is pinned.
    pub(in crate::datapath) fn open(pin_dir: &Path, features: &Features) -> Result<Self, DatapathError> {
        let failed = |what: &str, error: libbpf_rs::Error| DatapathError::bpf(what, &error);
        if let Some(lacks) = features.lacking(Part::HostVflood) {
            return Err(DatapathError::CannotHold { lacks });
        }
        let mut open = ObjectBuilder::default()
            .name("evenkeel_hold")
            .and_then(|builder| builder.open_memory(OBJECT))
            .map_err(|error| failed("cannot read the programs that hold packets", error))?;
        // A qdisc that is there already stays: it may hold packets. Nor would its maps take these functions: to the
        // kernel, what they hold has a type of the object that made them.
        let is_there = is_pinned(pin_dir);
        if !is_there {
            // Left by an agent that got no further.
            for name in LISTS {
                pins::remove(&pin_dir.join(name))?;
            }
        }
        for mut program in open.progs_mut() {
            if is_there && program.prog_type() == ProgramType::StructOps {
                program.set_autoload(false);
            }
        }
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if is_there && name == QDISC {
                map.set_autocreate(false).map_err(|error| failed("cannot leave the qdisc as it is", error))?;
            }
            if PINNED.contains(&name.as_str()) || SHARED.contains(&name.as_str()) {
                map.set_pin_path(pin_dir.join(&name)).map_err(|error| failed("cannot name a pin", error))?;
            }
        }
        let mut object =
            open.load().map_err(|error| failed("the kernel does not take the programs that hold packets", error))?;
        if !is_there {
            let mut map = object
                .maps_mut()
                .find(|map| map.name() == QDISC)
                .ok_or_else(|| DatapathError::io(format!("no map {QDISC}"), io::ErrorKind::NotFound.into()))?;
            let mut link =
                map.attach_struct_ops().map_err(|error| failed("the kernel does not take the qdisc", error))?;
            link.pin(pin_dir.join(QDISC)).map_err(|error| failed("cannot pin the qdisc", error))?;
        }
        let map = |name: &str| {
            MapHandle::from_pinned_path(pin_dir.join(name))
                .map_err(|error| DatapathError::bpf(format!("cannot open the map {name}"), &error))
        };
        let (vms, hold_devices) = (map("vflood_queues")?, map("vflood_devices")?);
        let (flows, managed) = (map("vflood_flows")?, map("vflood_managed")?);
        let qdisc = Self { object, pin_dir: pin_dir.to_owned(), vms, hold_devices, flows, managed };
        qdisc.forget_orphans()?;
        Ok(qdisc)
    }

    /// Makes a port's devices, or finds them, and puts the programs on them. Their indices go into `settings`.
    pub(in crate::datapath) fn attach(
        &mut self,
        port: u32,
        slot: u32,
        settings: &mut intf::ek_vflood_settings,
    ) -> Result<(), DatapathError> {
        let port_name = nix::net::if_::if_indextoname(port)
            .map(|name| name.to_string_lossy().into_owned())
            .map_err(|errno| DatapathError::io(format!("cannot name device {port}"), errno.into()))?;
        let failed =
            |error| DatapathError::io(format!("cannot make the devices that hold packets of {port_name}"), error);
        let is_new = devices::find(port).is_none();
        if is_new {
            self.vms
                .update(&slot.to_ne_bytes(), as_bytes(&intf::ek_vflood_queue::default()), MapFlags::ANY)
                .and_then(|()| self.managed.update(&slot.to_ne_bytes(), &0u32.to_ne_bytes(), MapFlags::ANY))
                .map_err(|error| DatapathError::bpf("cannot clear a port's buffer", &error))?;
        }
        let qdisc = std::str::from_utf8(&intf::EK_VFLOOD_QDISC[..intf::EK_VFLOOD_QDISC.len() - 1]).unwrap_or_default();
        let made = devices::make(port, &port_name, qdisc).map_err(failed)?;
        let device = intf::ek_vflood_device {
            port_ifindex: port,
            slot,
            join_ifindex: made.joining.map_or(0, |joining| joining.entry),
        };
        for index in ways_out(&made) {
            self.hold_devices
                .update(&index.to_ne_bytes(), as_bytes(&device), MapFlags::ANY)
                .map_err(|error| DatapathError::bpf("cannot note a device that holds packets", &error))?;
        }
        for (program, pin) in PROGRAMS {
            let device = match program {
                BACK => Some(made.split),
                JOINED => made.joining.map(|joining| joining.exit),
                _ => Some(made.hold),
            };
            if let Some(device) = device {
                self.put(port, device, program, pin)?;
            }
        }
        settings.hold_ifindex = made.hold;
        settings.split_ifindex = made.split;
        Ok(())
    }

    fn put(&mut self, port: u32, device: u32, name: &str, pin: &str) -> Result<(), DatapathError> {
        let path = pins::link(&self.pin_dir, port, pin);
        let program = self
            .object
            .progs_mut()
            .find(|program| program.name() == name)
            .ok_or_else(|| DatapathError::io(format!("no program {name}"), io::ErrorKind::NotFound.into()))?;
        // A link whose device is gone takes no program.
        let old = path.exists().then(|| Link::open(&path).ok()).flatten();
        if old.is_some_and(|mut link| link.update_prog(&program).is_ok()) {
            return Ok(());
        }
        pins::remove(&path)?;
        let attached = if matches!(name, BACK | JOINED) {
            tcx::attach(program.as_libbpf_object(), device)
        } else {
            attach_netkit(&program, device)
        };
        let mut link = attached.map_err(|error| DatapathError::io(format!("cannot attach {name}"), error))?;
        link.pin(&path).map_err(|error| DatapathError::bpf(format!("cannot pin {}", path.display()), &error))
    }

    /// What is held for a port.
    pub(in crate::datapath) fn vm(&self, slot: u32) -> Result<intf::ek_vflood_queue, DatapathError> {
        let bytes = self
            .vms
            .lookup(&slot.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| DatapathError::bpf("cannot read a port's buffer", &error))?;
        Ok(bytes.as_deref().and_then(from_bytes).unwrap_or_default())
    }

    /// Removes a port's devices, with what they hold.
    pub(in crate::datapath) fn detach(&mut self, port: u32) -> Result<(), DatapathError> {
        let found = devices::find(port);
        if found.is_some() {
            std::thread::sleep(ON_ITS_WAY);
        }
        devices::remove(port)
            .map_err(|error| DatapathError::io("cannot remove the devices that hold packets", error))?;
        if let Some(found) = found {
            for index in ways_out(&found) {
                // Not there is as good as removed.
                let _ = self.hold_devices.delete(&index.to_ne_bytes());
            }
        }
        forget_pins(&self.pin_dir, port)?;
        self.forget_orphans()
    }

    /// How many connections of a port are managed.
    pub(in crate::datapath) fn managed_of(&self, slot: u32) -> Result<u32, DatapathError> {
        Ok(map::lookup(&self.managed, &slot)?.unwrap_or_default())
    }

    /// Frees the entries of connections whose device is gone: each device's queue looks after its own only.
    fn forget_orphans(&self) -> Result<(), DatapathError> {
        let devices: BTreeSet<u32> = self.hold_devices.keys().filter_map(|key| from_bytes(&key)).collect();
        // An entry that a program has just taken still names the device of the connection before.
        let is_orphan =
            |flow: &intf::ek_vflood_flow| ![0, u64::MAX].contains(&flow.owner) && !devices.contains(&flow.hold_ifindex);
        let entries: Vec<(u32, intf::ek_vflood_flow)> = map::read_all(&self.flows, "cannot read vFlood's connections")?;
        let mut freed = 0;
        for (index, flow) in entries.into_iter().filter(|(_, flow)| is_orphan(flow)) {
            let free = intf::ek_vflood_flow { generation: flow.generation, ..Default::default() };
            self.flows
                .update(&index.to_ne_bytes(), as_bytes(&free), MapFlags::ANY)
                .map_err(|error| DatapathError::bpf("cannot free the entry of a connection", &error))?;
            freed += 1;
        }
        if freed > 0 {
            tracing::info!(connections = freed, "vFlood manages these no more: their ports are gone");
        }
        Ok(())
    }
}

/// Devices whose packets' port the programs look up.
fn ways_out(devices: &Devices) -> impl Iterator<Item = u32> {
    [Some(devices.hold), Some(devices.split), devices.joining.map(|joining| joining.exit)].into_iter().flatten()
}

/// Removes the pins of the programs on a port's devices.
pub(in crate::datapath) fn forget_pins(pin_dir: &Path, port: u32) -> Result<(), DatapathError> {
    PROGRAMS.iter().try_for_each(|(_, pin)| pins::remove(&pins::link(pin_dir, port, pin)))
}

/// Removes a port's devices that were made by an agent before this one.
pub(in crate::datapath) fn remove(port: u32) -> Result<(), DatapathError> {
    devices::remove(port).map_err(|error| DatapathError::io("cannot remove the devices that hold packets", error))
}

/// Lets out what is held on all ports, and removes their devices and the qdisc. The other pins stay for the caller.
pub(in crate::datapath) fn remove_all(pin_dir: &Path) -> Result<(), DatapathError> {
    let open = |name: &str| MapHandle::from_pinned_path(pin_dir.join(name)).ok();
    let (Some(hold_devices), Some(ports), Some(vms)) = (open("vflood_devices"), open("ports"), open("vflood_queues"))
    else {
        return Ok(());
    };
    let held: Vec<intf::ek_vflood_device> =
        hold_devices.keys().filter_map(|key| from_bytes(&hold_devices.lookup(&key, MapFlags::ANY).ok()??)).collect();
    for device in &held {
        let key = device.port_ifindex.to_ne_bytes();
        let Ok(Some(bytes)) = ports.lookup(&key, MapFlags::ANY) else { continue };
        let Some(mut port) = from_bytes::<intf::ek_port>(&bytes) else { continue };
        port.vflood.mode = intf::EK_MODE_OFF;
        // A port that is not told lets out what it holds as one without an agent.
        let _ = ports.update(&key, as_bytes(&port), MapFlags::ANY);
    }
    let is_empty = |slot: u32| {
        let bytes = vms.lookup(&slot.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        bytes.as_deref().and_then(from_bytes).is_none_or(|vm| !holds(&vm))
    };
    let waits = || {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while !held.iter().all(|device| is_empty(device.slot)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        !held.iter().all(|device| is_empty(device.slot))
    };
    if waits() {
        // Without its port's settings, what is left goes without waiting for ACKs.
        for device in &held {
            let _ = ports.delete(&device.port_ifindex.to_ne_bytes());
        }
        waits();
    }
    if !held.is_empty() {
        std::thread::sleep(ON_ITS_WAY);
    }
    // Those of an agent that was killed before it had noted them.
    devices::remove_all().map_err(|error| DatapathError::io("cannot remove the devices that hold packets", error))?;
    // Removing the pin releases the qdisc's functions.
    match fs::remove_file(pin_dir.join(QDISC)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DatapathError::io("cannot remove the qdisc", error))
        }
        _ => Ok(()),
    }
}

/// libbpf-rs has no function for netkit yet.
fn attach_netkit(program: &ProgramMut<'_>, device: u32) -> io::Result<Link> {
    let index = i32::try_from(device).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the program is loaded and alive; no options.
    let link =
        unsafe { libbpf_sys::bpf_program__attach_netkit(program.as_libbpf_object().as_ptr(), index, std::ptr::null()) };
    match NonNull::new(link) {
        // SAFETY: the link was just made and is nobody else's.
        Some(link) => Ok(unsafe { Link::from_ptr(link) }),
        None => Err(io::Error::last_os_error()),
    }
}
