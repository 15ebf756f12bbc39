//! PVTCP in a guest: what the kernel module does, at the same points.
//!
//! The decisions are those of `algo/pvtcp/pvtcp.h`. It is told of ticks only when something depends on them: a punctual
//! tick changes nothing that the next one does not.

use evenkeel_algo::pvtcp::{Settings, Timer, Vcpu};
use evenkeel_settings::Mode;

use super::clock::Clock;
use crate::packet::ConnId;
use crate::tcp::{Absences, Note, TimerKind};
use crate::time::{Duration, Instant};

/// Connections whose timers can be held at a time, as in the module.
pub const HELD_MAX: usize = 256;

/// How PVTCP is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvtcpSpec {
    /// Off, observe or enforce.
    pub mode: Mode,
    /// The module's parameters.
    pub settings: Settings,
    /// Whether the hypervisor tells the guest how long it was off its core.
    pub steal_clock: bool,
}

/// The module's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Wake-ups seen.
    pub wakeups: u64,
    /// Wake-ups that only the steal clock showed.
    pub wakeups_by_steal: u64,
    /// Retransmission timeouts held.
    pub held_rto: u64,
    /// Tail-loss probes held.
    pub held_tlp: u64,
    /// Reordering timers held.
    pub held_reo: u64,
    /// Held timers that TCP set again before they could run.
    pub held_overtaken: u64,
    /// Held timers that ran.
    pub held_ran: u64,
    /// Timers put off by a tick because too many were held.
    pub held_overflow: u64,
    /// RTT samples replaced.
    pub rtt_filtered: u64,
    /// Idle times shortened by an absence.
    pub idle_filtered: u64,
    /// Times that the next segments were acknowledged at once.
    pub jit_acks: u64,
    /// Longest absence seen.
    pub wakeup_max_us: u64,
}

/// A held timer, with the state that shows whether TCP has set it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which timer.
    pub kind: TimerKind,
    /// When TCP wanted it to run.
    pub deadline: Instant,
    /// When it runs at the latest.
    pub expires: Instant,
    /// Bytes acknowledged.
    pub acked: u64,
    /// Duplicate ACKs received.
    pub dup_acks: u64,
    /// Data segments sent.
    pub sent: u64,
}

/// What becomes of a timer that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs.
    Run,
    /// It is held until the backlog is in, at the latest until `expires`.
    Hold {
        /// When it runs in any case.
        expires: Instant,
        /// When the held timers are to be checked first; `None` if that is already planned.
        look_at: Option<Instant>,
    },
    /// Too many are held: it runs at the next tick.
    PutOff(Instant),
}

/// PVTCP's state in one guest.
#[derive(Debug)]
pub struct Pvtcp {
    spec: PvtcpSpec,
    vcpu: Vcpu,
    counters: Counters,
    ticks_told: u64,
    /// The steal clock as far as ticks have counted it.
    steal_us: u64,
    received_at_wake: u64,
    held: Vec<ConnId>,
    /// The number of the wake-up at which the first of them was held.
    held_since: Option<u32>,
    overflow_expires: Instant,
    /// A check of the held timers is planned.
    pub release_queued: bool,
    /// A check was due while the virtual CPU was off its core.
    pub release_missed: bool,
}

impl Pvtcp {
    /// PVTCP as it is loaded; `None` if it is off, or if there is no tick to show wake-ups.
    pub fn new(spec: &PvtcpSpec, clock: &Clock) -> Option<Self> {
        if spec.mode == Mode::Off || !clock.ticks() {
            return None;
        }
        Some(Self {
            spec: spec.clone(),
            vcpu: Vcpu::default(),
            counters: Counters::default(),
            ticks_told: 0,
            steal_us: 0,
            received_at_wake: 0,
            held_since: None,
            held: Vec::new(),
            overflow_expires: Instant::NEVER,
            release_queued: false,
            release_missed: false,
        })
    }

    /// Whether it changes what happens.
    pub fn acts(&self) -> bool {
        self.spec.mode == Mode::Enforce
    }

    /// Its counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How long its virtual CPU was off its core before the last wake-up.
    pub fn off_us(&self) -> u64 {
        self.vcpu.off_us()
    }

    /// What TCP needs to know of absences.
    pub fn absences(&self) -> Absences<'_> {
        Absences { vcpu: &self.vcpu, settings: &self.spec.settings, acts: self.acts() }
    }

    /// Counts what was done about absences in a connection, or would have been.
    pub fn count(&mut self, note: &Note) {
        match note {
            Note::RttSample { spoilt: true, .. } => self.counters.rtt_filtered += 1,
            Note::IdleFiltered => self.counters.idle_filtered += 1,
            _ => {}
        }
    }

    fn steal_clock(&self, off_total: Duration) -> u64 {
        if self.spec.steal_clock { off_total.us() } else { 0 }
    }

    fn note_wakeup(&mut self, received: u64) {
        self.received_at_wake = received;
        self.counters.wakeups += 1;
        self.counters.wakeup_max_us = self.counters.wakeup_max_us.max(self.vcpu.off_us());
    }

    /// Tells of the ticks up to now.
    pub fn catch_up(&mut self, clock: &Clock, now: Instant, off_total: Duration) {
        let count = clock.count(now);
        if count <= self.ticks_told {
            return;
        }
        let steal_us = self.steal_clock(off_total);
        // The kernel adds stolen time after the module has read the clock, so the first tick after an absence shows the
        // module the old value.
        let seen_us = if count == self.ticks_told + 1 { self.steal_us } else { steal_us };
        let at_us = clock.tick(count).us();
        self.vcpu.tick(&self.spec.settings, at_us, at_us, seen_us);
        self.ticks_told = count;
        self.steal_us = steal_us;
    }

    /// The virtual CPU has its core again; PVTCP had been told of all ticks up to the loss of the core. `received`:
    /// packets that came in so far. Returns whether PVTCP has noticed a wake-up.
    pub fn back(&mut self, clock: &Clock, now: Instant, off_total: Duration, received: u64) -> bool {
        let count = clock.count(now);
        if count <= self.ticks_told {
            return false;
        }
        let due_us = clock.tick(self.ticks_told + 1).us();
        let is_wakeup = self.vcpu.tick(&self.spec.settings, due_us, now.us(), self.steal_us);
        if is_wakeup {
            self.note_wakeup(received);
        }
        self.ticks_told = count;
        self.steal_us = self.steal_clock(off_total);
        is_wakeup
    }

    /// One of the three timers that can be held is due; `due.expires` is set if it was held or put off before.
    pub fn on_timer(&mut self, conn: ConnId, kind: Timer, due: &Due) -> Fate {
        let now = due.now;
        self.catch_up(due.clock, now, due.off_total);
        if self.vcpu.steal(&self.spec.settings, now.us(), self.steal_us) {
            self.note_wakeup(due.received);
            self.counters.wakeups_by_steal += 1;
        }
        let holds_on = self.held_since.is_none_or(|since| self.vcpu.holds_on(since));
        if !holds_on || !self.vcpu.hold(&self.spec.settings, kind, now.us()) {
            return Fate::Run;
        }
        let jiffies = due.clock.count(now);
        let mut fate = Fate::Run;
        if self.acts() {
            fate = self.hold(conn, due, jiffies);
            if fate == Fate::Run {
                return fate;
            }
        }
        *match kind {
            Timer::Rto => &mut self.counters.held_rto,
            Timer::Tlp => &mut self.counters.held_tlp,
            Timer::Reo => &mut self.counters.held_reo,
        } += 1;
        fate
    }

    fn hold(&mut self, conn: ConnId, due: &Due, jiffies: u64) -> Fate {
        let set = &self.spec.settings;
        if !self.held.contains(&conn) {
            if self.held.len() == HELD_MAX {
                if due.expires == Some(self.overflow_expires) {
                    return Fate::Run;
                }
                self.overflow_expires = due.clock.tick(jiffies + 1);
                self.counters.held_overflow += 1;
                return Fate::PutOff(self.overflow_expires);
            }
            self.held.push(conn);
        }
        self.held_since.get_or_insert(self.vcpu.wakes());
        let limit = Duration::from_us(u64::from(set.hold_min_us.max(set.hold_max_us)));
        let look_at = (!self.release_queued).then(|| due.now + Duration::from_us(u64::from(set.hold_min_us)));
        self.release_queued = true;
        let expires = due.clock.tick(jiffies + 1 + limit.ps().div_ceil(due.clock.period().ps()));
        Fate::Hold { expires, look_at }
    }

    /// Checks the held timers. Returns when to check again, or `None` if they are to be let go.
    pub fn release_at(
        &mut self,
        clock: &Clock,
        now: Instant,
        off_total: Duration,
        backlog: Backlog,
    ) -> Option<Instant> {
        self.catch_up(clock, now, off_total);
        let backlog_in = backlog.waiting == 0 && backlog.received != self.received_at_wake;
        let since = self.held_since.unwrap_or(self.vcpu.wakes());
        let wait_us = self.vcpu.release_us(&self.spec.settings, since, now.us(), backlog_in)?;
        Some(now + Duration::from_us(u64::from(wait_us)))
    }

    /// The next held connection to let go, last in, first out; `None` when there are no more.
    pub fn let_go(&mut self) -> Option<ConnId> {
        let conn = self.held.pop();
        if conn.is_none() {
            self.held_since = None;
            self.release_queued = false;
        }
        conn
    }

    /// Counts what became of a held timer.
    pub fn count_let_go(&mut self, ran: bool) {
        *(if ran { &mut self.counters.held_ran } else { &mut self.counters.held_overtaken }) += 1;
    }

    /// Data has come in; the connection's last came at `before`. Returns how many segments to acknowledge at once.
    pub fn on_data(&mut self, clock: &Clock, now: Instant, off_total: Duration, before: Instant) -> u32 {
        if self.spec.settings.jit_segments == 0 {
            return 0;
        }
        self.catch_up(clock, now, off_total);
        let tick_us = clock.period().us() as u32;
        let idle_us = (clock.count(now) - clock.count(before)) * u64::from(tick_us);
        let segments = self.vcpu.jit_segments(&self.spec.settings, now.us(), idle_us, tick_us);
        self.counters.jit_acks += u64::from(segments > 0);
        if self.acts() { segments } else { 0 }
    }
}

/// The circumstances in which a timer is due.
#[derive(Clone, Copy, Debug)]
pub struct Due<'a> {
    /// The present.
    pub now: Instant,
    /// The guest's clock.
    pub clock: &'a Clock,
    /// How long its virtual CPU was off its core so far.
    pub off_total: Duration,
    /// Packets that came in so far.
    pub received: u64,
    /// What the timer was put off to before.
    pub expires: Option<Instant>,
}

/// The packets of a guest.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// How many wait for the guest.
    pub waiting: usize,
    /// How many came in so far.
    pub received: u64,
}
