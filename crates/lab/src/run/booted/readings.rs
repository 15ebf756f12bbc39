//! What is counted at both ends of the measured time, and in which order it is read: workloads go on meanwhile.

use crate::error::LabError;
use crate::host::agent::Counted;
use crate::host::marking::Marks;
use crate::proto::Recorded;
use crate::run::measured::Counters;

/// Who counts, and who records.
pub(super) trait Counting {
    /// The VMs: TCP's counters.
    fn vms(&mut self) -> Result<Vec<Counters>, LabError>;
    /// What ports and queues have dropped.
    fn drops(&mut self) -> Result<u64, LabError>;
    /// What marking ports have marked; None without any.
    fn marks(&mut self) -> Result<Option<Marks>, LabError>;
    /// The driver domains.
    fn domains(&mut self) -> Result<Vec<Counters>, LabError>;
    /// The agents; None without any.
    fn agents(&mut self) -> Result<Option<Counted>, LabError>;
    /// Ends the recording in all VMs, and fetches what was recorded of each workload.
    fn recorded(&mut self) -> Result<Vec<Vec<Recorded>>, LabError>;
}

/// All counters at one end.
pub(super) struct Readings {
    pub vms: Vec<Counters>,
    pub drops: u64,
    pub marks: Option<Marks>,
    pub domains: Vec<Counters>,
    pub agents: Option<Counted>,
}

impl Readings {
    /// Before the measured time. The agents' status takes time of a driver domain's processor, which is counted, so it
    /// comes first. What is held against each other (retransmissions and drops) is read together, as at the end.
    pub fn before(of: &mut impl Counting) -> Result<Self, LabError> {
        let (agents, domains) = (of.agents()?, of.domains()?);
        let (vms, drops, marks) = (of.vms()?, of.drops()?, of.marks()?);
        Ok(Self { vms, drops, marks, domains, agents })
    }

    /// As soon as the measured time is over, and before what was recorded is fetched, which takes a while.
    pub fn after(of: &mut impl Counting) -> Result<(Self, Vec<Vec<Recorded>>), LabError> {
        let (vms, drops, marks) = (of.vms()?, of.drops()?, of.marks()?);
        let (domains, agents) = (of.domains()?, of.agents()?);
        Ok((Self { vms, drops, marks, domains, agents }, of.recorded()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every call takes time, in which a port drops and its sender sends again.
    #[derive(Default)]
    struct Passing {
        now: i64,
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
        fn vms(&mut self) -> Result<Vec<Counters>, LabError> {
            self.counters(1)
        }
        fn drops(&mut self) -> Result<u64, LabError> {
            Ok(self.count(1) as u64)
        }
        fn marks(&mut self) -> Result<Option<Marks>, LabError> {
            Ok(Some(Marks { marked: self.count(1) as u64, dropped: 0 }))
        }
        fn domains(&mut self) -> Result<Vec<Counters>, LabError> {
            self.counters(50)
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
        let before = Readings::before(&mut passing).unwrap();
        passing.now += 10_000;
        let measured_until = passing.now;
        let (after, _) = Readings::after(&mut passing).unwrap();
        let retransmitted = after.vms[0].since(&before.vms[0]).0["TcpRetransSegs"] as u64;
        assert_eq!(after.drops - before.drops, retransmitted);
        assert_eq!(after.marks.unwrap().since(before.marks.unwrap()).marked, retransmitted);
        // Agents' counters too are read before the recordings are fetched.
        assert!(after.agents.unwrap().agent["probes"] < measured_until + 100);
    }
}
