//! Drawn timelines: each virtual CPU has its core in turns ([`Timeline`]), whatever else runs on the host.
//!
//! It is the model for figures in which a VM's gaps have a length that the scenario sets. Virtual CPUs of one host do
//! not exclude each other: each has a core of its own, with its number, which it shares with neighbours that exist only
//! as slices. A virtual CPU that halts keeps its slice, unless it gives its core up after some idle time: it is then
//! checked in intervals of that time, as a host would, and its neighbours' slices begin once it has been idle for that
//! long.

use evenkeel_scenario::slices::Turns;

use super::timeline::Timeline;
use super::timers::Timers;
use super::{Change, CoreId, EntityId, Scheduler, What, Why};
use crate::time::Instant;

/// Timers of each virtual CPU: its slice, and its next check for idleness.
const TIMERS: usize = 2;

#[derive(Debug)]
struct Vcpu {
    timeline: Timeline,
    awake: bool,
    /// When it last had something to do, or got its core.
    active: Instant,
}

/// The drawn timelines of a host's virtual CPUs.
#[derive(Debug)]
pub struct Slices {
    vcpus: Vec<Vcpu>,
    timers: Timers,
}

impl Slices {
    /// A timeline for each virtual CPU; one without turns always has its core. All are blocked at first.
    pub fn new(turns: impl IntoIterator<Item = Option<Turns>>) -> Self {
        let vcpus: Vec<_> = turns
            .into_iter()
            .map(|turns| Vcpu { timeline: Timeline::new(turns), awake: false, active: Instant::START })
            .collect();
        let mut slices = Self { timers: Timers::new(TIMERS * vcpus.len()), vcpus };
        for number in 0..slices.vcpus.len() {
            if let Some(at) = slices.vcpus[number].timeline.start() {
                slices.timers.set(TIMERS * number, at);
                slices.look_later(number, Instant::START);
            }
        }
        slices
    }

    /// A virtual CPU has its core: plans the check whether it needs it.
    fn look_later(&mut self, number: usize, now: Instant) {
        let vcpu = &mut self.vcpus[number];
        vcpu.active = vcpu.active.max(now);
        let timer = TIMERS * number + 1;
        if let Some(idle) = vcpu.timeline.gives_up_after().filter(|_| self.timers.at(timer) == Instant::NEVER) {
            self.timers.set(timer, now + idle);
        }
    }

    fn change(&self, number: usize, at: Instant, what: What) -> Change {
        Change { at, core: CoreId(number as u32), entity: EntityId(number as u32), what }
    }

    fn switch(&mut self, number: usize, now: Instant, changes: &mut Vec<Change>) {
        let vcpu = &mut self.vcpus[number];
        let was_on = vcpu.timeline.is_on();
        if let Some(at) = vcpu.timeline.switch(now) {
            self.timers.set(TIMERS * number, at);
        }
        let (awake, is_on) = (self.vcpus[number].awake, self.vcpus[number].timeline.is_on());
        if awake && was_on && !is_on {
            changes.push(self.change(number, now, What::Stops(Why::SliceOver)));
        }
        if !was_on {
            self.look_later(number, now);
            if awake {
                changes.push(self.change(number, now, What::Runs));
            }
        }
    }

    fn look(&mut self, number: usize, now: Instant) {
        let vcpu = &mut self.vcpus[number];
        let Some(idle) = vcpu.timeline.gives_up_after() else { return };
        let at = if vcpu.awake { now } else { vcpu.active } + idle;
        if !vcpu.timeline.is_on() {
            // It is checked again when it is back.
        } else if at > now || !vcpu.timeline.has_neighbour() {
            self.timers.set(TIMERS * number + 1, at.max(now + idle));
        } else {
            let back = vcpu.timeline.give_up(now);
            self.timers.set(TIMERS * number, back);
        }
    }
}

impl Scheduler for Slices {
    fn wake(&mut self, entity: EntityId, now: Instant, changes: &mut Vec<Change>) {
        self.advance(now, changes);
        let number = entity.0 as usize;
        if !std::mem::replace(&mut self.vcpus[number].awake, true) && self.vcpus[number].timeline.is_on() {
            changes.push(self.change(number, now, What::Runs));
        }
    }

    fn block(&mut self, entity: EntityId, now: Instant, changes: &mut Vec<Change>) {
        self.advance(now, changes);
        let number = entity.0 as usize;
        let vcpu = &mut self.vcpus[number];
        if !std::mem::replace(&mut vcpu.awake, false) {
            return;
        }
        vcpu.active = now;
        if vcpu.timeline.is_on() {
            changes.push(self.change(number, now, What::Stops(Why::Blocked)));
        }
    }

    fn next_event(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn advance(&mut self, now: Instant, changes: &mut Vec<Change>) {
        while let Some((at, timer)) = self.timers.pop(now) {
            match timer % TIMERS {
                0 => self.switch(timer / TIMERS, at, changes),
                _ => self.look(timer / TIMERS, at),
            }
        }
    }

    fn running(&self, core: CoreId) -> Option<EntityId> {
        let vcpu = self.vcpus.get(core.0 as usize)?;
        (vcpu.awake && vcpu.timeline.is_on()).then_some(EntityId(core.0))
    }

    fn cores(&self) -> u32 {
        self.vcpus.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::format::CoreSharing;

    use super::*;
    use crate::time::Duration;

    fn turns(idle_us: Option<u32>) -> Turns {
        let sharing = CoreSharing { vms_per_core: 3, slice_jitter: 0.5, idle_us, ..CoreSharing::default() };
        Turns::new(&sharing, 7, 0)
    }

    #[test]
    fn the_timeline_is_what_is_drawn() {
        let mut slices = Slices::new([Some(turns(None))]);
        let mut timeline = Timeline::new(Some(turns(None)));
        let mut changes = Vec::new();
        slices.wake(EntityId(0), Instant::START, &mut changes);
        let mut at = timeline.start().unwrap();
        for _ in 0..100 {
            changes.clear();
            assert_eq!(slices.next_event(), Some(at));
            slices.advance(at, &mut changes);
            at = timeline.switch(at).unwrap();
            let what = if timeline.is_on() { What::Runs } else { What::Stops(Why::SliceOver) };
            assert_eq!(changes, [slices.change(0, changes[0].at, what)]);
            assert_eq!(slices.running(CoreId(0)).is_some(), timeline.is_on());
        }
    }

    #[test]
    fn one_that_is_idle_gives_its_slice_up() {
        let mut slices = Slices::new([Some(turns(Some(200)))]);
        let mut changes = Vec::new();
        let end = slices.timers.at(0);
        // It is looked at every 200 us, and has been idle for 200 us at the second look after it halts.
        slices.wake(EntityId(0), Instant::START, &mut changes);
        slices.block(EntityId(0), Instant::START + Duration::from_us(250), &mut changes);
        slices.advance(Instant::START + Duration::from_us(600), &mut changes);
        assert!(!slices.vcpus[0].timeline.is_on());
        assert!(slices.vcpus[0].timeline.went_off() < end);
        // It waits for its turn although it wakes up again.
        changes.clear();
        slices.wake(EntityId(0), Instant::START + Duration::from_ms(1), &mut changes);
        assert_eq!(changes, []);
        let back = slices.next_event().unwrap();
        slices.advance(back, &mut changes);
        assert_eq!(changes, [slices.change(0, back, What::Runs)]);
    }

    #[test]
    fn without_turns_it_always_has_its_core() {
        let mut slices = Slices::new([None]);
        let mut changes = Vec::new();
        slices.wake(EntityId(0), Instant::START, &mut changes);
        assert_eq!(slices.next_event(), None);
        assert_eq!(slices.running(CoreId(0)), Some(EntityId(0)));
        slices.block(EntityId(0), Instant::START + Duration::from_ms(5), &mut changes);
        assert_eq!(changes.last().map(|change| change.what), Some(What::Stops(Why::Blocked)));
        assert_eq!((slices.cores(), changes.len()), (1, 2));
    }
}
