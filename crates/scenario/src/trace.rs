//! What happens in a run, event by event: an engine tells it to a [`Sink`], which writes it down.

/// Who takes part. Machines are identified by their places in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// All VMs and machines, in the engine's order.
    pub machines: Vec<Machine>,
    /// The network's MTU: largest IP packet in bytes.
    pub mtu_bytes: u32,
}

/// A VM, or a machine without a hypervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// As in `sender-0`.
    pub name: String,
    /// Whether it has a port on a host.
    pub port: Port,
}

/// What stands between a machine and the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Nothing: what leaves the machine is in the network.
    None,
    /// A port on which all packets pass.
    Plain,
    /// A port with mechanisms, which change, hold, drop and make packets: its two sides do not see the same.
    Mechanisms,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// The connection's number, from 0, in the order in which they were opened.
    pub connection: u32,
    /// Whether this is the end that opened it.
    pub is_opener: bool,
}

impl End {
    /// The other end.
    pub const fn peer(self) -> Self {
        Self { is_opener: !self.is_opener, ..self }
    }
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A connection is opened.
    Opened {
        /// Its number: one more than the last one's.
        connection: u32,
        /// The machine that opens it, and the other.
        machines: [u32; 2],
    },
    /// A packet passes a point.
    Packet(Packet),
    /// A machine's virtual CPU gets its core or loses it; at the start, what it has.
    Core {
        /// Whose.
        machine: u32,
        /// What it has from now on.
        state: Core,
    },
    /// PVTCP in a machine has noticed that its virtual CPU was off its core.
    WokeUp {
        /// Whose.
        machine: u32,
        /// For how long, as PVTCP knows it, in microseconds.
        off_us: u64,
    },
    /// A timer of a connection.
    Timer {
        /// Whose.
        end: End,
        /// Which.
        timer: Timer,
        /// What becomes of it.
        fate: Fate,
    },
    /// A connection's windows, where one has changed.
    Windows {
        /// Whose.
        end: End,
        /// What they are.
        windows: Windows,
    },
    /// A connection says something.
    Says {
        /// Whose end.
        end: End,
        /// What, in a few words.
        what: &'static str,
    },
    /// The measured time begins.
    Measured,
}

/// Whether a virtual CPU has its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// It has it.
    Has,
    /// It waits for it: somebody else has it.
    Waits,
    /// It has nothing to do.
    Halted,
}

/// A timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Retransmission timeout.
    Rto,
    /// Tail-loss probe.
    Tlp,
    /// RACK's reordering window.
    Reo,
    /// Probe of a window that is closed.
    Persist,
    /// Delayed ACK.
    DelayedAck,
}

/// What becomes of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is set. While it is, it can be put off without another event.
    Set,
    /// It is no longer needed.
    Stopped,
    /// It runs out.
    Fired,
    /// It has run out, and PVTCP holds it back.
    Held,
    /// What PVTCP held runs now.
    Ran,
    /// What PVTCP held is no longer needed: an ACK came.
    Overtaken,
}

/// A sender's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Congestion window in segments.
    pub cwnd_segments: u32,
    /// Slow-start threshold in segments; `None` before the first loss.
    pub ssthresh_segments: Option<u32>,
    /// What the other end has room for, in bytes.
    pub rwnd_bytes: u64,
    /// Segments in flight.
    pub in_flight_segments: u32,
}

/// Where a packet is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// In the machine itself.
    Machine,
    /// At its port, between the VM and the mechanisms.
    VmSide,
    /// At its port, between the mechanisms and the network. A port without mechanisms sees what comes in here, and what
    /// goes out at the other side.
    NetworkSide,
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the machine.
    In,
    /// From it.
    Out,
}

/// Why a packet is where it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It comes from where it should.
    Passes,
    /// vFlood has held it, for this many nanoseconds.
    Held(u64),
    /// vSnoop acknowledges on the VM's behalf.
    EarlyAck,
    /// The host has made it, or sends it again.
    Host,
}

/// A packet at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The machine where it is seen.
    pub machine: u32,
    /// Where there.
    pub point: Point,
    /// Which way it goes.
    pub way: Way,
    /// Why it is there.
    pub origin: Origin,
    /// The machine that it is from.
    pub from: u32,
    /// The machine that it is for.
    pub to: u32,
    /// The ECN field of its IP header.
    pub ecn: Ecn,
    /// What is in it.
    pub carries: Carries,
}

/// The ECN field of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable.
    NotEct,
    /// ECN-capable.
    Ect0,
    /// Marked.
    Ce,
}

/// What is in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// A TCP segment.
    Tcp(Segment),
    /// An ICMP echo request of 64 bytes, or its reply.
    Echo {
        /// Its number.
        number: u32,
        /// Whether it is the reply.
        is_reply: bool,
    },
    /// A probe of ProBoSCIS, or a report on probes.
    Probe(Probe),
}

/// A probe or a report of ProBoSCIS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// On behalf of which end it is sent.
    pub by: End,
    /// A report: how many probes came, and how many of these were marked.
    pub report: Option<[u8; 2]>,
    /// A probe: whether it goes ahead of a SYN-ACK, and not of a SYN.
    pub is_answer: bool,
    /// Number of the train.
    pub train: u8,
    /// Its place in the train.
    pub index: u8,
    /// Length of the train.
    pub total: u8,
}

/// A TCP segment, or several that will be segmented on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The end that it is from.
    pub by: End,
    /// First byte of the payload, as on the wire.
    pub seq: u32,
    /// Next byte expected.
    pub ack: Option<u32>,
    /// Length of the payload.
    pub payload_bytes: u32,
    /// The window field as on the wire.
    pub window: u16,
    /// Of a SYN: what it offers.
    pub syn: Option<Syn>,
    /// ECN echo.
    pub ece: bool,
    /// Congestion window reduced.
    pub cwr: bool,
    /// Push.
    pub psh: bool,
    /// TSval and TSecr.
    pub timestamps: Option<[u32; 2]>,
    /// SACK blocks: left edge, and right edge (excluded).
    pub sack: [(u32, u32); 3],
    /// How many of them are used.
    pub sack_count: u8,
}

/// What a SYN offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syn {
    /// Window scale.
    pub window_scale: u8,
    /// Whether SACK is understood.
    pub sack_permitted: bool,
}

/// Takes in what happens, in order.
pub trait Sink {
    /// Tells who takes part, before anything happens.
    fn begin(&mut self, stage: &Stage);

    /// Something happens, `at_ns` nanoseconds after the run began.
    fn take(&mut self, at_ns: u64, event: &Event);
}
