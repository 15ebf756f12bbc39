//! What a program that the agent runs itself is told of its packet.

use super::error::DatapathError;
use crate::netns::{self, Entered};

/// The beginning of `struct __sk_buff` (linux/bpf.h), which BPF_PROG_TEST_RUN takes as a context of any length.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SkbContext {
    pub(super) len: u32,
    pub(super) pkt_type: u32,
    pub(super) mark: u32,
    pub(super) before: [u32; 6],
    pub(super) ingress_ifindex: u32,
    pub(super) ifindex: u32,
    pub(super) tc_index: u32,
    pub(super) cb: [u32; 5],
    pub(super) middle: [u32; 24],
    pub(super) gso_segs: u32,
    pub(super) sk: u64,
    pub(super) gso_size: u32,
    pub(super) tstamp_type: u32,
}

impl SkbContext {
    /// Enters the network namespace of its device. `ifindex` is a port's number before, and the index there afterwards.
    pub(super) fn enter(&mut self) -> Result<Entered, DatapathError> {
        let entered = netns::enter(self.ifindex)
            .map_err(|error| DatapathError::io("cannot enter a port's network namespace", error))?;
        self.ifindex = netns::index(self.ifindex);
        Ok(entered)
    }
}
