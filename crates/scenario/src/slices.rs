//! When a virtual CPU has its core: slices of exact or seeded random length, as a credit scheduler gives them.
//!
//! Pure: draws numbers, knows no clock.

use crate::format::CoreSharing;
use crate::sweep::{GOLDEN_GAMMA, splitmix64};

/// A small seeded generator (splitmix64), so that a run's slices follow from its seed on every machine.
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// A generator for one virtual CPU: the same seed and index draw the same numbers.
    pub fn new(seed: u64, index: u64) -> Self {
        Self(seed ^ index.wrapping_mul(GOLDEN_GAMMA))
    }

    fn next(&mut self) -> u64 {
        let drawn = splitmix64(self.0);
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        drawn
    }

    /// Evenly from 0 (included) to 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// One turn of a virtual CPU: on its core, then off it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Time on the core.
    pub on_ns: u64,
    /// Time off it; 0 when all neighbours gave their slices up.
    pub off_ns: u64,
}

/// The turns of one virtual CPU, without end.
#[derive(Debug, Clone)]
pub struct Turns {
    sharing: CoreSharing,
    draw: Draw,
}

impl Turns {
    /// Turns of the virtual CPU with this index.
    pub fn new(sharing: &CoreSharing, seed: u64, index: u64) -> Self {
        Self { sharing: sharing.clone(), draw: Draw::new(seed, index) }
    }

    /// How far into its first turn a virtual CPU is when the run begins, so that VMs are not in phase.
    pub fn phase_ns(&mut self) -> u64 {
        let round_ns = self.sharing.slice_ms * 1e6 * f64::from(self.sharing.vms_per_core);
        (self.draw.unit() * round_ns) as u64
    }

    /// How long the VM keeps its core without anything to do; `None`: for the whole slice.
    pub fn idle_ns(&self) -> Option<u64> {
        self.sharing.idle_us.map(|us| u64::from(us) * 1000)
    }

    fn slice_ns(&mut self) -> u64 {
        let factor = 1.0 + self.sharing.slice_jitter * (2.0 * self.draw.unit() - 1.0);
        (self.sharing.slice_ms * 1e6 * factor) as u64
    }
}

impl Iterator for Turns {
    type Item = Turn;

    fn next(&mut self) -> Option<Turn> {
        let on_ns = self.slice_ns();
        let mut off_ns = 0;
        for _ in 1..self.sharing.vms_per_core {
            let slice_ns = self.slice_ns();
            if self.draw.unit() < self.sharing.load {
                off_ns += slice_ns;
            }
        }
        Some(Turn { on_ns, off_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharing(vms_per_core: u32, slice_jitter: f64, load: f64) -> CoreSharing {
        CoreSharing { vms_per_core, slice_ms: 30.0, slice_jitter, load, idle_us: None }
    }

    #[test]
    fn exact_slices_are_exact() {
        let turns: Vec<_> = Turns::new(&sharing(3, 0.0, 1.0), 7, 0).take(50).collect();
        assert!(turns.iter().all(|t| *t == Turn { on_ns: 30_000_000, off_ns: 60_000_000 }));
    }

    #[test]
    fn random_slices_stay_in_their_range_and_keep_the_share() {
        let turns: Vec<_> = Turns::new(&sharing(2, 0.5, 1.0), 7, 3).take(4000).collect();
        assert!(turns.iter().all(|t| (15_000_000..=45_000_000).contains(&t.on_ns)));
        assert!(turns.iter().all(|t| (15_000_000..=45_000_000).contains(&t.off_ns)));
        let on: u64 = turns.iter().map(|t| t.on_ns).sum();
        let off: u64 = turns.iter().map(|t| t.off_ns).sum();
        let share = on as f64 / (on + off) as f64;
        assert!((0.49..0.51).contains(&share), "share {share}");
    }

    #[test]
    fn idle_neighbours_give_their_slices_up() {
        let off_ns = |load| Turns::new(&sharing(3, 0.0, load), 1, 0).take(3000).map(|t| t.off_ns).sum::<u64>();
        assert_eq!(off_ns(0.0), 0);
        let ratio = off_ns(0.6) as f64 / off_ns(1.0) as f64;
        assert!((0.57..0.63).contains(&ratio), "ratio {ratio}");
    }

    #[test]
    fn seed_and_index_decide() {
        let take = |seed, index| Turns::new(&sharing(3, 0.5, 1.0), seed, index).take(5).collect::<Vec<_>>();
        assert_eq!(take(1, 2), take(1, 2));
        assert_ne!(take(1, 2), take(2, 2));
        assert_ne!(take(1, 2), take(1, 3));
    }
}
