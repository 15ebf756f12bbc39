//! What is counted at both ends of the measured time, and in which order it is read: workloads go on meanwhile.

use std::time::Instant;

use crate::error::LabError;
use crate::host::agent::Counted;
use crate::host::cores;
use crate::host::marking::Marks;
use crate::proto::{QDISC_DROPS, Recorded};
use crate::run::measured::Counters;

/// Who counts, and who records.
pub(super) trait Counting {
    /// Begins the recording in all VMs; TCP's counters then.
    fn begin(&mut self) -> Result<Vec<Counters>, LabError>;
    /// Ends the recording in all VMs; TCP's counters then.
    fn end(&mut self) -> Result<Vec<Counters>, LabError>;
    /// What this machine's kernel says of each VM's virtual CPUs.
    fn scheduling(&mut self) -> Result<Vec<Counters>, LabError>;
    /// What ports and queues have dropped.
    fn drops(&mut self) -> Result<u64, LabError>;
    /// What marking ports have marked; None without any.
    fn marks(&mut self) -> Result<Option<Marks>, LabError>;
    /// The driver domains.
    fn domains(&mut self) -> Result<Vec<Counters>, LabError>;
    /// The agents; None without any.
    fn agents(&mut self) -> Result<Option<Counted>, LabError>;
    /// What was recorded of each workload, by VM.
    fn recorded(&mut self) -> Result<Vec<Vec<Recorded>>, LabError>;
}

/// A point of time, by this machine's clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub instant: Instant,
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
}

impl Moment {
    fn now() -> Self {
        Self { instant: Instant::now(), monotonic_ns: cores::monotonic_ns(), realtime_ns: cores::realtime_ns() }
    }
}

/// All counters at one end.
pub(super) struct Readings {
    /// When all VMs had begun to record, or had ended.
    pub at: Moment,
    pub vms: Vec<Counters>,
    pub scheduling: Vec<Counters>,
    pub drops: u64,
    pub marks: Option<Marks>,
    pub domains: Vec<Counters>,
    pub agents: Option<Counted>,
}

impl Readings {
    /// Begins the measured time. What is held against each other (what VMs record, retransmissions, drops) is read in
    /// the same order at both ends. The agents' status takes time of a driver domain's processor, which is counted, so
    /// it is read outside.
    pub fn begin(of: &mut impl Counting) -> Result<Self, LabError> {
        let agents = of.agents()?;
        let (vms, at, scheduling) = (of.begin()?, Moment::now(), of.scheduling()?);
        let (drops, marks, domains) = (of.drops()?, of.marks()?, of.domains()?);
        Ok(Self { at, vms, scheduling, drops, marks, domains, agents })
    }

    /// Ends it.
    pub fn end(of: &mut impl Counting) -> Result<Self, LabError> {
        let (vms, at, scheduling) = (of.end()?, Moment::now(), of.scheduling()?);
        let (drops, marks, domains) = (of.drops()?, of.marks()?, of.domains()?);
        Ok(Self { at, vms, scheduling, drops, marks, domains, agents: of.agents()? })
    }

    /// What all ports have dropped since an earlier reading, driver domains' among them.
    pub fn dropped_since(&self, before: &Self) -> u64 {
        let in_domains = |domains: &[Counters]| -> u64 {
            domains.iter().filter_map(|domain| domain.0.get(QDISC_DROPS)).map(|count| count.unsigned_abs()).sum()
        };
        (self.drops + in_domains(&self.domains)).saturating_sub(before.drops + in_domains(&before.domains))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    /// Every call takes time, in which a port drops and its sender sends again.
    #[derive(Default)]
    struct Passing {
        now: i64,
        recorded: Range<i64>,
    }

    impl Passing {
        /// What has been counted until now; the call ends `takes` later.
        fn count(&mut self, takes: i64) -> i64 {
            self.now += takes;
            self.now - takes
        }

        fn counters(&mut self, takes: i64) -> Result<Vec<Counters>, LabError> {
            let count = self.count(takes);
            Ok(vec![Counters([("TcpRetransSegs".to_owned(), count)].into())])
        }
    }

    impl Counting for Passing {
        fn begin(&mut self) -> Result<Vec<Counters>, LabError> {
            self.recorded.start = self.now;
            self.counters(1)
        }
        fn end(&mut self) -> Result<Vec<Counters>, LabError> {
            self.recorded.end = self.now;
            self.counters(1)
        }
        fn scheduling(&mut self) -> Result<Vec<Counters>, LabError> {
            self.counters(1)
        }
        fn drops(&mut self) -> Result<u64, LabError> {
            Ok(self.count(1) as u64)
        }
        fn marks(&mut self) -> Result<Option<Marks>, LabError> {
            Ok(Some(Marks { marked: self.count(1) as u64, dropped: 0 }))
        }
        fn domains(&mut self) -> Result<Vec<Counters>, LabError> {
            let count = self.count(50);
            Ok(vec![Counters([(QDISC_DROPS.to_owned(), count)].into())])
        }
        fn agents(&mut self) -> Result<Option<Counted>, LabError> {
            let count = self.count(10);
            Ok(Some(Counted { agent: [("probes".to_owned(), count)].into(), ..Counted::default() }))
        }
        fn recorded(&mut self) -> Result<Vec<Vec<Recorded>>, LabError> {
            self.count(1000);
            Ok(Vec::new())
        }
    }

    #[test]
    fn as_much_is_dropped_as_is_sent_again() {
        let mut passing = Passing::default();
        let before = Readings::begin(&mut passing).unwrap();
        passing.now = 10_000;
        let after = Readings::end(&mut passing).unwrap();
        let retransmitted = after.vms[0].since(&before.vms[0]).0["TcpRetransSegs"] as u64;
        assert_eq!(after.drops - before.drops, retransmitted);
        assert_eq!(after.marks.unwrap().since(before.marks.unwrap()).marked, retransmitted);
        // The domain's ports drop as many again.
        assert_eq!(after.dropped_since(&before), 2 * retransmitted);
        // Nothing is recorded while others are asked.
        let recorded = &passing.recorded;
        assert_eq!((recorded.end, (recorded.end - recorded.start) as u64), (10_000, retransmitted));
        assert!(after.agents.unwrap().agent["probes"] < 10_100);
    }
}
