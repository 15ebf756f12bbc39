//! Exchanges of connections, while a trial times them.

use std::cell::RefCell;
use std::rc::Rc;

use libbpf_rs::{MapCore, MapHandle, RingBuffer, RingBufferBuilder};

use super::error::DatapathError;
use super::intf::{ek_completion, ek_exchange, ek_flow_key};
use super::map::read_all;
use crate::common::bytes::{as_bytes, from_bytes};

/// Exchanges that are under way, and what the programs tell of those that are over: read when somebody asks.
pub struct Exchanges {
    pub(super) map: MapHandle,
    ring: RingBuffer<'static>,
    read: Rc<RefCell<Vec<ek_completion>>>,
}

impl Exchanges {
    /// Out of the map of those under way, and the ring of those that are over.
    pub(super) fn open(map: MapHandle, ring: &MapHandle) -> Result<Self, DatapathError> {
        let failed = |error: libbpf_rs::Error| DatapathError::bpf("cannot read completions", &error);
        let read = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&read);
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            sink.borrow_mut().extend(from_bytes::<ek_completion>(bytes));
            0
        };
        builder.add(ring, take).map_err(failed)?;
        Ok(Self { map, ring: builder.build().map_err(failed)?, read })
    }

    /// Exchanges that have ended since the last call, of all ports that are timed.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn completions(&self) -> Result<Vec<ek_completion>, DatapathError> {
        self.ring.consume().map_err(|error| DatapathError::bpf("cannot read completions", &error))?;
        Ok(self.read.take())
    }

    /// Removes the entries of a port that is no longer timed. Returns the last exchange of each of its connections,
    /// which is over unless it goes on after this.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn last(&self, ifindex: u32) -> Result<Vec<ek_completion>, DatapathError> {
        let entries = read_all::<ek_flow_key, ek_exchange>(&self.map, "cannot read exchanges")?;
        let mut last = Vec::new();
        for (key, ek_exchange { exchange, .. }) in entries.into_iter().filter(|(key, _)| key.ifindex == ifindex) {
            let [vm, remote] = exchange.way;
            last.push(ek_completion {
                begin_ns: exchange.begin_ns,
                end_ns: exchange.end_ns,
                bytes_from_vm: vm.bytes,
                bytes_to_vm: remote.bytes,
                ifindex,
                handshake_us: exchange.handshake_us,
                again_from_vm: vm.again,
                again_to_vm: remote.again,
                timeouts_from_vm: vm.timeouts,
                timeouts_to_vm: remote.timeouts,
            });
            // Closed meanwhile is as good as removed.
            let _ = self.map.delete(as_bytes(&key));
        }
        last.retain(|c| c.begin_ns != 0 && (c.end_ns == 0 || c.bytes_from_vm + c.bytes_to_vm > 0));
        Ok(last)
    }
}
