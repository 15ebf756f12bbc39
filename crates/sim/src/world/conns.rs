//! The table of connections.

use crate::guest::pvtcp::Held;
use crate::memory::{self, prefetch};
use crate::packet::{ConnId, GuestId};
use crate::tcp::{Connection, Role, TcpConfig, TimerKind};
use crate::time::Instant;
use crate::workload::{FlowId, Side};

use super::is_current;
use crate::footprint::of_vec;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Slot {
    pub generation: u32,
    pub conn: Connection,
    pub guest: GuestId,
    pub peer: ConnId,
    pub peer_guest: GuestId,
    pub flow: FlowId,
    pub side: Side,
    pub flow_hash: u32,
    /// When its timer event is due; its other events in the queue are out of date.
    pub timer_at: Instant,
    pub held: Option<Held>,
    /// Bytes after which the application is to be told.
    pub expected: u64,
    /// Written, and not yet taken by a bounded send buffer.
    pub unwritten: u64,
    /// Bytes written so far.
    pub written: u64,
    /// Of these, how many before the present message.
    pub message_start: u64,
}

impl Slot {
    /// When its earliest timer is due, PVTCP's changes included.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        let Some(held) = self.holds() else { return self.conn.next_timer().map(|timer| timer.1) };
        let delayed_ack = self.conn.timer_at(TimerKind::DelayedAck).unwrap_or(Instant::NEVER);
        Some(held.expires.min(delayed_ack))
    }

    /// Its held timer, if nothing has set that timer again since.
    pub fn holds(&self) -> Option<&Held> {
        self.held.as_ref().filter(|held| self.conn.timer_at(held.kind) == Some(held.deadline))
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Conns {
    pub slots: Vec<Slot>,
    free: Vec<u32>,
    flows: Vec<Option<[ConnId; 2]>>,
    free_flows: Vec<u32>,
    /// How many were ever opened.
    pub opened: u64,
}

impl Conns {
    /// Takes in both ends of a new connection.
    pub fn open(&mut self, from: (GuestId, &TcpConfig), to: (GuestId, &TcpConfig), hashes: [u32; 2]) -> FlowId {
        self.opened += 1;
        let flow = FlowId(self.free_flows.pop().unwrap_or_else(|| {
            self.flows.push(None);
            self.flows.len() as u32 - 1
        }));
        let opener = self.insert(Connection::new(from.1, Role::Client), from.0, flow, Side::Opener);
        let acceptor = self.insert(Connection::new(to.1, Role::Server), to.0, flow, Side::Acceptor);
        for (end, peer, peer_guest, hash) in
            [(opener, acceptor, to.0, hashes[0]), (acceptor, opener, from.0, hashes[1])]
        {
            let slot = &mut self.slots[end.index as usize];
            slot.peer = peer;
            slot.peer_guest = peer_guest;
            slot.flow_hash = hash;
        }
        self.flows[flow.0 as usize] = Some([opener, acceptor]);
        flow
    }

    fn insert(&mut self, conn: Connection, guest: GuestId, flow: FlowId, side: Side) -> ConnId {
        let mut slot = Slot {
            generation: 0,
            conn,
            guest,
            peer: ConnId::default(),
            peer_guest: GuestId::default(),
            flow,
            side,
            flow_hash: 0,
            timer_at: Instant::NEVER,
            held: None,
            expected: u64::MAX,
            unwritten: 0,
            written: 0,
            message_start: 0,
        };
        if let Some(index) = self.free.pop() {
            slot.generation = self.slots[index as usize].generation;
            let generation = slot.generation;
            self.slots[index as usize] = slot;
            return ConnId { index, generation };
        }
        memory::push(&mut self.slots, slot);
        ConnId { index: self.slots.len() as u32 - 1, generation: 0 }
    }

    /// Ends a connection. Returns both of its ends, for a last report.
    pub fn close(&mut self, flow: FlowId) -> Option<[ConnId; 2]> {
        let ends = self.flows.get_mut(flow.0 as usize)?.take()?;
        for end in ends {
            let slot = &mut self.slots[end.index as usize];
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(end.index);
        }
        self.free_flows.push(flow.0);
        Some(ends)
    }

    /// An end of a connection, if it is open.
    pub fn of_flow(&self, flow: FlowId, side: Side) -> Option<ConnId> {
        self.flows.get(flow.0 as usize)?.map(|ends| ends[side as usize])
    }

    /// The slot of an end whose connection is still open.
    #[inline]
    pub fn get_mut(&mut self, conn: ConnId) -> Option<&mut Slot> {
        self.slots.get_mut(conn.index as usize).filter(|slot| is_current(slot.generation, conn))
    }

    /// Prefetches an end.
    #[inline]
    pub fn prefetch(&self, conn: ConnId) {
        prefetch(self.slots.as_ptr().wrapping_add(conn.index as usize));
    }

    /// The connection and side of an end, if the connection is still open.
    pub fn flow_of(&self, conn: ConnId) -> Option<(FlowId, Side)> {
        let slot = self.slots.get(conn.index as usize)?;
        is_current(slot.generation, conn).then_some((slot.flow, slot.side))
    }

    /// The peer of an end, if the connection is still open.
    pub fn peer_of(&self, conn: ConnId) -> Option<ConnId> {
        let slot = self.slots.get(conn.index as usize)?;
        is_current(slot.generation, conn).then_some(slot.peer)
    }

    /// Bytes that the table has allocated.
    pub fn bytes(&self) -> u64 {
        of_vec(&self.slots) + of_vec(&self.free) + of_vec(&self.flows) + of_vec(&self.free_flows)
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        self.flows.len() - self.free_flows.len()
    }

    /// Open connections and their guests, the opener's first.
    pub fn open_flows(&self) -> impl Iterator<Item = (FlowId, [GuestId; 2])> + '_ {
        let guest = |conn: ConnId| self.slots[conn.index as usize].guest;
        let open = self.flows.iter().enumerate();
        open.filter_map(move |(index, ends)| ends.map(|ends| (FlowId(index as u32), ends.map(guest))))
    }
}
