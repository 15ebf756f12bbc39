//! A host's cores: who competes for them, and what happens to whom.
//!
//! The competitors are the virtual CPUs of its VMs, neighbours that only compute, and a thread for the host's own work
//! on packets, if that is done on the VMs' cores. A [`scheduler`](super::scheduler) decides who runs. Neighbours wake
//! and block here by their duty cycles; a VM is told when it begins or ends to compute beside its traffic. Only the VM
//! knows what else it has to do: its driver wakes and blocks it.

use std::collections::VecDeque;

use super::scheduler::credit::{Credit, CreditSpec};
use super::scheduler::linux::{Linux, LinuxSpec};
use super::scheduler::timers::Timers;
use super::scheduler::{Change, EntityId, Scheduler, What, Why};
use crate::packet::{GuestId, HostId};
use crate::time::{Duration, Instant};

/// Which scheduler, and its entities in their order: virtual CPUs, neighbours, the host's own thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulerSpec {
    /// Xen's.
    Credit(CreditSpec),
    /// Linux's.
    Linux(LinuxSpec),
}

/// Computing for a part of each period, by the clock: an entity without a core in that time computes less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duty {
    /// The computing part of a period.
    pub busy: Duration,
    /// Length of a period.
    pub period: Duration,
    /// When a period begins; the others follow at multiples of the period.
    pub phase: Duration,
}

impl Duty {
    /// Whether it computes, and until when that is so.
    pub fn at(&self, now: Instant) -> (bool, Instant) {
        if self.busy == Duration::ZERO || self.busy >= self.period {
            return (self.busy > Duration::ZERO, Instant::NEVER);
        }
        let period = self.period.ps();
        let into = (now.ps() + period - self.phase.ps() % period) % period;
        let busy = into < self.busy.ps();
        let end = if busy { self.busy.ps() } else { period };
        (busy, now + Duration::from_ps(end - into))
    }
}

/// A host's cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoresSpec {
    /// Which host.
    pub host: HostId,
    /// Who decides.
    pub scheduler: SchedulerSpec,
    /// The VMs, and what each computes beside its traffic.
    pub vcpus: Vec<(GuestId, Option<Duty>)>,
    /// The neighbours.
    pub neighbours: Vec<Duty>,
    /// Whether the host's own work on packets is done here: by the last entity.
    pub has_domain: bool,
}

/// Who competes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A VM's virtual CPU.
    Vcpu(GuestId),
    /// A neighbour.
    Neighbour,
    /// The host's own work on packets.
    Domain,
}

/// What happens to a virtual CPU, or to the host's own thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happens {
    /// It has a core.
    Gets(Who),
    /// It loses its core before it is done.
    Loses(Who),
    /// A VM begins to compute beside its traffic, or ends.
    Computes(GuestId, bool),
}

#[derive(Debug)]
enum Model {
    Credit(Credit),
    Linux(Linux),
}

impl Model {
    fn scheduler(&mut self) -> &mut dyn Scheduler {
        match self {
            Self::Credit(credit) => credit,
            Self::Linux(linux) => linux,
        }
    }

    fn next_event(&self) -> Option<Instant> {
        match self {
            Self::Credit(credit) => credit.next_event(),
            Self::Linux(linux) => linux.next_event(),
        }
    }
}

#[derive(Debug)]
struct Entity {
    who: Who,
    duty: Option<Duty>,
    /// It is in the busy part of its duty.
    computes: bool,
    runs: bool,
}

/// Who runs on a host's cores.
#[derive(Debug)]
pub struct Cores {
    model: Model,
    entities: Vec<Entity>,
    /// The next change of each entity's duty.
    duties: Timers,
    changes: Vec<Change>,
    /// What has happened, the oldest first; the driver takes it out.
    pub happened: VecDeque<Happens>,
}

impl Cores {
    /// Cores on which nobody runs yet. Phases of ticks and periods are drawn from the seed.
    pub fn new(spec: &CoresSpec, seed: u64) -> Self {
        let model = match &spec.scheduler {
            SchedulerSpec::Credit(credit) => Model::Credit(Credit::new(credit, Some(seed))),
            SchedulerSpec::Linux(linux) => Model::Linux(Linux::new(linux, Some(seed))),
        };
        let vcpus = spec.vcpus.iter().map(|(guest, duty)| (Who::Vcpu(*guest), *duty));
        let neighbours = spec.neighbours.iter().map(|duty| (Who::Neighbour, Some(*duty)));
        let domain = spec.has_domain.then_some((Who::Domain, None));
        let entities: Vec<_> = vcpus
            .chain(neighbours)
            .chain(domain)
            .map(|(who, duty)| Entity { who, duty, computes: false, runs: false })
            .collect();
        let mut duties = Timers::new(entities.len());
        for (number, _) in entities.iter().enumerate().filter(|(_, entity)| entity.duty.is_some()) {
            duties.set(number, Instant::START);
        }
        Self { model, entities, duties, changes: Vec::new(), happened: VecDeque::new() }
    }

    /// The host's own thread; the last, if there is one.
    pub fn domain(&self) -> EntityId {
        EntityId(self.entities.len() as u32 - 1)
    }

    /// An entity has something to do.
    pub fn wake(&mut self, entity: EntityId, now: Instant) {
        self.model.scheduler().wake(entity, now, &mut self.changes);
        self.follow(now);
    }

    /// An entity has nothing more to do.
    pub fn block(&mut self, entity: EntityId, now: Instant) {
        self.model.scheduler().block(entity, now, &mut self.changes);
        self.follow(now);
    }

    /// When something is to be decided, or a duty begins or ends, if nobody wakes up or blocks before.
    pub fn next_event(&self) -> Option<Instant> {
        match (self.model.next_event(), self.duties.next()) {
            (Some(model), Some(duty)) => Some(model.min(duty)),
            (model, duty) => model.or(duty),
        }
    }

    /// Does what is due now.
    pub fn advance(&mut self, now: Instant) {
        while let Some((at, number)) = self.duties.pop(now) {
            self.turn(number, at);
        }
        if self.model.next_event().is_some_and(|at| at <= now) {
            self.model.scheduler().advance(now, &mut self.changes);
            self.follow(now);
        }
    }

    /// How long a VM's quota has throttled it; `None` without a quota.
    pub fn throttled(&self, entity: EntityId) -> Option<Duration> {
        match &self.model {
            Model::Credit(_) => None,
            Model::Linux(linux) => linux.quota_stats(entity.0).map(|stats| stats.throttled),
        }
    }

    /// A duty begins or ends.
    fn turn(&mut self, number: usize, now: Instant) {
        let entity = &mut self.entities[number];
        let Some(duty) = entity.duty else { return };
        let (computes, until) = duty.at(now);
        self.duties.set(number, until);
        if entity.computes == computes {
            return;
        }
        entity.computes = computes;
        match entity.who {
            Who::Vcpu(guest) => self.happened.push_back(Happens::Computes(guest, computes)),
            _ if computes => self.wake(EntityId(number as u32), now),
            // A neighbour that waits for a core notices when it runs.
            _ if entity.runs => self.block(EntityId(number as u32), now),
            _ => {}
        }
    }

    fn follow(&mut self, now: Instant) {
        let mut at = 0;
        // Neighbours that notice that they are done cause more changes.
        while let Some(change) = self.changes.get(at).copied() {
            at += 1;
            let entity = &mut self.entities[change.entity.0 as usize];
            entity.runs = change.what == What::Runs;
            match (entity.who, change.what) {
                (Who::Neighbour, What::Runs) if !entity.computes => {
                    self.model.scheduler().block(change.entity, now, &mut self.changes);
                }
                (Who::Neighbour, _) | (_, What::Stops(Why::Blocked)) => {}
                (who, What::Runs) => self.happened.push_back(Happens::Gets(who)),
                (who, What::Stops(_)) => self.happened.push_back(Happens::Loses(who)),
            }
        }
        self.changes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scheduler::linux::ThreadSpec;

    fn at(us: u64) -> Instant {
        Instant::START + Duration::from_us(us)
    }

    #[test]
    fn a_duty_is_by_the_clock() {
        let [busy, period, phase] = [18, 30, 20].map(Duration::from_ms);
        let duty = Duty { busy, period, phase };
        let found: Vec<_> = [0, 7_999, 8_000, 19_999, 20_000].into_iter().map(|us| duty.at(at(us))).collect();
        let expected = [(true, 8_000), (true, 8_000), (false, 20_000), (false, 20_000), (true, 38_000)]
            .map(|(on, us)| (on, at(us)));
        assert_eq!(found, expected);
        assert_eq!(Duty { busy: period, ..duty }.at(at(3)), (true, Instant::NEVER));
        assert_eq!(Duty { busy: Duration::ZERO, ..duty }.at(at(3)), (false, Instant::NEVER));
    }

    /// A neighbour whose time is over while it waits runs for no time.
    #[test]
    fn neighbours_come_and_go() {
        let duty = |busy| Duty { busy: Duration::from_ms(busy), period: Duration::from_ms(10), phase: Duration::ZERO };
        let guest = GuestId(4);
        let spec = CoresSpec {
            host: HostId(0),
            scheduler: SchedulerSpec::Linux(LinuxSpec {
                threads: vec![ThreadSpec::default(); 2],
                slice: Some(Duration::from_ms(3)),
                ..LinuxSpec::default()
            }),
            vcpus: vec![(guest, Some(duty(5)))],
            neighbours: vec![duty(1)],
            has_domain: false,
        };
        let mut cores = Cores::new(&spec, 1);
        cores.advance(at(0));
        assert_eq!(cores.happened, [Happens::Computes(guest, true)]);
        cores.happened.clear();
        cores.wake(EntityId(0), at(0));
        assert_eq!(cores.next_event(), cores.model.next_event().map(|tick| tick.min(at(1_000))));
        let mut now = at(0);
        while now < at(9_000) {
            now = cores.next_event().unwrap();
            cores.advance(now);
        }
        let runs = |happens: &Happens| matches!(happens, Happens::Gets(Who::Vcpu(_)));
        assert_eq!(cores.happened.iter().filter(|happens| runs(happens)).count(), 1, "{:?}", cores.happened);
        assert!(!cores.entities[1].runs && cores.entities[0].runs);
    }
}
