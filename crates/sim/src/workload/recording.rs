//! What processes record in the measured time.

use crate::footprint::of_vec;
use crate::packet::GuestId;
use crate::time::{Duration, Instant};

/// Something that took time: a block, a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// The guest that measured it.
    pub guest: GuestId,
    /// When it began.
    pub start: Instant,
    /// How long it took.
    pub took: Duration,
}

/// A flow that began in the measured time and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowDone {
    /// Who sent.
    pub from: GuestId,
    /// Who received.
    pub to: GuestId,
    /// Payload.
    pub bytes: u64,
    /// When its time began: a Poisson process's at its arrival, others' when the first byte was written or asked for.
    pub start: Instant,
    /// Until the last byte was received.
    pub took: Duration,
    /// The part of `took` since the sending process had its connection; `None` where that is not recorded.
    pub connected_took: Option<Duration>,
}

/// A flow that began in the measured time and had not ended when the run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowUnderWay {
    /// Payload that it was to transfer.
    pub bytes: u64,
    /// Time since its start.
    pub waited: Duration,
}

/// What was recorded in the measured time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    mark: Option<Instant>,
    /// Blocks of a strobe.
    pub blocks: Vec<Timed>,
    /// Pings that were answered.
    pub pings: Vec<Timed>,
    /// Pings that were not answered.
    pub pings_lost: u64,
    /// Flows that ended.
    pub flows: Vec<FlowDone>,
    /// Flows that did not end.
    pub unfinished: Vec<FlowUnderWay>,
}

impl Recording {
    pub(super) fn mark(&mut self, now: Instant) {
        *self = Self { mark: Some(now), ..Self::default() };
    }

    /// Bytes that it has allocated.
    pub(super) fn bytes(&self) -> u64 {
        of_vec(&self.blocks) + of_vec(&self.pings) + of_vec(&self.flows) + of_vec(&self.unfinished)
    }

    /// Whether something that begins at this instant belongs to the measured time.
    pub(super) fn counts(&self, start: Instant) -> bool {
        self.mark.is_some_and(|mark| start >= mark)
    }

    /// A block is complete. It does not count if it began before the mark; likewise pings and flows.
    pub(super) fn block(&mut self, guest: GuestId, start: Instant, end: Instant) {
        if self.counts(start) {
            self.blocks.push(Timed { guest, start, took: end.since(start) });
        }
    }

    pub(super) fn ping(&mut self, guest: GuestId, start: Instant, end: Instant) {
        if self.counts(start) {
            self.pings.push(Timed { guest, start, took: end.since(start) });
        }
    }

    pub(super) fn ping_lost(&mut self, start: Instant) {
        self.pings_lost += u64::from(self.counts(start));
    }

    pub(super) fn flow(&mut self, flow: FlowDone) {
        if self.counts(flow.start) {
            self.flows.push(flow);
        }
    }

    /// Records a flow that is under way at the end.
    pub(super) fn under_way(&mut self, bytes: u64, start: Instant, end: Instant) {
        if self.counts(start) {
            self.unfinished.push(FlowUnderWay { bytes, waited: end.since(start) });
        }
    }
}
