//! Flows' own round trips, and windows for them.

use crate::sys;

/// The round trip of a flow, as the VM's port times it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trip(sys::cera_trip);

impl Trip {
    /// Of a flow whose data begins with this number.
    pub fn new(seq: u32) -> Self {
        let mut trip = Self::default();
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::cera_trip_open(&mut trip.0, seq) }
        trip
    }

    /// Data that ends before this number leaves the VM; the uplink's queue is `queue_us` long.
    pub fn sent(&mut self, now_us: u64, end: u32, queue_us: u32) {
        // SAFETY: as in `new`.
        unsafe { sys::cera_trip_sent(&mut self.0, now_us, end, queue_us) }
    }

    /// An ACK reaches the VM.
    pub fn acked(&mut self, now_us: u64, ack: u32) {
        // SAFETY: as in `new`.
        unsafe { sys::cera_trip_acked(&mut self.0, now_us, ack) }
    }

    /// By how much the round trip is longer than what the VM's windows are for, in microseconds; negative: shorter, 0:
    /// not known, or by less than T_l takes to send.
    pub fn longer_us(&self, of_vm: &Loop) -> i64 {
        // SAFETY: as in `new`, and nothing is written.
        unsafe { sys::cera_trip_longer_us(&self.0, &of_vm.raw()) }
    }
}

/// What a VM's windows are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loop {
    /// d_k.
    pub rtt_us: u32,
    /// How long the VM's window lasts at its part of C: [`Vm::loop_us`](super::Vm::loop_us).
    pub loop_us: u32,
    /// How long the link takes to send T_l.
    pub cover_us: u32,
}

impl Loop {
    fn raw(self) -> sys::cera_loop {
        let Self { rtt_us, loop_us, cover_us } = self;
        sys::cera_loop { rtt_us, loop_us, cover_us }
    }

    /// The window of a flow whose part of the VM's is `bytes`, and whose round trip is longer by
    /// [`Trip::longer_us`]; it is no less than `least_bytes`.
    pub fn window(&self, bytes: u64, longer_us: i64, least_bytes: u32) -> u64 {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::cera_trip_window(bytes, &self.raw(), longer_us, least_bytes) }
    }
}

/// The farthest flow of a VM.
#[derive(Debug, Clone, Copy, Default)]
pub struct Far(sys::cera_far);

impl Far {
    /// An epoch has ended, in which the longest [`Trip::longer_us`] was this, or 0. Returns by how much the farthest
    /// flow of the last second is farther than what the VM's windows are for.
    pub fn epoch(&mut self, now_us: u64, longer_us: u32) -> u32 {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::cera_far_epoch(&mut self.0, now_us, longer_us) }
    }

    /// The same, as of the last epoch.
    pub fn longer_us(&self) -> u32 {
        self.0.longer_us
    }
}
