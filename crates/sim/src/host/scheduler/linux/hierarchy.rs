//! The two levels of queues: how threads enter and leave them, run, and are throttled with their group.

use super::queue::{Queue, Schedulable};
use super::{Change, Linux, What, Why};

/// Least weight of a group's entity: `MIN_SHARES`.
const LEAST_WEIGHT: i64 = 2;

/// How an entity leaves a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    /// It sleeps, and stays in the competition if it has had more than its share.
    Sleeps,
    /// It has slept, and has been picked: `DEQUEUE_DELAYED`.
    Delayed,
    /// Its group is throttled: it leaves at once.
    Throttled,
    /// It goes to another core.
    Moves,
}

impl Linux {
    /// The entity of a thread's or an entity's group.
    pub(super) fn parent(&self, id: u32) -> Option<u32> {
        self.queues[self.all[id as usize].queue as usize].owner
    }

    fn core_of(&self, queue: u32) -> u32 {
        queue % self.cores.len() as u32
    }

    /// The number of a group's part on a core, by its queue; `None` for the host's queues.
    fn local_of(&self, queue: u32) -> Option<usize> {
        (queue as usize).checked_sub(self.cores.len())
    }

    /// The pool of a queue's group, the core's part of its run time, and the group's number, if the group has a quota.
    fn limited(&mut self, queue: u32) -> Option<(&mut super::Pool, &mut super::Local, u32)> {
        let local = self.local_of(queue)?;
        let group = (local / self.cores.len()) as u32;
        let pool = self.groups[group as usize].pool.as_mut()?;
        Some((pool, &mut self.locals[local], group))
    }

    fn queue_is_throttled(&self, queue: u32) -> bool {
        self.local_of(queue).is_some_and(|local| self.locals[local].is_throttled())
    }

    pub(super) fn is_throttled(&self, thread: u32) -> bool {
        self.queue_is_throttled(self.all[thread as usize].queue)
    }

    pub(super) fn add_runnable(&mut self, thread: u32) {
        if !self.is_throttled(thread) {
            self.cores[self.threads[thread as usize].core as usize].runnable.push(thread);
        }
    }

    pub(super) fn remove_runnable(&mut self, thread: u32) {
        let runnable = &mut self.cores[self.threads[thread as usize].core as usize].runnable;
        if let Some(at) = runnable.iter().position(|other| *other == thread) {
            runnable.remove(at);
        }
    }

    /// Accounts for what a queue's current entity has run: `update_curr`, `account_cfs_rq_runtime`.
    pub(super) fn charge(&mut self, queue: u32, now: i64) {
        let (ran, mut is_over) = self.queues[queue as usize].charge(&mut self.all, now, self.lengths);
        if let Some((pool, local, group)) = self.limited(queue).filter(|_| ran > 0) {
            is_over |= !pool.charge(local, ran, now);
            self.set_group_timers(group);
        }
        if is_over {
            let core = self.core_of(queue);
            self.cores[core as usize].resched.get_or_insert(Why::SliceOver);
        }
    }

    /// Accounts for all queues that a thread is on.
    pub(super) fn charge_thread(&mut self, thread: u32, now: i64) {
        self.charge(self.all[thread as usize].queue, now);
        if let Some(owner) = self.parent(thread) {
            self.charge(self.all[owner as usize].queue, now);
        }
    }

    /// Updates a group's weight on a core, which is the core's part of the group's weight: `update_cfs_group`,
    /// `calc_group_shares`.
    pub(super) fn update_weight(&mut self, owner: u32, now: i64) {
        let Schedulable { owns: Some(owns), queue, weight, .. } = self.all[owner as usize] else { return };
        let Some(local) = self.local_of(owns) else { return };
        let group = &self.groups[local / self.cores.len()];
        let load = self.queues[owns as usize].weight;
        if load == 0 || self.locals[local].is_throttled() {
            return;
        }
        let shares = (group.shares * load / group.load).clamp(LEAST_WEIGHT, group.shares.max(LEAST_WEIGHT));
        if shares != weight {
            if self.all[owner as usize].queued {
                self.charge(queue, now);
            }
            self.queues[queue as usize].reweigh(&mut self.all, owner, shares, self.lengths);
        }
    }

    fn count(&mut self, queue: u32, id: u32, comes: bool) {
        let weight = if comes { self.all[id as usize].weight } else { -self.all[id as usize].weight };
        let entry = &mut self.queues[queue as usize];
        entry.weight += weight;
        entry.count = if comes { entry.count + 1 } else { entry.count - 1 };
        if let Some(local) = self.local_of(queue) {
            self.groups[local / self.cores.len()].load += weight;
        }
    }

    /// `enqueue_entity`.
    fn enqueue_entity(&mut self, id: u32, now: i64) {
        let queue = self.all[id as usize].queue;
        self.charge(queue, now);
        self.update_weight(id, now);
        self.queues[queue as usize].place(&mut self.all, id, self.lengths);
        self.count(queue, id, true);
        // A group that has just run out of threads and gets one from another core is still the current entity.
        if self.queues[queue as usize].current != Some(id) {
            self.queues[queue as usize].insert(&self.all, id);
        }
        self.all[id as usize].queued = true;
        if self.queues[queue as usize].count == 1 {
            self.check_enqueue(queue, now);
        }
    }

    /// A group wakes up on a core, where it may have no time left: `check_enqueue_throttle`.
    fn check_enqueue(&mut self, queue: u32, now: i64) {
        if self.queues[queue as usize].current.is_some() || self.queue_is_throttled(queue) {
            return;
        }
        if let Some((pool, local, group)) = self.limited(queue) {
            let has_time = pool.charge(local, 0, now);
            self.set_group_timers(group);
            if !has_time {
                self.throttle(queue, now);
            }
        }
    }

    /// A thread joins the queues of its core, and so does its group if the thread is its first: `enqueue_task_fair`.
    pub(super) fn enqueue_thread(&mut self, thread: u32, now: i64) {
        self.enqueue_entity(thread, now);
        self.add_runnable(thread);
        let queue = self.all[thread as usize].queue;
        let Some(owner) = self.queues[queue as usize].owner.filter(|_| !self.queue_is_throttled(queue)) else { return };
        if !self.all[owner as usize].queued {
            let slice = self.queues[queue as usize].shortest_slice(&self.all);
            let entry = &mut self.all[owner as usize];
            (entry.slice, entry.own_slice) = (slice.unwrap_or(entry.slice), true);
            self.enqueue_entity(owner, now);
            return;
        }
        if self.all[owner as usize].delayed {
            self.requeue(owner);
        }
        self.refresh(owner, now);
    }

    /// Updates a group's entity by what is on its queue.
    fn refresh(&mut self, owner: u32, now: i64) {
        self.update_weight(owner, now);
        let Schedulable { owns: Some(owns), queue, .. } = self.all[owner as usize] else { return };
        if let Some(slice) = self.queues[owns as usize].shortest_slice(&self.all) {
            self.queues[queue as usize].set_slice(&mut self.all, owner, slice);
        }
    }

    /// An entity that is still in the competition wakes up, and loses any positive lag: `requeue_delayed_entity`.
    pub(super) fn requeue(&mut self, id: u32) {
        let queue = self.all[id as usize].queue;
        self.queues[queue as usize].note_lag(&mut self.all, id, self.lengths);
        let entry = &mut self.all[id as usize];
        entry.delayed = false;
        if entry.lag > 0 {
            entry.lag = 0;
            let entry = &mut self.queues[queue as usize];
            let waits = entry.current != Some(id);
            if waits {
                entry.remove(&self.all, id);
            }
            self.all[id as usize].queued = false;
            entry.place(&mut self.all, id, self.lengths);
            self.all[id as usize].queued = true;
            if waits {
                entry.insert(&self.all, id);
            }
        }
    }

    /// `dequeue_entity`. Returns whether the entity has left the queue.
    fn dequeue_entity(&mut self, id: u32, now: i64, leaves: Leaves) -> bool {
        let queue = self.all[id as usize].queue;
        self.charge(queue, now);
        if leaves == Leaves::Sleeps && !self.queues[queue as usize].is_eligible(&self.all, id) {
            self.all[id as usize].delayed = true;
            return false;
        }
        self.queues[queue as usize].note_lag(&mut self.all, id, self.lengths);
        let entry = &mut self.all[id as usize];
        if leaves == Leaves::Moves {
            entry.deadline -= entry.vruntime;
            entry.relative = true;
        }
        if std::mem::take(&mut entry.delayed) {
            entry.lag = entry.lag.min(0);
        }
        if self.queues[queue as usize].current != Some(id) {
            self.queues[queue as usize].remove(&self.all, id);
        }
        self.all[id as usize].queued = false;
        self.count(queue, id, false);
        let is_last = self.queues[queue as usize].count == 0;
        if let Some((pool, local, group)) = self.limited(queue).filter(|_| is_last) {
            pool.give_back(local, now);
            self.set_group_timers(group);
        }
        true
    }

    /// A thread or a group's entity leaves the queues of its core: `dequeue_entities`.
    pub(super) fn dequeue(&mut self, id: u32, now: i64, leaves: Leaves) {
        let queue = self.all[id as usize].queue;
        if !self.dequeue_entity(id, now, leaves) || self.queue_is_throttled(queue) {
            return;
        }
        let Some(owner) = self.queues[queue as usize].owner else { return };
        if self.queues[queue as usize].count == 0 {
            self.dequeue_entity(owner, now, Leaves::Sleeps);
        } else {
            self.refresh(owner, now);
        }
    }

    /// Throttles a queue that is out of time, if the pool has none either: `check_cfs_rq_runtime`.
    fn check_time(&mut self, queue: u32, now: i64) -> bool {
        let Some((_, local, _)) = self.limited(queue) else { return false };
        if local.has_time() {
            return false;
        }
        local.is_throttled() || self.throttle(queue, now)
    }

    /// `throttle_cfs_rq`.
    fn throttle(&mut self, queue: u32, now: i64) -> bool {
        let core = self.core_of(queue);
        let Some((pool, local, group)) = self.limited(queue) else { return false };
        let is_throttled = pool.throttle(local, core, now);
        self.set_group_timers(group);
        if !is_throttled {
            return false;
        }
        let threads = &self.threads;
        self.cores[core as usize].runnable.retain(|thread| threads[*thread as usize].group != Some(group));
        if let Some(owner) = self.queues[queue as usize].owner.filter(|owner| self.all[*owner as usize].queued) {
            let leaves = if self.all[owner as usize].delayed { Leaves::Delayed } else { Leaves::Throttled };
            self.dequeue_entity(owner, now, leaves);
        }
        true
    }

    /// A period is over, or slack has been gathered: throttled cores may run again.
    pub(super) fn group_timer(&mut self, group: u32, is_period: bool, now: i64, changes: &mut Vec<Change>) {
        let Some(pool) = self.groups[group as usize].pool.as_mut() else { return };
        let mut frees = if is_period { pool.refill() } else { pool.slack_gathered(now) };
        while frees {
            let Some(core) = self.groups[group as usize].pool.as_ref().and_then(super::Pool::next_freed) else { break };
            let queue = self.cores.len() as u32 * (1 + group) + core;
            self.catch_up(core, now);
            frees = self.limited(queue).is_some_and(|(pool, local, _)| pool.free(local, now));
            if frees {
                self.unthrottle(queue, core, group, now, changes);
            }
        }
        self.set_group_timers(group);
    }

    /// `unthrottle_cfs_rq`.
    fn unthrottle(&mut self, queue: u32, core: u32, group: u32, now: i64, changes: &mut Vec<Change>) {
        let Queue { owner: Some(owner), count, .. } = self.queues[queue as usize] else { return };
        if count == 0 {
            return;
        }
        for at in 0..self.groups[group as usize].threads.len() {
            let thread = self.groups[group as usize].threads[at];
            if self.threads[thread as usize].awake && self.threads[thread as usize].core == core {
                self.cores[core as usize].runnable.push(thread);
            }
        }
        if !self.all[owner as usize].queued {
            self.enqueue_entity(owner, now);
        }
        if self.cores[core as usize].running.is_none() {
            self.schedule(core, now, changes);
        }
        self.settle(core, now);
    }

    /// `pick_task_fair`.
    fn pick(&mut self, core: u32, now: i64) -> Option<u32> {
        'again: loop {
            let mut queue = core;
            loop {
                if self.queues[queue as usize].current.is_some_and(|id| self.all[id as usize].queued) {
                    self.charge(queue, now);
                }
                if self.check_time(queue, now) {
                    continue 'again;
                }
                let id = self.queues[queue as usize].pick(&self.all, false)?;
                if self.all[id as usize].delayed {
                    self.dequeue(id, now, Leaves::Delayed);
                    continue 'again;
                }
                match self.all[id as usize].owns {
                    Some(owns) => queue = owns,
                    None => return Some(id),
                }
            }
        }
    }

    /// `put_prev_entity`.
    fn put(&mut self, id: u32, now: i64) {
        let queue = self.all[id as usize].queue;
        if self.all[id as usize].queued {
            self.charge(queue, now);
        }
        self.check_time(queue, now);
        self.queues[queue as usize].current = None;
        if self.all[id as usize].queued {
            self.queues[queue as usize].insert(&self.all, id);
        }
    }

    /// Switches from one thread to another. Only the levels at which they differ change (`pick_next_task_fair`).
    fn switch(&mut self, previous: Option<u32>, next: Option<u32>, now: i64) {
        let depth = |linux: &Self, id: Option<u32>| id.map_or(0, |id| 1 + u32::from(linux.parent(id).is_some()));
        let (mut from, mut to) = (previous, next);
        while from != to {
            let (down, up) = (depth(self, from), depth(self, to));
            if let Some(id) = from.filter(|_| down >= up) {
                self.put(id, now);
                from = self.parent(id);
            }
            if let Some(id) = to.filter(|_| up >= down) {
                let queue = self.all[id as usize].queue as usize;
                self.queues[queue].set_current(&mut self.all, id, now);
                to = self.parent(id);
            }
        }
    }

    /// Picks the next thread: `__schedule`.
    pub(super) fn schedule(&mut self, core: u32, now: i64, changes: &mut Vec<Change>) {
        let previous = self.cores[core as usize].running;
        let mut next = self.pick(core, now);
        if next.is_none() && self.pull(core, now, 1) {
            next = self.pick(core, now);
        }
        let why = self.cores[core as usize].resched.take();
        if previous == next {
            return;
        }
        self.switch(previous, next, now);
        self.cores[core as usize].resched = None;
        self.cores[core as usize].running = next;
        if let Some(previous) = previous {
            let is_throttled = self.threads[previous as usize].awake && self.is_throttled(previous);
            let why = if is_throttled { Why::Throttled } else { why.unwrap_or(Why::Preempted) };
            changes.push(self.change(core, previous, What::Stops(why)));
        }
        if let Some(next) = next {
            self.remove_runnable(next);
            self.add_runnable(next);
            changes.push(self.change(core, next, What::Runs));
        }
    }
}
