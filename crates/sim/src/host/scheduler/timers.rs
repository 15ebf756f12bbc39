//! A fixed number of timers, of which the earliest is found without a search.

use crate::time::Instant;

/// A tournament of timers: each node knows which of its two halves is due first. Setting a timer costs one comparison
/// per level of the tree, and allocates nothing.
#[derive(Clone, Debug)]
pub(in crate::host) struct Timers {
    due: Vec<Instant>,
    /// The winner of each node; the root is 1, the leaves are the second half.
    winners: Vec<u32>,
}

impl Timers {
    /// `count` timers, none of them set.
    pub fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two().max(2);
        let mut winners = vec![0; 2 * leaves];
        for (leaf, winner) in winners[leaves..].iter_mut().enumerate() {
            *winner = leaf as u32;
        }
        for node in (1..leaves).rev() {
            winners[node] = winners[2 * node];
        }
        Self { due: vec![Instant::NEVER; leaves], winners }
    }

    /// Sets a timer; to [`Instant::NEVER`] to stop it.
    pub fn set(&mut self, timer: usize, at: Instant) {
        if self.due[timer] == at {
            return;
        }
        self.due[timer] = at;
        let mut node = (self.due.len() + timer) / 2;
        while node > 0 {
            let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
            // Of two timers at one instant, the one with the lower number comes first.
            let left_wins = self.due[left as usize] <= self.due[right as usize];
            self.winners[node] = if left_wins { left } else { right };
            node /= 2;
        }
    }

    /// When a timer is due.
    pub fn at(&self, timer: usize) -> Instant {
        self.due[timer]
    }

    /// When the first timer is due.
    pub fn next(&self) -> Option<Instant> {
        let first = self.due[self.winners[1] as usize];
        (first < Instant::NEVER).then_some(first)
    }

    /// Stops the first timer that is due by now, and returns its instant and number.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, usize)> {
        let first = self.winners[1] as usize;
        let at = self.due[first];
        if at > now || at == Instant::NEVER {
            return None;
        }
        self.set(first, Instant::NEVER);
        Some((at, first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_the_lower_number_at_one_instant() {
        let mut timers = Timers::new(5);
        assert_eq!(timers.next(), None);
        for (timer, at) in [(0, 30), (1, 10), (2, 20), (3, 10), (4, 5)] {
            timers.set(timer, Instant::from_ps(at));
        }
        timers.set(4, Instant::NEVER);
        assert_eq!(timers.at(2), Instant::from_ps(20));
        assert_eq!(timers.next(), Some(Instant::from_ps(10)));
        assert_eq!(timers.pop(Instant::from_ps(9)), None);
        let order: Vec<_> = std::iter::from_fn(|| timers.pop(Instant::from_ps(100))).map(|due| due.1).collect();
        assert_eq!(order, [1, 3, 2, 0]);
    }
}
