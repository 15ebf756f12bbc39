//! Guests' clocks beside this machine's.

use crate::error::LabError;
use crate::host::cores::monotonic_ns;
use crate::host::vm::Vm;
use crate::proto::{Answer, Op};

/// Readings of a guest's clock; the one that took the least time counts.
const CLOCK_READINGS: u32 = 16;

/// A guest's clock, beside this machine's CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clock {
    /// What to add to this machine's clock to have the guest's.
    pub offset_ns: i64,
    /// From when on another offset holds, by this machine's clock: the guest's stood still while the VM was moved.
    pub later: Option<(u64, i64)>,
}

impl Clock {
    /// Compares a guest's clock now.
    pub fn of(vm: &Vm) -> Result<Self, LabError> {
        Ok(Self { offset_ns: clock_offset_ns(vm)?, later: None })
    }

    /// The host's time at one of the guest's.
    pub fn by_host(&self, ns: u64) -> i64 {
        let by_host = ns as i64 - self.offset_ns;
        match self.later {
            Some((from_ns, offset_ns)) if by_host >= from_ns as i64 => ns as i64 - offset_ns,
            _ => by_host,
        }
    }
}

/// What to add to this machine's CLOCK_MONOTONIC to have the guest's.
pub fn clock_offset_ns(vm: &Vm) -> Result<i64, LabError> {
    let mut best: Option<(u64, i64)> = None;
    for _ in 0..CLOCK_READINGS {
        let before = monotonic_ns();
        let answer = vm.call(Op::Now)?;
        let took = monotonic_ns() - before;
        let Answer::Now { monotonic_ns: guest } = answer else {
            let why = format!("unexpected answer to now: {answer:?}");
            return Err(LabError::Vm { name: vm.spec.name.clone(), why });
        };
        let offset = guest as i64 - (before + took / 2) as i64;
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, offset));
        }
    }
    Ok(best.map_or(0, |(_, offset)| offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stood_still_is_read_in_two_parts() {
        // 5 ms long, from 100 ms of the host's clock on.
        let clock = Clock { offset_ns: 1_000_000, later: Some((100_000_000, -4_000_000)) };
        assert_eq!(clock.by_host(100_500_000), 99_500_000);
        assert_eq!(clock.by_host(101_000_000), 105_000_000);
    }
}
