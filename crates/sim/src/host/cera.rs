//! CERA on a simulated host: the controller, and its part at each VM's port, which counts packets and limits windows.

use std::collections::HashMap;

use evenkeel_algo::cera::{
    self, Controller, Far, LeastRtt, Loop, Meter, Pace, Pause, Seen, Settings, Shown, Traffic, Trip, Verdict as Word,
    Vm,
};
use evenkeel_algo::window;
use evenkeel_settings::Mode;

use super::shim::{Counters, Effects, FromVm, Shim, ToVm, Verdict};
use crate::packet::{ConnId, Flags, GuestId, HostId, Packet, Payload};
use crate::time::{Duration, Instant};

/// The most that any window field can say.
const MAX_WINDOW_BYTES: u32 = 65_535 << 14;
/// d before the first handshake.
const UNKNOWN_RTT_US: u32 = 1000;

/// How CERA is set up on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Off, observe or enforce.
    pub mode: Mode,
    /// Targets and epochs.
    pub settings: Settings,
    /// C: the rate of the network card's link.
    pub bytes_per_s: u64,
    /// d, if it is given instead of measured.
    pub rtt_us: Option<u32>,
    /// Payload of a full segment.
    pub mss_bytes: u32,
    /// How long a message from the host takes to reach a client.
    pub client_delay: Duration,
}

/// The controller of a host.
#[derive(Debug)]
pub struct HostController {
    /// The host's number.
    pub host: HostId,
    /// How it is set up.
    pub spec: Spec,
    /// Its VMs, with their weights.
    pub guests: Vec<(GuestId, u32)>,
    controller: Controller,
    /// d, as far as it is known.
    rtt_us: u32,
    /// In the order of [`Self::guests`].
    seats: Vec<Seat>,
    cuts: u64,
}

/// What the controller knows of a VM.
#[derive(Clone, Copy, Debug, Default)]
struct Seat {
    pace: Pace,
    far: Far,
    /// What its weight allows.
    rate: u64,
}

/// What becomes of a VM at the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It has no limit.
    Free,
    /// Its windows may grow to this.
    Grow(Window),
    /// Its windows are to be cut to this.
    Cut(Window),
}

/// A VM's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// w_k.
    pub segments: u32,
    /// What it is for.
    pub of_loop: Loop,
}

impl HostController {
    /// A controller that has seen nothing.
    pub fn new(host: HostId, spec: Spec) -> Self {
        Self {
            host,
            spec,
            guests: Vec::new(),
            controller: Controller::default(),
            rtt_us: UNKNOWN_RTT_US,
            seats: Vec::new(),
            cuts: 0,
        }
    }

    /// An epoch has ended. `taps` has the reports of [`Self::guests`], in their order. Returns an order for each.
    pub fn epoch(&mut self, now: Instant, queue_bytes: u64, taps: &[Report]) -> Vec<Order> {
        let settings = &self.spec.settings;
        let queue_us = self.queue_us(queue_bytes);
        let cover_us = self.queue_us(u64::from(settings.low_segments) * u64::from(settings.segment_bytes));
        self.seats.resize_with(self.guests.len(), Default::default);
        let shared_us = self.spec.rtt_us.or_else(|| taps.iter().filter_map(|tap| tap.rtt_us).min());
        let shared_us = shared_us.unwrap_or(UNKNOWN_RTT_US);
        let own_us = |tap: &Report| self.spec.rtt_us.is_none().then_some(tap.own_rtt_us).flatten().unwrap_or(0);
        let mut vms: Vec<Vm> = Vec::with_capacity(taps.len());
        for ((tap, (_, weight)), seat) in taps.iter().zip(&self.guests).zip(&mut self.seats) {
            let rtt_us = LeastRtt::of_vm(shared_us, own_us(tap));
            let far_us = seat.far.epoch(now.us(), tap.far_us);
            let reserve_bytes = seat.pace.turn(&Shown {
                now_us: now.us(),
                sent_bytes: tap.traffic.newest_bytes,
                rate: seat.rate,
                epoch_us: settings.epoch_us,
                seen: tap.seen,
                rtt_us: rtt_us.saturating_add(far_us),
                cover_us,
                queue_us,
            });
            vms.push(Vm {
                sent_bytes: tap.traffic.bytes,
                weight: *weight,
                rtt_us,
                reserve_bytes,
                usual_bytes: seat.pace.usual_bytes(),
                flows: tap.traffic.flows,
                is_fresh: tap.traffic.is_fresh,
                ..Vm::default()
            });
        }
        let window = settings.window(self.spec.bytes_per_s, shared_us);
        let rtt_us = shared_us.saturating_add(queue_us);
        self.rtt_us = shared_us;
        let word = self.controller.epoch(settings, queue_bytes, rtt_us, window);
        self.controller.divide(settings, &mut vms, self.spec.bytes_per_s);
        for (seat, vm) in self.seats.iter_mut().zip(&vms) {
            seat.rate = vm.rate;
        }
        self.cuts += u64::from(word == Word::Cut);
        let window = |vm: &Vm| Window {
            segments: vm.window,
            of_loop: Loop { rtt_us: vm.rtt_us, loop_us: vm.loop_us, cover_us },
        };
        let order = |vm: &Vm| match word {
            Word::Free => Order::Free,
            Word::Grow => Order::Grow(window(vm)),
            Word::Cut => Order::Cut(window(vm)),
        };
        vms.iter().map(order).collect()
    }

    /// Whether the remainder of a division goes to others from this epoch on.
    pub fn has_turned(&self) -> bool {
        self.controller.has_turned()
    }

    /// How long the link takes to send `queue_bytes`.
    pub fn queue_us(&self, queue_bytes: u64) -> u32 {
        let us = queue_bytes.saturating_mul(1_000_000) / self.spec.bytes_per_s.max(1);
        us.min(u64::from(u32::MAX)) as u32
    }

    /// How many epochs make up a slot in which a VM's flows are counted, with a queue of `queue_us`.
    pub fn stride(&self, vm: usize, queue_us: u32) -> u32 {
        let silent_us = self.seats.get(vm).map_or(0, |seat| seat.pace.pause_us().max(seat.far.longer_us()));
        self.spec.settings.stride(self.rtt_us.saturating_add(queue_us).saturating_add(silent_us))
    }

    /// Epochs at whose end windows were cut.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }
}

/// What a port reports to the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Traffic of the last epochs.
    pub traffic: Traffic,
    /// The least handshake of the last seconds.
    pub rtt_us: Option<u32>,
    /// The VM's own least handshake, without the time in the queue.
    pub own_rtt_us: Option<u32>,
    /// Pauses of the last epoch.
    pub seen: Seen,
    /// By how much its farthest full flow was farther than what its windows are for.
    pub far_us: u32,
}

#[derive(Debug)]
struct Flow {
    /// Tells a connection from the one that had its slot before.
    generation: u32,
    /// Its place when the remainder is dealt out.
    position: u32,
    /// Epoch of its last data, for the meter.
    stamp: u32,
    /// The scale of windows that come in.
    scale: u8,
    /// The limit in the last ACK to the VM, and the right edge that it sets.
    advertised: Option<(u32, u32)>,
    /// The end of the data that it has sent.
    sent_end: u32,
    /// Its own round trip.
    trip: Trip,
    /// The VM leaves packets of several segments to others to cut.
    is_large: bool,
    /// Whose SYN was seen, and when; `None` once the handshake is over, or if the SYN came twice.
    syn: Option<(Way, Instant)>,
}

impl Flow {
    /// Bytes that the last limit still allows; `None` if there was no limit.
    fn room(&self) -> Option<i32> {
        self.advertised.map(|(_, until)| until.wrapping_sub(self.sent_end) as i32)
    }

    /// Whether it has used up its window.
    fn is_full(&self) -> bool {
        self.advertised.zip(self.room()).is_some_and(|((bytes, _), room)| cera::is_full(room, bytes))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    FromVm,
    ToVm,
}

/// CERA's part at a VM's port.
#[derive(Debug)]
pub struct Tap {
    mode: Mode,
    epochs: u32,
    mss_bytes: u32,
    has_client: bool,
    meter: Meter,
    rtt: LeastRtt,
    own_rtt: LeastRtt,
    pause: Pause,
    /// Handshakes of this epoch.
    handshakes_us: Vec<u32>,
    /// The queue at the end of the last epoch.
    queue_us: u32,
    flows: HashMap<u32, Flow>,
    opened: u32,
    /// The longest queue of the last two epochs.
    longest_us: u32,
    far_us: u32,
    /// The VM's window and its active flows.
    limit: Option<(Window, u32)>,
    active: u32,
    next: u32,
    share: u32,
    cuts: u64,
    limited: u64,
}

impl Tap {
    /// The part at a port that has seen nothing.
    pub fn new(spec: &Spec, has_client: bool) -> Self {
        Self {
            mode: spec.mode,
            epochs: spec.settings.epochs,
            mss_bytes: spec.mss_bytes,
            has_client,
            meter: Meter::default(),
            rtt: LeastRtt::default(),
            own_rtt: LeastRtt::default(),
            pause: Pause::default(),
            handshakes_us: Vec::new(),
            queue_us: 0,
            longest_us: 0,
            far_us: 0,
            flows: HashMap::new(),
            opened: 0,
            limit: None,
            active: 0,
            next: 0,
            share: 0,
            cuts: 0,
            limited: 0,
        }
    }

    /// The epoch ends with a queue of `queue_us`.
    pub fn turn(&mut self, now: Instant, queue_us: u32, stride: u32) -> Report {
        let traffic = self.meter.turn(self.epochs, stride);
        self.active = traffic.flows;
        self.longest_us = self.queue_us.max(queue_us);
        self.queue_us = queue_us;
        for us in self.handshakes_us.drain(..) {
            self.rtt.sample(now.us(), us);
            self.own_rtt.sample(now.us(), LeastRtt::without(us, self.longest_us));
        }
        let (rtt_us, own_rtt_us) = (self.rtt.get(), self.own_rtt.get());
        Report { traffic, rtt_us, own_rtt_us, seen: self.pause.take(), far_us: std::mem::take(&mut self.far_us) }
    }

    /// Takes the controller's order, and returns the window that the VM's client is to be told. `turned`: the remainder
    /// goes to other flows.
    pub fn obey(&mut self, order: Order, turned: bool) -> Option<u32> {
        let window = match order {
            Order::Free => None,
            Order::Grow(window) | Order::Cut(window) => Some(window),
        };
        self.share = window.map_or(0, |window| window.segments);
        self.cuts += u64::from(matches!(order, Order::Cut(_)));
        if let Some((window, flows)) = self.limit.filter(|_| turned) {
            self.next = cera::next(window.segments, flows, self.next);
        }
        self.limit = window.map(|window| (window, self.active.max(1)));
        window.filter(|_| self.has_client).map(|window| window.segments)
    }

    /// The window that the VM has, in segments; 0: none.
    pub fn share(&self) -> u32 {
        self.share
    }

    /// The flow of a connection's end. A flow of an earlier connection in the same slot is forgotten.
    fn flow(&mut self, end: ConnId) -> &mut Flow {
        let opened = &mut self.opened;
        let mut fresh = || {
            *opened = opened.wrapping_add(1);
            Flow {
                generation: end.generation,
                position: *opened,
                stamp: 0,
                scale: 0,
                advertised: None,
                sent_end: 0,
                trip: Trip::default(),
                is_large: false,
                syn: None,
            }
        };
        let flow = self.flows.entry(end.index).or_insert_with(&mut fresh);
        if flow.generation != end.generation {
            *flow = fresh();
        }
        flow
    }

    /// A handshake's first segment, or its third.
    fn handshake(&mut self, now: Instant, end: ConnId, way: Way, flags: Flags) {
        let (syn, ack) = (flags.has(Flags::SYN), flags.has(Flags::ACK));
        let flow = self.flow(end);
        if syn && !ack {
            flow.syn = if flow.syn.is_none() { Some((way, now)) } else { None };
        } else if let Some((_, at)) = flow.syn.filter(|(first, _)| !syn && *first == way) {
            flow.syn = None;
            self.handshakes_us.push(now.since(at).us().min(u64::from(u32::MAX)) as u32);
        }
    }

    /// A packet leaves, or what vFlood held does.
    fn departs(&mut self, now: Instant, end: Option<ConnId>, packet: &Packet) {
        let (Some(end), Payload::Tcp(_, segment)) = (end, &packet.payload) else { return };
        let longest_us = self.longest_us;
        if segment.payload_bytes > 0 {
            let data_end = segment.seq.wrapping_add(segment.payload_bytes);
            self.flow(end).trip.sent(now.us(), data_end, longest_us);
        }
    }
}

impl Shim for Tap {
    fn steps_to_vm(&self) -> &'static [ToVm] {
        &[ToVm::Window]
    }

    fn steps_from_vm(&self) -> &'static [FromVm] {
        &[FromVm::Uplink, FromVm::Departure]
    }

    fn on_to_vm(
        &mut self,
        now: Instant,
        _: ToVm,
        end: Option<ConnId>,
        packet: &mut Packet,
        _: &mut Effects,
    ) -> Verdict {
        let (Some(end), Payload::Tcp(_, segment)) = (end, &mut packet.payload) else { return Verdict::Pass };
        self.handshake(now, end, Way::ToVm, segment.flags);
        let limit = self.limit;
        let (next, mss_bytes, mut far_us) = (self.next, self.mss_bytes, self.far_us);
        let flow = self.flow(end);
        let was_full = flow.is_full();
        flow.advertised = None;
        if segment.flags.has(Flags::ACK) {
            flow.trip.acked(now.us(), segment.ack);
        }
        if segment.flags.has(Flags::SYN) {
            flow.scale = segment.window_scale;
        } else if let Some((window, flows)) = limit.filter(|_| flow.stamp > 0) {
            let part = cera::flow_window(window.segments, flows, flow.position, next).saturating_mul(mss_bytes);
            let longer_us = flow.trip.longer_us(&window.of_loop);
            if was_full {
                far_us = far_us.max(longer_us.clamp(0, i64::from(u32::MAX)) as u32);
            }
            let least_bytes = cera::LEAST_SEGMENTS.saturating_mul(mss_bytes);
            let bytes = window.of_loop.window(part.into(), longer_us, least_bytes).min(u64::from(MAX_WINDOW_BYTES));
            let bytes = window::with_room(bytes as u32, flow.scale);
            flow.advertised = Some((bytes, segment.ack.wrapping_add(bytes)));
            let (room, scale) = (flow.room().unwrap_or(0), flow.scale);
            let enough = cera::enough_room(bytes, mss_bytes, flow.is_large);
            self.pause.ack(now.us(), was_full, room, enough);
            let (field, by) = window::arbitrate(
                window::Offers { cera_bytes: Some(bytes), ..Default::default() },
                segment.window,
                scale,
                mss_bytes,
            );
            self.limited += u64::from(by == window::By::Cera);
            if self.mode == Mode::Enforce {
                segment.window = field;
            }
            self.far_us = far_us;
        }
        Verdict::Pass
    }

    fn on_from_vm(
        &mut self,
        now: Instant,
        place: FromVm,
        end: Option<ConnId>,
        packet: &mut Packet,
        _: &mut Effects,
    ) -> Verdict {
        if place == FromVm::Departure {
            self.departs(now, end, packet);
            return Verdict::Pass;
        }
        let (bytes, is_large) = (packet.wire_bytes, packet.segment_bytes().is_some());
        let (Some(end), Payload::Tcp(_, segment)) = (end, &packet.payload) else {
            self.meter.count(None, bytes);
            return Verdict::Pass;
        };
        self.handshake(now, end, Way::FromVm, segment.flags);
        if segment.payload_bytes == 0 {
            self.meter.count(None, bytes);
        } else {
            let data_end = segment.seq.wrapping_add(segment.payload_bytes);
            let flow = self.flow(end);
            if flow.stamp == 0 {
                flow.trip = Trip::new(segment.seq);
            }
            flow.is_large |= is_large;
            if (data_end.wrapping_sub(flow.sent_end) as i32) > 0 || flow.stamp == 0 {
                flow.sent_end = data_end;
            }
            let (mut stamp, is_full) = (flow.stamp, flow.is_full());
            self.meter.count(Some(&mut stamp), bytes);
            self.pause.data(now.us(), is_full);
            self.flow(end).stamp = stamp;
        }
        Verdict::Pass
    }

    fn counters(&self) -> Counters {
        vec![("CeraCuts", self.cuts), ("CeraWindowsLimited", self.limited)]
    }
}
