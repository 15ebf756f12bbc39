//! Timers, which run at the guest's ticks, while it has its core, and when PVTCP lets them.

use evenkeel_algo::pvtcp::Timer;

use super::hosts::Cause;
use super::{Core, Recorder};
use crate::event::Event;
use crate::guest::pvtcp::{Backlog, Due, Fate, Held};
use crate::packet::{ConnId, GuestId};
use crate::tcp::TimerKind;
use crate::time::Instant;

const RETRANSMIT_KINDS: [TimerKind; 4] = [TimerKind::Rto, TimerKind::Tlp, TimerKind::Reo, TimerKind::Persist];

fn holdable(kind: TimerKind) -> Option<Timer> {
    match kind {
        TimerKind::Rto => Some(Timer::Rto),
        TimerKind::Tlp => Some(Timer::Tlp),
        TimerKind::Reo => Some(Timer::Reo),
        TimerKind::Persist | TimerKind::DelayedAck => None,
    }
}

impl<R: Recorder> Core<R> {
    /// Plans an event for the connection's timers. An earlier event in the queue is good enough: it plans the later
    /// one.
    pub(super) fn schedule(&mut self, conn: ConnId) {
        let slot = &mut self.conns.slots[conn.index as usize];
        if R::TRACES {
            self.recorder.acted(self.now, conn, &slot.conn, slot.holds().map(|held| held.expires));
        }
        let Some(deadline) = slot.deadline() else { return };
        let at = self.guests[slot.guest.0 as usize].clock.at_or_after(deadline.max(self.now));
        if at < slot.timer_at {
            slot.timer_at = at;
            self.events.push(at, Event::Timer(conn));
        }
    }

    pub(super) fn on_timer_event(&mut self, conn: ConnId) {
        let now = self.now;
        let Some(slot) = self.conns.get_mut(conn).filter(|slot| slot.timer_at == now) else { return };
        slot.timer_at = Instant::NEVER;
        let id = slot.guest;
        let guest = &mut self.guests[id.0 as usize];
        if guest.vcpu.is_on() {
            self.run_timers(conn);
            self.after_work(id);
        } else if guest.vcpu.is_halted() && slot.deadline().is_none_or(|deadline| deadline > now) {
            // Its clock has been told of the later time, and does not wake it.
            self.schedule(conn);
        } else {
            guest.due.push(conn);
            self.want_core(id, Cause::Clock);
        }
    }

    /// Runs those of a connection's timers that are due, and not held back.
    pub(super) fn run_timers(&mut self, conn: ConnId) {
        let now = self.now;
        let Some(slot) = self.conns.get_mut(conn) else { return };
        let delayed_ack = slot.conn.timer_at(TimerKind::DelayedAck).is_some_and(|at| at <= now);
        let retransmit = RETRANSMIT_KINDS.into_iter().find_map(|kind| Some((kind, slot.conn.timer_at(kind)?)));
        let put_off = slot.holds().map(|held| held.expires);
        if delayed_ack {
            self.recorder.fires(now, conn, TimerKind::DelayedAck);
            self.call_tcp(conn, |end, env| end.fire(env, TimerKind::DelayedAck));
        }
        if let Some((kind, deadline)) = retransmit {
            if put_off.unwrap_or(deadline) <= now && !self.hold(conn, kind, deadline, put_off) {
                self.recorder.fires(now, conn, kind);
                self.call_tcp(conn, |end, env| end.fire(env, kind));
            }
        }
        self.schedule(conn);
    }

    /// Whether PVTCP holds a timer back.
    fn hold(&mut self, conn: ConnId, kind: TimerKind, deadline: Instant, expires: Option<Instant>) -> bool {
        let now = self.now;
        let Some(slot) = self.conns.get_mut(conn) else { return true };
        let id = slot.guest;
        let guest = &mut self.guests[id.0 as usize];
        let (Some(pvtcp), Some(timer)) = (&mut guest.pvtcp, holdable(kind)) else { return false };
        let off_total = guest.vcpu.off_total();
        let wakeups = pvtcp.counters().wakeups;
        let due = Due { now, clock: &guest.clock, off_total, received: guest.received, expires };
        let fate = pvtcp.on_timer(conn, timer, &due);
        if pvtcp.counters().wakeups > wakeups {
            self.recorder.woke_up(now, id, pvtcp.off_us());
        }
        let (expires, look_at) = match fate {
            Fate::Run => return false,
            Fate::Hold { expires, look_at } => (expires, look_at),
            Fate::PutOff(expires) => (expires, None),
        };
        let stats = slot.conn.stats();
        slot.held = Some(Held {
            kind,
            deadline,
            expires,
            acked: slot.conn.acked(),
            dup_acks: stats.dup_acks_received,
            sent: stats.data_segments_sent,
        });
        self.recorder.held(now, conn, kind);
        if let Some(at) = look_at {
            self.events.push(at, Event::Release(id));
        }
        true
    }

    pub(super) fn on_release_event(&mut self, id: GuestId) {
        let guest = &mut self.guests[id.0 as usize];
        if guest.vcpu.is_on() {
            self.release(id);
            self.after_work(id);
        } else if let Some(pvtcp) = &mut guest.pvtcp {
            pvtcp.release_missed = true;
            self.want_core(id, Cause::Clock);
        }
    }

    /// Checks the timers that a guest's PVTCP holds, and runs them if it is time.
    pub(super) fn release(&mut self, id: GuestId) {
        let guest = &mut self.guests[id.0 as usize];
        let Some(pvtcp) = &mut guest.pvtcp else { return };
        let backlog = Backlog { waiting: guest.backlog.len(), received: guest.received };
        if let Some(at) = pvtcp.release_at(&guest.clock, self.now, guest.vcpu.off_total(), backlog) {
            self.events.push(at, Event::Release(id));
            return;
        }
        while let Some(conn) = self.guests[id.0 as usize].pvtcp.as_mut().and_then(|pvtcp| pvtcp.let_go()) {
            self.let_go(id, conn);
        }
    }

    fn let_go(&mut self, id: GuestId, conn: ConnId) {
        let Some(slot) = self.conns.get_mut(conn) else { return };
        let stats = slot.conn.stats();
        let (acked, dup_acks, sent) = (slot.conn.acked(), stats.dup_acks_received, stats.data_segments_sent);
        let untouched =
            slot.holds().filter(|h| (h.acked, h.dup_acks, h.sent) == (acked, dup_acks, sent)).map(|h| h.kind);
        if let Some(pvtcp) = &mut self.guests[id.0 as usize].pvtcp {
            pvtcp.count_let_go(untouched.is_some());
        }
        if let Some(kind) = untouched {
            slot.held = None;
            self.recorder.fires(self.now, conn, kind);
            self.call_tcp(conn, |end, env| end.fire(env, kind));
        }
        self.schedule(conn);
    }
}
