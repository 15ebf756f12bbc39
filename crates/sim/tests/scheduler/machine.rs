//! A driver of a scheduler: it keeps the time and does the work.
//!
//! Each entity has work that takes CPU time; it blocks when that is done. Some of it is requests from outside, which go
//! before all else, as a guest's interrupts do.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use evenkeel_scenario::random::Random;
use evenkeel_sim::host::scheduler::{Change, EntityId, Scheduler, What};
use evenkeel_sim::time::{Duration, Instant};

/// What an entity computes, besides what it is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Nothing.
    Idle,
    /// Without end.
    Busy,
    /// In each period, `busy` of CPU time, or of time by the clock whether it runs or not.
    Cycle { busy: Duration, period: Duration, by_clock: bool },
    /// Each period with a probability of `percent`, or not at all.
    Some { percent: u64, period: Duration },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Todo {
    /// An entity's present work is done, if it is still this one.
    Done(u32, u32),
    Period(u32),
    /// The busy part of a period is over by the clock.
    Over(u32),
    Request(u32),
}

#[derive(Debug)]
struct Entity {
    load: Load,
    own: Duration,
    requests: VecDeque<(Instant, Duration)>,
    awake: bool,
    since: Option<Instant>,
    generation: u32,
    ran: Duration,
}

/// Requests to an entity.
#[derive(Clone, Copy, Debug)]
pub struct Requests {
    pub to: u32,
    /// Time between requests.
    pub gap: Duration,
    /// CPU time that one takes.
    pub cost: Duration,
}

/// Called with a span of time, which entities are awake in it, and which run.
type Look = Box<dyn FnMut(Duration, &[bool], &[bool])>;

pub struct Machine<S> {
    pub scheduler: S,
    entities: Vec<Entity>,
    agenda: BinaryHeap<Reverse<(Instant, u64, Todo)>>,
    number: u64,
    random: Random,
    requests: Option<Requests>,
    now: Instant,
    changes: Vec<Change>,
    /// From a request to its answer.
    pub answers: Vec<Duration>,
    /// Changes so far.
    pub changed: u64,
    /// Called between instants.
    pub look: Option<Look>,
}

const FOREVER: Duration = Duration::from_ps(u64::MAX / 4);

impl<S: Scheduler> Machine<S> {
    pub fn new(scheduler: S, loads: &[Load], seed: u64) -> Self {
        let entity = |load: &Load| Entity {
            load: *load,
            own: Duration::ZERO,
            requests: VecDeque::new(),
            awake: false,
            since: None,
            generation: 0,
            ran: Duration::ZERO,
        };
        let mut machine = Self {
            scheduler,
            entities: loads.iter().map(entity).collect(),
            agenda: BinaryHeap::new(),
            number: 0,
            random: Random::new(seed, 1),
            requests: None,
            now: Instant::START,
            changes: Vec::new(),
            answers: Vec::new(),
            changed: 0,
            look: None,
        };
        for (id, load) in (0..).zip(loads) {
            match load {
                Load::Idle => {}
                Load::Busy => machine.plan(Instant::START, Todo::Period(id)),
                Load::Cycle { period, .. } | Load::Some { period, .. } => {
                    let phase = machine.span(*period);
                    machine.plan(Instant::START + phase, Todo::Period(id));
                }
            }
        }
        machine
    }

    pub fn ask(&mut self, requests: Requests) {
        self.requests = Some(requests);
        let phase = self.span(requests.gap);
        self.plan(self.now + phase, Todo::Request(requests.to));
    }

    /// CPU time that an entity has had.
    pub fn ran(&self, entity: u32) -> Duration {
        let entity = &self.entities[entity as usize];
        entity.ran + entity.since.map_or(Duration::ZERO, |since| self.now.since(since))
    }

    fn span(&mut self, span: Duration) -> Duration {
        Duration::from_ps(self.random.bits() % span.ps().max(1))
    }

    fn plan(&mut self, at: Instant, todo: Todo) {
        self.number += 1;
        self.agenda.push(Reverse((at, self.number, todo)));
    }

    pub fn run(&mut self, until: Instant) {
        loop {
            let planned = self.agenda.peek().map(|Reverse((at, ..))| *at);
            let scheduled = self.scheduler.next_event();
            let Some(next) = planned.into_iter().chain(scheduled).min().filter(|next| *next <= until) else { break };
            self.look(next);
            self.now = next;
            if scheduled == Some(next) {
                self.scheduler.advance(next, &mut self.changes);
                self.follow();
            } else if let Some(Reverse((_, _, todo))) = self.agenda.pop() {
                self.act(todo);
            }
        }
        self.look(until);
        self.now = until;
    }

    fn look(&mut self, next: Instant) {
        if let Some(look) = self.look.as_mut().filter(|_| next > self.now) {
            let awake: Vec<_> = self.entities.iter().map(|entity| entity.awake).collect();
            let runs: Vec<_> = self.entities.iter().map(|entity| entity.since.is_some()).collect();
            look(next.since(self.now), &awake, &runs);
        }
    }

    fn act(&mut self, todo: Todo) {
        let now = self.now;
        match todo {
            Todo::Done(id, generation) if self.entities[id as usize].generation == generation => {
                self.account(id);
                self.proceed(id);
            }
            Todo::Done(..) => {}
            Todo::Over(id) => {
                self.account(id);
                self.entities[id as usize].own = Duration::ZERO;
                self.proceed(id);
            }
            Todo::Period(id) => {
                let (more, period) = match self.entities[id as usize].load {
                    Load::Idle => return,
                    Load::Busy => (FOREVER, None),
                    Load::Cycle { busy, period, by_clock } => {
                        if by_clock {
                            self.plan(now + busy, Todo::Over(id));
                        }
                        (if by_clock { FOREVER } else { busy }, Some(period))
                    }
                    Load::Some { percent, period } => {
                        let busy = self.random.bits() % 100 < percent;
                        (if busy { period } else { Duration::ZERO }, Some(period))
                    }
                };
                if let Some(period) = period {
                    self.plan(now + period, Todo::Period(id));
                }
                self.account(id);
                let own = &mut self.entities[id as usize].own;
                // One that is late does not do more than one period's work at a time.
                *own = (*own).max(more);
                self.proceed(id);
            }
            Todo::Request(id) => {
                let Some(Requests { gap, cost, .. }) = self.requests else { return };
                self.plan(now + gap, Todo::Request(id));
                self.account(id);
                self.entities[id as usize].requests.push_back((now, cost));
                self.proceed(id);
            }
        }
    }

    /// What an entity has run is taken from its work.
    fn account(&mut self, id: u32) {
        let now = self.now;
        let entity = &mut self.entities[id as usize];
        let Some(since) = entity.since.replace(now) else {
            entity.since = None;
            return;
        };
        let mut ran = now.since(since);
        entity.ran += ran;
        while let Some((asked, left)) = entity.requests.front_mut() {
            if *left > ran {
                *left = *left - ran;
                return;
            }
            ran = ran - *left;
            self.answers.push(now.since(*asked) - ran);
            entity.requests.pop_front();
        }
        entity.own = entity.own - ran;
    }

    /// After its work has changed: it wakes up, blocks, or is called when it is done.
    fn proceed(&mut self, id: u32) {
        let entity = &mut self.entities[id as usize];
        let left = entity.requests.front().map_or(entity.own, |request| request.1);
        let has_work = left > Duration::ZERO;
        entity.generation += 1;
        let generation = entity.generation;
        if has_work != std::mem::replace(&mut entity.awake, has_work) {
            if has_work {
                self.scheduler.wake(EntityId(id), self.now, &mut self.changes);
            } else {
                self.scheduler.block(EntityId(id), self.now, &mut self.changes);
            }
            self.follow();
        } else if entity.since.is_some() && has_work {
            self.plan(self.now + left, Todo::Done(id, generation));
        }
    }

    fn follow(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        for change in changes.drain(..) {
            assert_eq!(change.at, self.now, "a change at another time than it was asked for");
            self.changed += 1;
            let id = change.entity.0;
            let entity = &mut self.entities[id as usize];
            match change.what {
                What::Runs => {
                    assert!(entity.awake && entity.since.is_none(), "{change:?}");
                    entity.since = Some(self.now);
                    let left = entity.requests.front().map_or(entity.own, |request| request.1);
                    entity.generation += 1;
                    let todo = Todo::Done(id, entity.generation);
                    self.plan(self.now + left, todo);
                }
                What::Stops(_) => {
                    assert!(entity.since.is_some(), "{change:?}");
                    self.account(id);
                    let entity = &mut self.entities[id as usize];
                    entity.since = None;
                    entity.generation += 1;
                }
            }
        }
        self.changes = changes;
    }
}
