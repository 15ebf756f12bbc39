//! A program of evenkeel's on a device, by whichever hook it is attached.

use super::clsact;
use super::tcx::{self, Others};
use crate::features::Hook;
use crate::tc::Side;

/// A program of evenkeel's on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attached {
    Link(tcx::Attached),
    Filter(clsact::Attached),
}

impl Attached {
    /// The hook by which it is attached.
    pub(super) fn hook(self) -> Hook {
        match self {
            Self::Link(_) => Hook::Tcx,
            Self::Filter(_) => Hook::Clsact,
        }
    }

    /// Whether it is on the device with this index.
    pub(super) fn is_on(self, ifindex: u32) -> bool {
        match self {
            Self::Link(link) => link.is_on(ifindex),
            Self::Filter(filter) => filter.is_on(ifindex),
        }
    }

    /// Adds the programs that stand beside its own on the device with this index.
    pub(super) fn note_others(self, ifindex: u32, others: &mut Others) {
        match self {
            Self::Link(link) => link.note_others(ifindex, others),
            Self::Filter(filter) => {
                let (before, after) = filter.others(ifindex);
                let beside = match filter.side() {
                    Side::Egress => &mut others.to_vm,
                    Side::Ingress => &mut others.from_vm,
                };
                // Where a kernel has both, tcx is first.
                beside.before = tcx::programs(ifindex, filter.side()).chain(before).collect();
                beside.after = after;
            }
        }
    }
}
