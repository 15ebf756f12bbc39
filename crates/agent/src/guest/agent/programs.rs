//! The guest's programs: loaded, registered, pinned, taken over and removed.
//!
//! A congestion control stays registered when the agent ends, however it ends, because connections use it; while
//! nobody attests, it is plain TCP. The pins let the next agent, or `--stop`, remove it.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_settings::address::GuestAddress;
use libbpf_rs::{
    Iter, Link, MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, OpenObject, ProgramMut, libbpf_sys,
};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::time::{ClockId, clock_gettime};

use super::error::GuestError;
use super::intf;
use super::kernel::KernelReading;
use crate::common::bytes::{as_bytes, from_bytes};
use crate::common::libbpf;

const VFLOOD_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest-vflood.bpf.o"));
const CERA_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest-cera.bpf.o"));

/// Maps that outlive the agent; those of `struct_ops` are pinned under the names of their registrations.
const CONTROL: &str = "control";
const COUNTERS: &str = "counters";
/// What the packets at hand say: connections that an earlier agent registered must see what this one's programs write.
const ARRIVALS: &str = "arrivals";
const MAPS: [&str; 5] = [CONTROL, COUNTERS, ARRIVALS, "share", "limited"];
/// Registrations.
const VFLOOD: &str = "vflood";
const SETTER: &str = "setter";
const REGISTRATIONS: [&str; 2] = [VFLOOD, SETTER];
/// Programs that read the host's tokens.
const TOKENS: [&str; 2] = ["packet_established", "packet_otherwise"];
/// What the algorithm behind [`SETTER`] is called in its object, zeros included.
const SETTER_NAME: &[u8; 16] = b"ek_cera\0\0\0\0\0\0\0\0\0";
/// The key of the only entry of maps that have one.
const ONLY: [u8; 4] = 0u32.to_ne_bytes();

/// Makes the directory of pins, and removes pins of another version.
///
/// # Errors
/// [`GuestError`], with what to do next.
pub(super) fn make_pin_dir(pin_dir: &Path) -> Result<(), GuestError> {
    let parent = pin_dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    if !statfs(parent).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC) {
        return Err(GuestError::Missing {
            what: format!("{} is in no bpf file system", pin_dir.display()),
            help: "mount -t bpf bpf /sys/fs/bpf".to_owned(),
        });
    }
    fs::create_dir_all(pin_dir).map_err(|error| GuestError::io(format!("cannot make {}", pin_dir.display()), error))?;
    let is_other = read_control(pin_dir).is_some_and(|control| control.version != intf::EK_GUEST_VERSION);
    // Its connections would never hear of a token again; without the map control they are plain for good.
    let is_deaf = pin_dir.join(VFLOOD).exists() && !pin_dir.join(ARRIVALS).exists();
    if is_other || is_deaf {
        remove(pin_dir)?;
        fs::create_dir_all(pin_dir)
            .map_err(|error| GuestError::io(format!("cannot make {}", pin_dir.display()), error))?;
    }
    Ok(())
}

/// The agent's control, if it is pinned.
pub(super) fn read_control(pin_dir: &Path) -> Option<intf::ek_guest_control> {
    let map = MapHandle::from_pinned_path(pin_dir.join(CONTROL)).ok()?;
    map.lookup(&ONLY, MapFlags::ANY).ok()?.as_deref().and_then(from_bytes)
}

/// The counters of all CPUs together, if they are pinned.
pub(super) fn read_counters(pin_dir: &Path) -> Option<intf::ek_guest_counters> {
    let map = MapHandle::from_pinned_path(pin_dir.join(COUNTERS)).ok()?;
    let values = map.lookup_percpu(&ONLY, MapFlags::ANY).ok()??;
    let mut sum = intf::ek_guest_counters::default();
    for counters in values.iter().filter_map(|bytes| from_bytes::<intf::ek_guest_counters>(bytes)) {
        for (to, from) in sum.value.iter_mut().zip(counters.value) {
            *to = to.wrapping_add(from);
        }
    }
    Some(sum)
}

/// Which congestion controls of ours are pinned.
pub(super) fn registered(pin_dir: &Path) -> Vec<&'static str> {
    REGISTRATIONS.into_iter().filter(|name| pin_dir.join(name).exists()).collect()
}

/// Takes a registration back. Connections that have it keep it until they choose another.
fn unregister(pin_dir: &Path, name: &str) -> Result<(), GuestError> {
    let path = pin_dir.join(name);
    if !path.exists() {
        return Ok(());
    }
    let map = MapHandle::from_pinned_path(&path)
        .map_err(|error| GuestError::bpf(format!("cannot open {}", path.display()), error))?;
    match map.delete(&ONLY) {
        Ok(()) => {}
        // Still pinned, but no longer registered.
        Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {}
        Err(error) => return Err(GuestError::bpf(format!("cannot unregister the congestion control {name}"), error)),
    }
    fs::remove_file(&path).map_err(|error| GuestError::io(format!("cannot remove {}", path.display()), error))
}

/// Takes all registrations back and removes all pins; true if there were any.
///
/// # Errors
/// [`GuestError`]: it can be tried again.
pub(super) fn remove(pin_dir: &Path) -> Result<bool, GuestError> {
    if !pin_dir.exists() {
        return Ok(false);
    }
    for name in REGISTRATIONS {
        unregister(pin_dir, name)?;
    }
    for name in MAPS {
        let path = pin_dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(GuestError::io(format!("cannot remove {}", path.display()), error));
            }
            _ => {}
        }
    }
    fs::remove_dir(pin_dir).map_err(|error| GuestError::io(format!("cannot remove {}", pin_dir.display()), error))?;
    Ok(true)
}

/// Loads an object with its maps pinned, registers one of its congestion controls as `name`, and pins that.
fn load(bytes: &[u8], pin_dir: &Path, name: &str, map_name: &str) -> Result<(Object, Link), GuestError> {
    let failed = |what: &str, error: libbpf_rs::Error| GuestError::bpf(format!("{what} of {name}"), error);
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, libbpf::log)));
    let mut open = ObjectBuilder::default()
        .name("evenkeel")
        .and_then(|builder| builder.open_memory(bytes))
        .map_err(|error| failed("cannot read the programs", error))?;
    for mut map in open.maps_mut() {
        let own = map.name().to_string_lossy().into_owned();
        if MAPS.contains(&own.as_str()) {
            map.set_pin_path(pin_dir.join(&own)).map_err(|error| failed("cannot name a pin", error))?;
        } else if own.starts_with(name) && own != map_name {
            map.set_autocreate(false).map_err(|error| failed("cannot choose among the congestion controls", error))?;
        }
    }
    if name == SETTER {
        name_setter(&mut open)?;
    }
    let mut object = open.load().map_err(|error| failed("the kernel does not take the programs", error))?;
    // An earlier agent may have registered it; connections that use that one go on with it and with the same maps.
    unregister(pin_dir, name)?;
    let mut map = object.maps_mut().find(|map| map.name() == map_name).ok_or_else(|| {
        GuestError::io(format!("no congestion control {map_name}"), io::Error::from(io::ErrorKind::NotFound))
    })?;
    let link = map
        .attach_struct_ops()
        .map_err(|error| failed("the kernel does not register the congestion control", error))?;
    map.pin(pin_dir.join(name)).map_err(|error| failed("cannot pin the congestion control", error))?;
    Ok((object, link))
}

/// A program of an object.
fn program<'object>(object: &'object Object, name: &str) -> Result<ProgramMut<'object>, GuestError> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .ok_or_else(|| GuestError::io(format!("no program {name}"), io::Error::from(io::ErrorKind::NotFound)))
}

/// The inode of this network namespace.
///
/// # Errors
/// [`GuestError::Io`]
pub(super) fn namespace() -> Result<u32, GuestError> {
    let found = fs::metadata("/proc/self/ns/net");
    Ok(found.map_err(|error| GuestError::io("cannot look at this network namespace", error))?.ino() as u32)
}

/// Gives the algorithm that sets windows a name of this network namespace's own: a name holds in the whole kernel, and
/// each namespace can have an agent.
fn name_setter(open: &mut OpenObject) -> Result<(), GuestError> {
    let mut name = format!("ek_cera{:08x}", namespace()?).into_bytes();
    name.resize(SETTER_NAME.len(), 0);
    for mut map in open.maps_mut() {
        let Some(value) = map.initial_value_mut() else { continue };
        if let Some(at) = value.windows(SETTER_NAME.len()).position(|bytes| bytes == SETTER_NAME) {
            value[at..at + SETTER_NAME.len()].copy_from_slice(&name);
        }
    }
    Ok(())
}

/// What holds in this guest, for vFlood's programs and for `--status`. The map exists with vFlood or without.
pub(super) struct Control(MapHandle);

impl Control {
    /// The pinned one, or a new one.
    ///
    /// # Errors
    /// [`GuestError::Bpf`]
    pub fn open(pin_dir: &Path) -> Result<Self, GuestError> {
        let path = pin_dir.join(CONTROL);
        if path.exists() {
            return MapHandle::from_pinned_path(&path)
                .map(Self)
                .map_err(|error| GuestError::bpf(format!("cannot open {}", path.display()), error));
        }
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let size = size_of::<intf::ek_guest_control>() as u32;
        let mut map = MapHandle::create(MapType::Array, Some(CONTROL), ONLY.len() as u32, size, 1, &options)
            .map_err(|error| GuestError::bpf("cannot make the map control", error))?;
        map.pin(&path).map_err(|error| GuestError::bpf(format!("cannot make {}", path.display()), error))?;
        Ok(Self(map))
    }

    /// Says what holds.
    ///
    /// # Errors
    /// [`GuestError::Bpf`]
    pub fn set(&self, control: &intf::ek_guest_control) -> Result<(), GuestError> {
        self.0
            .update(&ONLY, as_bytes(control), MapFlags::ANY)
            .map_err(|error| GuestError::bpf("cannot set what holds in this guest", error))
    }
}

/// vFlood's congestion control.
pub(super) struct Vflood {
    _object: Object,
    /// They read the host's tokens and end with the agent, whose word ends, too.
    _tokens: Vec<Link>,
    pin_dir: PathBuf,
}

impl Vflood {
    /// Registers it.
    ///
    /// # Errors
    /// [`GuestError`], with what to do next.
    pub fn load(pin_dir: &Path, kernel: &KernelReading) -> Result<Self, GuestError> {
        let map = if kernel.has_tx_start { "vflood_7_1" } else { VFLOOD };
        let (object, mut link) = load(VFLOOD_OBJECT, pin_dir, VFLOOD, map)?;
        let attached = TOKENS.map(|name| Ok(program(&object, name)?.attach()));
        let tokens = match attached.into_iter().collect::<Result<Result<Vec<_>, _>, GuestError>>()? {
            Ok(tokens) => tokens,
            Err(error) => {
                unregister(pin_dir, VFLOOD)?;
                return Err(GuestError::Missing {
                    what: format!("this kernel shows no program the packets that TCP receives: {error}"),
                    help: "set vflood.mode = \"off\": the rest runs without, and the host holds what this guest's own \
                        windows let out"
                        .to_owned(),
                });
            }
        };
        // The registration is to outlive this process.
        link.disconnect();
        Ok(Self { _object: object, _tokens: tokens, pin_dir: pin_dir.to_owned() })
    }

    /// Makes it plain TCP and unregisters it.
    ///
    /// # Errors
    /// [`GuestError`]
    pub fn unload(self, control: &Control) -> Result<(), GuestError> {
        control.set(&intf::ek_guest_control { version: intf::EK_GUEST_VERSION, ..Default::default() })?;
        unregister(&self.pin_dir, VFLOOD)
    }
}

/// The core time that this thread has had.
fn core_time() -> Result<Duration, GuestError> {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    now.map(Duration::from).map_err(|errno| GuestError::io("cannot read this thread's clock", errno))
}

/// What a pass of CERA's client has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// Active flows.
    pub flows: u32,
    /// The least RTT of them; 0: none is known.
    pub least_rtt_us: u32,
    /// Windows set.
    pub changed: u32,
    /// Active flows whose windows are not set, because they have another algorithm.
    pub foreign: u32,
    /// Sockets that could not be set.
    pub failed: u32,
    /// Sockets that were taken from vFlood.
    pub evicted: u32,
    /// The core time that it took.
    pub took: Duration,
}

/// CERA's client.
pub(super) struct Cera {
    _object: Object,
    pin_dir: PathBuf,
    share: MapHandle,
    pass: Link,
    /// The channel's port, if that is over TCP; otherwise 0.
    channel_port: u32,
    flows: u32,
    /// The least RTT of the last pass's flows; 0: none was known.
    least_rtt_us: u32,
    next: u32,
}

impl Cera {
    /// Registers the algorithm that sets windows, and readies the pass over all sockets.
    ///
    /// # Errors
    /// [`GuestError`], with what to do next.
    pub fn load(pin_dir: &Path) -> Result<Self, GuestError> {
        let (object, mut link) = load(CERA_OBJECT, pin_dir, SETTER, SETTER)?;
        link.disconnect();
        let pass = program(&object, "pass")?
            .attach()
            .map_err(|error| GuestError::bpf("cannot go over the TCP sockets", error))?;
        let share = MapHandle::from_pinned_path(pin_dir.join("share"))
            .map_err(|error| GuestError::bpf("cannot open the map share", error))?;
        Ok(Self {
            _object: object,
            pin_dir: pin_dir.to_owned(),
            share,
            pass,
            channel_port: 0,
            flows: 0,
            least_rtt_us: 0,
            next: 0,
        })
    }

    /// Leaves the agent's channel out of the sharing, if it is a TCP flow.
    pub fn leave_out(&mut self, channel: &GuestAddress) {
        self.channel_port = match channel {
            GuestAddress::Tcp { listen, .. } => u32::from(listen.port()),
            GuestAddress::VirtioSerial(_) | GuestAddress::Vsock { .. } => 0,
        };
    }

    /// Shares a window out over the active flows; 0 ends all limits. If there are more flows than the last time, it
    /// makes a second pass.
    ///
    /// # Errors
    /// [`GuestError`]
    pub fn share(&mut self, window: u32, mode: u32) -> Result<Passed, GuestError> {
        let mut passed = self.pass(window, mode, 0)?;
        if window > 0 && passed.flows > self.flows {
            self.flows = passed.flows;
            let again = self.pass(window, mode, 0)?;
            passed = Passed { changed: passed.changed.max(again.changed), took: passed.took + again.took, ..again };
        }
        if window > 0 {
            self.next = evenkeel_algo::cera::next(window, self.flows, self.next);
            (self.flows, self.least_rtt_us) = (passed.flows, passed.least_rtt_us);
        }
        Ok(passed)
    }

    /// Gives sockets that are under vFlood the algorithm of their shadow window.
    ///
    /// # Errors
    /// [`GuestError`]
    pub fn evict(&mut self, congestion: u32) -> Result<Passed, GuestError> {
        self.pass(0, intf::EK_GUEST_ENFORCE, 1 + congestion)
    }

    fn pass(&self, window: u32, mode: u32, evict: u32) -> Result<Passed, GuestError> {
        let begin = core_time()?;
        let share = intf::ek_guest_share {
            window,
            mode,
            evict,
            flows: self.flows,
            least_rtt_us: self.least_rtt_us,
            next: self.next,
            channel_port: self.channel_port,
            ..Default::default()
        };
        self.share
            .update(&ONLY, as_bytes(&share), MapFlags::ANY)
            .map_err(|error| GuestError::bpf("cannot set what is to be shared out", error))?;
        let mut sockets =
            Iter::new(&self.pass).map_err(|error| GuestError::bpf("cannot go over the TCP sockets", error))?;
        let mut buffer = [0; 64];
        loop {
            match sockets.read(&mut buffer) {
                Ok(0) => break,
                Ok(_) => {}
                // The kernel stops after a million sockets to let others run.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {}
                Err(error) => return Err(GuestError::io("cannot go over the TCP sockets", error)),
            }
        }
        let bytes = self
            .share
            .lookup(&ONLY, MapFlags::ANY)
            .map_err(|error| GuestError::bpf("cannot read what was shared out", error))?;
        let done: intf::ek_guest_share = bytes.as_deref().and_then(from_bytes).unwrap_or_default();
        Ok(Passed {
            flows: done.seen,
            least_rtt_us: done.seen_rtt_us,
            changed: done.changed,
            foreign: done.foreign,
            failed: done.failed,
            evicted: done.evicted,
            took: core_time()?.saturating_sub(begin),
        })
    }

    /// Puts thresholds back and unregisters what sets windows.
    ///
    /// # Errors
    /// [`GuestError`]
    pub fn unload(mut self) -> Result<(), GuestError> {
        self.share(0, intf::EK_GUEST_ENFORCE)?;
        unregister(&self.pin_dir, SETTER)
    }
}
