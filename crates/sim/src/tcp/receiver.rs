//! The receiving half: reassembly, SACK blocks, and when to acknowledge.

use evenkeel_algo::dctcp;

use super::config::{EcnMode, TcpConfig};
use crate::footprint::of_vec;
use crate::packet::{MAX_SACK_BLOCKS, SackBlocks};
use crate::time::{Duration, Instant};

/// Most segments acknowledged at once at the start (Linux: `TCP_MAX_QUICKACKS`).
const MAX_QUICK_ACKS: u32 = 16;

/// What is known of the other end's stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    /// Next byte expected.
    pub nxt: u64,
    /// First byte of data.
    pub start: u64,
    /// Acknowledged with the last ACK sent.
    pub acked: u64,
    /// End of the window advertised so far.
    pub edge: u64,
    /// Timestamp to echo.
    pub ts_recent: u32,
    /// Whether ACKs carry ECE.
    pub echo: bool,
    /// An ACK must go out at once.
    pub ack_now: bool,
    /// An ACK must go out, at once or later.
    pub ack_due: bool,
    /// When a delayed ACK must go out.
    pub delayed: Option<Instant>,
    /// When data last came.
    pub last_data: Option<Instant>,
    /// The application answers what it receives: ACKs ride on its data.
    pub interactive: bool,
    quick: u32,
    /// Segments shorter than the others since the last ACK, which end a write of the other end (Linux:
    /// `ICSK_ACK_PUSHED`, and `ICSK_ACK_PUSHED2` for the second).
    pushed: u8,
    ato: Duration,
    segment_bytes: u32,
    /// Starts of the ranges that last grew, the latest first.
    recent: [u64; MAX_SACK_BLOCKS + 1],
    dsack: Option<(u64, u64)>,
    ranges: Vec<(u64, u64)>,
}

/// What a data segment was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    InOrder,
    OutOfOrder,
    Duplicate,
    OutOfWindow,
}

impl Receiver {
    pub fn begin(&mut self, start: u64) {
        *self = Self { nxt: start, start, acked: start, edge: start, segment_bytes: 536, ..Self::default() };
    }

    /// Bytes that it has allocated beside itself.
    pub fn heap_bytes(&self) -> u64 {
        of_vec(&self.ranges)
    }

    /// Notes ECN marks before a segment is taken in. Returns whether earlier segments must be acknowledged first
    /// (DCTCP).
    pub fn note_mark(&mut self, config: &TcpConfig, ce: bool, cwr: bool) -> bool {
        match config.ecn {
            EcnMode::Off => false,
            EcnMode::Classic => {
                if cwr {
                    self.echo = false;
                }
                if ce {
                    self.echo = true;
                    self.quick = self.quick.max(2);
                }
                false
            }
            EcnMode::Dctcp => {
                let before = self.echo;
                let earlier_first = dctcp::ack_earlier_first(&mut self.echo, ce, self.ack_due);
                // Linux reports a change at once.
                self.ack_now |= self.echo != before;
                earlier_first
            }
        }
    }

    /// Takes in payload from `seq` to `end`.
    pub fn data(&mut self, config: &TcpConfig, now: Instant, seq: u64, end: u64, rto: Duration) -> Arrival {
        self.ack_due = true;
        if end <= self.nxt {
            self.dsack = Some((seq, end));
            self.begin_quick(config);
            self.ack_now = true;
            return Arrival::Duplicate;
        }
        let end = end.min(self.edge);
        if seq >= self.edge || end <= self.nxt {
            self.ack_now = true;
            return Arrival::OutOfWindow;
        }
        self.segment_bytes = self.segment_bytes.max((end - seq).min(u64::from(u32::MAX)) as u32);
        self.measure_interval(config, now, rto);
        if seq > self.nxt {
            self.ack_now = true;
            return self.insert(seq, end);
        }
        if seq < self.nxt {
            self.dsack = Some((seq, self.nxt));
        }
        if end - seq < u64::from(self.segment_bytes) {
            self.pushed = (self.pushed + 1).min(2);
        }
        self.nxt = end;
        if !self.ranges.is_empty() {
            self.join();
            self.ack_now = true;
        }
        Arrival::InOrder
    }

    /// Linux's `ato`: an ACK is delayed by about the interval between segments.
    fn measure_interval(&mut self, config: &TcpConfig, now: Instant, rto: Duration) {
        let least = config.delayed_ack_min;
        let half = Duration::from_ps(least.ps() / 2);
        match self.last_data.replace(now) {
            None => {
                self.add_quick(config);
                self.ato = least;
            }
            Some(last) => {
                let gap = now.since(last);
                let halved = Duration::from_ps(self.ato.ps() / 2);
                if gap <= half {
                    self.ato = halved + half;
                } else if gap < self.ato {
                    self.ato = (halved + gap).min(rto);
                } else if gap > rto {
                    self.add_quick(config);
                }
            }
        }
    }

    fn add_quick(&mut self, config: &TcpConfig) {
        let segments = config.receive_window_bytes() / (2 * self.segment_bytes.max(1));
        self.quick = self.quick.max(segments.clamp(2, MAX_QUICK_ACKS));
    }

    fn begin_quick(&mut self, config: &TcpConfig) {
        self.add_quick(config);
        self.interactive = false;
        self.ato = config.delayed_ack_min;
    }

    /// Acknowledges the next segments at once.
    pub fn quick_ack(&mut self, segments: u32) {
        self.quick = self.quick.max(segments);
        self.interactive = false;
    }

    /// Whether an ACK must go out once the application has read everything (`tcp_cleanup_rbuf`).
    pub fn must_ack_read(&self) -> bool {
        let full = self.nxt - self.acked > u64::from(self.segment_bytes);
        self.ack_due && (full || self.pushed > u8::from(self.interactive))
    }

    /// Whether an ACK must go out before the application has read anything; otherwise its timer is set. Unread data
    /// makes the window smaller, and then a second full segment is not enough (`__tcp_ack_snd_check`).
    pub fn must_ack_unread(&mut self, config: &TcpConfig, now: Instant, srtt: Duration) -> bool {
        if !self.ack_due {
            return false;
        }
        let quick = !config.delayed_ack || (self.quick > 0 && !self.interactive);
        if quick || self.ack_now {
            return true;
        }
        let mut delay = self.ato;
        if delay > config.delayed_ack_min {
            let longest = if self.interactive { config.delayed_ack_max } else { Duration::from_ms(500) };
            let longest = if srtt == Duration::ZERO { longest } else { srtt.max(config.delayed_ack_min).min(longest) };
            delay = delay.min(longest);
        }
        delay = delay.min(config.delayed_ack_max);
        let mut at = now + delay;
        if let Some(before) = self.delayed {
            if before <= now + Duration::from_ps(delay.ps() / 4) {
                return true;
            }
            at = at.min(before);
        }
        self.delayed = Some(at);
        false
    }

    /// The delayed ACK's timer has run out.
    pub fn delay_over(&mut self, config: &TcpConfig, rto: Duration) {
        if self.interactive {
            self.interactive = false;
            self.ato = config.delayed_ack_min;
        } else {
            self.ato = (self.ato * 2).min(rto);
        }
    }

    /// Data was sent; if that was soon after data came in, the two ends talk in turns.
    pub fn data_sent(&mut self, now: Instant) {
        if self.last_data.is_some_and(|last| now.since(last) < self.ato) {
            self.interactive = true;
        }
    }

    /// An ACK went out, alone or with data.
    pub fn ack_sent(&mut self) {
        if self.ack_due {
            self.quick = self.quick.saturating_sub(1);
        }
        self.ack_due = false;
        self.ack_now = false;
        self.pushed = 0;
        self.delayed = None;
        self.acked = self.nxt;
        self.dsack = None;
    }

    /// Right edge of the window, which never moves to the left.
    pub fn window(&mut self, config: &TcpConfig, scale: u8) -> u16 {
        let field = (config.receive_window_bytes() >> scale).min(u32::from(u16::MAX));
        self.edge = self.edge.max(self.nxt + (u64::from(field) << scale));
        field as u16
    }

    fn insert(&mut self, seq: u64, end: u64) -> Arrival {
        let first = self.ranges.partition_point(|range| range.1 < seq);
        let mut merged = (seq, end);
        let last = first + self.ranges[first..].iter().take_while(|range| range.0 <= end).count();
        let mut arrival = Arrival::OutOfOrder;
        if let (Some(lowest), Some(highest)) = (self.ranges[first..last].first(), self.ranges[first..last].last()) {
            if last == first + 1 && lowest.0 <= seq && end <= lowest.1 {
                arrival = Arrival::Duplicate;
                self.dsack = Some((seq, end));
            }
            merged = (seq.min(lowest.0), end.max(highest.1));
        }
        if last == first + 1 {
            self.ranges[first] = merged;
        } else {
            self.ranges.splice(first..last, [merged]);
        }
        let place = self.recent.iter().position(|&start| start == merged.0).unwrap_or(MAX_SACK_BLOCKS);
        self.recent[..=place].rotate_right(1);
        self.recent[0] = merged.0;
        arrival
    }

    fn join(&mut self) {
        let done = self.ranges.iter().take_while(|range| range.0 <= self.nxt).count();
        for range in self.ranges.drain(..done) {
            self.nxt = self.nxt.max(range.1);
        }
    }

    /// The blocks for an ACK that goes out now.
    pub fn blocks(&self, dsack: bool) -> SackBlocks {
        let mut sack = SackBlocks::default();
        if let Some(block) = self.dsack.filter(|_| dsack) {
            add(&mut sack, block);
        }
        if self.ranges.is_empty() {
            return sack;
        }
        let mut told = [u64::MAX; MAX_SACK_BLOCKS + 1];
        for (number, &start) in self.recent.iter().enumerate() {
            let after = self.ranges.partition_point(|range| range.0 <= start);
            let Some(&range) = after.checked_sub(1).and_then(|index| self.ranges.get(index)) else { continue };
            if start < range.1 && !told.contains(&range.0) {
                told[number] = range.0;
                add(&mut sack, range);
            }
        }
        sack
    }

    /// Whether a DSACK is waiting to be sent.
    pub fn has_dsack(&self) -> bool {
        self.dsack.is_some()
    }
}

fn add(sack: &mut SackBlocks, block: (u64, u64)) {
    if let Some(slot) = sack.blocks.get_mut(usize::from(sack.count)) {
        *slot = (block.0 as u32, block.1 as u32);
        sack.count += 1;
    }
}
