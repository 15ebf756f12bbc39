//! Loads, attaches and pins the programs; takes over what an agent before this one has pinned.

mod forget;
mod namespaces;
mod on;
mod remove;

pub use remove::Removed;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use evenkeel_settings::host::Attach;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, Program, ProgramMut};

use super::cera::Shares;
use super::error::DatapathError;
use super::exchanges::Exchanges;
use super::hook::Attached;
use super::intf;
use super::map::{clear, lookup, lookup_bytes, read_all};
use super::pins;
use super::ring::{Events, Ring};
use super::skb::SkbContext;
use super::vflood::qdisc::{self, Qdisc};
use crate::common::bytes::{as_bytes, from_bytes};
use crate::common::clock::now_ns;
use crate::common::libbpf;
use crate::features::{self, Features, Hook};
use crate::netns;
use crate::tc::Side;

/// Modes of the mechanisms that are told of every connection while they are on: `EK_OTHERS_THAN_VFLOOD` in intf.h.
const OTHERS: &[fn(&intf::ek_port) -> u32] = &include!(concat!(env!("OUT_DIR"), "/others.rs"));
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/host.bpf.o"));
/// The section of the constants that tell the programs about the kernel.
const KERNEL: &CStr = match CStr::from_bytes_with_nul(intf::EK_KERNEL_SECTION) {
    Ok(section) => section,
    Err(_) => panic!("it is a string of C"),
};
/// Programs of a port, each with its side of the device.
const PROGRAMS: [(&str, Side); 2] = [("to_vm", Side::Egress), ("from_vm", Side::Ingress)];

/// The loaded programs with their maps.
pub struct Datapath {
    object: Object,
    pub(super) pin_dir: PathBuf,
    pub(super) features: Features,
    hook: Hook,
    took_over: bool,
    pub(super) ports: MapHandle,
    namespaces: MapHandle,
    counters: MapHandle,
    host: MapHandle,
    flows: MapHandle,
    handshakes: MapHandle,
    trains: MapHandle,
    pub(super) snoops: MapHandle,
    pub(super) snoop_ports: MapHandle,
    pub(super) exchanges: Exchanges,
    proboscis_ports: MapHandle,
    vflood_ports: MapHandle,
    pub(super) vflood_flows: MapHandle,
    /// The mapped shares of the uplink, once a port's share was cleared.
    shares_memory: Option<Shares>,
    pub(super) qdisc: Option<Qdisc>,
    pub(super) cannot_hold: BTreeMap<u32, DatapathError>,
    /// Slots of the ports that have settings, kept here because asking for them takes a call each.
    slots: BTreeMap<u32, u32>,
    /// What was put on devices.
    attached: BTreeMap<u32, Vec<Attached>>,
    /// Devices that are no longer ports but keep their programs until all that is held for them has left.
    pub(super) leaving: BTreeSet<u32>,
    /// Ports that are gone while tables still have entries for them.
    gone: BTreeSet<u32>,
    ring: Ring,
}

impl std::fmt::Debug for Datapath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Datapath").field("pin_dir", &self.pin_dir).field("took_over", &self.took_over).finish()
    }
}

impl Datapath {
    /// Loads the programs, with the maps that are pinned in `pin_dir` if they are of this version. Ports keep their old
    /// programs until [`attach`](Self::attach) replaces them.
    ///
    /// # Errors
    /// [`DatapathError`], with what to do next.
    pub fn open(pin_dir: &Path) -> Result<Self, DatapathError> {
        Self::open_by(pin_dir, if pins::has_filters(pin_dir) { Attach::Clsact } else { Attach::Auto }, false)
    }

    /// As [`open`](Self::open), with the programs attached as `attach` says. If ports may be in other network
    /// namespaces (`is_elsewhere`), the programs check which one a packet is in.
    ///
    /// # Errors
    /// [`DatapathError`], with what to do next.
    pub fn open_by(pin_dir: &Path, attach: Attach, is_elsewhere: bool) -> Result<Self, DatapathError> {
        let failed = |what: &str, error: libbpf_rs::Error| DatapathError::bpf(what, &error);
        libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, libbpf::log)));
        load_tun();
        let features = Features::ask();
        let hook = on::hook(&features, attach)?;
        pins::make(pin_dir)?;
        let took_over = pins::are_there(pin_dir)?;
        let is_elsewhere = Self::recall_namespaces(pin_dir)? || is_elsewhere;
        let mut open = ObjectBuilder::default()
            .name("evenkeel")
            .and_then(|builder| builder.open_memory(OBJECT))
            .map_err(|error| failed("cannot read the programs", error))?;
        for mut map in open.maps_mut() {
            if map.name().as_bytes() == KERNEL.to_bytes() {
                let namespace = if is_elsewhere { namespaces::own()? } else { 0 };
                let kernel = intf::ek_kernel { has_tun_types: features::has_tun_types().into(), namespace };
                map.set_initial_value(as_bytes(&kernel))
                    .map_err(|error| failed("cannot say what this kernel has", error))?;
                continue;
            }
            let path = pin_dir.join(map.name());
            map.set_pin_path(&path).map_err(|error| failed("cannot name a pin", error))?;
        }
        let object = open.load().map_err(|error| failed("the kernel does not take the programs", error))?;
        let map = |name: &str| -> Result<MapHandle, DatapathError> {
            MapHandle::from_pinned_path(pin_dir.join(name))
                .map_err(|error| DatapathError::bpf(format!("cannot open the map {name}"), &error))
        };
        let ring = Ring::open(&map("events")?)?;
        // This agent lets out what an earlier one held, whatever its own ports are configured for.
        let qdisc = qdisc::is_pinned(pin_dir).then(|| Qdisc::open(pin_dir, &features)).and_then(|opened| {
            opened.inspect_err(|error| tracing::error!("what holds packets here is not taken over: {error}")).ok()
        });
        let ports = map("ports")?;
        let known = read_all::<u32, intf::ek_port>(&ports, "cannot read ports")?;
        let datapath = Self {
            object,
            pin_dir: pin_dir.to_owned(),
            features,
            hook,
            took_over,
            ports,
            namespaces: map("namespaces")?,
            counters: map("counters")?,
            host: map("host")?,
            flows: map("flows")?,
            handshakes: map("handshakes")?,
            trains: map("trains")?,
            snoops: map("vsnoop_flows")?,
            snoop_ports: map("vsnoop_ports")?,
            exchanges: Exchanges::open(map("exchanges")?, &map("completions")?)?,
            proboscis_ports: map("proboscis_ports")?,
            vflood_ports: map("vflood_ports")?,
            vflood_flows: map("vflood_flows")?,
            shares_memory: None,
            qdisc,
            cannot_hold: BTreeMap::new(),
            slots: known.into_iter().map(|(number, port)| (number, port.slot)).collect(),
            attached: BTreeMap::new(),
            leaving: BTreeSet::new(),
            gone: BTreeSet::new(),
            ring,
        };
        if took_over {
            datapath.forget_unattached()?;
        }
        Ok(datapath)
    }

    /// What this kernel can do.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Whether maps of an agent before this one were there.
    pub fn took_over(&self) -> bool {
        self.took_over
    }

    /// Devices that programs are pinned for, whether they are still there or not.
    ///
    /// # Errors
    /// [`DatapathError::Io`]
    pub fn ports(&self) -> Result<Vec<u32>, DatapathError> {
        pins::ports(&self.pin_dir)
    }

    /// Sets a port's settings, and puts the programs on it or replaces those that are there.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn attach(&mut self, ifindex: u32, settings: &intf::ek_port) -> Result<(), DatapathError> {
        if self.gone.contains(&ifindex) {
            self.forget_gone()?;
        }
        let key = ifindex.to_ne_bytes();
        let failed = |what: &str, error: libbpf_rs::Error| DatapathError::bpf(what, &error);
        // The index may have been another device's, whose counters are not this one's.
        let is_old = self.is_on(ifindex);
        let before = self.port(&key)?.filter(|_| is_old);
        let slot = self.slot(ifindex)?;
        // vSnoop's entries know nothing of what passed while it was off.
        let snoop = |mode: u32| mode != intf::EK_MODE_OFF;
        let has_turned = before.is_none_or(|port| snoop(port.vsnoop.mode) != snoop(settings.vsnoop.mode));
        // A new device's index has no entries: they went with the device that had it before.
        let forgets = has_turned && is_old;
        if forgets {
            self.forget_snoops(ifindex)?;
        }
        if has_turned {
            clear(&self.snoop_ports, slot, &intf::ek_vsnoop_port::default())?;
        }
        if !is_old {
            let cpus = libbpf_rs::num_possible_cpus().map_err(|error| failed("cannot count CPUs", error))?;
            let zero = vec![as_bytes(&intf::ek_counters::default()).to_vec(); cpus];
            self.counters
                .update_percpu(&slot.to_ne_bytes(), &zero, MapFlags::ANY)
                .map_err(|error| failed("cannot clear a port's counters", error))?;
            clear(&self.proboscis_ports, slot, &intf::ek_proboscis_port::default())?;
            clear(&self.vflood_ports, slot, &intf::ek_vflood_port::default())?;
            let shares = match self.shares_memory.take() {
                Some(shares) => shares,
                None => self.shares()?,
            };
            if let Some(mut share) = self.shares_memory.insert(shares).get(slot) {
                share.clear();
            }
        }
        self.leaving.remove(&ifindex);
        let since_ns = match before.filter(is_read) {
            Some(port) => port.since_ns,
            None => now_ns(),
        };
        let mut settings = intf::ek_port { slot, since_ns, ..*settings };
        self.hold_packets(ifindex, &mut settings)?;
        set_port(&self.ports, &key, &settings)?;
        self.slots.insert(ifindex, slot);
        if forgets && !snoop(settings.vsnoop.mode) {
            self.forget_snoops(ifindex)?;
            clear(&self.snoop_ports, slot, &intf::ek_vsnoop_port::default())?;
        }
        self.attached.remove(&ifindex);
        // By one hook at a time: no packet goes through a program twice.
        if self.hook == Hook::Tcx {
            on::take_off_filters(&self.pin_dir, ifindex)?;
        }
        let links: Result<Vec<_>, _> = PROGRAMS.iter().map(|(name, side)| self.put(ifindex, name, *side)).collect();
        // A port with one of them is not served, and has none.
        let links = links.inspect_err(|_| {
            if let Err(error) = on::take_off(&self.pin_dir, ifindex) {
                tracing::error!(ifindex, "programs stay on a port that is not served: {error}");
            }
        })?;
        self.attached.insert(ifindex, links.into_iter().flatten().collect());
        Ok(())
    }

    pub(super) fn port(&self, key: &[u8]) -> Result<Option<intf::ek_port>, DatapathError> {
        Ok(lookup_bytes(&self.ports, key)?.as_deref().and_then(from_bytes))
    }

    /// The shares of the uplink, for CERA's thread.
    ///
    /// # Errors
    /// [`DatapathError`] if they cannot be mapped.
    pub fn shares(&self) -> Result<Shares, DatapathError> {
        let map = MapHandle::from_pinned_path(self.pin_dir.join("cera_ports"))
            .map_err(|error| DatapathError::bpf("cannot open the map cera_ports", &error))?;
        Shares::map(&map)
    }

    /// The slot of a port's share and counters; none of a device that is no port.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn slot_of(&self, ifindex: u32) -> Result<Option<u32>, DatapathError> {
        Ok(self.port(&ifindex.to_ne_bytes())?.map(|port| port.slot))
    }

    /// The slot of a port's counters, or a free one if it has none yet.
    fn slot(&self, ifindex: u32) -> Result<u32, DatapathError> {
        if let Some(slot) = self.slots.get(&ifindex) {
            return Ok(*slot);
        }
        let taken: BTreeSet<u32> = self.slots.values().copied().collect();
        (0..intf::EK_MAX_PORTS).find(|slot| !taken.contains(slot)).ok_or_else(|| {
            let text = format!("there are settings for {} ports already", intf::EK_MAX_PORTS);
            DatapathError::io("no room for another port", io::Error::other(text))
        })
    }

    fn path(&self, ifindex: u32, name: &str) -> PathBuf {
        pins::link(&self.pin_dir, ifindex, name)
    }

    /// Takes the programs off a device, which may be gone already. Returns true if they stay until what is held for it
    /// has left: then [`let_go`](Self::let_go) takes them off.
    ///
    /// # Errors
    /// [`DatapathError`]
    pub fn detach(&mut self, ifindex: u32) -> Result<bool, DatapathError> {
        let has_devices = self.port(&ifindex.to_ne_bytes())?.is_some_and(|port| port.vflood.hold_ifindex != 0);
        if has_devices && self.qdisc.is_some() && nix::net::if_::if_indextoname(ifindex).is_ok() {
            self.attach(ifindex, &intf::ek_port::default())?;
            self.leaving.insert(ifindex);
            return Ok(true);
        }
        self.take_off(ifindex)?;
        Ok(false)
    }

    pub(super) fn take_off(&mut self, ifindex: u32) -> Result<(), DatapathError> {
        on::take_off(&self.pin_dir, ifindex)?;
        self.attached.remove(&ifindex);
        self.cannot_hold.remove(&ifindex);
        self.leaving.remove(&ifindex);
        match &mut self.qdisc {
            _ if netns::base(ifindex) != netns::HERE => {}
            Some(qdisc) => qdisc.detach(ifindex)?,
            None => qdisc::remove(ifindex)?,
        }
        // Not there is as good as removed.
        let _ = self.ports.delete(&ifindex.to_ne_bytes());
        self.slots.remove(&ifindex);
        self.gone.insert(ifindex);
        Ok(())
    }

    /// Sets what holds for the whole host.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn set_host(&self, host: &intf::ek_host) -> Result<(), DatapathError> {
        self.host
            .update(&0u32.to_ne_bytes(), as_bytes(host), MapFlags::ANY)
            .map_err(|error| DatapathError::bpf("cannot set the host's settings", &error))
    }

    /// A port's counters, of all CPUs together.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn counters(&self, ifindex: u32) -> Result<intf::ek_counters, DatapathError> {
        let Some(port) = self.port(&ifindex.to_ne_bytes())? else { return Ok(intf::ek_counters::default()) };
        let values = self
            .counters
            .lookup_percpu(&port.slot.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| DatapathError::bpf("cannot read counters", &error))?;
        let mut sum = intf::ek_counters::default();
        for counters in values.iter().flatten().filter_map(|bytes| from_bytes::<intf::ek_counters>(bytes)) {
            for (to, from) in sum.value.iter_mut().zip(counters.value) {
                *to = to.wrapping_add(from);
            }
        }
        Ok(sum)
    }

    /// All flows in the table; [`forget_gone`](Self::forget_gone) removes those of ports that are gone.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn noted_flows(&self) -> Result<Vec<(intf::ek_flow_key, intf::ek_flow)>, DatapathError> {
        read_all(&self.flows, "cannot read flows")
    }

    /// All flows that programs act on: not those of ports that are gone, nor those from before the programs last began
    /// to note a port's connections, unless vFlood holds them (`flow_known()` in the programs).
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn flows(&self) -> Result<Vec<(intf::ek_flow_key, intf::ek_flow)>, DatapathError> {
        let ports = read_all::<u32, intf::ek_port>(&self.ports, "cannot read ports")?;
        let ports: HashMap<_, _> = ports.into_iter().collect();
        let mut known = Vec::new();
        for (key, flow) in self.noted_flows()? {
            let Some(port) = ports.get(&key.ifindex) else { continue };
            if flow.first_ns >= port.since_ns || self.vflood(&flow)?.is_some() {
                known.push((key, flow));
            }
        }
        Ok(known)
    }

    /// Runs a program that needs no packet of its own, and returns its answer.
    pub(super) fn ask(&mut self, name: &str, mut context: SkbContext) -> Result<u32, DatapathError> {
        let _there = context.enter()?;
        let mut context = as_bytes(&context).to_vec();
        // A test run wants a frame.
        let frame = [0; 64];
        let input =
            libbpf_rs::ProgramInput { context_in: Some(&mut context), data_in: Some(&frame), ..Default::default() };
        let output = self
            .program_mut(name)?
            .test_run(input)
            .map_err(|error| DatapathError::bpf(format!("cannot run {name}"), &error))?;
        Ok(output.return_value)
    }

    /// Exchanges of connections, while a trial times them.
    pub fn exchanges(&self) -> &Exchanges {
        &self.exchanges
    }

    /// A SYN that is not answered.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn handshake(&self, key: &intf::ek_flow_key) -> Result<Option<intf::ek_handshake>, DatapathError> {
        lookup(&self.handshakes, key)
    }

    /// Probes of a SYN.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn train(&self, key: &intf::ek_train_key) -> Result<Option<intf::ek_train>, DatapathError> {
        lookup(&self.trains, key)
    }

    /// Readable when there are events. An edge may be waited for only after [`events`](Self::events) has said that it
    /// read all.
    pub fn events_fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// The events that are there.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn events(&mut self) -> Result<Events, DatapathError> {
        self.ring.read()
    }

    /// Whether events have waited since the last call because nobody was woken up for them. To be called now and then.
    pub fn events_wait(&mut self) -> bool {
        self.ring.stands_still()
    }

    /// Sends the frame of an event into its port once more, with probes ahead if wanted.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn inject(
        &mut self,
        event: &intf::ek_event,
        probes: u32,
        train: u8,
        with_frame: bool,
    ) -> Result<(), DatapathError> {
        let mut context = SkbContext { ifindex: event.flow.ifindex, ..SkbContext::default() };
        context.cb[intf::EK_INJECT_PROBES as usize] = probes;
        context.cb[intf::EK_INJECT_TRAIN as usize] = u32::from(train);
        context.cb[intf::EK_INJECT_FRAME as usize] = u32::from(with_frame);
        context.cb[intf::EK_INJECT_VLAN as usize] = u32::from(event.vlan_proto) << 16 | u32::from(event.vlan_tci);
        let _there = context.enter()?;
        let mut context = as_bytes(&context).to_vec();
        let length = (event.frame_bytes as usize).min(event.frame.len());
        let input = libbpf_rs::ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&event.frame[..length]),
            ..Default::default()
        };
        let program = self.program_mut("inject")?;
        let output = program.test_run(input).map_err(|error| DatapathError::bpf("cannot send", &error))?;
        match output.return_value {
            0 => Ok(()),
            _ => Err(DatapathError::io("the program could not send", io::Error::other("refused"))),
        }
    }

    pub(super) fn program_mut(&mut self, name: &str) -> Result<ProgramMut<'_>, DatapathError> {
        let program = self.object.progs_mut().find(|p| p.name() == name);
        program.ok_or_else(|| DatapathError::io(format!("no program {name}"), io::ErrorKind::NotFound.into()))
    }
}

fn program<'o>(object: &'o Object, name: &str) -> Result<Program<'o>, DatapathError> {
    object
        .progs()
        .find(|p| p.name() == name)
        .ok_or_else(|| DatapathError::io(format!("no program {name}"), io::ErrorKind::NotFound.into()))
}

/// Loads the tap driver's module: the programs look up what they read of taps in its types when they are loaded.
fn load_tun() {
    // A kernel without taps has no use for it; opening the device is what loads the module.
    let _ = fs::File::open("/dev/net/tun");
}

/// Whether the programs note the connections of a port that has these settings: `port_acts()` and not `port_rests()` in
/// context.h.
fn is_read(port: &intf::ek_port) -> bool {
    let others = OTHERS.iter().fold(0, |modes, mode| modes | mode(port));
    others != intf::EK_MODE_OFF
        || (port.vflood.mode != intf::EK_MODE_OFF && (port.vflood.passes_over == 0 || port.timed_ns != 0))
}

pub(super) fn set_port(ports: &MapHandle, key: &[u8], port: &intf::ek_port) -> Result<(), DatapathError> {
    let failed = |error| DatapathError::bpf("cannot set a port's settings", &error);
    ports.update(key, as_bytes(port), MapFlags::ANY).map_err(failed)
}
