//! How packets pass through hosts and guests.

use super::hosts::Cause;
use super::{Core, Origin, Point, Recorder, Way};
use crate::event::Event;
use crate::guest::Task;
use crate::host::Port;
use crate::host::shim::{FromVm, Verdict};
use crate::packet::{ConnId, Ecn, FRAME_OVERHEAD_BYTES, GuestId, HostId, Packet, PacketId, Payload, Segment};
use crate::tcp::{Connection, Env, Note, Outgoing};
use crate::workload::Side;

/// An echo request: 64 bytes of ICMP in an IPv4 packet.
const ECHO_BYTES: u32 = 84;

impl<R: Recorder> Core<R> {
    /// A packet has come to a host, for the guest that it names.
    pub(super) fn arrive(&mut self, id: PacketId) {
        let to = self.packets[id].guest;
        if self.enter_domain(to, Way::In, id) {
            return;
        }
        let guest = &mut self.guests[to.0 as usize];
        let Some(port) = &mut guest.port else { return self.take_in(to, id) };
        if let Some(at) = port.to_vm.enter(self.now + port.delay, id) {
            self.events.push(at, Event::ToGuest(to));
        }
    }

    pub(super) fn crossed_to_vm(&mut self, to: GuestId) {
        let guest = &mut self.guests[to.0 as usize];
        let Some(port) = &mut guest.port else { return };
        let Some((id, next)) = port.to_vm.leave() else { return };
        if let Some(at) = next {
            self.events.push(at, Event::ToGuest(to));
        }
        self.hand_to_vm(to, id);
    }

    /// A packet has crossed the host.
    pub(super) fn hand_to_vm(&mut self, to: GuestId, id: PacketId) {
        let guest = &mut self.guests[to.0 as usize];
        let Some(port) = &mut guest.port else { return };
        port.stats.to_vm += 1;
        self.recorder.packet(self.now, to, Point::Port, Way::In, &self.packets[id]);
        if !port.shims.is_empty() {
            self.effects.port_room = port.places().saturating_sub(guest.backlog.len()).min(port.queue_segments);
            self.effects.vm_runs = guest.vcpu.is_on();
            let packet = &mut self.packets[id];
            let end = packet.payload.end().filter(|&end| self.conns.flow_of(end).is_some());
            let verdict = port.shims.on_to_vm(self.now, end, packet, &mut self.effects);
            self.take_effects(to);
            if verdict == Verdict::Drop {
                self.packets.remove(id);
            } else {
                self.recorder.passed(self.now, to, Way::In, &self.packets[id], Origin::Passes);
                self.take_in(to, id);
            }
            self.take_to_vm(to);
            return;
        }
        self.take_in(to, id);
    }

    /// Takes packets that mechanisms have put behind the last packet for the VM.
    fn take_to_vm(&mut self, to: GuestId) {
        if !self.effects.to_vm.is_empty() {
            let mut own = std::mem::take(&mut self.effects.to_vm);
            for packet in own.drain(..) {
                self.recorder.passed(self.now, to, Way::In, &packet, Origin::Host);
                let id = self.packets.insert(packet);
                self.take_in(to, id);
            }
            self.effects.to_vm = own;
        }
    }

    /// The mechanisms on a guest's host have asked to be called.
    pub(super) fn on_shims_event(&mut self, id: GuestId) {
        if let Some(port) = &mut self.guests[id.0 as usize].port {
            port.shims.on_timer(self.now, &mut self.effects);
            self.take_effects(id);
        }
    }

    /// Carries out what the mechanisms on a guest's host have asked for.
    fn take_effects(&mut self, id: GuestId) {
        if let Some(at) = self.effects.wake_at.take() {
            self.events.push(at.max(self.now), Event::Shims(id));
        }
        if !self.effects.to_network.is_empty() {
            let host = self.guests[id.0 as usize].host;
            let mut own = std::mem::take(&mut self.effects.to_network);
            for packet in own.drain(..) {
                self.recorder.passed(self.now, id, Way::Out, &packet, Origin::Host);
                let id = self.packets.insert(packet);
                self.leave(host, id);
            }
            self.effects.to_network = own;
        }
        if !self.effects.from_vm.is_empty() {
            self.take_from_vm(id);
        }
    }

    /// Passes packets that a mechanism has released to the mechanisms behind it.
    fn take_from_vm(&mut self, id: GuestId) {
        let mut own = std::mem::take(&mut self.effects.from_vm);
        for (behind, mut packet) in own.drain(..) {
            let guest = &mut self.guests[id.0 as usize];
            let Some(port) = &mut guest.port else { continue };
            let host = guest.host;
            let end = packet.payload.end().and_then(|peer| self.conns.peer_of(peer));
            let verdict = port.shims.on_from_vm_behind(self.now, behind, end, &mut packet, &mut self.effects);
            self.take_effects(id);
            if verdict == Verdict::Pass {
                self.recorder.passed(self.now, id, Way::Out, &packet, origin_behind(behind, &packet));
                let packet = self.packets.insert(packet);
                self.leave(host, packet);
            }
        }
        // Packets that mechanisms behind have released in turn have gone already.
        self.effects.from_vm = own;
    }

    pub(super) fn crossed_from_vm(&mut self, from: GuestId) {
        let guest = &mut self.guests[from.0 as usize];
        let Some(port) = &mut guest.port else { return };
        let Some((id, next)) = port.from_vm.leave() else { return };
        if let Some(at) = next {
            self.events.push(at, Event::FromGuest(from));
        }
        self.take_over(from, id);
        self.fill_ring(from);
    }

    /// A packet of the VM's has crossed the host.
    pub(super) fn take_over(&mut self, from: GuestId, id: PacketId) {
        let guest = &mut self.guests[from.0 as usize];
        let Some(port) = &mut guest.port else { return };
        port.entered -= 1;
        port.stats.from_vm += 1;
        self.recorder.packet(self.now, from, Point::Port, Way::Out, &self.packets[id]);
        let host = guest.host;
        if !port.shims.is_empty() {
            let packet = &mut self.packets[id];
            packet.enqueued = self.now;
            let end = packet.payload.end().and_then(|peer| self.conns.peer_of(peer));
            let verdict = port.shims.on_from_vm(self.now, end, packet, &mut self.effects);
            self.take_effects(from);
            if verdict == Verdict::Drop {
                self.packets.remove(id);
                return;
            }
            self.recorder.passed(self.now, from, Way::Out, &self.packets[id], Origin::Passes);
        }
        self.leave(host, id);
    }

    /// A packet leaves for another host, or stays on this one. The network card cuts it into segments.
    fn leave(&mut self, host: HostId, id: PacketId) {
        if self.packets[id].gso_bytes == 0 {
            return self.leave_as_it_is(host, id);
        }
        for segment in self.packets.remove(id).cut() {
            let id = self.packets.insert(segment);
            self.leave_as_it_is(host, id);
        }
    }

    fn leave_as_it_is(&mut self, host: HostId, id: PacketId) {
        if self.packets[id].dst == host {
            self.arrive(id);
        } else {
            self.packets[id].enqueued = self.now;
            self.net.send(self.now, host, id, &mut self.packets, &mut self.events);
        }
    }

    /// The guest takes a packet, or the packet waits.
    fn take_in(&mut self, to: GuestId, id: PacketId) {
        let guest = &mut self.guests[to.0 as usize];
        let is_free = guest.vcpu.is_free(self.now) && guest.backlog.is_empty() && guest.unread.is_empty();
        if is_free && !guest.takes_in_hand() {
            let alone = guest.reads_at_once();
            self.receive(to, id, alone);
            if !alone {
                self.take_backlog(to);
            }
            self.after_work(to);
            return;
        }
        if let Some(port) = &mut guest.port {
            if guest.backlog.len() >= port.places() {
                port.stats.dropped += 1;
                self.packets.remove(id);
                return;
            }
            port.stats.peak_segments = port.stats.peak_segments.max(guest.backlog.len() as u32 + 1);
        }
        guest.backlog.push_back(id);
        if is_free {
            self.take_backlog(to);
            self.after_work(to);
        } else if guest.vcpu.is_on() {
            self.await_cpu(to);
        } else {
            self.want_core(to, Cause::Interrupt);
        }
    }

    /// The guest takes packets that have waited, as far as its CPU allows, and then turns to its applications, which
    /// read first.
    pub(super) fn take_backlog(&mut self, id: GuestId) {
        loop {
            let guest = &mut self.guests[id.0 as usize];
            if !guest.vcpu.is_free(self.now) {
                if guest.vcpu.is_on() && guest.has_work() {
                    self.await_cpu(id);
                }
                return;
            }
            if std::mem::take(&mut guest.is_reading) {
                self.read(id);
            } else if let Some(packet) = guest.in_hand.take() {
                self.receive(id, packet, false);
            } else if let Some(packet) = guest.backlog.pop_front() {
                if guest.takes_in_hand() {
                    guest.in_hand = Some(packet);
                    guest.vcpu.work(self.now, guest.packet_cost);
                } else {
                    self.receive(id, packet, false);
                }
            } else if guest.unread.is_empty() {
                break;
            } else {
                guest.vcpu.work(self.now, guest.read_cost);
                guest.is_reading = true;
            }
        }
        if !self.guests[id.0 as usize].tasks.is_empty() {
            self.make_ready(id);
        }
    }

    /// The guest's applications read all that has come.
    fn read(&mut self, id: GuestId) {
        let mut unread = std::mem::take(&mut self.guests[id.0 as usize].unread);
        for conn in unread.drain(..) {
            if self.conns.get_mut(conn).is_some() {
                self.call_tcp(conn, |end, env| end.on_read(env));
                self.schedule(conn);
            }
        }
        self.guests[id.0 as usize].unread = unread;
    }

    /// The guest takes a packet. `alone`: its application reads it before the next can come.
    fn receive(&mut self, to: GuestId, id: PacketId, alone: bool) {
        let packet = self.packets.remove(id);
        let guest = &mut self.guests[to.0 as usize];
        guest.received += 1;
        guest.active_at = self.now;
        if !guest.takes_in_hand() {
            guest.vcpu.work(self.now, guest.packet_cost);
        }
        self.recorder.packet(self.now, to, Point::Guest, Way::In, &packet);
        match packet.payload {
            Payload::Tcp(conn, segment) => self.receive_segment(conn, &segment, packet.ecn == Ecn::Ce, alone),
            // A host without the mechanism passes them to its guest, and no guest answers them.
            Payload::Probe { .. } | Payload::Report { .. } => {}
            Payload::Echo { number, reply: true, .. } => self.add_task(to, Task::Echo(number)),
            Payload::Echo { from, number, reply: false } => self.send_echo(to, from, from, number, true),
        }
    }

    fn receive_segment(&mut self, id: ConnId, segment: &Segment, marked: bool, alone: bool) {
        let now = self.now;
        let Some(slot) = self.conns.get_mut(id) else { return };
        let guest = &mut self.guests[slot.guest.0 as usize];
        if let Some(pvtcp) = &mut guest.pvtcp {
            if let Some(before) = slot.conn.last_data_at().filter(|_| segment.payload_bytes > 0) {
                let segments = pvtcp.on_data(&guest.clock, now, guest.vcpu.off_total(), before);
                if segments > 0 {
                    slot.conn.quick_ack(segments);
                }
            }
        }
        self.call_tcp(id, |conn, env| {
            conn.on_segment(env, segment, marked);
            if alone {
                conn.on_read(env);
            }
        });
        let Some(slot) = self.conns.get_mut(id) else { return };
        if !alone && segment.payload_bytes > 0 {
            let unread = &mut self.guests[slot.guest.0 as usize].unread;
            if !unread.contains(&id) {
                unread.push(id);
            }
        }
        if slot.conn.delivered() >= slot.expected {
            slot.expected = u64::MAX;
            let guest = slot.guest;
            self.add_task(guest, Task::Delivered(id));
        }
        self.schedule(id);
    }

    /// Calls one end of an open connection, and carries out what it asks for. The caller sees to its timers.
    pub(super) fn call_tcp(&mut self, id: ConnId, call: impl FnOnce(&mut Connection, &mut Env)) {
        let slot = &mut self.conns.slots[id.index as usize];
        let guest = &self.guests[slot.guest.0 as usize];
        let pvtcp = guest.pvtcp.as_ref().map(|pvtcp| pvtcp.absences());
        let (out, notes) = (&mut self.out, &mut self.notes);
        call(&mut slot.conn, &mut Env { now: self.now, config: &guest.tcp, out, notes, pvtcp });
        if !self.notes.is_empty() {
            self.take_notes(id);
        }
        if !self.out.is_empty() {
            let mut out = std::mem::take(&mut self.out);
            let slot = &self.conns.slots[id.index as usize];
            let most = slot.conn.packet_segments(&self.guests[slot.guest.0 as usize].tcp);
            if most > 1 {
                self.send_joined(id, &out, most);
            } else {
                for outgoing in &out {
                    self.send_segment(id, outgoing);
                }
            }
            out.clear();
            self.out = out;
        }
    }

    /// Sends segments joined into packets, which others are to cut.
    fn send_joined(&mut self, id: ConnId, out: &[Outgoing], most: u32) {
        let mut rest = out;
        while let Some((outgoing, behind)) = Outgoing::first_of(rest, most) {
            self.send_segment(id, &outgoing);
            rest = behind;
        }
    }

    fn take_notes(&mut self, id: ConnId) {
        let slot = &mut self.conns.slots[id.index as usize];
        let (guest, flow, side) = (slot.guest, slot.flow, slot.side);
        let mut notes = std::mem::take(&mut self.notes);
        for note in notes.drain(..) {
            self.recorder.note(self.now, flow, side, &note);
            match note {
                Note::Established if side == Side::Opener => self.add_task(guest, Task::Established(id)),
                Note::Room(_) => {
                    let unwritten = std::mem::take(&mut self.conns.slots[id.index as usize].unwritten);
                    if unwritten > 0 {
                        self.add_task(guest, Task::Write(id, unwritten));
                    }
                }
                _ => {}
            }
            if let Some(pvtcp) = &mut self.guests[guest.0 as usize].pvtcp {
                pvtcp.count(&note);
            }
        }
        self.notes = notes;
    }

    fn send_segment(&mut self, id: ConnId, outgoing: &Outgoing) {
        let slot = &self.conns.slots[id.index as usize];
        let segment = outgoing.segment;
        let mut class = 0;
        let mut remaining_bytes = 0;
        if segment.payload_bytes > 0 {
            remaining_bytes = slot.conn.remaining().min(u64::from(u32::MAX)) as u32;
            let thresholds = &self.guests[slot.guest.0 as usize].class_thresholds_bytes;
            if !thresholds.is_empty() {
                // Sequence numbers wrap; the count of acknowledged bytes does not, and the segment lies near it.
                let first = self.guests[slot.guest.0 as usize].tcp.initial_sequence.wrapping_add(1);
                let ahead = segment.seq.wrapping_sub(first.wrapping_add(slot.conn.acked() as u32)) as i32;
                let offset = slot.conn.acked().saturating_add_signed(i64::from(ahead));
                let of_message = offset.saturating_sub(slot.message_start);
                class = thresholds.iter().filter(|threshold| of_message >= **threshold).count() as u8;
            }
        }
        let mut packet = Packet {
            dst: self.guests[slot.peer_guest.0 as usize].host,
            guest: slot.peer_guest,
            flow_hash: slot.flow_hash,
            wire_bytes: segment.wire_bytes(),
            class,
            ecn: outgoing.ecn,
            gso_bytes: outgoing.gso_bytes,
            remaining_bytes,
            enqueued: self.now,
            payload: Payload::Tcp(slot.peer, segment),
        };
        if packet.gso_bytes > 0 {
            packet.wire_bytes = packet.cut().map(|segment| segment.wire_bytes).sum();
        }
        self.transmit(slot.guest, packet);
    }

    pub(super) fn send_echo(&mut self, from: GuestId, to: GuestId, asker: GuestId, number: u32, reply: bool) {
        let packet = Packet {
            dst: self.guests[to.0 as usize].host,
            guest: to,
            flow_hash: from.0.wrapping_mul(0x9e37_79b9) ^ to.0,
            wire_bytes: FRAME_OVERHEAD_BYTES + ECHO_BYTES,
            class: 0,
            ecn: Ecn::NotEct,
            gso_bytes: 0,
            remaining_bytes: 0,
            enqueued: self.now,
            payload: Payload::Echo { from: asker, number, reply },
        };
        self.transmit(from, packet);
    }

    fn transmit(&mut self, from: GuestId, packet: Packet) {
        let guest = &mut self.guests[from.0 as usize];
        guest.sent += 1;
        guest.active_at = self.now;
        guest.vcpu.work(self.now, guest.packet_cost);
        self.recorder.packet(self.now, from, Point::Guest, Way::Out, &packet);
        let id = self.packets.insert(packet);
        let Some(port) = &guest.port else {
            let host = guest.host;
            return self.leave(host, id);
        };
        if !guest.qdisc.is_empty() || !port.has_slot() {
            guest.qdisc.push_back(id);
            return;
        }
        self.enter_from_vm(from, id);
    }

    /// A packet from the VM enters the host.
    fn enter_from_vm(&mut self, from: GuestId, id: PacketId) {
        let Some(port) = &mut self.guests[from.0 as usize].port else { return };
        port.entered += 1;
        if self.enter_domain(from, Way::Out, id) {
            return;
        }
        let Some(port) = &mut self.guests[from.0 as usize].port else { return };
        if let Some(at) = port.from_vm.enter(self.now + port.delay, id) {
            self.events.push(at, Event::FromGuest(from));
        }
    }

    /// The ring to the host may have free places: a guest on its core uses them, and a halted one is woken.
    pub(super) fn fill_ring(&mut self, id: GuestId) {
        loop {
            let guest = &mut self.guests[id.0 as usize];
            if guest.qdisc.is_empty() || !guest.port.as_ref().is_some_and(Port::has_slot) {
                return;
            }
            if !guest.vcpu.is_on() {
                return self.want_core(id, Cause::Interrupt);
            }
            if let Some(packet) = guest.qdisc.pop_front() {
                self.enter_from_vm(id, packet);
            }
        }
    }
}

/// The origin of a packet that a mechanism at `place` has released.
fn origin_behind(place: FromVm, packet: &Packet) -> Origin {
    let has_data = matches!(packet.payload, Payload::Tcp(_, segment) if segment.payload_bytes > 0);
    match place {
        FromVm::Hold if has_data => Origin::Held(packet.enqueued),
        FromVm::AckFilter => Origin::EarlyAck,
        _ => Origin::Host,
    }
}
