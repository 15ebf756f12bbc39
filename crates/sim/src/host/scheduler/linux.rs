//! Linux's scheduler for ordinary threads since 6.6: EEVDF, with groups, bandwidth control and slices of a thread's
//! own. On a KVM host a virtual CPU is such a thread.
//!
//! # The model
//!
//! 1. *Virtual time.* An entity's virtual time advances while it runs, the more slowly the greater its weight
//!    (`update_curr`, `calc_delta_fair`). A queue's virtual time is the weighted average of its entities'
//!    (`avg_vruntime`). An entity that is behind that average has had less than its share: its *lag* is positive, and
//!    it is *eligible*.
//! 2. *Deadline.* An entity asks for one slice at a time. Its deadline is the virtual time at which it will have had
//!    that slice (`update_deadline`).
//! 3. *The pick.* Of the eligible entities the one with the earliest deadline runs (`pick_eevdf`).
//! 4. *When there is a pick.* When the running entity halts; when another one wakes up (5); and at a tick by which it
//!    has had its slice (`update_curr` in `entity_tick`). There is no timer for the end of a slice (`HRTICK` is off):
//!    with ticks of 4 ms a slice of 1.4 ms is 4 ms long if another entity waits.
//! 5. *Wake-up.* An entity that wakes up preempts if it would be picked, but the running one is protected until it has
//!    had its slice or is no longer eligible (`RUN_TO_PARITY`). One whose slice is shorter breaks the protection
//!    (`PREEMPT_SHORT`, `check_preempt_wakeup_fair`). So an entity that comes back with no lag waits while the running
//!    one is in its slice and not ahead of its share, and also if another waiting entity has an earlier deadline.
//! 6. *Sleep.* The lag is kept over a sleep (`place_entity`), limited to two slices or a tick (`entity_lag`). An entity
//!    that goes to sleep with negative lag stays in the competition, without running, until it is picked or wakes up
//!    (`DELAY_DEQUEUE`), and loses any positive lag that it gains by that (`DELAY_ZERO`).
//! 7. *Groups.* A VM's threads are in a group (cgroup) with a weight (`cpu.weight`). On each core the group is one
//!    entity of the host's queue, with a queue of its own. Its weight there is its part of the group's weight, in
//!    proportion to what is runnable on each core (`update_cfs_group`). Its slice is its threads' shortest.
//! 8. *Bandwidth.* A group may have a quota: see [`quota`](super::quota). Use is noticed at ticks and when there is a
//!    pick. A group that is unthrottled competes with the lag that it had. It preempts at the next tick at the
//!    earliest, because the kernel does not check before (`unthrottle_cfs_rq`).
//! 9. *Cores.* A thread that wakes up runs on its last core if that is idle, else on another idle one, else waits on
//!    its last one (`select_task_rq_fair`, `select_idle_sibling`). A core that becomes idle pulls a waiting thread from
//!    the core with the most (`sched_balance_newidle`). At ticks, cores with fewer runnable threads pull from those
//!    with more (`sched_balance_rq`).
//! 10. *Lazy preemption* (`PREEMPT_LAZY`, optional): a wake-up from another core, as by a thread that carries packets,
//!     is noticed at the next tick only (`resched_curr_lazy`). With it off, at once.
//!
//! ```text
//!                       pick                            tick: slice over;
//!        +--> Waiting ---------> Running --------------> Waiting
//!        |      ^                  |  |   wake-up of one that goes first
//!   wake |      | freed            |  +--------------------------> Throttled group
//!        |      |                  | block            quota used up     |
//!        |      +------------------|------------------------------------+
//!        |                         v
//!        |   lag >= 0        lag < 0
//!      Asleep <------ . ---------> Delayed (competes, does not run)
//!        ^                            | picked, or its group sleeps
//!        +----------------------------+
//! ```
//!
//! The rules are those of 6.18. Before 6.17 the protection ended with the slice even if others had shorter ones; before
//! 6.12 there was neither 5's exception for shorter slices nor 6's second half.
//!
//! # What is left out
//!
//! Load averages (PELT): where the kernel balances by load over the last tens of milliseconds, the model counts the
//! threads that are runnable now. Topology, cache hotness, buddies (`NEXT_BUDDY` is off; the hint that a group whose
//! thread sleeps be picked again is not modelled), other classes, nice values of groups other than weights, more than
//! one level of groups, affinity, what a switch costs. A virtual CPU's thread is taken off its core immediately, also
//! when it is throttled (since 6.18, the kernel waits until the thread next leaves the kernel).
//!
//! Ticks that cannot change anything, such as those of a core with one runnable thread, are no events: the model
//! catches up on them when it next looks at the core.

mod balance;
mod hierarchy;
mod queue;

#[cfg(test)]
mod tests;

use evenkeel_scenario::random::Random;

use super::quota::{Local, Pool, Quota, QuotaStats};
use super::timers::Timers;
use super::{Change, CoreId, EntityId, Scheduler, What, Why};
use crate::time::{Duration, Instant};
use queue::{Lengths, NICE_0, Queue, Schedulable};

/// Slice on a host with one core, in nanoseconds: `sysctl_sched_base_slice` (0.75 ms until 6.14). It is long enough to
/// be worth a switch, and on common machines a little shorter than whole ticks, so that a tick that comes slightly
/// early does not lengthen the slice by another tick.
const BASE_SLICE_NS: i64 = 700_000;
/// Cores beyond this many do not make the slice longer: `get_update_sysctl_factor`.
const SCALED_CORES: u32 = 8;
/// Bounds of a slice of a thread's own, in nanoseconds: `__setparam_fair`.
const OWN_SLICE_NS: (i64, i64) = (100_000, 100_000_000);
/// `cpu.weight` of a group that was given none: `CGROUP_WEIGHT_DFL`. Such a group competes like a thread of nice value
/// 0.
pub const DEFAULT_WEIGHT: u32 = 100;
/// Timers: the tick, then two of each group.
const TICK: usize = 0;
const GROUP_TIMERS: usize = 2;

/// A VM's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// `cpu.weight`, 1 to 10,000.
    pub weight: u32,
    /// `cpu.max` and `cpu.max.burst`.
    pub quota: Option<Quota>,
}

impl Default for GroupSpec {
    fn default() -> Self {
        Self { weight: DEFAULT_WEIGHT, quota: None }
    }
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadSpec {
    /// The number of its group; without one it competes with the groups.
    pub group: Option<u32>,
    /// Its own slice (`sched_setattr` with `sched_runtime`, since 6.12).
    pub slice: Option<Duration>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxSpec {
    /// Number of cores.
    pub cores: u32,
    /// Ticks per second: `CONFIG_HZ`.
    pub hz: u32,
    /// Whether wake-ups are noticed at the next tick only.
    pub lazy: bool,
    /// Slice of threads that have none of their own; `None`: the kernel's default for this number of cores.
    pub slice: Option<Duration>,
    /// The VMs' groups.
    pub groups: Vec<GroupSpec>,
    /// Virtual CPUs and other threads.
    pub threads: Vec<ThreadSpec>,
}

impl Default for LinuxSpec {
    fn default() -> Self {
        Self { cores: 1, hz: 250, lazy: false, slice: None, groups: Vec::new(), threads: Vec::new() }
    }
}

/// The kernel's slice on a host with this many cores.
pub fn default_slice(cores: u32) -> Duration {
    let factor = 1 + i64::from(cores.clamp(1, SCALED_CORES).ilog2());
    Duration::from_ns((BASE_SLICE_NS * factor) as u64)
}

#[derive(Debug)]
struct Thread {
    group: Option<u32>,
    core: u32,
    awake: bool,
}

#[derive(Debug)]
struct Core {
    running: Option<u32>,
    /// Threads that want to run and may; the one that last ran or arrived is at the end.
    runnable: Vec<u32>,
    /// A new pick is to be made, and why.
    resched: Option<Why>,
    /// Ticks up to this time have been taken into account.
    ticked: i64,
    /// Whether its ticks are events.
    needs_ticks: bool,
    /// Ticks until the next attempt to balance, and attempts that have failed.
    balance_in: u32,
    failed: u32,
}

#[derive(Debug)]
struct Group {
    shares: i64,
    threads: Vec<u32>,
    /// Weight of what is runnable, on all cores.
    load: i64,
    pool: Option<Pool>,
}

/// A Linux host's scheduler.
#[derive(Debug)]
pub struct Linux {
    lengths: Lengths,
    lazy: bool,
    /// The phase of the ticks, which are multiples of the tick length after it.
    phase: i64,
    threads: Vec<Thread>,
    cores: Vec<Core>,
    groups: Vec<Group>,
    /// The threads, then each group's entity on each core.
    all: Vec<Schedulable>,
    /// The host's queue of each core, then each group's.
    queues: Vec<Queue>,
    /// Run time of each group on each core.
    locals: Vec<Local>,
    timers: Timers,
    /// The exact instant of the present call, for reports; the model itself counts whole nanoseconds.
    now: Instant,
    /// Cores whose ticks are events.
    ticking: u32,
}

const fn ns(at: Instant) -> i64 {
    (at.ps() / 1000) as i64
}

const fn instant(ns: i64) -> Instant {
    Instant::from_ps(ns as u64 * 1000)
}

impl Linux {
    /// A host on which all threads are asleep. The phases of ticks and of quotas' periods are drawn from the seed;
    /// without a seed they begin with the simulation.
    pub fn new(spec: &LinuxSpec, seed: Option<u64>) -> Self {
        let (cores, threads) = (spec.cores.max(1), spec.threads.len() as u32);
        let slice = (spec.slice.unwrap_or_else(|| default_slice(cores)).ps() / 1000) as i64;
        let lengths = Lengths { slice, tick: 1_000_000_000 / i64::from(spec.hz.max(1)) };
        let mut random = seed.map(|seed| Random::new(seed, 0));
        let mut below =
            |span: i64| random.as_mut().map_or(0, |random| ((u128::from(random.bits()) * span as u128) >> 64) as i64);
        let phase = below(lengths.tick);
        let mut groups: Vec<_> = spec
            .groups
            .iter()
            .map(|group| Group {
                // `sched_weight_from_cgroup`.
                shares: (i64::from(group.weight) * NICE_0 + i64::from(DEFAULT_WEIGHT) / 2) / i64::from(DEFAULT_WEIGHT),
                threads: Vec::new(),
                load: 0,
                pool: group
                    .quota
                    .map(|quota| Pool::new(&quota, Duration::from_ns(below((quota.period.ps() / 1000) as i64) as u64))),
            })
            .collect();
        let mut all = Vec::new();
        for (number, thread) in (0..).zip(&spec.threads) {
            let own = thread.slice.map(|slice| ((slice.ps() / 1000) as i64).clamp(OWN_SLICE_NS.0, OWN_SLICE_NS.1));
            let queue = thread.group.map_or(0, |group| cores * (1 + group));
            all.push(Schedulable::new(NICE_0, own, queue, None, lengths));
            if let Some(group) = thread.group {
                groups[group as usize].threads.push(number);
            }
        }
        let mut queues = vec![Queue::default(); cores as usize];
        for (number, group) in (0..).zip(&groups) {
            for core in 0..cores {
                let owns = Some(cores * (1 + number) + core);
                all.push(Schedulable::new(group.shares.max(2), None, core, owns, lengths));
                queues.push(Queue::owned_by(threads + cores * number + core));
            }
        }
        let core = || Core {
            running: None,
            runnable: Vec::new(),
            resched: None,
            ticked: 0,
            needs_ticks: false,
            balance_in: 0,
            failed: 0,
        };
        Self {
            lengths,
            lazy: spec.lazy,
            phase,
            threads: spec.threads.iter().map(|thread| Thread { group: thread.group, core: 0, awake: false }).collect(),
            cores: std::iter::repeat_with(core).take(cores as usize).collect(),
            locals: vec![Local::default(); groups.len() * cores as usize],
            timers: Timers::new(1 + GROUP_TIMERS * groups.len()),
            groups,
            all,
            queues,
            now: Instant::START,
            ticking: 0,
        }
    }

    /// Statistics of a group's quota.
    pub fn quota_stats(&self, group: u32) -> Option<&QuotaStats> {
        self.groups.get(group as usize)?.pool.as_ref().map(Pool::stats)
    }

    fn change(&self, core: u32, thread: u32, what: What) -> Change {
        Change { at: self.now, core: CoreId(core), entity: EntityId(thread), what }
    }

    /// The last tick at or before `now`.
    fn tick_by(&self, now: i64) -> i64 {
        self.phase + (now - self.phase).div_euclid(self.lengths.tick) * self.lengths.tick
    }

    /// Catches up on a core's ticks that were no events.
    fn catch_up(&mut self, core: u32, now: i64) {
        let last = self.tick_by(now);
        let entry = &mut self.cores[core as usize];
        let from = std::mem::replace(&mut entry.ticked, last);
        if entry.needs_ticks || from >= last {
            return;
        }
        let Some(thread) = entry.running else { return };
        let mut at = from + self.lengths.tick;
        while at <= last {
            self.charge_thread(thread, at);
            at += self.lengths.tick;
        }
        if let Some(owner) = self.parent(thread) {
            self.update_weight(owner, last);
        }
    }

    /// A core's tick: `sched_tick`, `task_tick_fair`.
    fn tick(&mut self, core: u32, now: i64, changes: &mut Vec<Change>) {
        self.cores[core as usize].ticked = now;
        if let Some(thread) = self.cores[core as usize].running {
            self.charge_thread(thread, now);
            if let Some(owner) = self.parent(thread) {
                self.update_weight(owner, now);
            }
        }
        if self.cores[core as usize].resched.is_some() {
            self.schedule(core, now, changes);
        }
        self.settle(core, now);
    }

    fn ticks(&mut self, now: i64, changes: &mut Vec<Change>) {
        for core in 0..self.cores.len() as u32 {
            if self.cores[core as usize].needs_ticks {
                self.tick(core, now, changes);
            }
        }
        if self.cores.len() > 1 {
            self.balance(now, changes);
        }
        self.set_tick(now);
    }

    fn set_tick(&mut self, now: i64) {
        let at = if self.ticking > 0 { instant(self.tick_by(now) + self.lengths.tick) } else { Instant::NEVER };
        self.timers.set(TICK, at);
    }

    /// After a change on a core, decides whether its ticks are events from now on.
    fn settle(&mut self, core: u32, now: i64) {
        let running = self.cores[core as usize].running;
        let needs = running.is_some_and(|thread| {
            let own = self.all[thread as usize].queue as usize;
            let limited = self.threads[thread as usize].group.map(|group| &self.groups[group as usize].pool);
            self.queues[core as usize].count > 1 || self.queues[own].count > 1 || matches!(limited, Some(Some(_)))
        });
        if !needs {
            // There is no other thread to pick.
            self.cores[core as usize].resched = None;
        }
        if needs == self.cores[core as usize].needs_ticks {
            return;
        }
        self.catch_up(core, now);
        self.cores[core as usize].needs_ticks = needs;
        self.ticking = if needs { self.ticking + 1 } else { self.ticking - 1 };
        if self.ticking == u32::from(needs) {
            self.set_tick(now);
        }
    }

    /// Sets a group's timers by its pool.
    fn set_group_timers(&mut self, group: u32) {
        let Some(pool) = &self.groups[group as usize].pool else { return };
        let timer = 1 + GROUP_TIMERS * group as usize;
        self.timers.set(timer, pool.period_ends().map_or(Instant::NEVER, instant));
        self.timers.set(timer + 1, pool.slack_at().map_or(Instant::NEVER, instant));
    }

    /// A thread has woken up on a core: does it preempt? `check_preempt_wakeup_fair`.
    fn check_preempt(&mut self, core: u32, thread: u32, now: i64, changes: &mut Vec<Change>) {
        let Some(running) = self.cores[core as usize].running else {
            self.schedule(core, now, changes);
            return;
        };
        if self.cores[core as usize].resched.is_none() && !self.is_throttled(thread) {
            self.compare(core, running, thread, now);
        }
        if self.cores[core as usize].resched.is_some() && !self.lazy {
            self.schedule(core, now, changes);
        }
    }

    fn compare(&mut self, core: u32, running: u32, thread: u32, now: i64) {
        let (mut current, mut waking) = (running, thread);
        // Climbs to the level at which both are on one queue: `find_matching_se`.
        if self.all[current as usize].queue != self.all[waking as usize].queue {
            current = self.parent(current).unwrap_or(current);
            waking = self.parent(waking).unwrap_or(waking);
        }
        if current == waking {
            return;
        }
        let queue = self.all[current as usize].queue;
        self.charge(queue, now);
        let shorter = self.all[waking as usize].slice < self.all[current as usize].slice;
        if self.queues[queue as usize].pick(&self.all, shorter) == Some(waking) {
            if shorter {
                self.all[current as usize].expose();
            }
            self.cores[core as usize].resched.get_or_insert(Why::Preempted);
        } else if shorter {
            self.queues[queue as usize].limit_protection(&mut self.all, current);
        }
    }
}

impl Scheduler for Linux {
    fn wake(&mut self, entity: EntityId, now: Instant, changes: &mut Vec<Change>) {
        self.advance(now, changes);
        self.now = now;
        let (thread, now) = (entity.0, ns(now));
        if std::mem::replace(&mut self.threads[thread as usize].awake, true) {
            return;
        }
        if self.all[thread as usize].queued {
            // It has not left its queue yet: `ttwu_runnable`.
            let core = self.threads[thread as usize].core;
            self.catch_up(core, now);
            self.requeue(thread);
            self.add_runnable(thread);
        } else {
            self.place_on(thread, self.select_core(thread));
            self.catch_up(self.threads[thread as usize].core, now);
            self.enqueue_thread(thread, now);
        }
        let core = self.threads[thread as usize].core;
        self.check_preempt(core, thread, now, changes);
        self.settle(core, now);
    }

    fn block(&mut self, entity: EntityId, now: Instant, changes: &mut Vec<Change>) {
        self.advance(now, changes);
        self.now = now;
        let (thread, now) = (entity.0, ns(now));
        if !std::mem::replace(&mut self.threads[thread as usize].awake, false) {
            return;
        }
        let core = self.threads[thread as usize].core;
        self.catch_up(core, now);
        self.remove_runnable(thread);
        self.dequeue(thread, now, hierarchy::Leaves::Sleeps);
        if self.cores[core as usize].running == Some(thread) {
            self.cores[core as usize].resched = Some(Why::Blocked);
            self.schedule(core, now, changes);
        }
        self.settle(core, now);
    }

    fn next_event(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn advance(&mut self, now: Instant, changes: &mut Vec<Change>) {
        while let Some((at, timer)) = self.timers.pop(now) {
            self.now = at;
            let at = ns(at);
            match timer.checked_sub(1) {
                None => self.ticks(at, changes),
                Some(timer) => {
                    let group = (timer / GROUP_TIMERS) as u32;
                    self.group_timer(group, timer % GROUP_TIMERS == 0, at, changes);
                }
            }
        }
    }

    fn running(&self, core: CoreId) -> Option<EntityId> {
        self.cores.get(core.0 as usize)?.running.map(EntityId)
    }

    fn cores(&self) -> u32 {
        self.cores.len() as u32
    }
}
