//! What the VMs do: the processes that run in them, and what they record.
//!
//! The kinds mean the same as the lab's (`crates/lab/src/guest`): a strobe's requests, for example, are small messages
//! on the connections that carry the blocks back.

mod bulk;
mod memcached;
mod ping;
mod poisson;
mod random;
mod recording;
mod request_response;
mod several;
mod strobe;
mod three_tier;
mod transfers;

pub use random::Random;
pub use recording::{FlowDone, FlowUnderWay, Recording, Timed};
pub use several::Workloads;

pub use evenkeel_scenario::sizes::SizeDistribution;

use evenkeel_scenario::format;

use crate::packet::{GuestId, HostId};
use crate::time::{Duration, Instant};

/// A connection of the workload: both of its ends. Numbers are used again after [`System::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The end that opened it.
    Opener,
    /// The end that accepted it.
    Acceptor,
}

impl Side {
    /// The other end.
    pub fn other(self) -> Self {
        match self {
            Self::Opener => Self::Acceptor,
            Self::Acceptor => Self::Opener,
        }
    }
}

/// The largest tag that a workload may use, so that the numbers of several workloads fit.
const LAST_TAG: u32 = u32::MAX / format::MAX_WORKLOADS as u32;

/// What a process can ask of the machine that it runs on, and the workload of the simulation.
pub trait System {
    /// The present.
    fn now(&self) -> Instant;

    /// Opens a connection, with a handshake; [`Workload::on_established`] tells when it is done.
    fn open(&mut self, from: GuestId, to: GuestId) -> FlowId;

    /// Reports that a connection of these guests, the opener's first, belongs to the workload at this place among
    /// several.
    fn belongs(&mut self, _flow: FlowId, _place: usize, _guests: [GuestId; 2]) {}

    /// Writes a message, as a blocking write of all of it would. What PIAS counts begins again with each message.
    fn write(&mut self, flow: FlowId, side: Side, bytes: u64);

    /// Asks for one [`Workload::on_delivered`] as soon as `side` has received `total` bytes in all, also if it has
    /// already. Replaces what was asked for before.
    fn expect(&mut self, flow: FlowId, side: Side, total: u64);

    /// Closes both ends. Packets under way are dropped on arrival, and nothing more is reported about the connection.
    fn close(&mut self, flow: FlowId);

    /// Calls [`Workload::on_call`] at an instant, whatever runs then.
    fn call_at(&mut self, at: Instant, tag: u32);

    /// Calls [`Workload::on_call`] inside a guest: at an instant, or when its virtual CPU next runs and has dealt with
    /// what had waited.
    fn call_in(&mut self, guest: GuestId, at: Instant, tag: u32);

    /// Keeps a guest's virtual CPU, which must have its core, busy for this long.
    fn work(&mut self, guest: GuestId, time: Duration);

    /// Sends an ICMP echo request of 64 bytes; [`Workload::on_echo`] tells of the reply.
    fn ping(&mut self, from: GuestId, to: GuestId, number: u32);

    /// Ends the run after this event.
    fn stop(&mut self);
}

/// A VM that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The guest's number.
    pub guest: GuestId,
    /// Where it is.
    pub host: HostId,
}

/// The VMs that take part, the capacity that a load refers to, and the seed.
#[derive(Clone, Debug)]
pub struct Members {
    /// The group that sends.
    pub from: Vec<Member>,
    /// The group that receives; the same where all send to each other.
    pub to: Vec<Member>,
    /// Bits per second that a load of 1 stands for.
    pub capacity_bps: u64,
    /// Seed of all draws.
    pub seed: u64,
}

/// A running workload.
#[derive(Debug)]
pub struct Workload {
    kind: Kind,
    recording: Recording,
}

#[derive(Debug)]
enum Kind {
    Ping(ping::Ping),
    Bulk(bulk::Bulk),
    Strobe(strobe::Strobe),
    Poisson(poisson::Poisson),
    RequestResponse(request_response::RequestResponse),
    Memcached(memcached::Memcached),
    Transfers(transfers::Transfers),
    ThreeTier(three_tier::ThreeTier),
}

/// VMs start at times drawn from this span, because in reality no two start at the same picosecond.
const START_SPREAD: Duration = Duration::from_ms(1);

impl Workload {
    /// A workload that has not started; `None` for one that cannot be simulated. Both groups must have members.
    pub fn new(workload: &format::Workload, members: Members) -> Option<Self> {
        let kind = match workload {
            format::Workload::Ping { interval_ms, .. } => {
                Kind::Ping(ping::Ping::new(&members, Duration::from_ms(u64::from(*interval_ms))))
            }
            format::Workload::Bulk { flows, .. } => Kind::Bulk(bulk::Bulk::new(members, *flows)),
            format::Workload::Strobe { block_kib, requests, .. } => {
                Kind::Strobe(strobe::Strobe::new(members, u64::from(*block_kib) * 1024, *requests))
            }
            format::Workload::Poisson {
                load,
                sizes,
                flows,
                persistent,
                request_bytes,
                burst_flows,
                background_flows,
                background_mesh_flows,
                ..
            } => Kind::Poisson(poisson::Poisson::new(
                members,
                &poisson::Settings {
                    load: *load,
                    sizes: *sizes,
                    flows: *flows,
                    persistent: *persistent,
                    request_bytes: u64::from(*request_bytes),
                    burst: *burst_flows,
                    background: *background_mesh_flows,
                    background_pairs: *background_flows,
                },
            )),
            format::Workload::RequestResponse { request_bytes, response_bytes, outstanding, think_time_us, .. } => {
                Kind::RequestResponse(request_response::RequestResponse::new(
                    &members,
                    request_response::Settings {
                        sizes: request_response::Sizes::same(u64::from(*request_bytes), u64::from(*response_bytes)),
                        outstanding: *outstanding,
                        think_time: Duration::from_us(u64::from(*think_time_us)),
                    },
                ))
            }
            format::Workload::Memcached { outstanding, gets_permille, value_bytes, flows, late_start_ms, .. } => {
                Kind::Memcached(memcached::Memcached::new(
                    members,
                    &memcached::Settings {
                        outstanding: *outstanding,
                        gets_permille: *gets_permille,
                        value_bytes: u64::from(*value_bytes),
                        flows: *flows,
                        late_start: Duration::from_ms(u64::from(*late_start_ms)),
                    },
                ))
            }
            format::Workload::Transfers { bytes, concurrent, pause_ms, transfers, .. } => {
                Kind::Transfers(transfers::Transfers::new(
                    members,
                    transfers::Settings {
                        bytes: u64::from(*bytes),
                        concurrent: *concurrent,
                        pause: Duration::from_ms(u64::from(*pause_ms)),
                        transfers: *transfers,
                    },
                ))
            }
            format::Workload::ThreeTier { users, think_time_ms, keep_alive, operations, .. } => {
                Kind::ThreeTier(three_tier::ThreeTier::new(
                    &members,
                    three_tier::Settings {
                        users: *users,
                        think_time: Duration::from_ms(u64::from(*think_time_ms)),
                        keep_alive: *keep_alive,
                        operations: operations.iter().map(three_tier::Operation::from).collect(),
                    },
                ))
            }
            format::Workload::Iperf3 { .. } => return None,
        };
        Some(Self { kind, recording: Recording::default() })
    }

    /// Starts all processes.
    pub fn start(&mut self, system: &mut impl System) {
        match &mut self.kind {
            Kind::Ping(ping) => ping.start(system),
            Kind::Bulk(bulk) => bulk.start(system),
            Kind::Strobe(strobe) => strobe.start(system),
            Kind::Poisson(poisson) => poisson.start(system),
            Kind::RequestResponse(requests) => requests.start(system),
            Kind::Memcached(memcached) => memcached.start(system),
            Kind::Transfers(transfers) => transfers.start(system),
            Kind::ThreeTier(application) => application.start(system),
        }
    }

    /// Begins the measured time: what came before is forgotten.
    pub fn mark(&mut self, system: &mut impl System) {
        self.recording.mark(system.now());
        match &mut self.kind {
            Kind::Strobe(strobe) => strobe.mark(system),
            Kind::Poisson(poisson) => poisson.mark(),
            Kind::Ping(_)
            | Kind::Bulk(_)
            | Kind::RequestResponse(_)
            | Kind::Memcached(_)
            | Kind::Transfers(_)
            | Kind::ThreeTier(_) => {}
        }
    }

    /// Whether a connection carries a long-lived flow in the background of those that are measured.
    pub fn is_background(&self, flow: FlowId) -> bool {
        matches!(&self.kind, Kind::Poisson(poisson) if poisson.background().contains(&flow))
    }

    /// How many flows, blocks and pings were kept so far.
    pub fn kept(&self) -> usize {
        self.recording.flows.len() + self.recording.blocks.len() + self.recording.pings.len()
    }

    /// Bytes allocated for recording, and for a Poisson process's flows.
    pub fn bytes(&self) -> u64 {
        let own = if let Kind::Poisson(poisson) = &self.kind { poisson.bytes() } else { 0 };
        own + self.recording.bytes()
    }

    /// Ends the measured time, and returns what was recorded in it.
    pub fn collect(&mut self, now: Instant) -> Recording {
        let recording = &mut self.recording;
        match &self.kind {
            Kind::Ping(_) | Kind::Bulk(_) | Kind::Strobe(_) => {}
            Kind::Poisson(poisson) => poisson.leave(recording, now),
            Kind::RequestResponse(requests) => requests.leave(recording, now),
            Kind::Memcached(memcached) => memcached.leave(recording, now),
            Kind::Transfers(transfers) => transfers.leave(recording, now),
            Kind::ThreeTier(application) => application.leave(recording, now),
        }
        std::mem::take(recording)
    }

    /// The handshake is done, at the opener.
    pub fn on_established(&mut self, system: &mut impl System, flow: FlowId) {
        match &mut self.kind {
            Kind::Ping(_) => {}
            Kind::Bulk(bulk) => bulk.on_established(system, flow),
            Kind::Strobe(strobe) => strobe.on_established(system, flow),
            Kind::Poisson(poisson) => poisson.on_established(system, flow),
            Kind::RequestResponse(requests) => requests.on_established(system, flow),
            Kind::Memcached(memcached) => memcached.on_established(system, flow),
            Kind::Transfers(transfers) => transfers.on_established(system, flow),
            Kind::ThreeTier(application) => application.on_established(system, flow),
        }
    }

    /// A side has received as much as was asked for with [`System::expect`].
    pub fn on_delivered(&mut self, system: &mut impl System, flow: FlowId, side: Side) {
        match &mut self.kind {
            Kind::Ping(_) | Kind::Bulk(_) => {}
            Kind::Strobe(strobe) => strobe.on_delivered(system, &mut self.recording, flow, side),
            Kind::Poisson(poisson) => poisson.on_delivered(system, &mut self.recording, flow, side),
            Kind::RequestResponse(requests) => requests.on_delivered(system, &mut self.recording, flow, side),
            Kind::Memcached(memcached) => memcached.on_delivered(system, &mut self.recording, flow, side),
            Kind::Transfers(transfers) => transfers.on_delivered(system, &mut self.recording, flow),
            Kind::ThreeTier(application) => application.on_delivered(system, &mut self.recording, flow, side),
        }
    }

    /// A call that was asked for with [`System::call_at`] or [`System::call_in`].
    pub fn on_call(&mut self, system: &mut impl System, tag: u32) {
        match &mut self.kind {
            Kind::Ping(ping) => ping.on_call(system, &mut self.recording, tag),
            Kind::Bulk(bulk) => bulk.on_call(system, tag),
            Kind::Strobe(_) => {}
            Kind::Poisson(poisson) => poisson.on_call(system, tag),
            Kind::RequestResponse(requests) => requests.on_call(system, tag),
            Kind::Memcached(memcached) => memcached.on_call(system, tag),
            Kind::Transfers(transfers) => transfers.on_call(system, tag),
            Kind::ThreeTier(application) => application.on_call(system, tag),
        }
    }

    /// The reply to an echo request has come.
    pub fn on_echo(&mut self, system: &mut impl System, guest: GuestId, number: u32) {
        if let Kind::Ping(ping) = &mut self.kind {
            ping.on_echo(system, &mut self.recording, guest, number);
        }
    }
}

#[cfg(test)]
mod tests;
