//! Loops that are longer than d, because a VM or its peer waits for a core.

use crate::sys;

/// The longest silence that counts as a pause, in microseconds.
pub const LONGEST_PAUSE_US: u32 = sys::CERA_LONGEST_PAUSE_US;
/// A pause is remembered for this many times its length.
pub const PAUSE_MEMORY: u32 = sys::CERA_PAUSE_MEMORY;

/// How long a VM was silent though the windows of its flows were used up.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub struct Pause(sys::cera_pause);

impl Pause {
    /// Data leaves the VM. `is_full`: its flow has no room for more.
    pub fn data(&mut self, now_us: u64, is_full: bool) {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::cera_pause_data(&mut self.0, now_us, u32::from(is_full)) }
    }

    /// An ACK reaches the VM. `was_full`: its flow had no room; `room_bytes` is its room now, `enough_bytes` is
    /// [`enough_room`].
    pub fn ack(&mut self, now_us: u64, was_full: bool, room_bytes: i32, enough_bytes: u32) {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        if unsafe { sys::cera_pause_has_room(&self.0, u32::from(was_full), room_bytes, enough_bytes) } > 0 {
            self.0.room_us = now_us;
        }
    }

    /// What was seen since the last call.
    pub fn take(&mut self) -> Seen {
        let Self(pause) = self;
        Seen {
            pause_us: std::mem::take(&mut pause.longest_us),
            vm_pause_us: std::mem::take(&mut pause.longest_vm_us),
            is_full: std::mem::take(&mut pause.full) > 0,
        }
    }
}

/// What the datapath has seen of a VM in an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The longest pause that ended, 0: none.
    pub pause_us: u32,
    /// The longest that was the VM's own: it had room.
    pub vm_pause_us: u32,
    /// Windows were used up.
    pub is_full: bool,
}

/// Whether a flow has used up its window. `room_bytes` lie between the end of its data and the end of the window.
pub fn is_full(room_bytes: i32, window_bytes: u32) -> bool {
    // SAFETY: the C function is pure.
    unsafe { sys::cera_is_full(room_bytes, window_bytes) > 0 }
}

/// The room, in bytes, with which a sender that has data goes on sending. `is_large`: it leaves packets of several
/// segments to others to cut.
pub fn enough_room(window_bytes: u32, mss: u32, is_large: bool) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::cera_enough_room(window_bytes, mss, u32::from(is_large)) }
}

/// What an epoch has shown of a VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shown {
    /// Any clock.
    pub now_us: u64,
    /// What it has sent in the epoch.
    pub sent_bytes: u64,
    /// [`Vm::rate`](super::Vm::rate) of the epoch before.
    pub rate: u64,
    /// How long the epoch was.
    pub epoch_us: u32,
    /// What the datapath has seen.
    pub seen: Seen,
    /// d_k.
    pub rtt_us: u32,
    /// How long the link takes to send T_l.
    pub cover_us: u32,
    /// The queue at the end of the epoch.
    pub queue_us: u32,
}

/// A VM's pauses, and what it has sent beside them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace(sys::cera_pace);

impl Pace {
    /// By how much the VM's loop is longer than d_k.
    pub fn pause_us(&self) -> u32 {
        self.0.pause_us
    }

    /// What the VM sends in some dozens of epochs.
    pub fn usual_bytes(&self) -> u64 {
        self.0.usual_bytes
    }

    /// An epoch has ended. Returns how much more the VM may have in flight because of its pauses, in bytes.
    pub fn turn(&mut self, shown: &Shown) -> u64 {
        let raw = sys::cera_shown {
            now_us: shown.now_us,
            sent_bytes: shown.sent_bytes,
            rate: shown.rate,
            epoch_us: shown.epoch_us,
            pause_us: shown.seen.pause_us,
            vm_pause_us: shown.seen.vm_pause_us,
            full: u32::from(shown.seen.is_full),
            rtt_us: shown.rtt_us,
            cover_us: shown.cover_us,
            queue_us: shown.queue_us,
        };
        // SAFETY: both pointers are to live values for the length of the call; the C code does not keep them.
        unsafe { sys::cera_pace_epoch(&mut self.0, &raw) }
    }
}
