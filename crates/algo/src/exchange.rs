//! How long a connection's exchanges take, as seen at a VM's port: what a trial measures.

use crate::sys;

/// New data begins an exchange once everything has been acknowledged for longer than this, in ns.
pub const IDLE_NS: u64 = sys::EXCHANGE_IDLE_NS as u64;
/// Data that is sent again after this silence was sent by a timer, in ns.
pub const TIMEOUT_NS: u64 = sys::EXCHANGE_TIMEOUT_NS as u64;

/// A segment that passes the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// When, in ns.
    pub now_ns: u64,
    /// Whether the VM sends it, and not the other end.
    pub from_vm: bool,
    /// Whether its sender has opened the connection.
    pub is_opener: bool,
    /// Its first number.
    pub seq: u32,
    /// The number that it acknowledges.
    pub ack: u32,
    /// Its data.
    pub bytes: u32,
}

impl Segment {
    fn to_sys(self) -> sys::exchange_segment {
        sys::exchange_segment {
            now_ns: self.now_ns,
            seq: self.seq,
            ack: self.ack,
            bytes: self.bytes,
            way: u8::from(!self.from_vm),
            is_opener: u8::from(self.is_opener),
            has_ack: 1,
            ..Default::default()
        }
    }
}

/// What one end has sent in an exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Way {
    /// New data.
    pub bytes: u64,
    /// Segments that were sent before.
    pub again: u32,
    /// How many of these a timer sent.
    pub timeouts: u32,
}

/// An exchange that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// When it began, in ns.
    pub begin_ns: u64,
    /// When the last of it was acknowledged, in ns.
    pub end_ns: u64,
    /// How long the handshake took, if it is a connection's first, in us; 0 otherwise.
    pub handshake_us: u32,
    /// The VM's data.
    pub vm: Way,
    /// The other end's.
    pub remote: Way,
}

/// What a connection carries.
#[derive(Debug, Clone, Copy)]
pub struct Exchange(sys::exchange);

impl Exchange {
    /// A connection's first segment after its SYN-ACK. `syn_ns`: when its SYN passed; `None` if the SYN was not seen.
    pub fn open(first: Segment, syn_ns: Option<u64>) -> Self {
        let mut e = sys::exchange::default();
        // SAFETY: the pointers are to live values for the length of the call; the C code does not keep them. The same
        // holds for all calls below.
        unsafe { sys::exchange_open(&mut e, &first.to_sys(), syn_ns.unwrap_or(0)) };
        Self(e)
    }

    /// A segment passes. If it begins an exchange, returns the one that is over.
    pub fn passes(&mut self, segment: Segment) -> Option<Done> {
        let mut done = sys::exchange::default();
        // SAFETY: as in `open`.
        let begins = unsafe { sys::exchange_passes(&mut self.0, &segment.to_sys(), &mut done) };
        Self(done).done().filter(|_| begins)
    }

    /// The exchange that is over, until another begins.
    pub fn done(&self) -> Option<Done> {
        let way = |way: &sys::exchange_way| Way { bytes: way.bytes, again: way.again, timeouts: way.timeouts };
        // SAFETY: as in `open`.
        unsafe { sys::exchange_is_complete(&self.0) }.then(|| Done {
            begin_ns: self.0.begin_ns,
            end_ns: self.0.end_ns,
            handshake_us: self.0.handshake_us,
            vm: way(&self.0.way[0]),
            remote: way(&self.0.way[1]),
        })
    }

    /// Whether an exchange has begun and not all of its data is acknowledged.
    pub fn is_cut(&self) -> bool {
        // SAFETY: as in `open`.
        unsafe { sys::exchange_is_cut(&self.0) }
    }
}
