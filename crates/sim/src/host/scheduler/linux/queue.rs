//! A queue on one core, the host's or a group's: which entities wait on it, and which of them goes first by EEVDF.
//!
//! Comments give the kernel's names of functions (`kernel/sched/fair.c`). Times are nanoseconds, and virtual times
//! those of an entity of weight 1024.

/// The weight of a thread with nice value 0: `NICE_0_LOAD`.
pub(super) const NICE_0: i64 = 1024;

/// What a queue's entities share: how long a slice is, and how far apart ticks are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub slice: i64,
    pub tick: i64,
}

/// What is scheduled: a task, or all tasks of a group on one core (`struct sched_entity`).
#[derive(Clone, Debug)]
pub(super) struct Schedulable {
    pub weight: i64,
    /// How much time it asks for at once.
    pub slice: i64,
    /// Whether its slice is its own (`custom_slice`).
    pub own_slice: bool,
    /// The queue it belongs to.
    pub queue: u32,
    /// The queue it stands for, if it is a group.
    pub owns: Option<u32>,
    pub vruntime: i64,
    pub deadline: i64,
    /// The deadline is relative to the virtual time, because the entity is being moved to another queue.
    pub relative: bool,
    /// How far the queue's virtual time was ahead of the entity's when it left.
    pub lag: i64,
    /// Up to this virtual time of its own, a waking entity with an equal slice does not go before it (`vprot`).
    pub protected: i64,
    pub queued: bool,
    /// It sleeps, but stays in the competition until it has made up for its lag (`sched_delayed`).
    pub delayed: bool,
    /// Until when its run time has been accounted for.
    pub charged: i64,
}

impl Schedulable {
    pub fn new(weight: i64, slice: Option<i64>, queue: u32, owns: Option<u32>, lengths: Lengths) -> Self {
        Self {
            weight,
            slice: slice.unwrap_or(lengths.slice),
            own_slice: slice.is_some(),
            queue,
            owns,
            vruntime: 0,
            deadline: 0,
            relative: false,
            lag: 0,
            protected: 0,
            queued: false,
            delayed: false,
            charged: 0,
        }
    }

    /// How far its virtual time advances in this much time: `calc_delta_fair`.
    fn weighted(&self, span: i64) -> i64 {
        if self.weight == NICE_0 { span } else { span * NICE_0 / self.weight }
    }

    /// Its lag, limited to two slices or a tick: `entity_lag`.
    fn limited_lag(&self, average: i64, lengths: Lengths) -> i64 {
        let limit = self.weighted(lengths.tick.max(2 * self.slice));
        (average - self.vruntime).clamp(-limit, limit)
    }

    /// Whether it is still protected from entities with an equal slice: `protect_slice`.
    fn is_protected(&self) -> bool {
        self.vruntime < self.protected
    }

    /// Others may go before it from now on: `cancel_protect_slice`.
    pub fn expose(&mut self) {
        self.protected = self.protected.min(self.vruntime);
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    deadline: i64,
    vruntime: i64,
    slice: u32,
    id: u32,
}

/// A queue (`struct cfs_rq`). Waiting entities are kept in one array in the order of deadlines: for the few that share
/// a core, this is faster than a tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiting: Vec<Waiting>,
    /// The virtual time to which the entities' times in `sum` are relative (`zero_vruntime`).
    zero: i64,
    /// Sum of weight times virtual time of the waiting entities (`avg_vruntime`), and of their weights (`avg_load`).
    sum: i64,
    load: i64,
    /// The entity that runs, or ran until just now; it is not in `waiting`.
    pub current: Option<u32>,
    /// Entities on the queue, the current one included, and their weights.
    pub count: u32,
    pub weight: i64,
    /// The group's entity on the host's queue.
    pub owner: Option<u32>,
}

impl Queue {
    /// A group's queue.
    pub fn owned_by(owner: u32) -> Self {
        Self { owner: Some(owner), ..Self::default() }
    }

    fn running<'a>(&self, all: &'a [Schedulable]) -> Option<(u32, &'a Schedulable)> {
        let id = self.current?;
        let current = &all[id as usize];
        current.queued.then_some((id, current))
    }

    /// The sums over all entities on the queue.
    fn sums(&self, all: &[Schedulable]) -> (i64, i64) {
        match self.running(all) {
            Some((_, current)) => {
                (self.sum + (current.vruntime - self.zero) * current.weight, self.load + current.weight)
            }
            None => (self.sum, self.load),
        }
    }

    /// The queue's virtual time, the weighted average of its entities': `avg_vruntime`.
    pub fn average(&mut self, all: &[Schedulable]) -> i64 {
        let (sum, load) = self.sums(all);
        if load > 0 {
            let ahead = sum.div_euclid(load);
            self.sum -= ahead * self.load;
            self.zero += ahead;
        }
        self.zero
    }

    fn is_ahead(&self, (sum, load): (i64, i64), vruntime: i64) -> bool {
        i128::from(sum) < i128::from(vruntime - self.zero) * i128::from(load)
    }

    /// Whether it has had no more than its share: `entity_eligible`.
    pub fn is_eligible(&self, all: &[Schedulable], id: u32) -> bool {
        !self.is_ahead(self.sums(all), all[id as usize].vruntime)
    }

    /// The entity to run: of those that have had no more than their share, the one with the earliest deadline. The
    /// current one stays while it is protected and eligible (`RUN_TO_PARITY`), unless `exposed`: `__pick_eevdf`.
    pub fn pick(&self, all: &[Schedulable], exposed: bool) -> Option<u32> {
        let current = self.running(all);
        if self.count == 1 {
            return current.map(|(id, _)| id).or_else(|| self.waiting.first().map(|first| first.id));
        }
        let sums = self.sums(all);
        let current = current.filter(|(_, current)| !self.is_ahead(sums, current.vruntime));
        if let Some((id, _)) = current.filter(|(_, current)| !exposed && current.is_protected()) {
            return Some(id);
        }
        let best = self.waiting.iter().find(|waiting| !self.is_ahead(sums, waiting.vruntime));
        match (current, best) {
            (Some((id, current)), Some(best)) if current.deadline < best.deadline => Some(id),
            (Some((id, _)), None) => Some(id),
            (_, best) => best.map(|best| best.id),
        }
    }

    /// Accounts for what the current entity has run since the last call. Returns how long that is, and whether a new
    /// pick is to be made: `update_curr`, `update_deadline`.
    pub fn charge(&mut self, all: &mut [Schedulable], now: i64, lengths: Lengths) -> (i64, bool) {
        let Some(id) = self.current else { return (0, false) };
        let current = &mut all[id as usize];
        let ran = now - current.charged;
        if ran <= 0 {
            return (0, false);
        }
        current.charged = now;
        current.vruntime += current.weighted(ran);
        let expired = current.vruntime >= current.deadline;
        if expired {
            if !current.own_slice {
                current.slice = lengths.slice;
            }
            current.deadline = current.vruntime + current.weighted(current.slice);
        }
        let is_over = expired || !current.is_protected();
        if expired {
            // Keeps the sums small as the virtual time advances.
            self.average(all);
        }
        (ran, is_over && self.count > 1)
    }

    /// Places an entity that comes in: with the lag that it had when it left, and a deadline one slice later. It will
    /// draw the average towards itself, so the lag is scaled up to compensate: `place_entity`.
    pub fn place(&mut self, all: &mut [Schedulable], id: u32, lengths: Lengths) {
        let average = self.average(all);
        let load = self.sums(all).1;
        let placed = &mut all[id as usize];
        if !placed.own_slice {
            placed.slice = lengths.slice;
        }
        let lag = if load > 0 { placed.lag * (load + placed.weight) / load } else { 0 };
        placed.vruntime = average - lag;
        if std::mem::take(&mut placed.relative) {
            placed.deadline += placed.vruntime;
        } else {
            placed.deadline = placed.vruntime + placed.weighted(placed.slice);
        }
    }

    /// Notes the lag of an entity that is about to leave: `update_entity_lag`.
    pub fn note_lag(&mut self, all: &mut [Schedulable], id: u32, lengths: Lengths) {
        let average = self.average(all);
        let leaving = &mut all[id as usize];
        leaving.lag = leaving.limited_lag(average, lengths);
    }

    /// An entity begins to wait: `__enqueue_entity`.
    pub fn insert(&mut self, all: &[Schedulable], id: u32) {
        let Schedulable { weight, slice, vruntime, deadline, .. } = all[id as usize];
        let at = self.waiting.partition_point(|waiting| waiting.deadline <= deadline);
        self.waiting.insert(at, Waiting { deadline, vruntime, slice: slice as u32, id });
        self.sum += (vruntime - self.zero) * weight;
        self.load += weight;
    }

    /// An entity waits no longer: `__dequeue_entity`.
    pub fn remove(&mut self, all: &[Schedulable], id: u32) {
        let removed = &all[id as usize];
        let from = self.waiting.partition_point(|waiting| waiting.deadline < removed.deadline);
        if let Some(at) = self.waiting[from..].iter().position(|waiting| waiting.id == id) {
            self.waiting.remove(from + at);
            self.sum -= (removed.vruntime - self.zero) * removed.weight;
            self.load -= removed.weight;
        }
    }

    /// An entity begins to run: `set_next_entity`. It is protected for the shortest slice on the queue:
    /// `set_protect_slice`.
    pub fn set_current(&mut self, all: &mut [Schedulable], id: u32, now: i64) {
        if all[id as usize].queued {
            self.remove(all, id);
        }
        let shortest = self.shortest_slice(all);
        let next = &mut all[id as usize];
        next.protected = next.deadline;
        if shortest.is_some_and(|shortest| shortest < next.slice) {
            next.protected = next.deadline.min(next.vruntime + next.weighted(shortest.unwrap_or(next.slice)));
        }
        next.charged = now;
        self.current = Some(id);
    }

    /// Limits the current entity's protection to the shortest slice on the queue: `update_protect_slice`.
    pub fn limit_protection(&self, all: &mut [Schedulable], id: u32) {
        if let Some(shortest) = self.shortest_slice(all) {
            let current = &mut all[id as usize];
            current.protected = current.protected.min(current.vruntime + current.weighted(shortest));
        }
    }

    /// `cfs_rq_min_slice`.
    pub fn shortest_slice(&self, all: &[Schedulable]) -> Option<i64> {
        let waiting = self.waiting.iter().map(|waiting| i64::from(waiting.slice)).min();
        let current = self.running(all).map(|(_, current)| current.slice);
        waiting.into_iter().chain(current).min()
    }

    /// Changes an entity's slice, whether it waits or not.
    pub fn set_slice(&mut self, all: &mut [Schedulable], id: u32, slice: i64) {
        all[id as usize].slice = slice;
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.id == id) {
            waiting.slice = slice as u32;
        }
    }

    /// Changes an entity's weight; its weighted lag stays, and so does the rest of its slice: `reweight_entity`.
    pub fn reweigh(&mut self, all: &mut [Schedulable], id: u32, weight: i64, lengths: Lengths) {
        let (queued, old) = (all[id as usize].queued, all[id as usize].weight);
        if !queued {
            all[id as usize].lag = all[id as usize].lag * old / weight;
            all[id as usize].weight = weight;
            return;
        }
        let average = self.average(all);
        let is_current = self.current == Some(id);
        if !is_current {
            self.remove(all, id);
        }
        let changed = &mut all[id as usize];
        changed.vruntime = average - changed.limited_lag(average, lengths) * old / weight;
        changed.deadline = average + (changed.deadline - average) * old / weight;
        changed.weight = weight;
        self.weight += weight - old;
        if !is_current {
            self.insert(all, id);
        }
    }
}
