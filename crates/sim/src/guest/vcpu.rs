//! A guest's virtual CPU: when it has its core, and how long packets keep it busy.
//!
//! It has its core by a drawn timeline, or competes for a core with others on its host. A competing one halts when it
//! has nothing to do, and waits for a core when it has work.

use evenkeel_scenario::slices::Turns;

use crate::host::scheduler::timeline::Timeline;
use crate::time::{Duration, Instant};

/// One virtual CPU.
#[derive(Debug)]
pub struct VirtualCpu {
    timeline: Timeline,
    busy_until: Instant,
    busy_total: Duration,
    /// It competes, and has nothing to do.
    is_halted: bool,
    /// If it competes: when it last got a core, and how long it had one before that.
    had_core: Option<(Instant, Duration)>,
}

impl VirtualCpu {
    /// A virtual CPU on its core; forever if it has no turns.
    pub fn new(turns: Option<Turns>) -> Self {
        Self {
            timeline: Timeline::new(turns),
            busy_until: Instant::START,
            busy_total: Duration::ZERO,
            is_halted: false,
            had_core: None,
        }
    }

    /// A virtual CPU that competes for a core; halted.
    pub fn competing() -> Self {
        let mut vcpu = Self { is_halted: true, had_core: Some((Instant::START, Duration::ZERO)), ..Self::new(None) };
        vcpu.timeline.leave(Instant::START);
        vcpu
    }

    /// Whether it competes for its core, and has nothing to do.
    #[inline]
    pub const fn is_halted(&self) -> bool {
        self.is_halted
    }

    /// It was halted and now has something to do: it waits for a core.
    pub fn wait(&mut self, now: Instant) {
        self.is_halted = false;
        self.timeline.leave(now);
    }

    /// It has waited, and gets its core.
    pub fn get_core(&mut self, now: Instant) {
        self.put_off(now);
        self.timeline.come_back(now);
        self.had_core = self.had_core.map(|(_, before)| (now, before));
    }

    /// It loses its core before it is done.
    pub fn lose_core(&mut self, now: Instant) {
        self.timeline.leave(now);
        self.had_core = self.had_core.map(|(since, before)| (now, before + now.since(since)));
    }

    /// It has its core and nothing to do.
    pub fn halt(&mut self, now: Instant) {
        self.lose_core(now);
        self.is_halted = true;
    }

    /// Work in progress takes longer by the time that it was off its core.
    fn put_off(&mut self, now: Instant) {
        let went_off = self.timeline.went_off();
        if self.busy_until > went_off {
            self.busy_until += now.since(went_off);
        }
    }

    /// When the first slice ends; `None` if never.
    pub fn start(&mut self) -> Option<Instant> {
        self.timeline.start()
    }

    /// Whether a change is due now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.timeline.is_due(now)
    }

    /// How long it keeps its core when idle, if not for the whole slice.
    pub fn gives_up_after(&self) -> Option<Duration> {
        self.timeline.gives_up_after()
    }

    /// Whether a neighbour wants the core after the present slice.
    pub fn has_neighbour(&self) -> bool {
        self.timeline.has_neighbour()
    }

    /// It has nothing to do and halts: its neighbours' slices begin now. Returns when it has its core again.
    pub fn give_up(&mut self, now: Instant) -> Instant {
        self.timeline.give_up(now)
    }

    /// Its slice ends, or begins. Returns when the next change is. A slice is followed by another at once if no
    /// neighbour wants one.
    pub fn switch(&mut self, now: Instant) -> Option<Instant> {
        if !self.timeline.is_on() {
            self.put_off(now);
        }
        self.timeline.switch(now)
    }

    /// Whether it has its core.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.timeline.is_on()
    }

    /// Whether it has its core and is not busy with a packet.
    #[inline]
    pub fn is_free(&self, now: Instant) -> bool {
        self.timeline.is_on() && now >= self.busy_until
    }

    /// When it last lost its core.
    pub const fn went_off(&self) -> Instant {
        self.timeline.went_off()
    }

    /// How long it was off its core until it last got it back.
    pub const fn off_total(&self) -> Duration {
        self.timeline.off_total()
    }

    /// When it is done with the packets that it has begun, if it keeps its core until then.
    pub const fn busy_until(&self) -> Instant {
        self.busy_until
    }

    /// How long it worked: the time spent on packets, or if it competes for its core, all the time that it had one.
    pub fn busy_total(&self, now: Instant) -> Duration {
        match self.had_core {
            Some((since, before)) if self.is_on() => before + now.since(since),
            Some((_, before)) => before,
            None => self.busy_total,
        }
    }

    /// How long it was off its core and not halted.
    pub fn stolen(&self, now: Instant) -> Duration {
        let waits = !self.is_on() && !self.is_halted;
        self.off_total() + if waits { now.since(self.went_off()) } else { Duration::ZERO }
    }

    /// It works on a packet.
    #[inline]
    pub fn work(&mut self, now: Instant, cost: Duration) {
        if cost > Duration::ZERO {
            self.busy_until = self.busy_until.max(now) + cost;
            self.busy_total += cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::format::CoreSharing;

    use super::*;

    fn thirds() -> VirtualCpu {
        let sharing = CoreSharing { vms_per_core: 3, ..CoreSharing::default() };
        VirtualCpu::new(Some(Turns::new(&sharing, 1, 0)))
    }

    #[test]
    fn it_has_a_third_of_the_core() {
        let mut vcpu = thirds();
        let mut at = vcpu.start().unwrap();
        for _ in 0..60 {
            at = vcpu.switch(at).unwrap();
        }
        assert!(vcpu.is_on());
        assert_eq!(vcpu.off_total(), Duration::from_ms(60) * 30);
    }

    #[test]
    fn work_goes_on_when_it_is_back() {
        let mut vcpu = thirds();
        let off = vcpu.start().unwrap();
        let begun = Instant::from_ps(off.ps() - Duration::from_us(1).ps());
        vcpu.work(begun, Duration::from_us(3));
        let on = vcpu.switch(off).unwrap();
        vcpu.switch(on);
        assert!(!vcpu.is_free(on + Duration::from_us(1)));
        assert!(vcpu.is_free(on + Duration::from_us(2)));
        assert_eq!(vcpu.busy_total(on), Duration::from_us(3));
    }

    #[test]
    fn one_that_competes_halts_waits_and_runs() {
        let at = |us| Instant::START + Duration::from_us(us);
        let mut vcpu = VirtualCpu::competing();
        assert!(vcpu.is_halted() && !vcpu.is_on());
        vcpu.wait(at(100));
        assert_eq!(vcpu.stolen(at(103)), Duration::from_us(3));
        vcpu.get_core(at(110));
        vcpu.work(at(110), Duration::from_us(20));
        vcpu.lose_core(at(115));
        vcpu.get_core(at(145));
        assert!(!vcpu.is_free(at(159)) && vcpu.is_free(at(160)));
        vcpu.halt(at(160));
        assert_eq!((vcpu.stolen(at(500)), vcpu.busy_total(at(500))), (Duration::from_us(40), Duration::from_us(20)));
        assert_eq!(vcpu.off_total(), Duration::from_us(40));
    }
}
