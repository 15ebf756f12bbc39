use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use evenkeel_algo::pvtcp::Settings;
use evenkeel_scenario::format::CoreSharing;
use evenkeel_scenario::slices::Turns;
use evenkeel_settings::Mode;

use super::*;
use crate::guest::pvtcp::PvtcpSpec;
use crate::host::PortSpec;
use crate::host::shim::{Effects, FromVm, Shim, ToVm, Verdict};
use crate::net::{BufferSpec, PortSpec as LinkSpec, QueueSpec, Shape};
use crate::packet::{ConnId, HostId, Packet};
use crate::tcp::TcpConfig;
use crate::time::Duration;
use crate::units::Rate;
use crate::workload::FlowId;

/// A flow, pings, or both, between the first two guests.
#[derive(Default)]
struct Traffic {
    bytes: u64,
    ping_every: Option<Duration>,
    asked: Vec<Instant>,
    rtts: Vec<Duration>,
    flow: Option<FlowId>,
}

impl Application for Traffic {
    fn start(&mut self, system: &mut impl System) {
        if self.bytes > 0 {
            self.flow = Some(system.open(GuestId(0), GuestId(1)));
        }
        if self.ping_every.is_some() {
            system.call_at(Instant::START, 0);
        }
    }
    fn on_established(&mut self, system: &mut impl System, flow: FlowId) {
        system.write(flow, Side::Opener, self.bytes);
    }
    fn on_delivered(&mut self, _: &mut impl System, _: FlowId, _: Side) {}
    fn on_call(&mut self, system: &mut impl System, _: u32) {
        self.asked.push(system.now());
        system.ping(GuestId(0), GuestId(1), self.asked.len() as u32 - 1);
        system.call_at(system.now() + self.ping_every.unwrap_or(Duration::from_s(1)), 0);
    }
    fn on_echo(&mut self, system: &mut impl System, _: GuestId, number: u32) {
        self.rtts.push(system.now().since(self.asked[number as usize]));
    }
}

#[derive(Default)]
struct Digest {
    hasher: DefaultHasher,
    ticks: u64,
    crossings: u64,
    timeouts: u64,
    most_in_a_row: u8,
}

impl Recorder for Digest {
    fn event(&mut self, now: Instant, event: Event) {
        format!("{} {event:?}", now.ps()).hash(&mut self.hasher);
        self.ticks += u64::from(matches!(event, Event::Tick(_)));
        self.crossings += u64::from(matches!(event, Event::ToGuest(_) | Event::FromGuest(_)));
    }
    fn note(&mut self, _: Instant, _: FlowId, _: Side, note: &Note) {
        if let Note::Timeout { times } = note {
            self.timeouts += 1;
            self.most_in_a_row = self.most_in_a_row.max(*times);
        }
    }
}

fn link() -> LinkSpec {
    LinkSpec { rate: Rate::from_mbit(1000), delay: Duration::from_us(20), queue: QueueSpec::drop_tail(2000) }
}

fn star() -> TopologySpec {
    TopologySpec {
        shape: Shape::Star { hosts: 2 },
        nic: link(),
        edge: link(),
        core: link(),
        top: link(),
        buffer: BufferSpec::PerPort,
    }
}

fn tcp() -> Arc<TcpConfig> {
    Arc::new(TcpConfig { rto_min: Duration::from_ms(1), receive_buffer_bytes: 128 << 10, ..TcpConfig::paper(1000) })
}

fn plain(host: u32) -> GuestSpec {
    GuestSpec::plain(HostId(host), tcp())
}

fn vm(host: u32, queue_segments: u32, mode: Mode) -> GuestSpec {
    let sharing = CoreSharing { vms_per_core: 3, ..CoreSharing::default() };
    GuestSpec {
        turns: Some(Turns::new(&sharing, 5, u64::from(host))),
        port: Some(PortSpec { delay: Duration::from_us(50), queue_segments, ring_slots: None }),
        pvtcp: Some(PvtcpSpec { mode, settings: Settings::default(), steal_clock: false }),
        ..plain(host)
    }
}

fn bulk() -> Traffic {
    Traffic { bytes: 1 << 40, ..Traffic::default() }
}

fn run(guests: &[GuestSpec], traffic: Traffic, length: Duration) -> World<Traffic, Digest> {
    let mut world = World::new(&star(), guests, 7, traffic, Digest::default());
    assert_eq!(world.run(Instant::START + length, u64::MAX), Paused::Limit);
    world
}

#[test]
fn pings_wait_for_the_core() {
    let traffic = Traffic { ping_every: Some(Duration::from_us(9_700)), ..Traffic::default() };
    let world = run(&[plain(0), vm(1, 1000, Mode::Off)], traffic, Duration::from_s(20));
    let rtts = &world.application.rtts;
    let fast = rtts.iter().filter(|rtt| **rtt < Duration::from_ms(1)).count();
    let worst = rtts.iter().max().unwrap();
    assert!(rtts.len() > 2000);
    assert!((rtts.len() * 30 / 100..rtts.len() * 37 / 100).contains(&fast), "{fast} of {}", rtts.len());
    assert!(*worst > Duration::from_ms(58) && *worst < Duration::from_us(60_500), "{worst}");
}

#[test]
fn pvtcp_spares_a_sender_its_timeouts() {
    let timeouts = |mode| {
        let world = run(&[vm(0, 1000, mode), plain(1)], bulk(), Duration::from_s(9));
        (world.core.recorder.timeouts, world.core.guests()[0].pvtcp.as_ref().map(|pvtcp| *pvtcp.counters()))
    };
    let (without, none) = timeouts(Mode::Off);
    let (with, counters) = timeouts(Mode::Enforce);
    let counters = counters.unwrap();
    assert!(none.is_none());
    assert!((90..=110).contains(&without), "without: {without}");
    assert!(with <= 5, "with: {with} {counters:?}");
    assert!((99..=101).contains(&counters.wakeups), "{counters:?}");
    assert!(counters.held_rto > 80 && counters.rtt_filtered > 50, "{counters:?}");
    assert_eq!(counters.held_rto, counters.held_overtaken + counters.held_ran);
}

#[test]
fn a_receiver_off_its_core_costs_successive_timeouts() {
    let world = run(&[plain(0), vm(1, 1000, Mode::Off)], bulk(), Duration::from_s(9));
    assert!(world.core.recorder.most_in_a_row >= 3, "{}", world.core.recorder.most_in_a_row);
}

#[test]
fn a_short_port_queue_drops_what_arrives_meanwhile() {
    let dropped = |queue_segments| {
        let world = run(&[plain(0), vm(1, queue_segments, Mode::Off)], bulk(), Duration::from_s(3));
        world.core.guests()[1].port.as_ref().unwrap().stats().dropped
    };
    assert!(dropped(32) > 0);
    assert_eq!(dropped(1000), 0);
}

fn digest(mode: Mode) -> (u64, u64) {
    let world = run(&[vm(0, 100, mode), vm(1, 100, mode)], bulk(), Duration::from_s(3));
    let wakeups = world.core.guests()[0].pvtcp.as_ref().map_or(0, |pvtcp| pvtcp.counters().wakeups);
    (world.core.recorder.hasher.finish(), wakeups)
}

#[test]
fn the_same_again() {
    assert_eq!(digest(Mode::Enforce), digest(Mode::Enforce));
}

#[test]
fn observing_changes_nothing() {
    let (off, observed) = (digest(Mode::Off), digest(Mode::Observe));
    assert_eq!(off.0, observed.0);
    assert!(observed.1 > 0);
    assert_ne!(off.0, digest(Mode::Enforce).0);
}

#[test]
fn a_plain_machine_costs_no_events() {
    let world = run(&[plain(0), plain(1)], bulk(), Duration::from_ms(200));
    assert_eq!((world.core.recorder.ticks, world.core.recorder.crossings), (0, 0));
    assert!(world.core.guests()[1].received() > 10_000);
}

#[test]
fn packets_cost_processor_time() {
    let receiver = GuestSpec { packet_cost: Duration::from_us(20), ..plain(1) };
    let world = run(&[plain(0), receiver], bulk(), Duration::from_s(1));
    let guest = &world.core.guests()[1];
    assert_eq!(guest.vcpu.busy_total(world.core.now()), Duration::from_us(20) * (guest.received() + guest.sent()));
    let busy = guest.vcpu.busy_total(world.core.now()).as_s_f64();
    assert!((0.9..1.01).contains(&busy), "{busy}");
}

#[test]
fn what_comes_while_an_application_reads_is_acknowledged_together() {
    let segments_per_ack = |receiver: GuestSpec| {
        let world = run(&[plain(0), receiver], bulk(), Duration::from_s(1));
        let guest = &world.core.guests()[1];
        guest.received() as f64 / guest.sent() as f64
    };
    let alone = segments_per_ack(plain(1));
    assert!((1.8..2.1).contains(&alone), "{alone}");
    // At 1 Gbit/s a segment comes every 12.3 us, and each costs the CPU 1 us.
    let (packet_cost, read_cost) = (Duration::from_us(1), Duration::from_us(123));
    let together = segments_per_ack(GuestSpec { packet_cost, read_cost, ..plain(1) });
    assert!((9.0..13.0).contains(&together), "{together}");
}

#[derive(Debug)]
struct Counting(Arc<Mutex<[u64; 2]>>);

impl Shim for Counting {
    fn steps_to_vm(&self) -> &'static [ToVm] {
        &[ToVm::Window]
    }
    fn steps_from_vm(&self) -> &'static [FromVm] {
        &[FromVm::Uplink]
    }
    fn on_to_vm(&mut self, _: Instant, _: ToVm, end: Option<ConnId>, _: &mut Packet, _: &mut Effects) -> Verdict {
        assert!(end.is_some());
        self.0.lock().unwrap()[0] += 1;
        Verdict::Pass
    }
    fn on_from_vm(&mut self, _: Instant, _: FromVm, end: Option<ConnId>, _: &mut Packet, _: &mut Effects) -> Verdict {
        assert!(end.is_some());
        self.0.lock().unwrap()[1] += 1;
        Verdict::Pass
    }
}

#[test]
fn a_shim_sees_every_packet_of_its_port() {
    let mut world = World::new(&star(), &[vm(0, 1000, Mode::Off), plain(1)], 7, bulk(), Digest::default());
    let seen = Arc::new(Mutex::new([0; 2]));
    let shim = Box::new(Counting(Arc::clone(&seen)));
    world.core.guest_mut(GuestId(0)).unwrap().port.as_mut().unwrap().shims.add(shim);
    world.run(Instant::START + Duration::from_s(1), u64::MAX);
    let stats = world.core.guests()[0].port.as_ref().unwrap().stats();
    assert!(stats.to_vm > 100);
    assert_eq!(*seen.lock().unwrap(), [stats.to_vm, stats.from_vm]);
}
