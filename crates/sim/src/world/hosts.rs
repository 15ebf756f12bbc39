//! Hosts whose schedulers decide who runs: VMs halt, wait and run, and the host's own thread carries their packets.

use std::collections::VecDeque;

use super::{Core, Recorder, Way};
use crate::event::Event;
use crate::host::cores::{Cores, Happens, Who};
use crate::host::scheduler::EntityId;
use crate::packet::{GuestId, HostId, PacketId};
use crate::time::{Duration, Instant};

/// Why a guest has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its clock is to wake it now.
    Clock,
    /// Something else.
    Interrupt,
}

/// A host and what it has to do.
#[derive(Debug)]
pub(super) struct Shared {
    pub cores: Cores,
    /// When its next event is due; its other events in the queue are out of date.
    due: Instant,
    domain: Option<Domain>,
}

/// The host's own thread, which takes packets across. Packets to VMs and packets from them take turns, as the two
/// halves of netback and of vhost do, so that neither direction waits for all of the other. Within a direction packets
/// keep their order.
#[derive(Debug, Default)]
struct Domain {
    to_vms: VecDeque<(GuestId, PacketId)>,
    from_vms: VecDeque<(GuestId, PacketId)>,
    /// The packet that it works on, and the time that it still needs.
    in_hand: Option<(GuestId, Way, PacketId)>,
    left: Duration,
    /// Since when it has its core.
    since: Option<Instant>,
}

impl Domain {
    /// When the packet in hand is across, if it keeps its core.
    fn done_at(&self) -> Option<Instant> {
        self.since.filter(|_| self.in_hand.is_some()).map(|since| since + self.left)
    }

    /// The next packet, after one in direction `last`.
    fn next(&mut self, last: Way) -> Option<(GuestId, Way, PacketId)> {
        let is_from = self.to_vms.is_empty() || last == Way::In && !self.from_vms.is_empty();
        let (queue, way) = if is_from { (&mut self.from_vms, Way::Out) } else { (&mut self.to_vms, Way::In) };
        queue.pop_front().map(|(id, packet)| (id, way, packet))
    }
}

impl Shared {
    pub(super) fn new(cores: Cores, has_domain: bool) -> Self {
        Self { cores, due: Instant::NEVER, domain: has_domain.then(Domain::default) }
    }
}

impl<R: Recorder> Core<R> {
    /// The cores of a host, if its scheduler decides who runs.
    pub fn cores_of(&self, host: HostId) -> Option<&Cores> {
        self.shared.get(host.0 as usize)?.as_ref().map(|host| &host.cores)
    }

    fn host_mut(&mut self, host: HostId) -> Option<&mut Shared> {
        self.shared.get_mut(host.0 as usize)?.as_mut()
    }

    /// A guest has something to do. If it has halted, it waits for its core from now on; if it has its core or waits
    /// already, or if no scheduler decides, nothing changes.
    pub(super) fn want_core(&mut self, id: GuestId, cause: Cause) {
        let now = self.now;
        let guest = &mut self.guests[id.0 as usize];
        let Some(entity) = guest.entity else { return };
        if guest.vcpu.is_halted() {
            let host = guest.host;
            self.stop_halting(id, cause);
            if let Some(shared) = self.host_mut(host) {
                shared.cores.wake(entity, now);
            }
            self.follow(host);
        } else if cause == Cause::Clock && guest.is_punctual {
            // Its clock event is due now, and will come late.
            guest.is_punctual = false;
            if let Some(pvtcp) = &mut guest.pvtcp {
                pvtcp.catch_up(&guest.clock, before(now), guest.vcpu.off_total());
            }
        }
    }

    /// A halted guest begins to wait for its core. Ticks that it slept through are not late; the one that wakes it may
    /// be.
    fn stop_halting(&mut self, id: GuestId, cause: Cause) {
        let guest = &mut self.guests[id.0 as usize];
        guest.vcpu.wait(self.now);
        guest.is_punctual = cause == Cause::Interrupt;
        if let Some(pvtcp) = &mut guest.pvtcp {
            let slept = if guest.is_punctual { self.now } else { before(self.now) };
            pvtcp.catch_up(&guest.clock, slept, guest.vcpu.off_total());
        }
        self.record_core(id);
    }

    /// A guest has done something: if it competes for its core, plans the check whether it still needs it.
    #[inline]
    pub(super) fn after_work(&mut self, id: GuestId) {
        if self.guests[id.0 as usize].entity.is_some() {
            self.make_ready(id);
        }
    }

    /// A guest with nothing to do halts.
    pub(super) fn may_halt(&mut self, id: GuestId) {
        let now = self.now;
        let guest = &mut self.guests[id.0 as usize];
        let Some(entity) = guest.entity.filter(|_| guest.vcpu.is_on()) else { return };
        if guest.computes || guest.has_work() || guest.is_ready {
            // If it is busy with that work, a look at it for when it is free has been planned.
            return;
        }
        if !guest.vcpu.is_free(now) {
            return self.await_cpu(id);
        }
        let host = guest.host;
        if let Some(pvtcp) = &mut guest.pvtcp {
            pvtcp.catch_up(&guest.clock, now, guest.vcpu.off_total());
        }
        guest.vcpu.halt(now);
        self.record_core(id);
        if let Some(shared) = self.host_mut(host) {
            shared.cores.block(entity, now);
        }
        self.follow(host);
    }

    pub(super) fn on_cores_event(&mut self, host: HostId) {
        let now = self.now;
        let Some(shared) = self.host_mut(host).filter(|shared| shared.due == now) else { return };
        shared.due = Instant::NEVER;
        shared.cores.advance(now);
        self.follow(host);
    }

    /// Carries out the scheduler's decisions. Guests that get their cores do what has waited once this event is over.
    pub(super) fn follow(&mut self, host: HostId) {
        let now = self.now;
        while let Some(happens) = self.host_mut(host).and_then(|shared| shared.cores.happened.pop_front()) {
            match happens {
                Happens::Gets(Who::Vcpu(id)) => {
                    let guest = &mut self.guests[id.0 as usize];
                    let since = guest.vcpu.went_off();
                    guest.vcpu.get_core(now);
                    guest.is_back = true;
                    self.record_core(id);
                    if since < now {
                        self.recorder.vcpu_waited(id, since, now);
                    }
                    self.make_ready(id);
                }
                Happens::Loses(Who::Vcpu(id)) => {
                    let guest = &mut self.guests[id.0 as usize];
                    // A guest that has not noticed yet that it was back has seen no ticks, and will see them late.
                    if let Some(pvtcp) = guest.pvtcp.as_mut().filter(|_| !guest.is_back) {
                        pvtcp.catch_up(&guest.clock, now, guest.vcpu.off_total());
                        guest.is_punctual = false;
                    }
                    guest.vcpu.lose_core(now);
                    self.record_core(id);
                }
                Happens::Computes(id, computes) => self.compute(id, computes),
                Happens::Gets(Who::Domain) => self.domain_runs(host),
                Happens::Loses(Who::Domain) => self.domain_stops(host),
                Happens::Gets(Who::Neighbour) | Happens::Loses(Who::Neighbour) => {}
            }
        }
        self.plan(host);
    }

    fn compute(&mut self, id: GuestId, computes: bool) {
        let now = self.now;
        let guest = &mut self.guests[id.0 as usize];
        guest.computes = computes;
        let (host, entity) = (guest.host, guest.entity);
        if guest.vcpu.is_on() {
            self.make_ready(id);
        } else if guest.vcpu.is_halted() && computes {
            self.stop_halting(id, Cause::Clock);
            if let Some((shared, entity)) = self.host_mut(host).zip(entity) {
                shared.cores.wake(entity, now);
            }
        }
    }

    fn plan(&mut self, host: HostId) {
        let now = self.now;
        let Some(shared) = self.host_mut(host) else { return };
        // An event that comes too early does no harm.
        if let Some(at) = shared.cores.next_event().map(|at| at.max(now)).filter(|at| *at < shared.due) {
            shared.due = at;
            self.events.push(at, Event::Cores(host));
        }
    }

    /// Queues a packet for the thread that does its host's own work. Returns false if there is none.
    #[inline]
    pub(super) fn enter_domain(&mut self, id: GuestId, way: Way, packet: PacketId) -> bool {
        !self.shared.is_empty() && self.queue_in_domain(id, way, packet)
    }

    fn queue_in_domain(&mut self, id: GuestId, way: Way, packet: PacketId) -> bool {
        let now = self.now;
        let guest = &self.guests[id.0 as usize];
        let (host, delay) = (guest.host, guest.port.as_ref().map_or(Duration::ZERO, |port| port.delay));
        let Some(shared) = self.host_mut(host) else { return false };
        let Some(domain) = &mut shared.domain else { return false };
        if domain.in_hand.is_some() {
            match way {
                Way::In => domain.to_vms.push_back((id, packet)),
                Way::Out => domain.from_vms.push_back((id, packet)),
            }
            return true;
        }
        domain.in_hand = Some((id, way, packet));
        domain.left = delay;
        let entity: EntityId = shared.cores.domain();
        shared.cores.wake(entity, now);
        self.follow(host);
        true
    }

    fn domain_runs(&mut self, host: HostId) {
        let now = self.now;
        if let Some(domain) = self.host_mut(host).and_then(|shared| shared.domain.as_mut()) {
            domain.since = Some(now);
            self.plan_domain(host);
        }
    }

    fn domain_stops(&mut self, host: HostId) {
        let now = self.now;
        if let Some(domain) = self.host_mut(host).and_then(|shared| shared.domain.as_mut()) {
            if let Some(since) = domain.since.take() {
                domain.left = Duration::from_ps(domain.left.ps().saturating_sub(now.since(since).ps()));
            }
        }
    }

    fn plan_domain(&mut self, host: HostId) {
        let done_at = self.host_mut(host).and_then(|shared| shared.domain.as_ref()?.done_at());
        if let Some(at) = done_at {
            self.events.push(at, Event::Domain(host));
        }
    }

    pub(super) fn on_domain_event(&mut self, host: HostId) {
        let now = self.now;
        let Some(domain) = self.host_mut(host).and_then(|shared| shared.domain.as_mut()) else { return };
        if domain.done_at() != Some(now) {
            return;
        }
        let Some((id, way, packet)) = domain.in_hand else { return };
        match way {
            Way::In => self.hand_to_vm(id, packet),
            Way::Out => {
                self.take_over(id, packet);
                self.fill_ring(id);
            }
        }
        self.next_packet(host, way);
    }

    /// The host's thread goes on with its next packet, or blocks. The effects of the last packet may have cost it its
    /// core.
    fn next_packet(&mut self, host: HostId, last: Way) {
        let now = self.now;
        let Some(domain) = self.host_mut(host).and_then(|shared| shared.domain.as_mut()) else { return };
        domain.in_hand = domain.next(last);
        if let Some((id, ..)) = domain.in_hand {
            let delay = self.guests[id.0 as usize].port.as_ref().map_or(Duration::ZERO, |port| port.delay);
            if let Some(domain) = self.host_mut(host).and_then(|shared| shared.domain.as_mut()) {
                domain.left = delay;
                domain.since = domain.since.map(|_| now);
            }
            self.plan_domain(host);
        } else if let Some(shared) = self.host_mut(host) {
            if let Some(domain) = &mut shared.domain {
                domain.since = None;
            }
            let entity = shared.cores.domain();
            shared.cores.block(entity, now);
            self.follow(host);
        }
    }
}

/// The last picosecond before an instant.
fn before(now: Instant) -> Instant {
    Instant::from_ps(now.ps().saturating_sub(1))
}
