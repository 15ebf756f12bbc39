//! Xen's credit scheduler as of Xen 4.1 (`xen/common/sched_credit.c`): the hypervisor of the papers.
//!
//! # The model
//!
//! 1. *Credits.* A virtual CPU that runs burns 10 credits per millisecond (`burn_credits`). Every 30 ms, 300 credits
//!    per core are dealt out to the domains that are active, by weight, and within a domain evenly (`csched_acct`). A
//!    domain gets no more than its virtual CPUs could burn, and no more than its cap; the rest goes to others.
//! 2. *Priority.* A virtual CPU that has credits left after that is UNDER, one that has overdrawn is OVER
//!    (`csched_acct`). None changes between the two before the next accounting.
//! 3. *Queues.* Each core has a queue in the order of priorities, first come, first served within one
//!    (`__runq_insert`). The first one gets the core for 30 ms (`csched_schedule`), or until it halts, or until one
//!    comes whose priority is strictly higher (`__runq_tickle`). The accounting changes no queue: each core puts those
//!    that are UNDER to the front at its next tick (`csched_runq_sort`).
//! 4. *BOOST.* A virtual CPU that wakes up and is UNDER is above all others, until a tick finds it running
//!    (`csched_vcpu_wake`, `csched_vcpu_acct`). So a VM that computes little never waits; one that a tick has found
//!    running waits with the others. Ticks are 10 ms apart.
//! 5. *Active.* Only virtual CPUs that a tick has found running take part in the accounting (`csched_vcpu_acct`). One
//!    that collects more than 300 credits does not need them: it leaves, with half of them (`csched_acct`).
//! 6. *Cap.* A virtual CPU of a capped domain that has overdrawn by more than its share of the cap is parked: it does
//!    not run until it has credits again, and is not boosted then (`csched_acct`).
//! 7. *Cores.* A virtual CPU that wakes up joins the queue of its last core. If that is busy, one idle core is told
//!    (`__runq_tickle`, `tickle_one_idle`). A core that would run one that is OVER, or nothing, looks at the others for
//!    one above that (`csched_load_balance`, `csched_runq_steal`).
//!
//! ```text
//!                          wake, credits left
//!            +--------------------------------------+
//!            |                                      v
//!     +------+---+     a tick finds it running   +-------+
//!     |  UNDER   | <---------------------------- | BOOST |
//!     +----------+                               +-------+
//!        |    ^
//!        |    |  accounting: credits >= 0
//!        v    |
//!     +----------+   overdrawn by more than the cap  +--------+
//!     |   OVER   | --------------------------------> | parked |
//!     +----------+                                   +--------+
//!                     accounting: credits < 0        back to UNDER: credits >= 0
//! ```
//!
//! # What is left out
//!
//! Affinity, pools of cores, topology (on a socket without hyper-threads `_csched_cpu_pick` never moves a virtual CPU
//! that runs), `yield`, and the cost of a switch. Where the hypervisor interrupts several cores at once, the waker's
//! core goes first.
//!
//! Ticks are at multiples of 10 ms on all cores, as after `csched_tick_resume`; the accounting comes after a tick of
//! the same instant. Ticks are events only while a virtual CPU runs, accountings only while one takes part.

mod accounting;

#[cfg(test)]
mod tests;

use evenkeel_scenario::random::Random;

use super::timers::Timers;
use super::{Change, CoreId, EntityId, Scheduler, What, Why};
use crate::time::{Duration, Instant};

/// Time between ticks: `CSCHED_MSECS_PER_TICK`.
const TICK: Duration = Duration::from_ms(10);
/// Ticks between accountings: `CSCHED_TICKS_PER_ACCT`.
const TICKS_PER_ACCOUNTING: u64 = 3;
/// Longest time that a virtual CPU runs before others of its priority: `CSCHED_MSECS_PER_TSLICE`. Long enough for
/// caches to pay off, but too long for a packet to wait.
const SLICE: Duration = Duration::from_ms(30);
/// Picoseconds that a credit lasts: `CSCHED_CREDITS_PER_MSEC` is 10.
const CREDIT_PS: u64 = 100_000_000;
/// Weight of a domain that was given none: `CSCHED_DEFAULT_WEIGHT`.
pub const DEFAULT_WEIGHT: u32 = 256;
/// Timers: the tick, the accounting, then the end of the slice on each core.
const TIMER_TICK: usize = 0;
const TIMER_ACCOUNTING: usize = 1;
const TIMER_SLICES: usize = 2;

/// A VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainSpec {
    /// Its share, relative to others, per virtual CPU that is active.
    pub weight: u32,
    /// The most that it gets, in hundredths of a core; 0 for as much as there is.
    pub cap: u32,
}

impl Default for DomainSpec {
    fn default() -> Self {
        Self { weight: DEFAULT_WEIGHT, cap: 0 }
    }
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditSpec {
    /// Number of cores.
    pub cores: u32,
    /// Longest time that a virtual CPU runs before others of its priority do.
    pub slice: Duration,
    /// Time between ticks.
    pub tick: Duration,
    /// Whether a virtual CPU that wakes up with credits left is above all others.
    pub boost: bool,
    /// The VMs.
    pub domains: Vec<DomainSpec>,
    /// The domain of each virtual CPU.
    pub vcpus: Vec<u32>,
}

impl Default for CreditSpec {
    fn default() -> Self {
        Self { cores: 1, slice: SLICE, tick: TICK, boost: true, domains: Vec::new(), vcpus: Vec::new() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    Over,
    Under,
    Boost,
}

#[derive(Debug)]
struct Vcpu {
    domain: u32,
    core: u32,
    priority: Priority,
    credit: i64,
    /// While it runs: up to when its time has been burnt. Credits are whole, and the rest is carried over.
    burnt: Instant,
    /// The rest when it stopped: time not burnt yet, or negative if too much was burnt.
    owed_ps: i64,
    awake: bool,
    active: bool,
    parked: bool,
}

#[derive(Debug, Default)]
struct Core {
    running: Option<u32>,
    /// Waiting virtual CPUs, in the order of priorities, then of arrival.
    queue: Vec<u32>,
    /// It is to choose again, and why.
    raised: Option<Why>,
    /// The accounting after which its queue was last sorted.
    sorted: u64,
}

#[derive(Debug)]
struct Domain {
    weight: i64,
    cap: i64,
    /// Its virtual CPUs that take part in the accounting, the latest first.
    active: Vec<u32>,
}

/// A Xen host's scheduler.
#[derive(Debug)]
pub struct Credit {
    vcpus: Vec<Vcpu>,
    cores: Vec<Core>,
    domains: Vec<Domain>,
    /// Domains with active virtual CPUs, the latest first; and a buffer that the accounting uses.
    active: Vec<u32>,
    turn: Vec<u32>,
    /// Weight of all active virtual CPUs.
    weight: i64,
    /// Sum of the credits that were left after the last accounting.
    balance: i64,
    /// Accountings that have changed priorities.
    accountings: u64,
    /// Idle cores are told of work in turn.
    last_told: u32,
    slice: Duration,
    between_ticks: Duration,
    boost: bool,
    phase: Duration,
    timers: Timers,
}

impl Credit {
    /// A host on which all virtual CPUs are asleep. The phase of its ticks is drawn from the seed; without a seed they
    /// begin with the simulation.
    pub fn new(spec: &CreditSpec, seed: Option<u64>) -> Self {
        let between_ticks = Duration::from_ps(spec.tick.ps().max(1));
        let phase_ps = seed.map_or(0, |seed| Random::new(seed, 0).bits() % (between_ticks * TICKS_PER_ACCOUNTING).ps());
        let cores = spec.cores.max(1) as usize;
        Self {
            vcpus: spec
                .vcpus
                .iter()
                .map(|domain| Vcpu {
                    domain: *domain,
                    core: 0,
                    priority: Priority::Under,
                    credit: 0,
                    burnt: Instant::START,
                    owed_ps: 0,
                    awake: false,
                    active: false,
                    parked: false,
                })
                .collect(),
            cores: std::iter::repeat_with(Core::default).take(cores).collect(),
            domains: spec
                .domains
                .iter()
                .map(|domain| Domain {
                    weight: i64::from(domain.weight.max(1)),
                    cap: i64::from(domain.cap),
                    active: Vec::new(),
                })
                .collect(),
            active: Vec::new(),
            turn: Vec::new(),
            weight: 0,
            balance: 0,
            accountings: 0,
            last_told: 0,
            slice: spec.slice,
            between_ticks,
            boost: spec.boost,
            phase: Duration::from_ps(phase_ps),
            timers: Timers::new(TIMER_SLICES + cores),
        }
    }

    /// Time between accountings.
    fn accounting(&self) -> Duration {
        self.between_ticks * TICKS_PER_ACCOUNTING
    }

    /// The next multiple of `every`, counted from the phase, after `now`.
    fn next_multiple(&self, now: Instant, every: Duration) -> Instant {
        let phase = self.phase.ps() % every.ps();
        let passed = (now.ps() + every.ps() - phase) / every.ps();
        Instant::from_ps(passed * every.ps() + phase)
    }

    /// A virtual CPU pays for the time that it has run: `burn_credits`.
    fn burn(&mut self, vcpu: u32, now: Instant) {
        let entry = &mut self.vcpus[vcpu as usize];
        let ran = now.since(entry.burnt).ps();
        let credits = (ran + CREDIT_PS / 2) / CREDIT_PS;
        entry.credit -= credits as i64;
        entry.burnt += Duration::from_ps(credits * CREDIT_PS);
    }

    /// Puts a virtual CPU behind all of its priority: `__runq_insert`.
    fn insert(&mut self, core: u32, vcpu: u32) {
        let priority = self.vcpus[vcpu as usize].priority;
        let queue = &self.cores[core as usize].queue;
        // The queue need not be in order: priorities change while virtual CPUs wait.
        let at = queue.iter().position(|other| priority > self.vcpus[*other as usize].priority).unwrap_or(queue.len());
        self.cores[core as usize].queue.insert(at, vcpu);
    }

    fn remove(&mut self, core: u32, vcpu: u32) {
        self.cores[core as usize].queue.retain(|other| *other != vcpu);
    }

    /// Tells cores of a waiting virtual CPU: its own core, if it goes before the one that runs there, and an idle core,
    /// if its own is busy: `__runq_tickle`.
    fn tickle(&mut self, core: u32, vcpu: u32) {
        let running = self.cores[core as usize].running;
        let priority = self.vcpus[vcpu as usize].priority;
        if running.is_none_or(|running| priority > self.vcpus[running as usize].priority) {
            self.cores[core as usize].raised.get_or_insert(Why::Preempted);
        }
        if running.is_some() {
            let cores = self.cores.len() as u32;
            let after = self.last_told + 1;
            let is_idle = |core: &u32| self.cores[*core as usize].running.is_none();
            if let Some(idle) = (after..cores).chain(0..after.min(cores)).find(is_idle) {
                self.last_told = idle;
                self.cores[idle as usize].raised.get_or_insert(Why::Preempted);
            }
        }
    }

    /// A virtual CPU begins to wait for a core: `csched_vcpu_wake`.
    fn start_waiting(&mut self, vcpu: u32) {
        let entry = &mut self.vcpus[vcpu as usize];
        if self.boost && entry.priority == Priority::Under && !entry.parked {
            entry.priority = Priority::Boost;
        }
        let core = entry.core;
        self.insert(core, vcpu);
        self.tickle(core, vcpu);
    }

    /// A virtual CPU neither runs nor waits from now on: `csched_vcpu_sleep`.
    fn stop_waiting(&mut self, vcpu: u32, why: Why) {
        let core = self.vcpus[vcpu as usize].core;
        if self.cores[core as usize].running == Some(vcpu) {
            self.cores[core as usize].raised = Some(why);
        } else {
            self.remove(core, vcpu);
        }
    }

    /// Takes a virtual CPU above this priority that waits on another core: `csched_load_balance`, `csched_runq_steal`.
    fn steal(&mut self, core: u32, above: Option<Priority>) -> Option<u32> {
        let cores = self.cores.len() as u32;
        for other in (core + 1..cores).chain(0..core) {
            // An idle core is about to run its own.
            if self.cores[other as usize].running.is_none() {
                continue;
            }
            let first = self.cores[other as usize].queue.first().copied();
            if let Some(vcpu) = first.filter(|vcpu| Some(self.vcpus[*vcpu as usize].priority) > above) {
                self.cores[other as usize].queue.remove(0);
                self.vcpus[vcpu as usize].core = core;
                return Some(vcpu);
            }
        }
        None
    }

    /// A core chooses what to run: `csched_schedule`.
    fn schedule(&mut self, core: u32, why: Why, now: Instant, changes: &mut Vec<Change>) {
        let previous = self.cores[core as usize].running;
        if let Some(previous) = previous {
            self.burn(previous, now);
            let entry = &self.vcpus[previous as usize];
            if entry.awake && !entry.parked {
                self.insert(core, previous);
            }
        }
        let first = self.cores[core as usize].queue.first().copied();
        let priority = first.map(|first| self.vcpus[first as usize].priority);
        let stolen = if priority > Some(Priority::Over) { None } else { self.steal(core, priority) };
        let next = stolen.or_else(|| {
            let queue = &mut self.cores[core as usize].queue;
            (!queue.is_empty()).then(|| queue.remove(0))
        });
        self.timers.set(TIMER_SLICES + core as usize, next.map_or(Instant::NEVER, |_| now + self.slice));
        if next == previous {
            return;
        }
        let change = |vcpu: u32, what| Change { at: now, core: CoreId(core), entity: EntityId(vcpu), what };
        if let Some(previous) = previous {
            let entry = &mut self.vcpus[previous as usize];
            entry.owed_ps = now.ps() as i64 - entry.burnt.ps() as i64;
            changes.push(change(previous, What::Stops(why)));
        }
        self.cores[core as usize].running = next;
        if let Some(next) = next {
            let entry = &mut self.vcpus[next as usize];
            entry.burnt = Instant::from_ps(now.ps().saturating_add_signed(-entry.owed_ps));
            changes.push(change(next, What::Runs));
        }
    }

    /// Lets the cores that were told to choose do so, this one first.
    fn settle(&mut self, first: u32, now: Instant, changes: &mut Vec<Change>) {
        let cores = self.cores.len() as u32;
        for core in std::iter::once(first).chain(0..cores) {
            if let Some(why) = self.cores[core as usize].raised.take() {
                self.schedule(core, why, now, changes);
            }
        }
        let runs = self.cores.iter().any(|core| core.running.is_some());
        let tick = if runs { self.next_multiple(now, self.between_ticks) } else { Instant::NEVER };
        self.timers.set(TIMER_TICK, tick);
        self.plan_accounting(now);
    }
}

impl Scheduler for Credit {
    fn wake(&mut self, entity: EntityId, now: Instant, changes: &mut Vec<Change>) {
        self.advance(now, changes);
        let vcpu = entity.0;
        let entry = &mut self.vcpus[vcpu as usize];
        if !std::mem::replace(&mut entry.awake, true) && !entry.parked {
            let core = entry.core;
            self.start_waiting(vcpu);
            self.settle(core, now, changes);
        }
    }

    fn block(&mut self, entity: EntityId, now: Instant, changes: &mut Vec<Change>) {
        self.advance(now, changes);
        let vcpu = entity.0;
        let entry = &mut self.vcpus[vcpu as usize];
        if std::mem::replace(&mut entry.awake, false) && !entry.parked {
            let core = entry.core;
            self.stop_waiting(vcpu, Why::Blocked);
            self.settle(core, now, changes);
        }
    }

    fn next_event(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn advance(&mut self, now: Instant, changes: &mut Vec<Change>) {
        while let Some((at, timer)) = self.timers.pop(now) {
            match timer {
                TIMER_TICK => self.tick(at),
                TIMER_ACCOUNTING => self.account(at),
                timer => self.cores[timer - TIMER_SLICES].raised = Some(Why::SliceOver),
            }
            self.settle(0, at, changes);
        }
    }

    fn running(&self, core: CoreId) -> Option<EntityId> {
        self.cores.get(core.0 as usize)?.running.map(EntityId)
    }

    fn cores(&self) -> u32 {
        self.cores.len() as u32
    }
}
