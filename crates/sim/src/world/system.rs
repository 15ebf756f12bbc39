//! What the workload can ask for.

use evenkeel_scenario::sweep::{GOLDEN_GAMMA, splitmix64};

use super::{Call, Core, Recorder};
use crate::event::Event;
use crate::guest::Task;
use crate::packet::{ConnId, GuestId};
use crate::time::{Duration, Instant};
use crate::workload::{FlowId, Side, System};

impl<R: Recorder> Core<R> {
    fn call_later(&mut self, at: Instant, call: Call) {
        let number = self.free_calls.pop().unwrap_or_else(|| {
            self.calls.push(call);
            self.calls.len() as u32 - 1
        });
        self.calls[number as usize] = call;
        self.events.push(at.max(self.now), Event::Workload(number));
    }

    fn is_on(&self, guest: GuestId) -> bool {
        self.guests[guest.0 as usize].vcpu.is_on()
    }

    pub(super) fn connect(&mut self, conn: ConnId) {
        if self.conns.get_mut(conn).is_some() {
            self.call_tcp(conn, |end, env| end.connect(env));
            self.schedule(conn);
        }
    }

    pub(super) fn write_now(&mut self, conn: ConnId, bytes: u64) {
        let Some(slot) = self.conns.get_mut(conn) else { return };
        if slot.unwritten > 0 {
            slot.unwritten += bytes;
            return;
        }
        let mut taken = 0;
        self.call_tcp(conn, |end, env| taken = end.write(env, bytes));
        let slot = &mut self.conns.slots[conn.index as usize];
        slot.unwritten += bytes - taken;
        self.schedule(conn);
    }

    pub(super) fn ping_now(&mut self, from: GuestId, to: GuestId, number: u32) {
        self.send_echo(from, to, from, number, false);
    }
}

impl<R: Recorder> System for Core<R> {
    fn now(&self) -> Instant {
        self.now
    }

    fn open(&mut self, from: GuestId, to: GuestId) -> FlowId {
        let ports = splitmix64(self.seed ^ self.conns.opened.wrapping_mul(GOLDEN_GAMMA));
        let hashes = [(ports >> 32) as u32, splitmix64(ports) as u32];
        let (opener, acceptor) = (&self.guests[from.0 as usize].tcp, &self.guests[to.0 as usize].tcp);
        let flow = self.conns.open((from, opener), (to, acceptor), hashes);
        if R::TRACES {
            if let [Some(opener), Some(acceptor)] =
                [Side::Opener, Side::Acceptor].map(|side| self.conns.of_flow(flow, side))
            {
                self.recorder.opened(self.now, flow, [opener, acceptor], [from, to]);
            }
        }
        for (guest, side) in [(from, Side::Opener), (to, Side::Acceptor)] {
            let Some(conn) = self.conns.of_flow(flow, side) else { continue };
            let guest = &mut self.guests[guest.0 as usize];
            if let Some(client) = &mut guest.cera {
                client.opened(conn);
            }
            if guest.vflood.as_ref().is_some_and(|agent| !agent.floods()) {
                self.conns.slots[conn.index as usize].conn.be_plain(&guest.tcp);
            }
        }
        if let Some(conn) = self.conns.of_flow(flow, Side::Opener) {
            if self.is_on(from) { self.connect(conn) } else { self.add_task(from, Task::Open(conn)) }
        }
        flow
    }

    fn write(&mut self, flow: FlowId, side: Side, bytes: u64) {
        let Some(conn) = self.conns.of_flow(flow, side) else { return };
        let slot = &mut self.conns.slots[conn.index as usize];
        slot.message_start = slot.written;
        slot.written = slot.written.saturating_add(bytes);
        let guest = slot.guest;
        if self.is_on(guest) { self.write_now(conn, bytes) } else { self.add_task(guest, Task::Write(conn, bytes)) }
    }

    fn expect(&mut self, flow: FlowId, side: Side, total: u64) {
        let Some(conn) = self.conns.of_flow(flow, side) else { return };
        let slot = &mut self.conns.slots[conn.index as usize];
        slot.expected = total;
        if slot.conn.delivered() >= total {
            slot.expected = u64::MAX;
            let guest = slot.guest;
            self.add_task(guest, Task::Delivered(conn));
        }
    }

    fn close(&mut self, flow: FlowId) {
        for side in [Side::Opener, Side::Acceptor] {
            let Some(conn) = self.conns.of_flow(flow, side) else { continue };
            let guest = self.conns.slots[conn.index as usize].guest;
            if let Some(client) = &mut self.guests[guest.0 as usize].cera {
                client.closed(conn);
            }
        }
        let Some(ends) = self.conns.close(flow) else { return };
        for (end, side) in ends.into_iter().zip([Side::Opener, Side::Acceptor]) {
            let stats = self.conns.slots[end.index as usize].conn.stats();
            self.recorder.closed(self.now, flow, side, stats);
            let guest = self.conns.slots[end.index as usize].guest;
            if let Some(port) = self.guests[guest.0 as usize].port.as_mut().filter(|port| !port.shims.is_empty()) {
                port.shims.on_close(self.now, end);
            }
        }
    }

    fn call_at(&mut self, at: Instant, tag: u32) {
        self.call_later(at, Call::At(tag));
    }

    fn call_in(&mut self, guest: GuestId, at: Instant, tag: u32) {
        self.call_later(at, Call::In(guest, tag));
    }

    fn work(&mut self, guest: GuestId, time: Duration) {
        self.guests[guest.0 as usize].vcpu.work(self.now, time);
    }

    fn ping(&mut self, from: GuestId, to: GuestId, number: u32) {
        if self.is_on(from) { self.ping_now(from, to, number) } else { self.add_task(from, Task::Ping(to, number)) }
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}
