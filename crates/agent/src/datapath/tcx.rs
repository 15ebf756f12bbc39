//! Whether a program is on a device, by the kernel's list of those that are.

use libbpf_rs::Link;
use libbpf_rs::query::LinkTypeInfo;

/// Programs that a device can have (linux/bpf_mprog.h, `BPF_MPROG_MAX`).
const PROGRAMS: usize = 64;

/// A link as the kernel knows it, whatever file it is pinned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attached {
    id: u32,
    attach_type: libbpf_sys::bpf_attach_type,
}

impl Attached {
    /// Of a link that was made for tcx.
    pub(super) fn of(link: &Link) -> Option<Self> {
        let info = link.info().ok()?;
        match info.info {
            LinkTypeInfo::Tcx(tcx) => Some(Self { id: info.id, attach_type: tcx.attach_type as u32 }),
            _ => None,
        }
    }

    /// Whether its program is on the device with this index. A link outlives its device, and a device that has moved
    /// to another network namespace may have the same index there.
    pub(super) fn is_on(self, ifindex: u32) -> bool {
        let Ok(target) = i32::try_from(ifindex) else { return false };
        // Without room for programs nothing is said of links.
        let (mut programs, mut links) = ([0; PROGRAMS], [0; PROGRAMS]);
        let mut query = libbpf_sys::bpf_prog_query_opts {
            sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
            prog_ids: programs.as_mut_ptr(),
            link_ids: links.as_mut_ptr(),
            ..Default::default()
        };
        query.__bindgen_anon_1.count = PROGRAMS as u32;
        // SAFETY: the structure is of the size that it says, and its arrays as long as it says.
        let error = unsafe { libbpf_sys::bpf_prog_query_opts(target, self.attach_type, &mut query) };
        error == 0 && links.contains(&self.id)
    }
}
