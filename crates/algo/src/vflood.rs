//! vFlood: the host's decisions on the data that a VM has flooded it with, and the guest's on its window.
//!
//! The caller keeps the packets. [`Flow::data`] says what becomes of a packet that the VM sends, [`Flow::release`]
//! whether the first held packet may leave.

use crate::congestion::Kind;
use crate::sys;

/// Segments that the guest may flood before the host has granted anything.
pub const FLOOD_SEGMENTS: u32 = sys::VFLOOD_FLOOD_SEGMENTS;
/// An alpha of 1.
pub const ALPHA_ONE: u32 = sys::VFLOOD_ALPHA_ONE;
/// What [`Flow::granted`] is where the VM is to send nothing.
pub const CLOSED: u32 = sys::WINDOW_CLOSED;

/// Who may hold how much of a VM's buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// Whatever is free.
    None,
    /// vFlood eq. 1 with one alpha for all flows.
    #[default]
    Fair,
    /// vFlood eq. 1 with a larger alpha for flows of low RTT.
    Priority,
}

/// A host's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// B: how much is held for a VM at most.
    pub buffer_segments: u32,
    /// Congestion window at the start, and the least burst that may leave at once.
    pub initial_window: u32,
    /// RTT below which a flow is of low RTT.
    pub low_rtt_us: u32,
    /// In units of 1 / [`ALPHA_ONE`].
    pub alpha: u32,
    /// Alpha of flows of low RTT, with [`Policy::Priority`].
    pub alpha_low_rtt: u32,
    /// Who may hold how much.
    pub policy: Policy,
    /// The host's congestion control.
    pub congestion: Kind,
}

/// The defaults: the paper's buffer and limit of RTT, and RFC 6928's window.
pub const DEFAULTS: Settings = Settings {
    buffer_segments: 2048,
    initial_window: 10,
    low_rtt_us: 1000,
    alpha: ALPHA_ONE,
    alpha_low_rtt: 4 * ALPHA_ONE,
    policy: Policy::Fair,
    congestion: Kind::Cubic,
};

/// [`Settings`] as the C code has them.
#[derive(Debug, Clone)]
pub struct HostSettings(sys::vflood_settings);

impl HostSettings {
    /// A host with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self(sys::vflood_settings {
            buffer_segments: settings.buffer_segments,
            initial_window: settings.initial_window,
            low_rtt_us: settings.low_rtt_us,
            alpha: settings.alpha,
            alpha_low_rtt: settings.alpha_low_rtt,
            policy: match settings.policy {
                Policy::None => sys::vflood_policy_VFLOOD_POLICY_NONE,
                Policy::Fair => sys::vflood_policy_VFLOOD_POLICY_FAIR,
                Policy::Priority => sys::vflood_policy_VFLOOD_POLICY_PRIORITY,
            },
            congestion: settings.congestion.raw(),
        })
    }
}

/// Data that has left the queue, and will pass the VM's port once more.
#[derive(Debug, Clone, Copy, Default)]
pub struct Returns(sys::vflood_returns);

impl Returns {
    /// How many ranges are told apart.
    pub const RANGES: usize = sys::VFLOOD_RETURN_RANGES as usize;

    /// Data that has not come by for this long was lost.
    pub const LOST_MS: u32 = sys::VFLOOD_RETURN_MS;

    /// Data has left the queue with this timestamp.
    pub fn note(&mut self, seq: u32, bytes: u32, ts_val: u32, now_ms: u32) {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::vflood_returns_note(&mut self.0, range(seq, bytes), ts_val, now_ms) }
    }

    /// Is this data that has left the queue? Each byte is taken as often as it was noted.
    pub fn take(&mut self, seq: u32, bytes: u32, ts_val: u32) -> bool {
        // SAFETY: as in `note`.
        unsafe { sys::vflood_returns_take(&mut self.0, range(seq, bytes), ts_val) }
    }

    /// Is nothing on its way?
    pub fn is_empty(&self, now_ms: u32) -> bool {
        // SAFETY: as in `note`.
        unsafe { sys::vflood_returns_none(&self.0, now_ms) }
    }
}

fn range(seq: u32, bytes: u32) -> sys::vflood_range {
    sys::vflood_range { seq, end: seq.wrapping_add(bytes) }
}

/// A VM's buffer, shared by its flows.
#[derive(Debug, Clone, Default)]
pub struct Vm(sys::vflood_vm);

impl Vm {
    /// Q: segments held for all its flows.
    pub fn held_segments(&self) -> u32 {
        self.0.held_segments
    }

    /// Segments that were granted and have not come yet.
    pub fn promised_segments(&self) -> u32 {
        self.0.promised_segments
    }
}

/// The states of vFlood Fig. 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The guest may flood.
    Active,
    /// The flow's share of the buffer is used up.
    NoBuffer,
    /// The guest repairs a loss.
    PacketLoss,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes out.
    Pass,
    /// It is put at the end of the flow's queue, or stays there.
    Hold,
    /// It is held already, or has arrived, or there is no room.
    Drop,
}

impl From<sys::vflood_verdict> for Verdict {
    fn from(verdict: sys::vflood_verdict) -> Self {
        match verdict {
            sys::vflood_verdict::VFLOOD_PASS => Self::Pass,
            sys::vflood_verdict::VFLOOD_HOLD => Self::Hold,
            sys::vflood_verdict::VFLOOD_DROP => Self::Drop,
        }
    }
}

/// What an ACK from the receiver says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ack {
    /// Its number.
    pub number: u32,
    /// The window field, unscaled.
    pub window: u16,
    /// It carries no data, and no [report of data that came twice](is_dsack).
    pub is_pure: bool,
    /// Its SACK blocks, if it has any.
    pub sacked: Option<Sacked>,
    /// The timestamp that it echoes; 0 without timestamps.
    pub ts_ecr: u32,
    /// The data that it [reports to have come twice](is_dsack), from its first byte to its end.
    pub came_twice: Option<(u32, u32)>,
}

/// What SACK blocks say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sacked {
    /// The highest right edge.
    pub end: u32,
    /// How many segments they tell of.
    pub segments: u32,
}

impl Sacked {
    /// What `blocks`, each from its first byte to its end, say beside the number `ack`; segments have `mss` bytes.
    pub fn of(ack: u32, blocks: &[(u32, u32)], mss: u32) -> Option<Self> {
        let end = blocks.iter().map(|block| block.1).reduce(|a, b| if b.wrapping_sub(a) as i32 > 0 { b } else { a })?;
        let skipped = usize::from(is_dsack(ack, blocks));
        let above = |&(start, end): &(u32, u32)| {
            let is_above = start.wrapping_sub(ack) as i32 >= 0;
            if is_above { end.wrapping_sub(start) } else { 0 }
        };
        Some(Self { end, segments: blocks[skipped..].iter().map(above).sum::<u32>() / mss })
    }
}

/// A flow of a VM.
#[derive(Debug, Clone, Default)]
pub struct Flow(pub(crate) sys::vflood_flow);

impl Flow {
    /// The VM sends a SYN or SYN-ACK with this sequence number.
    pub fn vm_syn(&mut self, host: &HostSettings, seq: u32, now_us: u64) {
        // SAFETY: all pointers are to live, distinct values for the length of the call; the C code does not keep them.
        // The same holds for all calls below.
        unsafe { sys::vflood_vm_syn(&mut self.0, &host.0, seq, now_us) }
    }

    /// The other end's SYN or SYN-ACK comes. `mss` is the payload of a full segment, options deducted.
    pub fn peer_syn(&mut self, window: u16, scale: u8, mss: u32, now_us: u64) {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_peer_syn(&mut self.0, window, scale, mss, now_us) }
    }

    /// Whether both SYNs were seen; other flows pass.
    pub fn is_managed(&self) -> bool {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_is_managed(&self.0) }
    }

    /// Both SYNs have permitted SACK (RFC 2018).
    pub fn permit_sack(&mut self) {
        self.0.flags |= sys::VFLOOD_HAS_SACK;
    }

    /// Notes the VM's newest timestamp, with which its data leaves from now on.
    pub fn stamp(&mut self, ts_val: u32) {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_stamp(&mut self.0, ts_val) }
    }

    /// Data from the VM. Not called for packets without data.
    pub fn data(&mut self, vm: &mut Vm, host: &HostSettings, seq: u32, bytes: u32, now_us: u64) -> Verdict {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_data(&mut self.0, &mut vm.0, &host.0, range(seq, bytes), now_us) }.into()
    }

    /// Whether data of a flow that holds nothing leaves at once, without a look at the VM's buffer. If not, nothing has
    /// changed, and [`Flow::data`] decides.
    pub fn passes(&mut self, host: &HostSettings, seq: u32, bytes: u32, now_us: u64) -> bool {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_passes(&mut self.0, &host.0, seq, bytes, now_us) }
    }

    /// An ACK from the receiver. Returns whether the last loss proved to be none, so that the window was given back.
    pub fn acked(&mut self, host: &HostSettings, ack: &Ack, now_us: u64) -> bool {
        let (has_sack, sacked) = (ack.sacked.is_some(), ack.sacked.unwrap_or_default());
        // SAFETY: as in `vm_syn`.
        let (is_older, came_twice_segments) = unsafe {
            let came_twice = |(start, end)| sys::vflood_came_twice(&self.0, start, end);
            (sys::vflood_is_older(&self.0, ack.ts_ecr), ack.came_twice.map_or(0, came_twice))
        };
        let ack = sys::vflood_ack {
            ack: ack.number,
            sacked_end: sacked.end,
            sacked_segments: sacked.segments,
            window: ack.window,
            is_pure: ack.is_pure,
            has_sack,
            is_older,
            came_twice_segments,
        };
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_acked(&mut self.0, &host.0, &ack, now_us) }
    }

    /// Whether the flow knows all that an ACK says and need not act on it: [`Flow::acked`] would only allow another
    /// burst.
    pub fn is_told(&self, ack: &Ack) -> bool {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_ack_is_known(&self.0, ack.number, ack.window, ack.is_pure, ack.sacked.is_some()) }
    }

    /// Whether the first packet of the flow's queue may leave it: to the network, or to be dropped if its data has
    /// arrived.
    pub fn release(&mut self, vm: &mut Vm, host: &HostSettings, seq: u32, bytes: u32, now_us: u64) -> Verdict {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_release(&mut self.0, &mut vm.0, &host.0, range(seq, bytes), now_us) }.into()
    }

    /// Whether the first packet of the flow's queue is to be split; it has several segments and may not leave whole.
    pub fn splits(&mut self, host: &HostSettings, seq: u32, bytes: u32) -> bool {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_splits(&mut self.0, &host.0, seq, bytes) }
    }

    /// Whether data may bypass the flow's queue, if [`Flow::passes`] lets it. It overtakes nothing if nothing is out,
    /// or if what is out has bypassed the queue as well (`is_direct`: the last of it has).
    pub fn is_ahead(&self, is_direct: bool) -> bool {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_is_ahead(&self.0, is_direct) }
    }

    /// Whether a packet of several segments comes to the queue whole instead of being split before: it is new data in
    /// full segments that would not be split at once. `segment_bytes`: size of its segments but the last; `is_held`:
    /// something of the flow is held.
    pub fn comes_whole(&self, seq: u32, bytes: u32, segment_bytes: u32, is_held: bool) -> bool {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_comes_whole(&self.0, seq, bytes, segment_bytes, is_held) }
    }

    /// Whether the queue takes a packet of several segments whole, for [`Flow::data`]; otherwise it is split before it
    /// counts.
    pub fn takes_whole(&self, vm: &Vm, host: &HostSettings, seq: u32, bytes: u32) -> bool {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_takes_whole(&self.0, &vm.0, &host.0, seq, bytes) }
    }

    /// [`Flow::release`] for a packet of several segments: it leaves whole only if the window has room for all of it.
    /// If it stays, [`Flow::splits`] says whether it is to be split.
    pub fn release_whole(&mut self, vm: &mut Vm, host: &HostSettings, seq: u32, bytes: u32, now_us: u64) -> Verdict {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_release_whole(&mut self.0, &mut vm.0, &host.0, range(seq, bytes), now_us) }.into()
    }

    /// Whether the first packet of the flow's queue would leave it now: [`Flow::release`] (or [`Flow::release_whole`]
    /// for several segments) would not hold it, or it would be split.
    pub fn leaves(&mut self, host: &HostSettings, seq: u32, bytes: u32, is_whole: bool) -> bool {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_leaves(&mut self.0, &host.0, range(seq, bytes), is_whole) }
    }

    /// A held packet was split: one of its segments waits in its place. After the last one, the caller reports the
    /// packet to [`Flow::taken_out`].
    pub fn piece_held(&mut self, vm: &mut Vm, bytes: u32) {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_piece_held(&mut self.0, &mut vm.0, bytes) }
    }

    /// The first packet of the flow's queue is taken out.
    pub fn taken_out(&mut self, vm: &mut Vm, bytes: u32) {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_taken_out(&mut self.0, &mut vm.0, bytes) }
    }

    /// A packet that was counted as held could not be: its data counts as refused.
    pub fn unheld(&mut self, vm: &mut Vm, seq: u32, bytes: u32) {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_unheld(&mut self.0, &mut vm.0, range(seq, bytes)) }
    }

    /// How many segments `bytes` are; for managed flows only.
    pub fn segments(&self, bytes: u32) -> u32 {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_segments(&self.0, bytes) }
    }

    /// Whether new data in a packet of several segments would be held, or leave, whole; otherwise it would be split as
    /// soon as it is held.
    pub fn is_whole(&self, seq: u32, bytes: u32) -> bool {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_is_whole(&self.0, seq, bytes) }
    }

    /// The first packet of the flow's queue leaves, whatever the windows say: the flow's packets may no longer be held.
    pub fn drained(&mut self, vm: &mut Vm, seq: u32, bytes: u32, now_us: u64) {
        let end = seq.wrapping_add(bytes);
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_drained(&mut self.0, &mut vm.0, seq, end, now_us) }
    }

    /// The window that the VM is told, in bytes beyond [`Flow::snd_una`]; `None` for flows that are left alone.
    pub fn grant(&mut self, vm: &mut Vm, host: &HostSettings) -> Option<u32> {
        // SAFETY: as in `vm_syn`.
        self.is_managed().then(|| unsafe { sys::vflood_grant(&mut self.0, &mut vm.0, &host.0) })
    }

    /// How many bytes were granted beyond an ACK's number, or [`CLOSED`]; `None`: the receiver's window applies.
    pub fn granted(&self, ack: u32) -> Option<u32> {
        // SAFETY: as in `vm_syn`.
        Some(unsafe { sys::vflood_granted(&self.0, ack) }).filter(|bytes| *bytes > 0)
    }

    /// The sequence number for a packet of the VM's without data; a reset has that of what it answers.
    pub fn bare_seq(&self, seq: u32, is_reset: bool) -> u32 {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_bare_seq(&self.0, seq, is_reset) }
    }

    /// An ACK of the VM's goes out, alone or with data.
    pub fn ack_out(&mut self, ack: u32) {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_ack_out(&mut self.0, ack) }
    }

    /// Whether an ACK on data that is held must go out alone.
    pub fn ack_is_due(&self, ack: u32) -> bool {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_ack_is_due(&self.0, ack) }
    }

    /// The flow is over; the caller drops what is held.
    pub fn close(&mut self, vm: &mut Vm) {
        // SAFETY: as in `vm_syn`.
        unsafe { sys::vflood_close(&mut self.0, &mut vm.0) }
    }

    /// Its state.
    pub fn state(&self) -> State {
        match u32::from(self.0.state) {
            sys::vflood_state_VFLOOD_NO_BUFFER => State::NoBuffer,
            sys::vflood_state_VFLOOD_PACKET_LOSS => State::PacketLoss,
            _ => State::Active,
        }
    }

    /// The host's congestion window.
    pub fn cwnd(&self) -> u32 {
        self.0.congestion.window.cwnd
    }

    /// Highest ACK of the receiver.
    pub fn snd_una(&self) -> u32 {
        self.0.snd_una
    }

    /// End of what was let out.
    pub fn snd_nxt(&self) -> u32 {
        self.0.snd_nxt
    }

    /// End of the data that the VM has handed over and that was not refused.
    pub fn vm_end(&self) -> u32 {
        self.0.vm_end
    }

    /// Right edge of the receiver's window.
    pub fn edge(&self) -> u32 {
        self.0.edge
    }

    /// The receiver's window scale.
    pub fn scale(&self) -> u8 {
        self.0.scale
    }

    /// Payload of a full segment.
    pub fn mss(&self) -> u32 {
        self.0.mss
    }

    /// Q_i: segments held.
    pub fn held_segments(&self) -> u32 {
        self.0.held_segments
    }

    /// Shortest RTT, if one was measured.
    pub fn min_rtt_us(&self) -> Option<u32> {
        (self.0.min_rtt_us > 0).then_some(self.0.min_rtt_us)
    }
}

/// What the guest knows when it asks for its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guest {
    /// The host says that it is there.
    pub is_online: bool,
    /// TCP has seen a loss, or signs of one. If its window in recovery counts what is out (2.6.32): only while it has
    /// something to send again, or after a timeout.
    pub is_repairing: bool,
    /// The window that a standard algorithm grows and shrinks all the time.
    pub shadow: u32,
    /// Segments that the host grants; `None` if it has said nothing yet.
    pub granted_segments: Option<u32>,
    /// [`guest_held`]; 0 after a timeout, and with proportional rate reduction (RFC 6937).
    pub held: u32,
    /// Segments sent, not acknowledged, and not taken for lost.
    pub in_flight: u32,
}

impl Guest {
    /// The guest's congestion window: while it may flood, what the host grants; otherwise its shadow window, and while
    /// it repairs a loss also what is held.
    pub fn cwnd(&self) -> u32 {
        let granted = self.granted_segments.unwrap_or(0);
        let guest = sys::vflood_guest {
            shadow: self.shadow,
            granted,
            held: self.held,
            in_flight: self.in_flight,
            is_online: self.is_online,
            is_repairing: self.is_repairing,
        };
        // SAFETY: the C function is pure.
        unsafe { sys::vflood_guest_cwnd(&guest) }
    }
}

/// Whether an ACK's SACK blocks, from their first bytes to their ends, report data that came twice (RFC 2883).
pub fn is_dsack(ack: u32, blocks: &[(u32, u32)]) -> bool {
    let Some(&first) = blocks.first() else { return false };
    let second = blocks.get(1).copied().unwrap_or_default();
    // SAFETY: the C function is pure.
    unsafe { sys::vflood_is_dsack(ack, first.0, first.1, second.0, second.1) }
}

/// What the host still holds, as far as the guest can tell: it knows what is out, how much of that was SACKed, and its
/// shadow window.
pub fn guest_held(out: u32, sacked: u32, shadow: u32) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::vflood_guest_held(out, sacked, shadow) }
}

/// The least number of segments that a guest puts into a packet, if it has the data.
pub fn guest_packet(is_flooding: bool, shadow: u32) -> u32 {
    // SAFETY: the C code takes and gives numbers.
    unsafe { sys::vflood_guest_packet(is_flooding, shadow) }
}

/// What the host writes into the packets of a connection that it holds; never 0. `session`: of the agents'
/// channel.
pub fn token(session: u32) -> u16 {
    // SAFETY: plain arithmetic.
    unsafe { sys::vflood_token(session) }
}

/// Whether a guest counts on the host to hold, so long after a packet with the token.
pub fn guest_counts_on_host(silent_us: u64) -> bool {
    // SAFETY: plain arithmetic.
    unsafe { sys::vflood_guest_counts_on_host(silent_us) }
}
