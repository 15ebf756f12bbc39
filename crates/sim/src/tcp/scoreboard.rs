//! The segments that are sent and not yet acknowledged.

use std::collections::VecDeque;

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

    /// It has arrived, or is taken for lost and not sent again.
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
    /// Nothing yet, nor about those after it.
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
    /// Nothing below is lost and waits to be sent again.
    pub hint: u64,
    /// All below is already marked, as far as three duplicate ACKs mark it.
    pub marked_to: u64,
    /// Segments ever taken for lost.
    pub losses: u64,
}

impl Scoreboard {
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

    /// Takes a segment for lost; true if that is news.
    pub fn mark_lost(&mut self, index: usize) -> bool {
        let is_news = !self.queue[index].is_settled();
        if is_news {
            let Self { queue, lost, retransmitted, hint, losses, .. } = self;
            queue[index].lose([lost, retransmitted], hint, losses);
        }
        is_news
    }

    /// Judges the segments whose fate is open, the oldest first. In recovery there may be thousands at each ACK, most of them SACKed.
    pub fn judge(&mut self, mut judge: impl FnMut(&Sent) -> Fate) {
        let Self { queue, lost, retransmitted, hint, losses, .. } = self;
        let (older, younger) = queue.as_mut_slices();
        for part in [older, younger] {
            for sent in part.iter_mut().filter(|sent| !sent.is_settled()) {
                match judge(sent) {
                    Fate::Open => {}
                    Fate::AllOpen => return,
                    Fate::Lost => sent.lose([lost, retransmitted], hint, losses),
                }
            }
        }
    }

    /// Forgets a segment's flags in the counts, before it leaves.
    pub fn uncount(&mut self, sent: &Sent, sack: bool) {
        self.sacked -= u32::from(sack && sent.has(SACKED));
        self.lost -= u32::from(sent.has(LOST));
        self.retransmitted -= u32::from(sent.has(RETRANSMITTED));
    }

    /// Takes no segment for lost any more.
    pub fn unmark_losses(&mut self) {
        for sent in &mut self.queue {
            sent.flags &= !LOST;
        }
        self.lost = 0;
        self.forget_hints();
    }

    /// Looks at everything again.
    pub fn forget_hints(&mut self) {
        self.hint = 0;
        self.marked_to = 0;
    }
}
