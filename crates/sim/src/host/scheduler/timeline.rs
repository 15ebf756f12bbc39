//! When a virtual CPU has its core by a drawn timeline: in turns, each a slice of its own and then those of neighbours.

use evenkeel_scenario::slices::Turns;

use crate::time::{Duration, Instant};

/// The timeline of one virtual CPU.
#[derive(Debug)]
pub struct Timeline {
    turns: Option<Turns>,
    /// How long it will be off its core after the present slice.
    off: Duration,
    on: bool,
    went_off: Instant,
    /// When it is to lose or get its core; events for other instants are out of date.
    due: Instant,
    off_total: Duration,
}

impl Timeline {
    /// A timeline that begins on its core; forever if there are no turns.
    pub fn new(turns: Option<Turns>) -> Self {
        Self {
            turns,
            off: Duration::ZERO,
            on: true,
            went_off: Instant::START,
            due: Instant::NEVER,
            off_total: Duration::ZERO,
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

    /// How long it keeps its core when idle, if not for the whole slice.
    pub fn gives_up_after(&self) -> Option<Duration> {
        self.turns.as_ref().and_then(Turns::idle_ns).map(Duration::from_ns)
    }

    /// Whether a neighbour wants the core after the present slice.
    pub fn has_neighbour(&self) -> bool {
        self.off > Duration::ZERO
    }

    /// It has nothing to do and halts: its neighbours' slices begin now. Returns when it has its core again.
    pub fn give_up(&mut self, now: Instant) -> Instant {
        self.leave(now);
        self.due = now + self.off;
        self.due
    }

    /// It loses its core.
    pub fn leave(&mut self, now: Instant) {
        self.on = false;
        self.went_off = now;
    }

    /// It has its core again.
    pub fn come_back(&mut self, now: Instant) {
        self.on = true;
        self.off_total += now.since(self.went_off);
    }

    fn take_turn(&mut self) -> Option<Duration> {
        let turn = self.turns.as_mut()?.next()?;
        self.off = Duration::from_ns(turn.off_ns);
        Some(Duration::from_ns(turn.on_ns.max(1)))
    }

    /// Its slice ends, or begins. Returns when the next change is. A slice is followed by another at once if no
    /// neighbour wants one.
    pub fn switch(&mut self, now: Instant) -> Option<Instant> {
        if self.on && self.off > Duration::ZERO {
            return Some(self.give_up(now));
        }
        if !self.on {
            self.come_back(now);
        }
        self.due = now + self.take_turn()?;
        Some(self.due)
    }

    /// Whether it has its core.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.on
    }

    /// When it last lost its core.
    pub const fn went_off(&self) -> Instant {
        self.went_off
    }

    /// How long it was off its core until it last got it back.
    pub const fn off_total(&self) -> Duration {
        self.off_total
    }
}
