//! A switch's memory, shared by its ports under a dynamic threshold.

use super::topology::Alpha;

#[derive(Debug)]
pub(super) struct Pool {
    pub used: u64,
    pub ports: Vec<u32>,
    bytes: u64,
    alpha: Alpha,
}

impl Pool {
    pub fn new(bytes: u64, alpha: Alpha) -> Self {
        Self { used: 0, ports: Vec::new(), bytes, alpha }
    }

    pub fn free(&mut self, bytes: u64) {
        self.used -= bytes;
    }

    /// Whether a port with `waiting` bytes waiting may take this packet in.
    pub fn admits(&self, waiting: u64, bytes: u32) -> bool {
        self.admits_after(0, waiting, bytes)
    }

    /// The same, after `given_back` bytes of this memory have been freed.
    pub fn admits_after(&self, given_back: u64, waiting: u64, bytes: u32) -> bool {
        let unused = self.bytes.saturating_sub(self.used - given_back);
        u64::from(bytes) <= unused
            && u128::from(waiting) * u128::from(self.alpha.den) < u128::from(unused) * u128::from(self.alpha.num)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_grows_up_to_alpha_times_the_unused() {
        let mut pool = Pool::new(90_000, Alpha { num: 1, den: 2 });
        pool.used = 30_000;
        assert!(pool.admits(29_999, 1_000));
        assert!(!pool.admits(30_000, 1_000), "half of 60,000 unused");
        assert!(pool.admits_after(10_000, 30_000, 1_000));
        pool.used = 89_500;
        assert!(!pool.admits(0, 1_000), "does not fit");
        assert!(pool.admits(0, 500));
    }

    #[test]
    fn one_queue_alone_gets_alpha_over_one_plus_alpha() {
        let mut pool = Pool::new(100_000, Alpha { num: 1, den: 1 });
        let mut waiting = 0;
        while pool.admits(waiting, 100) {
            waiting += 100;
            pool.used += 100;
        }
        assert_eq!(waiting, 50_000);
    }
}
