//! Records what only traces need.

use super::{Core, CoreState, Recorder};
use crate::packet::GuestId;

impl<R: Recorder> Core<R> {
    /// Records the state of every guest's virtual CPU.
    pub(super) fn record_cores(&mut self) {
        (0..self.guests.len() as u32).for_each(|guest| self.record_core(GuestId(guest)));
    }

    /// Records the state of a guest's virtual CPU.
    #[inline]
    pub(super) fn record_core(&mut self, id: GuestId) {
        if R::TRACES {
            let vcpu = &self.guests[id.0 as usize].vcpu;
            let state = match (vcpu.is_on(), vcpu.is_halted()) {
                (true, _) => CoreState::Has,
                (false, true) => CoreState::Halted,
                (false, false) => CoreState::Waits,
            };
            self.recorder.core(self.now, id, state);
        }
    }
}
