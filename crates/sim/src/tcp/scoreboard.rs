//! The segments that are sent and not yet acknowledged.

use std::collections::VecDeque;

use crate::footprint::of_deque;
use crate::time::Instant;

/// The receiver has it.
pub(super) const SACKED: u8 = 1;
/// Taken for lost.
pub(super) const LOST: u8 = 2;
/// Sent again and not yet taken for lost again.
pub(super) const RETRANSMITTED: u8 = 4;
/// Sent more than once at some time.
pub(super) const EVER: u8 = 8;

/// A segment. 24 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub seq: u64,
    /// When it was last sent.
    pub at: Instant,
    pub len: u32,
    pub flags: u8,
}

impl Sent {
    pub fn end(&self) -> u64 {
        self.seq + u64::from(self.len)
    }

    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Whether it has arrived, or is taken for lost and was not sent again since.
    fn is_settled(&self) -> bool {
        self.has(SACKED) || self.flags & (LOST | RETRANSMITTED) == LOST
    }

    fn lose(&mut self, [lost, retransmitted]: [&mut u32; 2], hint: &mut u64, losses: &mut u64) {
        *retransmitted -= u32::from(self.has(RETRANSMITTED));
        *lost += u32::from(!self.has(LOST));
        self.flags = (self.flags | LOST) & !RETRANSMITTED;
        *hint = (*hint).min(self.seq);
        *losses += 1;
    }
}

/// What is decided about a segment.
pub(super) enum Fate {
    /// Nothing yet.
    Open,
    /// Nothing yet, nor about any later segment.
    AllOpen,
    /// It is taken for lost.
    Lost,
}

/// The retransmission queue and Linux's counts of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    pub queue: VecDeque<Sent>,
    /// `sacked_out`; without SACK, duplicate ACKs.
    pub sacked: u32,
    /// `lost_out`.
    pub lost: u32,
    /// `retrans_out`.
    pub retransmitted: u32,
    /// End of the highest segment that is SACKed.
    pub highest_sacked: u64,
    /// No segment below is lost and waits to be sent again.
    pub hint: u64,
    /// Segments below are already marked, as far as three duplicate ACKs mark them.
    pub marked_to: u64,
    /// Segments ever taken for lost.
    pub losses: u64,
    /// How many segments have left the queue, which is the number of the first one in it.
    left: u64,
    /// Number of the first segment that was sent once and whose fate is open, or of an earlier one.
    open_from: u64,
    /// Segments that were sent again, in the order of their times; some entries may be stale.
    resent: VecDeque<Resent>,
    /// `resent` must be rebuilt.
    resent_is_stale: bool,
}

/// A segment was sent again.
#[derive(Clone, Copy, Debug)]
struct Resent {
    at: Instant,
    number: u64,
}

impl Scoreboard {
    /// Bytes that it has allocated beside itself.
    pub fn heap_bytes(&self) -> u64 {
        of_deque(&self.queue) + of_deque(&self.resent)
    }

    /// `packets_out`.
    pub fn out(&self) -> u32 {
        self.queue.len() as u32
    }

    /// Segments in the network, as far as known.
    pub fn in_flight(&self) -> u32 {
        (self.out() + self.retransmitted).saturating_sub(self.sacked + self.lost)
    }

    /// Index of the first segment that ends after `seq`.
    pub fn index_of(&self, seq: u64) -> usize {
        match self.queue.front() {
            Some(front) if front.end() > seq => 0,
            _ => self.queue.partition_point(|sent| sent.end() <= seq),
        }
    }

    /// Takes a segment for lost. Returns whether that is news.
    pub fn mark_lost(&mut self, index: usize) -> bool {
        let is_news = !self.queue[index].is_settled();
        if is_news {
            let Self { queue, lost, retransmitted, hint, losses, .. } = self;
            queue[index].lose([lost, retransmitted], hint, losses);
        }
        is_news
    }

    /// Sends a segment again.
    pub fn resend(&mut self, index: usize, now: Instant) -> Option<Sent> {
        let sent = self.queue.get_mut(index)?;
        sent.at = now;
        self.retransmitted += u32::from(!sent.has(RETRANSMITTED));
        sent.flags |= RETRANSMITTED | EVER;
        let sent = *sent;
        if self.resent.len() > 2 * self.queue.len() {
            // Nothing has been judged for long, so most entries are stale.
            self.resent.clear();
            self.resent_is_stale = true;
        }
        self.resent.push_back(Resent { at: now, number: self.left + index as u64 });
        Some(sent)
    }

    /// Judges the segments whose fate is open: those that were sent once, the oldest first, and those that were sent
    /// again, in the order of their times. In recovery it looks at only a few of thousands, like the kernel's
    /// `tsorted_sent_queue`.
    pub fn judge(&mut self, mut judge: impl FnMut(&Sent) -> Fate) {
        if std::mem::take(&mut self.resent_is_stale) {
            self.list_resent();
        }
        self.judge_sent_once(&mut judge);
        if !self.resent.is_empty() {
            self.judge_resent(&mut judge);
        }
    }

    fn judge_sent_once(&mut self, judge: &mut impl FnMut(&Sent) -> Fate) {
        let Self { queue, lost, retransmitted, hint, losses, .. } = self;
        let mut first_open = None;
        let mut index = self.open_from.saturating_sub(self.left) as usize;
        while let Some(sent) = queue.get_mut(index) {
            if !sent.has(EVER) && !sent.is_settled() {
                match judge(sent) {
                    Fate::Open => _ = first_open.get_or_insert(index),
                    Fate::AllOpen => break,
                    Fate::Lost => sent.lose([lost, retransmitted], hint, losses),
                }
            }
            index += 1;
        }
        self.open_from = self.left + first_open.unwrap_or(index) as u64;
    }

    fn judge_resent(&mut self, judge: &mut impl FnMut(&Sent) -> Fate) {
        let (mut looked_at, mut kept) = (0, 0);
        while let Some(&resent) = self.resent.get(looked_at) {
            let Self { queue, lost, retransmitted, hint, losses, .. } = self;
            let index = resent.number.checked_sub(self.left);
            let open = index
                .and_then(|index| queue.get_mut(index as usize))
                .filter(|sent| sent.at == resent.at && sent.has(EVER) && !sent.is_settled());
            match open.as_deref().map(&mut *judge) {
                Some(Fate::AllOpen) => break,
                Some(Fate::Open) => {
                    self.resent[kept] = resent;
                    kept += 1;
                }
                Some(Fate::Lost) => open.into_iter().for_each(|sent| sent.lose([lost, retransmitted], hint, losses)),
                None => {}
            }
            looked_at += 1;
        }
        self.resent.drain(kept..looked_at);
    }

    fn list_resent(&mut self) {
        let resent = (self.left..).zip(&self.queue).filter(|(_, sent)| sent.has(EVER) && !sent.is_settled());
        self.resent = resent.map(|(number, sent)| Resent { at: sent.at, number }).collect();
        self.resent.make_contiguous().sort_by_key(|resent| resent.at);
    }

    /// Removes the oldest segment from the queue, and its flags from the counts.
    pub fn pop(&mut self, sack: bool) {
        let Some(sent) = self.queue.pop_front() else { return };
        self.left += 1;
        self.sacked -= u32::from(sack && sent.has(SACKED));
        self.lost -= u32::from(sent.has(LOST));
        self.retransmitted -= u32::from(sent.has(RETRANSMITTED));
    }

    /// Takes back all marks of lost segments.
    pub fn unmark_losses(&mut self) {
        for sent in &mut self.queue {
            sent.flags &= !LOST;
        }
        self.lost = 0;
        self.forget_hints();
    }

    /// Forgets the hints, so that the next search looks at all segments.
    pub fn forget_hints(&mut self) {
        self.hint = 0;
        self.marked_to = 0;
        self.open_from = 0;
        self.resent_is_stale = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::Duration;

    #[derive(Clone, Debug)]
    enum Step {
        Send,
        Resend(usize),
        Sack(usize),
        Acknowledge,
        TakeForLost(usize),
        UnmarkLosses,
        /// The segment at this index is the newest that has arrived: all sent before it are lost if they are at least
        /// this old.
        Judge(usize, u64),
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let index = || 0..40_usize;
        prop::collection::vec(
            prop_oneof![
                6 => Just(Step::Send),
                4 => index().prop_map(Step::Resend),
                4 => index().prop_map(Step::Sack),
                1 => Just(Step::Acknowledge),
                1 => index().prop_map(Step::TakeForLost),
                1 => Just(Step::UnmarkLosses),
                4 => (index(), 0..30_u64).prop_map(|(newest, age)| Step::Judge(newest, age)),
                2 => (0..20_u64).prop_map(Step::Wait),
            ],
            0..300,
        )
    }

    fn fate(sent: &Sent, now: Instant, newest: (Instant, u64), allowed: Duration) -> Fate {
        if (sent.at, sent.end()) >= newest {
            return if sent.has(EVER) && sent.at == newest.0 { Fate::Open } else { Fate::AllOpen };
        }
        if now.since(sent.at) >= allowed { Fate::Lost } else { Fate::Open }
    }

    proptest! {
        /// Segments that [`Scoreboard::judge`] does not ask about would not be taken for lost either, and none of them
        /// would be waited for longer.
        #[test]
        fn judging_a_few_is_judging_all(steps in steps()) {
            let mut board = Scoreboard::default();
            let (mut now, mut seq) = (Instant::START, 1);
            for step in steps {
                match step {
                    Step::Send => {
                        board.queue.push_back(Sent { seq, at: now, len: 10, flags: 0 });
                        seq += 10;
                    }
                    Step::Resend(index) => _ = board.resend(index, now),
                    Step::Sack(index) => {
                        if let Some(sent) = board.queue.get_mut(index).filter(|sent| !sent.has(SACKED)) {
                            board.sacked += 1;
                            board.lost -= u32::from(sent.has(LOST));
                            board.retransmitted -= u32::from(sent.has(RETRANSMITTED));
                            sent.flags = sent.flags & EVER | SACKED;
                        }
                    }
                    Step::Acknowledge => board.pop(true),
                    Step::TakeForLost(index) => _ = index < board.queue.len() && board.mark_lost(index),
                    Step::UnmarkLosses => board.unmark_losses(),
                    Step::Wait(us) => now += Duration::from_us(us),
                    Step::Judge(index, age_us) => {
                        let Some(newest) = board.queue.get(index).map(|sent| (sent.at, sent.end())) else { continue };
                        let allowed = Duration::from_us(age_us);
                        let flags = |sent: &Sent| {
                            let lost = !sent.is_settled() && matches!(fate(sent, now, newest, allowed), Fate::Lost);
                            if lost { (sent.flags | LOST) & !RETRANSMITTED } else { sent.flags }
                        };
                        let expected: Vec<u8> = board.queue.iter().map(flags).collect();
                        let waits = |sent: &Sent| (sent.at, sent.end()) < newest && now.since(sent.at) < allowed;
                        let open = board.queue.iter().filter(|sent| !sent.is_settled() && waits(sent));
                        let youngest = open.map(|sent| sent.at).max();
                        let mut asked = None;
                        board.judge(|sent| {
                            asked = asked.max(Some(sent.at).filter(|_| waits(sent)));
                            fate(sent, now, newest, allowed)
                        });
                        prop_assert_eq!(asked, youngest);
                        prop_assert_eq!(board.queue.iter().map(|sent| sent.flags).collect::<Vec<_>>(), expected);
                    }
                }
            }
        }
    }
}
