//! Which programs are on a device, and in what order, by the kernel's list of them.

use std::io;
use std::ptr::NonNull;

use libbpf_rs::Link;
use libbpf_rs::query::LinkTypeInfo;
use serde::{Deserialize, Serialize};

use crate::netns;
use crate::tc::Side;

/// Programs that a device can have (linux/bpf_mprog.h, `BPF_MPROG_MAX`).
const PROGRAMS: usize = 64;

/// A link as the kernel knows it, whatever file it is pinned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attached {
    id: u32,
    attach_type: libbpf_sys::bpf_attach_type,
}

/// Programs of others on a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Others {
    /// For packets on their way to the VM (egress of the port).
    pub to_vm: Beside,
    /// For packets of the VM's (ingress).
    pub from_vm: Beside,
}

/// Programs of others at one hook, by the kernel's numbers of programs, in the order in which they see a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    /// They see it first, and may keep it from evenkeel's.
    pub before: Vec<u32>,
    /// They see what evenkeel's has let pass.
    pub after: Vec<u32>,
}

/// A program on a device.
struct Listed {
    program: u32,
    /// 0: it was attached without one.
    link: u32,
}

impl Attached {
    /// A link that was made for tcx; `None` for other links.
    pub(super) fn of(link: &Link) -> Option<Self> {
        let info = link.info().ok()?;
        match info.info {
            LinkTypeInfo::Tcx(tcx) => Some(Self { id: info.id, attach_type: tcx.attach_type as u32 }),
            _ => None,
        }
    }

    /// Whether its program is on the device with this index. A link outlives its device, and a device that has moved to
    /// another network namespace may have the same index there.
    pub(super) fn is_on(self, ifindex: u32) -> bool {
        listed(ifindex, self.attach_type).iter().any(|listed| listed.link == self.id)
    }

    /// Adds the programs that stand beside its own on the device with this index.
    pub(super) fn note_others(self, ifindex: u32, others: &mut Others) {
        let all = listed(ifindex, self.attach_type);
        let Some(own) = all.iter().position(|listed| listed.link == self.id) else { return };
        let numbers = |listed: &[Listed]| listed.iter().map(|listed| listed.program).collect();
        let beside = Beside { before: numbers(&all[..own]), after: numbers(&all[own + 1..]) };
        match self.attach_type {
            libbpf_sys::BPF_TCX_EGRESS => others.to_vm = beside,
            _ => others.from_vm = beside,
        }
    }
}

/// Puts a program on the device of a number. libbpf-rs has no function for tcx yet.
pub(super) fn attach(program: NonNull<libbpf_sys::bpf_program>, number: u32) -> io::Result<Link> {
    let _there = netns::enter(number)?;
    let index = i32::try_from(netns::index(number)).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the program is loaded and alive; no options.
    let link = unsafe { libbpf_sys::bpf_program__attach_tcx(program.as_ptr(), index, std::ptr::null()) };
    match NonNull::new(link) {
        // SAFETY: the link was just made and is nobody else's.
        Some(link) => Ok(unsafe { Link::from_ptr(link) }),
        None => Err(io::Error::last_os_error()),
    }
}

/// The kernel's numbers of all programs at a side of a device, in the order in which they see a packet.
pub(super) fn programs(ifindex: u32, side: Side) -> impl Iterator<Item = u32> {
    let attach_type = match side {
        Side::Egress => libbpf_sys::BPF_TCX_EGRESS,
        Side::Ingress => libbpf_sys::BPF_TCX_INGRESS,
    };
    listed(ifindex, attach_type).into_iter().map(|listed| listed.program)
}

/// The programs at a hook, in the order in which they see a packet; none if the device is gone.
fn listed(number: u32, attach_type: libbpf_sys::bpf_attach_type) -> Vec<Listed> {
    let (Ok(target), Ok(_there)) = (i32::try_from(netns::index(number)), netns::enter(number)) else {
        return Vec::new();
    };
    // The kernel returns links only if there is room for programs, too.
    let (mut programs, mut links) = ([0; PROGRAMS], [0; PROGRAMS]);
    let mut query = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        prog_ids: programs.as_mut_ptr(),
        link_ids: links.as_mut_ptr(),
        ..Default::default()
    };
    query.__bindgen_anon_1.count = PROGRAMS as u32;
    // SAFETY: the structure states its own size and the length of its arrays.
    let error = unsafe { libbpf_sys::bpf_prog_query_opts(target, attach_type, &mut query) };
    if error != 0 {
        return Vec::new();
    }
    let all = programs.into_iter().zip(links).map(|(program, link)| Listed { program, link });
    // The kernel numbers from 1.
    all.take_while(|listed| listed.program != 0).collect()
}
