//! Ports that mark: the eBPF program of `kernel/lab/port.bpf.c` before the queues of shaped devices.
//!
//! The links are this process's, so that the programs are gone with it.

use std::fmt;
use std::ptr::NonNull;

use libbpf_rs::{AsRawLibbpf, Link, MapCore, MapFlags, Object, ObjectBuilder, Program};

use crate::error::LabError;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/port.bpf.o"));

/// What the ports did since the program was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// Packets marked.
    pub marked: u64,
    /// Packets dropped, because they are not ECN-capable.
    pub dropped: u64,
}

impl Marks {
    /// What came since an earlier reading.
    pub fn since(self, before: Self) -> Self {
        Self { marked: self.marked - before.marked, dropped: self.dropped - before.dropped }
    }
}

/// The program on its ports, until it is dropped.
pub struct MarkingPorts {
    object: Object,
    _links: Vec<Link>,
}

impl fmt::Debug for MarkingPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MarkingPorts").field("name", &self.object.name()).finish()
    }
}

impl MarkingPorts {
    /// Makes these devices, in the calling thread's network namespace, mark packets that find
    /// `threshold_segments` segments or more in their queue.
    pub fn start(devices: &[String], threshold_segments: u32) -> Result<Self, LabError> {
        let failed = |what: &str, e: libbpf_rs::Error| LabError::io(what, std::io::Error::other(format!("{e:#}")));
        let mut open = ObjectBuilder::default()
            .open_memory(OBJECT)
            .map_err(|e| failed("opening the marking port's program", e))?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                // The threshold is the program's only constant.
                map.set_initial_value(&threshold_segments.to_ne_bytes())
                    .map_err(|e| failed("setting the marking port's threshold", e))?;
            }
        }
        let object = open.load().map_err(|e| failed("loading the marking port's program (Linux 6.6 with BTF)", e))?;
        let mut links = Vec::new();
        for device in devices {
            let index = nix::net::if_::if_nametoindex(device.as_str())
                .map_err(|e| LabError::io(format!("looking up {device}"), e))?;
            for program in object.progs() {
                let link = attach(&program, index);
                links
                    .push(link.map_err(|e| LabError::io(format!("putting the marking program on {device} (tcx)"), e))?);
            }
        }
        Ok(Self { object, _links: links })
    }

    /// What the ports did so far.
    pub fn read(&self) -> Result<Marks, LabError> {
        let missing = || LabError::io("reading the marking port's counters", std::io::ErrorKind::NotFound);
        let map = self.object.maps().find(|map| map.name() == "counts").ok_or_else(missing)?;
        let count = |index: u32| -> Result<u64, LabError> {
            let value = map.lookup(&index.to_ne_bytes(), MapFlags::ANY).ok().flatten().ok_or_else(missing)?;
            Ok(u64::from_ne_bytes(value.try_into().map_err(|_| missing())?))
        };
        Ok(Marks { marked: count(0)?, dropped: count(1)? })
    }
}

/// libbpf-rs has no function for tcx yet.
fn attach(program: &Program<'_>, index: u32) -> std::io::Result<Link> {
    let index = i32::try_from(index).map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
    // SAFETY: the program is loaded and alive; no options.
    let link =
        unsafe { libbpf_sys::bpf_program__attach_tcx(program.as_libbpf_object().as_ptr(), index, std::ptr::null()) };
    match NonNull::new(link) {
        // SAFETY: the link was just made and is nobody else's.
        Some(link) => Ok(unsafe { Link::from_ptr(link) }),
        None => Err(std::io::Error::last_os_error()),
    }
}
