//! The network: hosts' network cards, links, and output-queued switches.
//!
//! A packet crosses a link whole (store and forward): from the beginning of its transmission to its arrival it takes
//! its size over the rate plus the propagation delay. A FIFO port knows the arrival at once, so a hop through it is one
//! event, the arrival at the other end; only that of the oldest packet on each link is in the queue of events.

mod codel;
mod fifo;
mod fq_codel;
mod ledger;
mod link;
mod pfabric;
mod pool;
mod port;
mod priority;
mod red;
mod routes;
mod topology;

use crate::event::{Events, Meets, Onward, PortId};
use crate::footprint::{Footprint, of_deque, of_vec};
use crate::memory::{self, prefetch};
use crate::packet::{HostId, PacketId, Packets};
use crate::time::Instant;

use link::{Label, Link};
use pool::Pool;
use port::{Port, Queue};
use routes::Routes;

pub use ledger::PortStats;
pub use topology::{
    Alpha, BufferSpec, CoDelSpec, FqCoDelSpec, Limit, PortRole, PortSpec, PrioritySpec, QueueSpec, RedSpec, Shape,
    TopologySpec,
};

/// All ports and switches. Ports are numbered: network cards by host, then switch ports by host, then those between
/// switches.
#[derive(Debug)]
pub struct Network {
    ports: Vec<Port>,
    pools: Vec<Pool>,
    routes: Routes,
    places: Vec<PortRole>,
    seed: u64,
    fifo_hops: u64,
}

impl Network {
    /// Builds a network. The seed decides which paths flows take, and RED's draws.
    pub fn new(spec: &TopologySpec, seed: u64) -> Self {
        let (routes, places) = Routes::new(spec.shape, seed);
        let mut pools: Vec<Pool> = match spec.buffer {
            BufferSpec::PerPort => Vec::new(),
            BufferSpec::Shared { bytes, alpha } => (0..routes.switches()).map(|_| Pool::new(bytes, alpha)).collect(),
        };
        let mut ports = memory::slab(places.len());
        for (index, place) in places.iter().enumerate() {
            let (of_class, switch) = match place {
                PortRole::Nic(_) => (&spec.nic, None),
                PortRole::Edge(host) => (&spec.edge, Some(routes.leaf_of(*host))),
                PortRole::Up { leaf, .. } | PortRole::Middle(leaf) => (&spec.core, Some(*leaf)),
                PortRole::Down { spine, .. } => (&spec.core, Some(routes.spine(*spine))),
                PortRole::CoreUp { spine, .. } => (&spec.top, Some(routes.spine(*spine))),
                PortRole::CoreDown { core, .. } => (&spec.top, Some(routes.core(*core))),
            };
            let mut port = Port::new(of_class, routes.peer(*place), seed, index);
            if let Some((number, pool)) = switch.and_then(|s| pools.get_mut(s as usize).map(|pool| (s, pool))) {
                pool.ports.push(index as u32);
                port.pool = Some(number);
            }
            ports.push(port);
        }
        Self { ports, pools, routes, places, seed, fifo_hops: 0 }
    }

    /// Gives a port another link and queue. To be called before anything is sent.
    pub fn configure(&mut self, port: PortId, spec: &PortSpec) {
        let index = port.0 as usize;
        let old = &self.ports[index];
        let mut new = Port::new(spec, old.link.to, self.seed, index);
        new.pool = old.pool;
        self.ports[index] = new;
    }

    /// The memory of its ports, queues and routes.
    pub(crate) fn footprint(&self) -> Footprint {
        let of_pools = self.pools.iter().map(|pool| of_vec(&pool.ports)).sum::<u64>();
        Footprint {
            ports: of_vec(&self.ports) + of_vec(&self.places) + of_vec(&self.pools) + of_pools,
            queues: self.ports.iter().map(|port| of_deque(&port.link.flights)).sum(),
            routes: self.routes.bytes(),
            ..Footprint::default()
        }
    }

    /// How many hosts there are.
    pub fn hosts(&self) -> u32 {
        self.routes.hosts()
    }

    /// How many ports there are.
    pub fn ports(&self) -> u32 {
        self.ports.len() as u32
    }

    /// Where a port is.
    pub fn role(&self, port: PortId) -> PortRole {
        self.places[port.0 as usize]
    }

    /// The port of a host's network card.
    pub fn nic_of(&self, host: HostId) -> PortId {
        PortId(host.0)
    }

    /// The switch port towards a host.
    pub fn port_to(&self, host: HostId) -> PortId {
        PortId(self.hosts() + host.0)
    }

    /// A host hands a packet to its network card.
    #[inline]
    pub fn send(&mut self, now: Instant, host: HostId, packet: PacketId, packets: &mut Packets, events: &mut Events) {
        self.enqueue(now, host.0 as usize, Label::of(packet, packets), packets, events);
    }

    /// The oldest packet on a port's link has reached the other end ([`crate::event::Event::Arrival`]). Returns the
    /// packet if that is a host; a switch sends it on.
    #[inline]
    pub fn on_arrival(
        &mut self,
        now: Instant,
        port: PortId,
        onward: Onward,
        packets: &mut Packets,
        events: &mut Events,
    ) -> Option<PacketId> {
        let from = &mut self.ports[port.0 as usize];
        let label = from.link.land(port, events)?.label;
        if let Queue::Fifo(fifo) = &mut from.queue {
            let freed = fifo.landed(label.bytes);
            if let Some(pool) = from.pool {
                self.pools[pool as usize].free(freed);
            }
        }
        match onward.meets() {
            Meets::Host(packet) => Some(packet),
            Meets::Port(out) => {
                self.enqueue(now, out.0 as usize, label, packets, events);
                None
            }
        }
    }

    /// Prefetches the part of a port that the arrival of a packet over its link needs.
    #[inline]
    pub fn prefetch_link(&self, port: PortId) {
        let port = self.ports.as_ptr().wrapping_add(port.0 as usize);
        prefetch(port.cast::<(Link, Queue)>());
    }

    /// Prefetches a port.
    #[inline]
    pub fn prefetch_port(&self, port: PortId) {
        prefetch(self.ports.as_ptr().wrapping_add(port.0 as usize));
    }

    /// Prefetches what switches need of the oldest packet on a port's link.
    #[inline]
    pub fn prefetch_landing(&self, port: PortId) {
        if let Some(flight) = self.ports[port.0 as usize].link.flights.front() {
            prefetch(flight);
        }
    }

    /// A port has sent a packet and looks for the next ([`crate::event::Event::PortFree`]).
    pub fn on_port_free(&mut self, now: Instant, port: PortId, packets: &mut Packets, events: &mut Events) {
        let from = &mut self.ports[port.0 as usize];
        let freed = from.on_free(now, port, (packets, &self.routes), events);
        if let Some(pool) = from.pool {
            self.pools[pool as usize].free(freed);
        }
    }

    /// What a port has done so far.
    pub fn stats(&self, port: PortId) -> &PortStats {
        &self.ports[port.0 as usize].stats
    }

    /// Packets that wait at a port, and their bytes. The packet on the link has left the queue.
    pub fn backlog(&mut self, port: PortId, now: Instant) -> (u32, u64) {
        self.drain(port.0 as usize, now);
        let waiting = self.ports[port.0 as usize].waiting();
        (waiting.segments, waiting.bytes)
    }

    /// Bytes that a port has sent, including what has left of the packet on the link.
    pub fn sent_bytes(&self, port: PortId, now: Instant) -> u64 {
        let port = &self.ports[port.0 as usize];
        let waiting_bytes = match &port.queue {
            // A FIFO's packets are the link's from the start.
            Queue::Fifo(_) => 0,
            Queue::Scheduled(_) => port.waiting().bytes,
        };
        port.stats.bytes - waiting_bytes - port.link.unsent_bytes(now)
    }

    /// The oldest packet on a port's link, and when its transmission began.
    pub fn began(&self, port: PortId) -> Option<(PacketId, Instant)> {
        self.ports[port.0 as usize].link.began()
    }

    /// All ports' statistics together; the peaks are the largest of any.
    pub fn totals(&self) -> PortStats {
        let mut totals = PortStats::default();
        for port in &self.ports {
            totals.add(&port.stats);
        }
        totals
    }

    /// Packets that were handed to FIFO ports; each is at most one event.
    pub fn fifo_hops(&self) -> u64 {
        self.fifo_hops
    }

    #[inline(always)]
    fn enqueue(&mut self, now: Instant, index: usize, label: Label, packets: &mut Packets, events: &mut Events) {
        self.drain(index, now);
        let port = &mut self.ports[index];
        self.fifo_hops += u64::from(matches!(port.queue, Queue::Fifo(_)));
        let Some(number) = port.pool else {
            port.offer(now, PortId(index as u32), label, None, (packets, &self.routes), events);
            return;
        };
        // What other ports have sent since their last drain still counts as waiting. That can only refuse too much, so
        // they are drained only on a refusal.
        if !self.pools[number as usize].admits(port.waiting().bytes, label.bytes) {
            self.drain_pool(number as usize, now);
        }
        let port = &mut self.ports[index];
        let pool = &mut self.pools[number as usize];
        let before = port.waiting().bytes;
        port.offer(now, PortId(index as u32), label, Some(pool), (packets, &self.routes), events);
        let after = port.waiting().bytes;
        pool.used = pool.used + after - before;
    }

    #[inline(always)]
    fn drain(&mut self, index: usize, now: Instant) {
        let port = &mut self.ports[index];
        if let Queue::Fifo(fifo) = &mut port.queue {
            let freed = fifo.drain(&port.link, now);
            if let Some(pool) = port.pool {
                self.pools[pool as usize].free(freed);
            }
        }
    }

    fn drain_pool(&mut self, number: usize, now: Instant) {
        let pool = &mut self.pools[number];
        for &index in &pool.ports {
            let port = &mut self.ports[index as usize];
            if let Queue::Fifo(fifo) = &mut port.queue {
                pool.used -= fifo.drain(&port.link, now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
