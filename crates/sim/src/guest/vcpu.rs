//! A guest's virtual CPU: when it has its core, and how long packets keep it busy.

use evenkeel_scenario::slices::Turns;

use crate::host::scheduler::timeline::Timeline;
use crate::time::{Duration, Instant};

/// One virtual CPU.
#[derive(Debug)]
pub struct VirtualCpu {
    timeline: Timeline,
    busy_until: Instant,
    busy_total: Duration,
}

impl VirtualCpu {
    /// A virtual CPU on its core; for good, if it has no turns.
    pub fn new(turns: Option<Turns>) -> Self {
        Self { timeline: Timeline::new(turns), busy_until: Instant::START, busy_total: Duration::ZERO }
    }

    /// When the first slice ends; `None` if never.
    pub fn start(&mut self) -> Option<Instant> {
        self.timeline.start()
    }

    /// Whether a change is due now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.timeline.is_due(now)
    }

    /// How long it keeps its core without anything to do, if not for the whole slice.
    pub fn gives_up_after(&self) -> Option<Duration> {
        self.timeline.gives_up_after()
    }

    /// Whether a neighbour wants the core after the present slice.
    pub fn has_neighbour(&self) -> bool {
        self.timeline.has_neighbour()
    }

    /// It has nothing to do and halts: its neighbours' slices begin now. When it has its core again.
    pub fn give_up(&mut self, now: Instant) -> Instant {
        self.timeline.give_up(now)
    }

    /// Its slice ends, or begins; when the next change is. A slice is followed by another at once if no neighbour wants
    /// one.
    pub fn switch(&mut self, now: Instant) -> Option<Instant> {
        let (was_on, went_off) = (self.timeline.is_on(), self.timeline.went_off());
        let next = self.timeline.switch(now);
        if !was_on && self.busy_until > went_off {
            self.busy_until += now.since(went_off);
        }
        next
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

    /// When it is done with the packets that it has begun, if it is not taken off its core before.
    pub const fn busy_until(&self) -> Instant {
        self.busy_until
    }

    /// How long packets have kept it busy.
    pub const fn busy_total(&self) -> Duration {
        self.busy_total
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
        assert_eq!(vcpu.busy_total(), Duration::from_us(3));
    }
}
