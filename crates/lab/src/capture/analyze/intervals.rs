//! Sets of bytes of the sequence space.

use std::collections::BTreeMap;

/// A union of half-open ranges; a flow without loss is one range.
#[derive(Debug, Clone, Default)]
pub struct Intervals {
    /// First byte to the one after the last; disjoint, not adjacent.
    ranges: BTreeMap<i64, i64>,
}

impl Intervals {
    /// How many bytes of `start..end` are in the set.
    pub fn overlap(&self, start: i64, end: i64) -> u64 {
        // The last range that begins before `end`, and those before it as far as they reach into `start..`.
        let reaching = self.ranges.range(..end).rev().take_while(|&(_, &to)| to > start);
        reaching.map(|(&from, &to)| to.min(end).abs_diff(from.max(start))).sum()
    }

    /// Adds `start..end` and returns how many of its bytes were in the set already.
    pub fn insert(&mut self, mut start: i64, mut end: i64) -> u64 {
        if start >= end {
            return 0;
        }
        let overlap = self.overlap(start, end);
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back().filter(|&(_, &to)| to >= start) {
            self.ranges.remove(&from);
            start = start.min(from);
            end = end.max(to);
        }
        self.ranges.insert(start, end);
        overlap
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(ranges in prop::collection::vec((0i64..60, 0i64..20), 0..20), probe in (0i64..60, 0i64..20)) {
            let mut set = Intervals::default();
            let mut model = BTreeSet::new();
            for (start, len) in ranges {
                let known = (start..start + len).filter(|byte| model.contains(byte)).count() as u64;
                prop_assert_eq!(set.insert(start, start + len), known);
                model.extend(start..start + len);
            }
            let (start, len) = probe;
            let known = (start..start + len).filter(|byte| model.contains(byte)).count() as u64;
            prop_assert_eq!(set.overlap(start, start + len), known);
        }
    }
}
