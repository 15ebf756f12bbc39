//! The choice of cores: where a thread wakes up, and which thread is pulled from which core.

use super::hierarchy::Leaves;
use super::{Change, Linux};

/// How much less often a busy core tries to balance than an idle one: `sd->busy_factor`.
const BUSY_FACTOR: i64 = 16;
/// Nanoseconds between an idle core's attempts, per core of the host: `sd->balance_interval` begins at a millisecond
/// per core.
const INTERVAL_NS: i64 = 1_000_000;

impl Linux {
    /// Where a thread wakes up: `select_task_rq_fair`.
    pub(super) fn select_core(&self, thread: u32) -> u32 {
        let cores = self.cores.len() as u32;
        let last = self.threads[thread as usize].core;
        let is_idle =
            |core: &u32| self.cores[*core as usize].running.is_none() && self.cores[*core as usize].runnable.is_empty();
        (last..cores).chain(0..last).find(is_idle).unwrap_or(last)
    }

    fn is_throttled_on(&self, thread: u32, core: u32) -> bool {
        let group = self.threads[thread as usize].group;
        group.is_some_and(|group| self.locals[group as usize * self.cores.len() + core as usize].is_throttled())
    }

    /// Assigns a thread to the queues of this core.
    pub(super) fn place_on(&mut self, thread: u32, core: u32) {
        let cores = self.cores.len() as u32;
        let entry = &mut self.threads[thread as usize];
        entry.core = core;
        self.all[thread as usize].queue = entry.group.map_or(core, |group| cores * (1 + group) + core);
    }

    /// A core pulls a waiting thread from the core with the most runnable threads, if that has at least `more` more.
    /// The thread is the one that ran or arrived longest ago: `detach_tasks`.
    pub(super) fn pull(&mut self, core: u32, now: i64, more: usize) -> bool {
        let own = self.cores[core as usize].runnable.len();
        let mut busiest = None;
        for (number, other) in (0..).zip(&self.cores) {
            let count = other.runnable.len();
            if number != core && count > 1 && count >= own + more && busiest.is_none_or(|(most, _)| count > most) {
                busiest = Some((count, number));
            }
        }
        let Some((_, from)) = busiest else { return false };
        let entry = &self.cores[from as usize];
        let may_come = |thread: &u32| entry.running != Some(*thread) && !self.is_throttled_on(*thread, core);
        let Some(thread) = entry.runnable.iter().copied().find(may_come) else { return false };
        self.catch_up(from, now);
        self.catch_up(core, now);
        self.remove_runnable(thread);
        self.dequeue(thread, now, Leaves::Moves);
        self.place_on(thread, core);
        self.enqueue_thread(thread, now);
        self.settle(from, now);
        true
    }

    /// At a tick, idle cores look for work, and busy ones do at intervals: `sched_balance_trigger`, `sched_balance_rq`.
    pub(super) fn balance(&mut self, now: i64, changes: &mut Vec<Change>) {
        let cores = self.cores.len() as u32;
        let ticks = |interval: i64| (interval / self.lengths.tick).max(1) as u32;
        let when_idle = ticks(i64::from(cores) * INTERVAL_NS);
        // One tick less, so that levels of the topology do not balance in step: `get_sd_balance_interval`.
        let when_busy = ticks(i64::from(cores) * INTERVAL_NS * BUSY_FACTOR - self.lengths.tick);
        for core in 0..cores {
            let entry = &mut self.cores[core as usize];
            entry.balance_in = entry.balance_in.saturating_sub(1);
            let is_idle = entry.running.is_none();
            if entry.balance_in > 0 && !is_idle {
                continue;
            }
            entry.balance_in = if is_idle { when_idle } else { when_busy };
            // A busy core moves a thread for a difference of one only after a failed attempt (`nr_balance_failed`).
            let more = if is_idle || entry.failed > 0 { 1 } else { 2 };
            let pulls = self.pull(core, now, more);
            let entry = &mut self.cores[core as usize];
            entry.failed = if pulls { 0 } else { entry.failed + 1 };
            if pulls {
                if is_idle {
                    self.schedule(core, now, changes);
                } else if let Some(last) = self.cores[core as usize].runnable.last().copied() {
                    self.check_preempt(core, last, now, changes);
                }
                self.settle(core, now);
            }
        }
    }
}
