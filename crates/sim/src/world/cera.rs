//! CERA: hosts' epochs, and what guests' clients then do.

use evenkeel_algo::cera::client_far;
use evenkeel_settings::Mode;

use super::{Core, Recorder};
use crate::event::{Event, PortId};
use crate::guest::Task;
use crate::host::cera::{HostController, Report, Tap};
use crate::packet::{ConnId, GuestId, HostId};
use crate::time::Duration;

impl<R: Recorder> Core<R> {
    /// Gives a host a controller. To be called before anything is sent, when its guests' ports have CERA's part.
    pub fn add_controller(&mut self, host: HostController) {
        self.events.push(self.now + Duration::from_us(u64::from(host.spec.settings.epoch_us)), Event::Epoch(host.host));
        let place = self.controllers.partition_point(|other| other.host < host.host);
        self.controllers.insert(place, host);
    }

    /// The controllers, by host.
    pub fn controllers(&self) -> &[HostController] {
        &self.controllers
    }

    /// Records how long each packet waits at this port.
    pub fn watch(&mut self, port: PortId) {
        self.watched = Some(port);
    }

    /// The window that CERA gives a guest, in segments; `None` without CERA.
    pub fn share_of(&mut self, guest: GuestId) -> Option<u32> {
        self.guests.get_mut(guest.0 as usize)?.port.as_mut()?.shims.find::<Tap>().map(|tap| tap.share())
    }

    pub(super) fn on_epoch(&mut self, id: HostId) {
        let now = self.now;
        let Ok(place) = self.controllers.binary_search_by_key(&id, |host| host.host) else { return };
        let (_, queue_bytes) = self.net.backlog(self.net.nic_of(id), now);
        let host = &mut self.controllers[place];
        let queue_us = host.queue_us(queue_bytes);
        let mut reports = Vec::with_capacity(host.guests.len());
        for (place, (guest, _)) in host.guests.iter().enumerate() {
            let stride = host.stride(place, queue_us);
            let port = self.guests[guest.0 as usize].port.as_mut();
            let tap = port.and_then(|port| port.shims.find::<Tap>());
            reports.push(tap.map_or_else(Report::default, |tap| tap.turn(now, queue_us, stride)));
        }
        let orders = host.epoch(now, queue_bytes, &reports);
        let (enforces, delay) = (host.spec.mode == Mode::Enforce, host.spec.client_delay);
        let turned = host.has_turned();
        for ((guest, _), order) in host.guests.iter().zip(orders) {
            let one = &mut self.guests[guest.0 as usize];
            let word =
                one.port.as_mut().and_then(|port| port.shims.find::<Tap>()).and_then(|tap| tap.obey(order, turned));
            if let (Some(window), Some(client), true) = (word, &mut one.cera, enforces) {
                // A message that is under way will deliver the newer window.
                if client.word.replace(window).is_none() {
                    self.events.push(now + delay, Event::Share(*guest));
                }
            }
        }
        let epoch = Duration::from_us(u64::from(host.spec.settings.epoch_us));
        self.events.push(now + epoch, Event::Epoch(id));
    }

    pub(super) fn on_share_event(&mut self, id: GuestId) {
        let word = self.guests[id.0 as usize].cera.as_mut().and_then(|client| client.word.take());
        if let Some(window) = word {
            self.add_task(id, Task::Share(window));
        }
    }

    /// A guest's client shares out the guest's window.
    pub(super) fn share_out(&mut self, id: GuestId, window: u32) {
        let Some(client) = &mut self.guests[id.0 as usize].cera else { return };
        let slots = &mut self.conns.slots;
        let shares = client.share(window, |conn| slots[conn.index as usize].conn.is_sending());
        let rtt_us = |conn: &ConnId| slots[conn.index as usize].conn.least_rtt_us();
        let least_us = shares.iter().filter_map(|(conn, _)| rtt_us(conn)).min().unwrap_or(0);
        for (conn, window) in shares {
            let conn = &mut slots[conn.index as usize].conn;
            let window = client_far(window, conn.least_rtt_us().unwrap_or(0), least_us);
            client.set += u64::from(conn.adjust_window(window));
        }
    }

    /// The oldest packet on the watched port's link is about to arrive.
    pub(super) fn observe_wait(&mut self, port: PortId) {
        let Some((id, began)) = self.net.began(port) else { return };
        let packet = &self.packets[id];
        let sender = packet.payload.end().and_then(|peer| self.conns.peer_of(peer));
        let from = sender.map(|end| self.conns.slots[end.index as usize].guest);
        self.recorder.waited(self.now, from, began.since(packet.enqueued));
    }
}
