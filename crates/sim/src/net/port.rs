//! An output port: a queue and the link behind it.

use super::codel::CoDel;
use super::fifo::Fifo;
use super::fq_codel::FqCoDel;
use super::ledger::{Ledger, PortStats, Waiting, fits};
use super::link::{Label, Link, Peer};
use super::pfabric::PFabric;
use super::pool::Pool;
use super::priority::Priority;
use super::red::Red;
use super::routes::Routes;
use super::topology::{PortSpec, QueueSpec};
use crate::event::{Event, Events, PortId};
use crate::packet::{PacketId, Packets};
use crate::time::Instant;

/// The link out of a port, and the routes beyond it.
struct Exit<'a> {
    port: PortId,
    link: &'a mut Link,
    routes: &'a Routes,
}

impl Exit<'_> {
    #[inline(always)]
    fn send(&mut self, now: Instant, label: Label, events: &mut Events) {
        let onward = self.routes.onward(self.link.to, &label);
        self.link.transmit(now, self.port, label, onward, events);
    }
}

#[derive(Debug)]
pub(super) enum Queue {
    Fifo(Fifo),
    Scheduled(Box<Scheduled>),
}

/// Queues that choose among their packets when the link is free.
#[derive(Debug)]
pub(super) struct Scheduled {
    pub discipline: Discipline,
    /// Whether there is an [`Event::PortFree`] to come.
    pub awake: bool,
}

#[derive(Debug)]
pub(super) enum Discipline {
    CoDel(CoDel),
    FqCoDel(FqCoDel),
    Priority(Priority),
    PFabric(PFabric),
}

impl Discipline {
    pub fn waiting(&self) -> Waiting {
        match self {
            Self::CoDel(queue) => queue.waiting(),
            Self::FqCoDel(queue) => queue.waiting(),
            Self::Priority(queue) => queue.waiting(),
            Self::PFabric(queue) => queue.waiting(),
        }
    }

    fn offer(&mut self, now: Instant, id: PacketId, pool: Option<&Pool>, ledger: &mut Ledger) {
        match self {
            Self::CoDel(queue) => queue.offer(now, id, pool, ledger),
            Self::FqCoDel(queue) => queue.offer(now, id, pool, ledger),
            Self::Priority(queue) => queue.offer(id, pool, ledger),
            Self::PFabric(queue) => queue.offer(id, pool, ledger),
        }
    }

    fn next(&mut self, now: Instant, ledger: &mut Ledger) -> Option<PacketId> {
        match self {
            Self::CoDel(queue) => queue.next(now, ledger),
            Self::FqCoDel(queue) => queue.next(now, ledger),
            Self::Priority(queue) => queue.next(),
            Self::PFabric(queue) => queue.next(),
        }
    }
}

/// Three cache lines: a packet that arrives over the link needs the first two, a packet that joins the queue all three.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Port {
    pub link: Link,
    pub queue: Queue,
    pub stats: PortStats,
    /// The shared memory that it uses.
    pub pool: Option<u32>,
}

const _: () = assert!(size_of::<Port>() == 192);

impl Port {
    pub fn new(spec: &PortSpec, to: Peer, seed: u64, index: usize) -> Self {
        let seed = seed.wrapping_add(index as u64 + 1);
        let red = |spec| Red::new(spec, seed);
        let queue = match &spec.queue {
            QueueSpec::Fifo { limit, red: spec } => Queue::Fifo(Fifo::new(*limit, spec.map(red))),
            QueueSpec::CoDel(spec) => scheduled(Discipline::CoDel(CoDel::new(*spec))),
            QueueSpec::FqCoDel(spec) => scheduled(Discipline::FqCoDel(FqCoDel::new(*spec, seed))),
            QueueSpec::Priority(spec) => scheduled(Discipline::Priority(Priority::new(spec, spec.red.map(red)))),
            QueueSpec::PFabric(limit) => scheduled(Discipline::PFabric(PFabric::new(*limit))),
        };
        Self { link: Link::new(spec.rate, spec.delay, to), queue, stats: PortStats::default(), pool: None }
    }

    /// What waits; for a FIFO, as of the last drain.
    #[inline]
    pub fn waiting(&self) -> Waiting {
        match &self.queue {
            Queue::Fifo(fifo) => fifo.waiting,
            Queue::Scheduled(queue) => queue.discipline.waiting(),
        }
    }

    /// Takes a packet in or drops it. A FIFO must have been drained.
    #[inline(always)]
    pub fn offer(
        &mut self,
        now: Instant,
        port: PortId,
        label: Label,
        pool: Option<&Pool>,
        (packets, routes): (&mut Packets, &Routes),
        events: &mut Events,
    ) {
        let id = label.packet;
        let mut ledger = Ledger { packets, stats: &mut self.stats };
        let link_is_free = self.link.free_at <= now;
        match &mut self.queue {
            Queue::Fifo(fifo) => {
                let (bytes, waiting) = (label.bytes, fifo.waiting);
                if !fits(bytes, waiting, fifo.limit, pool) {
                    ledger.refuse(id);
                } else if ledger.passes(fifo.red(), waiting, id, label.capable) {
                    Exit { port, link: &mut self.link, routes }.send(now, label, events);
                    fifo.sent(link_is_free, bytes, self.link.free_at);
                    ledger.accept(bytes);
                    self.stats.peak(fifo.waiting);
                }
            }
            Queue::Scheduled(queue) => {
                queue.offer(now, id, pool, Exit { port, link: &mut self.link, routes }, &mut ledger, events);
                self.stats.peak(queue.discipline.waiting());
            }
        }
    }

    /// The link is free again. Returns how many bytes wait no longer.
    pub fn on_free(
        &mut self,
        now: Instant,
        port: PortId,
        (packets, routes): (&mut Packets, &Routes),
        events: &mut Events,
    ) -> u64 {
        let Queue::Scheduled(queue) = &mut self.queue else { return 0 };
        let before = queue.discipline.waiting().bytes;
        queue.awake = false;
        let exit = Exit { port, link: &mut self.link, routes };
        queue.transmit(now, exit, &mut Ledger { packets, stats: &mut self.stats }, events);
        before - queue.discipline.waiting().bytes
    }
}

impl Scheduled {
    #[inline(never)]
    fn offer(
        &mut self,
        now: Instant,
        id: PacketId,
        pool: Option<&Pool>,
        exit: Exit,
        ledger: &mut Ledger,
        events: &mut Events,
    ) {
        self.discipline.offer(now, id, pool, ledger);
        if !self.awake && exit.link.free_at <= now {
            self.transmit(now, exit, ledger, events);
        } else if !self.awake && self.discipline.waiting().segments > 0 {
            self.awake = true;
            events.push(exit.link.free_at, Event::PortFree(exit.port));
        }
    }

    /// Sends the next packet, if there is one, on a free link. Plans the next look only if more packets wait.
    fn transmit(&mut self, now: Instant, mut exit: Exit, ledger: &mut Ledger, events: &mut Events) {
        let Some(id) = self.discipline.next(now, ledger) else { return };
        exit.send(now, Label::of(id, ledger.packets), events);
        if self.discipline.waiting().segments > 0 {
            self.awake = true;
            events.push(exit.link.free_at, Event::PortFree(exit.port));
        }
    }
}

fn scheduled(discipline: Discipline) -> Queue {
    Queue::Scheduled(Box::new(Scheduled { discipline, awake: false }))
}
