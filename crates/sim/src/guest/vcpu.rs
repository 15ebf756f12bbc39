//! A guest's virtual CPU: when it has its core, and how long packets keep it busy.

use evenkeel_scenario::slices::Turns;

use crate::time::{Duration, Instant};

/// One virtual CPU.
#[derive(Debug)]
pub struct VirtualCpu {
    turns: Option<Turns>,
    /// How long it will be off its core after the present slice.
    off: Duration,
    on: bool,
    went_off: Instant,
    /// When it is to lose or get its core; events for other instants are out of date.
    due: Instant,
    off_total: Duration,
    busy_until: Instant,
    busy_total: Duration,
}

impl VirtualCpu {
    /// A virtual CPU on its core; for good, if it has no turns.
    pub fn new(turns: Option<Turns>) -> Self {
        Self {
            turns,
            off: Duration::ZERO,
            on: true,
            went_off: Instant::START,
            due: Instant::NEVER,
            off_total: Duration::ZERO,
            busy_until: Instant::START,
            busy_total: Duration::ZERO,
        }
    }

    /// When the first slice ends; `None` if never.
    pub fn start(&mut self) -> Option<Instant> {
        let phase_ns = self.turns.as_mut()?.phase_ns();
        self.due = Instant::START + Duration::from_ns(phase_ns) + self.take_turn()?;
        Some(self.due)
    }

    /// Whether a change is due now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due == now
    }

    /// How long it keeps its core without anything to do, if not for the whole slice.
    pub fn gives_up_after(&self) -> Option<Duration> {
        self.turns.as_ref().and_then(Turns::idle_ns).map(Duration::from_ns)
    }

    /// Whether a neighbour wants the core after the present slice.
    pub fn has_neighbour(&self) -> bool {
        self.off > Duration::ZERO
    }

    /// It has nothing to do and halts: its neighbours' slices begin now. When it has its core again.
    pub fn give_up(&mut self, now: Instant) -> Instant {
        self.on = false;
        self.went_off = now;
        self.due = now + self.off;
        self.due
    }

    fn take_turn(&mut self) -> Option<Duration> {
        let turn = self.turns.as_mut()?.next()?;
        self.off = Duration::from_ns(turn.off_ns);
        Some(Duration::from_ns(turn.on_ns.max(1)))
    }

    /// Its slice ends, or begins; when the next change is. A slice is followed by another at once if no neighbour wants
    /// one.
    pub fn switch(&mut self, now: Instant) -> Option<Instant> {
        if self.on && self.off > Duration::ZERO {
            return Some(self.give_up(now));
        }
        if !self.on {
            self.on = true;
            let off = now.since(self.went_off);
            self.off_total += off;
            if self.busy_until > self.went_off {
                self.busy_until += off;
            }
        }
        self.due = now + self.take_turn()?;
        Some(self.due)
    }

    /// Whether it has its core.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.on
    }

    /// Whether it has its core and is not busy with a packet.
    #[inline]
    pub fn is_free(&self, now: Instant) -> bool {
        self.on && now >= self.busy_until
    }

    /// When it last lost its core.
    pub const fn went_off(&self) -> Instant {
        self.went_off
    }

    /// How long it was off its core until it last got it back.
    pub const fn off_total(&self) -> Duration {
        self.off_total
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
