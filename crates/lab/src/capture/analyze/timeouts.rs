//! Finds timeouts, and how many follow each other, in a capture inside the sending VM.
//!
//! A capture does not say why a segment was sent again. The rule here, for a retransmission that covers `snd_una`:
//! - **fast retransmit**, when three duplicate ACKs or a SACK of later data have come since the last progress, and
//!   either the last ACK came just before (an ACK made it, not a timer), or it is the first retransmission at this
//!   `snd_una` and less than about an RTO has passed since that ACK (the sender's own queue had to drain first);
//! - **other**, when less than about an RTO has passed since the retransmission timer was set last (by progress, by a
//!   retransmission, or by data sent when nothing was under way): slow start after a timeout, RACK's reordering timer;
//! - **probe**, where tail-loss probes are on: the first one since the last progress that repeats the last segment in
//!   flight, with no timeout and no such sign of loss before it;
//! - **timeout**, all else. A run of timeouts ends with progress.
//!
//! A retransmission beyond `snd_una` of the last segment in flight, without an ACK just before, is a probe as well. A
//! probe that sends new data looks like any new data: `TcpExtTCPLossProbes` counts more. Timeouts of SYN and FIN are
//! not counted here, and a timeout whose packet could not be sent leaves no trace.

use super::flow::{Ack, Event, Flow, Segment, Span};

/// The thresholds that tell the kinds apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// With less time than this since the timer was set, a retransmission is no timeout. It is the smallest RTO less
    /// one tick, because timers are counted in whole ticks.
    pub idle_gap_ns: i64,
    /// How soon a retransmission follows the ACK that triggers it: a millisecond or two in a VM without hardware help.
    pub ack_reaction_ns: i64,
    /// Whether the sender sends tail-loss probes (`tcp_early_retrans` 3 or 4).
    pub tail_loss_probes: bool,
}

impl Rule {
    /// For a sender with this smallest RTO and this tick rate.
    #[must_use]
    pub fn new(rto_min_us: u32, hz: u32, tail_loss_probes: bool) -> Self {
        let tick_ns = 1_000_000_000 / i64::from(hz.max(1));
        let rto_min_ns = i64::from(rto_min_us) * 1000;
        Self { idle_gap_ns: (rto_min_ns - tick_ns).max(tick_ns / 2), ack_reaction_ns: 1_500_000, tail_loss_probes }
    }
}

/// What a flow's retransmissions were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeoutRuns {
    /// Runs of one, two, three, and four or more timeouts.
    pub runs: [u64; 4],
    /// Timeouts in all.
    pub timeouts: u64,
    /// Fast retransmits of the segment at `snd_una`.
    pub fast_retransmits: u64,
    /// Tail-loss probes that sent old data.
    pub probes: u64,
    /// Other retransmissions, those beyond `snd_una` included.
    pub other: u64,
}

/// Classifies the retransmissions in a span of time. A run counts in the span in which it ends, at its full length.
#[must_use]
pub fn runs(flow: &Flow, rule: Rule, span: Span) -> TimeoutRuns {
    let mut sender = Sender::new(rule);
    let mut began = false;
    for (event, is_in) in span.events(flow) {
        if is_in && !began {
            began = true;
            sender.found = TimeoutRuns::default();
        }
        match event {
            Event::Data(segment) => sender.sends(*segment),
            Event::Ack(ack) => sender.hears(ack),
        }
    }
    sender.progress();
    if began { sender.found } else { TimeoutRuns::default() }
}

/// The sender, as far as its packets show.
#[derive(Debug)]
struct Sender {
    rule: Rule,
    found: TimeoutRuns,
    snd_una: Option<i64>,
    snd_nxt: i64,
    /// When the retransmission timer was set.
    timer_set_ns: i64,
    last_ack_ns: i64,
    duplicate_acks: u32,
    sacked_ahead: bool,
    probed: bool,
    /// Whether the segment at `snd_una` has been sent again since `snd_una` got there.
    retransmitted: bool,
    /// Timeouts since the last progress.
    run: usize,
}

impl Sender {
    fn new(rule: Rule) -> Self {
        Self {
            rule,
            found: TimeoutRuns::default(),
            snd_una: None,
            snd_nxt: i64::MIN,
            timer_set_ns: i64::MIN,
            last_ack_ns: i64::MIN,
            duplicate_acks: 0,
            sacked_ahead: false,
            probed: false,
            retransmitted: false,
            run: 0,
        }
    }

    /// Ends the run, and forgets what came since the last progress.
    fn progress(&mut self) {
        if self.run > 0 {
            self.found.runs[self.run.min(4) - 1] += 1;
        }
        self.run = 0;
        self.duplicate_acks = 0;
        self.sacked_ahead = false;
        self.probed = false;
        self.retransmitted = false;
    }

    fn hears(&mut self, ack: &Ack) {
        self.last_ack_ns = ack.t_ns;
        if self.snd_una.is_none_or(|snd_una| ack.ack > snd_una) {
            self.progress();
            self.snd_una = Some(ack.ack);
            // A capture that lost packets knows less than the receiver.
            self.snd_nxt = self.snd_nxt.max(ack.ack);
            self.timer_set_ns = ack.t_ns;
        } else if self.snd_una == Some(ack.ack) && ack.pure && self.snd_nxt > ack.ack {
            self.duplicate_acks += 1;
        }
        if self.snd_una == Some(ack.ack) {
            self.sacked_ahead |= ack.sacks_ahead();
        }
    }

    fn sends(&mut self, segment: Segment) {
        // Before the first ACK, the first segment sent is the one that waits for it.
        let snd_una = *self.snd_una.get_or_insert(segment.seq);
        if self.snd_nxt <= snd_una {
            self.timer_set_ns = segment.t_ns;
        }
        if segment.seq < self.snd_nxt && segment.end() > snd_una {
            self.sends_again(segment, snd_una);
        }
        self.snd_nxt = self.snd_nxt.max(segment.end());
    }

    fn sends_again(&mut self, segment: Segment, snd_una: i64) {
        let since_ack = segment.t_ns.saturating_sub(self.last_ack_ns);
        let soon = since_ack <= self.rule.ack_reaction_ns;
        let loss_seen = self.duplicate_acks >= 3 || self.sacked_ahead;
        let is_tail = segment.end() >= self.snd_nxt;
        let may_probe = self.rule.tail_loss_probes && is_tail && !self.probed && self.run == 0 && !loss_seen;
        let since_timer_set = segment.t_ns.saturating_sub(self.timer_set_ns);
        if segment.seq > snd_una {
            if may_probe && !soon {
                self.found.probes += 1;
                self.probed = true;
                self.timer_set_ns = segment.t_ns;
            } else {
                self.found.other += 1;
            }
            return;
        }
        let first_soon = !self.retransmitted && since_ack < self.rule.idle_gap_ns;
        if loss_seen && (soon || first_soon) {
            self.found.fast_retransmits += 1;
        } else if since_timer_set < self.rule.idle_gap_ns {
            self.found.other += 1;
        } else if may_probe {
            self.found.probes += 1;
            self.probed = true;
        } else {
            self.found.timeouts += 1;
            self.run += 1;
        }
        self.retransmitted = true;
        self.timer_set_ns = segment.t_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::analyze::build::{ack, data, flow, sack};

    const PAPER_DAY: Rule = Rule { idle_gap_ns: 4_000_000, ack_reaction_ns: 1_000_000, tail_loss_probes: false };
    const CURRENT: Rule = Rule { tail_loss_probes: true, ..PAPER_DAY };

    fn found(rule: Rule, events: Vec<Event>) -> TimeoutRuns {
        runs(&flow(events), rule, Span::ALL)
    }

    #[test]
    fn a_timeout_undone_by_the_ack_that_waited_is_a_run_of_one() {
        let events =
            vec![data(0, 0, 100), data(0, 100, 100), ack(1, 100), data(60, 100, 100), ack(60, 200), data(61, 200, 100)];
        assert_eq!(found(PAPER_DAY, events), TimeoutRuns { runs: [1, 0, 0, 0], timeouts: 1, ..TimeoutRuns::default() });
    }

    #[test]
    fn timeouts_without_progress_are_one_run() {
        let mut events = vec![data(0, 0, 100), data(0, 100, 100)];
        events.extend([10, 30, 70, 150, 310].map(|t| data(t, 0, 100)));
        events.extend([ack(311, 200), data(312, 200, 100), data(330, 200, 100), data(370, 200, 100)]);
        assert_eq!(found(PAPER_DAY, events), TimeoutRuns { runs: [0, 1, 0, 1], timeouts: 7, ..TimeoutRuns::default() });
    }

    #[test]
    fn a_run_is_of_the_span_that_it_ends_in() {
        let mut events = vec![data(0, 0, 100), data(0, 100, 100), data(10, 0, 100), ack(11, 100)];
        events.extend([20, 40].map(|t| data(t, 100, 100)));
        events.extend([ack(41, 200), data(41, 200, 100), data(60, 200, 100), ack(61, 300)]);
        let flow = flow(events);
        let runs = |from_ms: i64, to_ms: i64| {
            let span = Span { from_ns: from_ms * 1_000_000, to_ns: to_ms * 1_000_000 };
            runs(&flow, PAPER_DAY, span).runs
        };
        assert_eq!(runs(0, 100), [2, 1, 0, 0]);
        assert_eq!(runs(30, 100), [1, 1, 0, 0], "one of two has begun before");
        assert_eq!(runs(30, 50), [0, 1, 0, 0]);
        assert_eq!(runs(70, 100), [0; 4], "nothing is in it");
    }

    #[test]
    fn three_duplicate_acks_or_a_sack_make_a_fast_retransmit() {
        let mut events: Vec<Event> = (0..5).map(|n| data(0, n * 100, 100)).collect();
        events.extend([ack(20, 100), ack(30, 100), ack(30, 100), ack(30, 100), data(30, 100, 100), ack(40, 500)]);
        let fast = TimeoutRuns { fast_retransmits: 1, ..TimeoutRuns::default() };
        assert_eq!(found(PAPER_DAY, events), fast);
        let mut events: Vec<Event> = (0..5).map(|n| data(0, n * 100, 100)).collect();
        events.extend([ack(20, 100), sack(30, 100, &[(200, 300)]), data(30, 100, 100), ack(40, 500)]);
        assert_eq!(found(CURRENT, events), fast);
    }

    #[test]
    fn a_fast_retransmit_may_wait_for_the_sender_s_own_queue() {
        let mut events: Vec<Event> = (0..5).map(|n| data(0, n * 100, 100)).collect();
        events.extend([ack(20, 100), sack(30, 100, &[(200, 300)]), data(33, 100, 100), ack(40, 500)]);
        let fast = TimeoutRuns { fast_retransmits: 1, ..TimeoutRuns::default() };
        assert_eq!(found(CURRENT, events), fast);
    }

    #[test]
    fn a_lost_fast_retransmit_ends_in_a_timeout() {
        let mut events: Vec<Event> = (0..5).map(|n| data(0, n * 100, 100)).collect();
        events.extend([
            ack(20, 100),
            sack(21, 100, &[(200, 300)]),
            data(21, 100, 100),
            sack(22, 100, &[(200, 500)]),
            data(40, 100, 100),
        ]);
        let expected = TimeoutRuns { runs: [1, 0, 0, 0], timeouts: 1, fast_retransmits: 1, ..TimeoutRuns::default() };
        assert_eq!(found(CURRENT, events), expected);
    }

    #[test]
    fn a_dsack_is_no_sign_of_loss() {
        let events =
            vec![data(0, 0, 100), data(0, 100, 100), ack(1, 100), sack(59, 100, &[(0, 100)]), data(60, 100, 100)];
        assert_eq!(found(PAPER_DAY, events).timeouts, 1);
    }

    #[test]
    fn the_first_retransmission_of_the_tail_is_a_probe_where_there_are_probes() {
        let events =
            vec![data(0, 0, 100), data(0, 100, 100), ack(1, 100), data(20, 100, 100), data(40, 100, 100), ack(41, 200)];
        let with_probe = TimeoutRuns { runs: [1, 0, 0, 0], timeouts: 1, probes: 1, ..TimeoutRuns::default() };
        assert_eq!(found(CURRENT, events.clone()), with_probe);
        assert_eq!(found(PAPER_DAY, events), TimeoutRuns { runs: [0, 1, 0, 0], timeouts: 2, ..TimeoutRuns::default() });
    }

    #[test]
    fn a_probe_beyond_snd_una_sets_the_timer_anew() {
        let events =
            vec![data(0, 0, 100), data(0, 100, 100), ack(0, 0), data(20, 100, 100), data(22, 0, 100), data(40, 0, 100)];
        let expected = TimeoutRuns { runs: [1, 0, 0, 0], timeouts: 1, probes: 1, other: 1, ..TimeoutRuns::default() };
        assert_eq!(found(CURRENT, events), expected);
    }

    #[test]
    fn slow_start_after_a_timeout_is_neither() {
        let mut events: Vec<Event> = (0..4).map(|n| data(0, n * 100, 100)).collect();
        events.extend([
            data(20, 0, 100),
            ack(22, 100),
            data(22, 100, 100),
            data(22, 200, 100),
            ack(24, 300),
            data(24, 300, 100),
        ]);
        assert_eq!(
            found(PAPER_DAY, events),
            TimeoutRuns { runs: [1, 0, 0, 0], timeouts: 1, other: 3, ..TimeoutRuns::default() }
        );
    }

    #[test]
    fn an_idle_sender_has_no_timer() {
        let events = vec![data(0, 0, 100), ack(1, 100), data(500, 100, 100), data(502, 100, 100)];
        assert_eq!(found(PAPER_DAY, events), TimeoutRuns { other: 1, ..TimeoutRuns::default() });
    }

    #[test]
    fn the_rule_follows_rto_min_and_tick() {
        assert_eq!(Rule::new(8000, 250, false).idle_gap_ns, 4_000_000);
        assert_eq!(Rule::new(200_000, 250, true).idle_gap_ns, 196_000_000);
        assert_eq!(Rule::new(1000, 250, true).idle_gap_ns, 2_000_000);
    }
}
