//! vSnoop: which data the host acknowledges for a VM, and which of the VM's ACKs then say nothing new.

use crate::sys;

/// A host's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Segments in a port's queue that may be acknowledged before the VM has them, all flows together.
    pub budget_segments: u32,
}

impl Settings {
    fn raw(self) -> sys::vsnoop_settings {
        sys::vsnoop_settings { budget_segments: self.budget_segments }
    }
}

/// How many segments at a port with `slots` slots may be acknowledged before the VM has them, by default.
pub fn budget(slots: u32) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::vsnoop_budget(slots) }
}

/// How many of a port's `slots` a host with `cpus` CPUs never counts on.
pub fn reserve(slots: u32, cpus: u32) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::vsnoop_reserve(slots, cpus) }
}

/// How many slots must be free for a packet of `segments` segments to have one for certain.
pub fn wanted_slots(segments: u32, reserve: u32) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::vsnoop_wanted_slots(segments, reserve) }
}

/// A VM's port.
#[derive(Debug, Clone, Default)]
pub struct Vm(sys::vsnoop_vm);

impl Vm {
    /// Segments in its queue that were, or may be, acknowledged early.
    pub fn outstanding(&self) -> u32 {
        self.0.outstanding
    }

    /// Segments that its senders may send without another ACK.
    pub fn coming(&self) -> u32 {
        self.0.coming
    }

    /// Why nothing is acknowledged for it any more.
    pub fn doubt(&self) -> Doubt {
        Doubt(self.0.doubt)
    }
}

/// A flow's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Data is acknowledged early.
    Active,
    /// The VM's window, or the queue's share, is used up.
    NoBuffer,
    /// Something is missing; the VM must catch up first.
    UnexpectedSequence,
}

/// Why data is not acknowledged early: `enum vsnoop_doubt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt(u32);

impl Doubt {
    /// There is none.
    pub const CERTAIN: Self = Self(sys::vsnoop_doubt_VSNOOP_CERTAIN);
    /// The VM has sent no ACK of its own yet.
    pub const HANDSHAKE: Self = Self(sys::vsnoop_doubt_VSNOOP_DOUBT_HANDSHAKE);
    /// A FIN was seen.
    pub const CLOSING: Self = Self(sys::vsnoop_doubt_VSNOOP_DOUBT_CLOSING);
    /// Data before it is missing.
    pub const ORDER: Self = Self(sys::vsnoop_doubt_VSNOOP_DOUBT_ORDER);
    /// It lies beyond what the VM has offered.
    pub const WINDOW: Self = Self(sys::vsnoop_doubt_VSNOOP_DOUBT_WINDOW);
    /// The VM may not have as much memory as its window says.
    pub const MEMORY: Self = Self(sys::vsnoop_doubt_VSNOOP_DOUBT_MEMORY);
    /// The queue's share is used up.
    pub const BUDGET: Self = Self(sys::vsnoop_doubt_VSNOOP_DOUBT_BUDGET);
    /// The VM has its core.
    pub const RUNS: Self = Self(sys::vsnoop_doubt_VSNOOP_DOUBT_RUNS);
    /// Nobody knows whether the VM has its core.
    pub const CORE: Self = Self(sys::vsnoop_doubt_VSNOOP_DOUBT_CORE);
    /// The VM has not reacted to data for [`LIFE_US`].
    pub const SILENCE: Self = Self(sys::vsnoop_doubt_VSNOOP_DOUBT_SILENCE);
    /// The port's queue may not take it.
    pub const QUEUE: Self = Self(sys::vsnoop_doubt_VSNOOP_DOUBT_QUEUE);
    /// The VM has taken back a part of its window.
    pub const TOOK_BACK: Self = Self(sys::vsnoop_doubt_VSNOOP_DOUBT_TOOK_BACK);
    /// The VM has lost what was acknowledged for it.
    pub const BROKEN: Self = Self(sys::vsnoop_doubt_VSNOOP_DOUBT_BROKEN);
}

/// How long data may be acknowledged for a VM that does not react to any, in microseconds.
pub const LIFE_US: u64 = sys::VSNOOP_LIFE_US as u64;
/// How long acknowledged data may be missing in the VM while later data is there, in microseconds.
pub const HOLE_US: u64 = sys::VSNOOP_HOLE_US as u64;
/// Memory that a segment takes in the VM at most, if it is no longer than 1,536 bytes.
pub const SEGMENT_MEMORY_BYTES: u32 = sys::VSNOOP_SEGMENT_MEMORY;

/// Whether a VM has its core: `enum vsnoop_core`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Core {
    /// Nobody knows.
    Unknown,
    /// One of its virtual CPUs runs.
    On,
    /// None does: they wait, or have nothing to do.
    Off,
}

impl Core {
    fn raw(self) -> u32 {
        match self {
            Self::Unknown => sys::vsnoop_core_VSNOOP_CORE_UNKNOWN,
            Self::On => sys::vsnoop_core_VSNOOP_CORE_ON,
            Self::Off => sys::vsnoop_core_VSNOOP_CORE_OFF,
        }
    }
}

/// Data for the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// Its first byte.
    pub seq: u32,
    /// Its length; 0 only with a FIN.
    pub bytes: u32,
    /// How many segments it is: more than one if they were joined on the way.
    pub segments: u32,
    /// Length of the last segment, which is the VM's to acknowledge.
    pub last_bytes: u32,
    /// It ends the stream.
    pub is_fin: bool,
    /// Whether the VM's TCP gets it, as far as the host can see.
    pub doubt: Doubt,
    /// Whether the VM has its core.
    pub core: Core,
}

/// An early ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlyAck {
    /// Its sequence number.
    pub seq: u32,
    /// Its number.
    pub ack: u32,
    /// Its window field.
    pub window: u16,
    /// Its timestamp: the VM's last.
    pub ts_val: u32,
}

/// An ACK from the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmAck {
    /// Its sequence number.
    pub seq: u32,
    /// Bytes of data that come with it.
    pub bytes: u32,
    /// Its number.
    pub ack: u32,
    /// Its window field.
    pub window: u16,
    /// Its timestamp, 0: none.
    pub ts_val: u32,
    /// It has neither data nor SACK blocks nor an ECN echo.
    pub is_bare: bool,
    /// Its SACK blocks tell of data after its number.
    pub has_later: bool,
}

/// A flow towards a VM.
#[derive(Debug, Clone, Default)]
pub struct Flow(sys::vsnoop_flow);

impl Flow {
    /// The other end's SYN or SYN-ACK comes. `mss` is the payload of its full segments.
    pub fn peer_syn(&mut self, seq: u32, mss: u32) {
        // SAFETY: all pointers are to live, distinct values for the length of the call; the C code does not keep them.
        // The same holds for all calls below.
        unsafe { sys::vsnoop_peer_syn(&mut self.0, seq, mss) }
    }

    /// The VM's SYN or SYN-ACK, with the scale of its later windows.
    pub fn vm_syn(&mut self, scale: u8) {
        // SAFETY: as in `peer_syn`.
        unsafe { sys::vsnoop_vm_syn(&mut self.0, scale) }
    }

    /// A packet without data from the other end. `is_odd`: a SYN or a RST.
    pub fn peer_ack(&mut self, seq: u32, is_odd: bool) {
        // SAFETY: as in `peer_syn`.
        unsafe { sys::vsnoop_peer_ack(&mut self.0, seq, is_odd) }
    }

    /// Data for the VM. Returns the ACK to send for all but its last segment, once the data is in the queue.
    pub fn data(&mut self, vm: &mut Vm, settings: Settings, data: Data, now_us: u64) -> Option<EarlyAck> {
        let Data { seq, bytes, segments, last_bytes, is_fin, doubt, core } = data;
        let (doubt, core) = (doubt.0, core.raw());
        let raw = sys::vsnoop_data { now_us, seq, bytes, segments, last_bytes, doubt, core, is_fin };
        // SAFETY: as in `peer_syn`.
        let verdict = unsafe { sys::vsnoop_data(&mut self.0, &mut vm.0, &settings.raw(), &raw) };
        (verdict == sys::vsnoop_verdict::VSNOOP_ACK).then(|| self.early_ack())
    }

    /// The early ACK that is due, or that rides on data of the VM's.
    pub fn early_ack(&self) -> EarlyAck {
        // SAFETY: as in `peer_syn`.
        let window = unsafe { sys::vsnoop_window(&self.0) };
        EarlyAck { seq: self.0.vm_seq, ack: self.0.acked, window, ts_val: self.0.ts_val }
    }

    /// An ACK from the VM. Returns false if it says nothing new and may be dropped.
    pub fn vm_ack(&mut self, vm: &mut Vm, ack: &VmAck, now_us: u64) -> bool {
        let VmAck { seq, bytes, ack, window, ts_val, is_bare, has_later } = *ack;
        let raw = sys::vsnoop_vm_ack { now_us, seq, bytes, ack, ts_val, window, is_bare, has_later };
        // SAFETY: as in `peer_syn`.
        let verdict = unsafe { sys::vsnoop_vm_ack(&mut self.0, &mut vm.0, &raw) };
        verdict == sys::vsnoop_ack::VSNOOP_ACK_PASS
    }

    /// Data of the VM's with the number `ack` goes out. Returns the early ACK that it takes along, if that says more
    /// than `ack`.
    pub fn ride(&mut self, ack: u32) -> Option<EarlyAck> {
        // SAFETY: as in `peer_syn`.
        unsafe { sys::vsnoop_ride(&mut self.0, ack) }.then(|| self.early_ack())
    }

    /// Whether data has taken an early ACK of this number along, so that it need not go out alone.
    pub fn has_ridden(&self, ack: u32) -> bool {
        // SAFETY: as in `peer_syn`.
        unsafe { sys::vsnoop_has_ridden(&self.0, ack) }
    }

    /// The flow is over.
    pub fn close(&mut self, vm: &mut Vm) {
        // SAFETY: as in `peer_syn`.
        unsafe { sys::vsnoop_close(&mut self.0, &mut vm.0) }
    }

    /// Whether data may be acknowledged early at all.
    pub fn is_managed(&self) -> bool {
        // SAFETY: as in `peer_syn`.
        unsafe { sys::vsnoop_is_managed(&self.0) }
    }

    /// Highest ACK that has gone out, early or the VM's own.
    pub fn acked(&self) -> u32 {
        self.0.acked
    }

    /// Why the last data was not acknowledged.
    pub fn doubt(&self) -> Doubt {
        Doubt(self.0.doubt.into())
    }

    /// Its state.
    pub fn state(&self) -> State {
        match u32::from(self.0.state) {
            sys::vsnoop_state_VSNOOP_NO_BUFFER => State::NoBuffer,
            sys::vsnoop_state_VSNOOP_UNEXPECTED_SEQUENCE => State::UnexpectedSequence,
            _ => State::Active,
        }
    }
}
