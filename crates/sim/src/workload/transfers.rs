//! Transfers one after the other, each on a connection of its own.

use std::collections::BTreeMap;

use super::{FlowDone, FlowId, Members, Random, Recording, START_SPREAD, Side, System};
use crate::packet::GuestId;
use crate::time::{Duration, Instant};

/// Sizes, number and pace of transfers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub bytes: u64,
    pub concurrent: u32,
    pub pause: Duration,
    /// Measured transfers after which the run ends; 0: no limit.
    pub transfers: u32,
}

#[derive(Debug)]
pub(super) struct Transfers {
    settings: Settings,
    members: Members,
    starts: Vec<Duration>,
    /// By sender: transfers of its batch that are under way.
    under_way: Vec<u32>,
    by_flow: BTreeMap<FlowId, Transfer>,
    done: u32,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    sender: usize,
    to: GuestId,
    start: Instant,
    /// When the sending process got the connection.
    connected: Option<Instant>,
}

impl Transfers {
    pub(super) fn new(members: Members, settings: Settings) -> Self {
        let mut random = Random::new(members.seed, 0);
        let starts = members.from.iter().map(|_| random.span(START_SPREAD)).collect();
        let under_way = vec![0; members.from.len()];
        Self { settings, members, starts, under_way, by_flow: BTreeMap::new(), done: 0 }
    }

    pub(super) fn start(&self, system: &mut impl System) {
        for (tag, (sender, start)) in self.members.from.iter().zip(&self.starts).enumerate() {
            system.call_in(sender.guest, Instant::START + *start, tag as u32);
        }
    }

    pub(super) fn on_call(&mut self, system: &mut impl System, tag: u32) {
        let sender = tag as usize;
        let Some(from) = self.members.from.get(sender).map(|member| member.guest) else { return };
        for number in 0..self.settings.concurrent as usize {
            // Senders and their connections take the receivers in turn.
            let to = self.members.to[(sender + number) % self.members.to.len()].guest;
            let flow = system.open(from, to);
            self.by_flow.insert(flow, Transfer { sender, to, start: system.now(), connected: None });
        }
        self.under_way[sender] = self.settings.concurrent;
    }

    pub(super) fn on_established(&mut self, system: &mut impl System, flow: FlowId) {
        if let Some(transfer) = self.by_flow.get_mut(&flow) {
            transfer.connected = Some(system.now());
        }
        system.expect(flow, Side::Acceptor, self.settings.bytes);
        system.write(flow, Side::Opener, self.settings.bytes);
    }

    pub(super) fn on_delivered(&mut self, system: &mut impl System, recording: &mut Recording, flow: FlowId) {
        let Some(Transfer { sender, to, start, connected }) = self.by_flow.remove(&flow) else { return };
        let now = system.now();
        let from = self.members.from[sender].guest;
        let connected_took = connected.map(|connected| now.since(connected));
        recording.flow(FlowDone {
            from,
            to,
            bytes: self.settings.bytes,
            start,
            took: now.since(start),
            connected_took,
        });
        system.close(flow);
        self.done += u32::from(recording.counts(start));
        if self.settings.transfers > 0 && self.done >= self.settings.transfers {
            system.stop();
        }
        self.under_way[sender] -= 1;
        if self.under_way[sender] == 0 {
            system.call_in(from, now + self.settings.pause, sender as u32);
        }
    }

    /// Records what is under way at the end.
    pub(super) fn leave(&self, recording: &mut Recording, end: Instant) {
        for transfer in self.by_flow.values() {
            recording.under_way(self.settings.bytes, transfer.start, end);
        }
    }
}
