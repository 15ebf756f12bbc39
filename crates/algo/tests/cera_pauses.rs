//! CERA where VMs or their peers wait for a core: control loops are longer than any handshake shows.

use std::collections::VecDeque;

use evenkeel_algo::cera::{
    Controller, DEFAULTS, LONGEST_PAUSE_US, PAUSE_MEMORY, Pace, Pause, Seen, Settings, Shown, Verdict, Vm, enough_room,
    is_full,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const SEGMENT: u32 = DEFAULTS.segment_bytes;
/// A segment in 10 us.
const RATE: u64 = SEGMENT as u64 * 100_000;
const RTT_US: u32 = 100;

/// A single VM that has used up its windows, epoch by epoch.
struct Alone {
    pace: Pace,
    now_us: u64,
}

impl Alone {
    fn new() -> Self {
        Self { pace: Pace::default(), now_us: 1_000_000 }
    }

    fn shown(&self) -> Shown {
        Shown {
            now_us: self.now_us,
            sent_bytes: RATE / 1000,
            rate: RATE,
            epoch_us: 1000,
            seen: Seen { is_full: true, ..Seen::default() },
            rtt_us: RTT_US,
            cover_us: 300,
            queue_us: 1,
        }
    }

    fn epoch(&mut self, shown: Shown) -> u32 {
        self.now_us += 1000;
        self.pace.turn(&Shown { now_us: self.now_us, ..shown });
        self.pace.pause_us()
    }

    /// The VM itself was silent.
    fn silent(&mut self, us: u32) -> u32 {
        let seen = Seen { pause_us: us, vm_pause_us: us, is_full: true };
        self.epoch(Shown { seen, ..self.shown() })
    }

    /// It was silent, and heard nothing meanwhile.
    fn unanswered(&mut self, us: u32, queue_us: u32) -> u32 {
        self.epoch(Shown { queue_us, ..self.shown() });
        let seen = Seen { pause_us: us, vm_pause_us: 0, is_full: true };
        self.epoch(Shown { seen, queue_us, ..self.shown() })
    }
}

#[test]
fn a_pause_begins_where_a_window_is_used_up() {
    let mut pause = Pause::default();
    let enough = enough_room(10 * 1448, 1448, false);
    pause.data(1000, false);
    pause.data(9000, true);
    assert_eq!(pause.take(), Seen { pause_us: 0, vm_pause_us: 0, is_full: true }, "it had room");
    // An ACK that makes no room, one that does, and another.
    pause.ack(9500, true, 1000, enough);
    pause.ack(10_000, true, 2 * 1448, enough);
    pause.ack(11_000, true, 9 * 1448, enough);
    pause.data(12_000, true);
    assert_eq!(pause.take(), Seen { pause_us: 3000, vm_pause_us: 2000, is_full: true });
    // What a flow with room hears says nothing about the flow that had none.
    pause.ack(12_100, false, 9 * 1448, enough);
    pause.data(12_200, false);
    assert_eq!(pause.take(), Seen { pause_us: 200, vm_pause_us: 0, is_full: false });
    pause.data(12_300, true);
    pause.data(12_301 + u64::from(LONGEST_PAUSE_US), true);
    assert_eq!(pause.take().pause_us, 0, "that was rest, or a loss");
    assert!(is_full(-1, 10) && is_full(5, 10) && !is_full(6, 10));
}

#[test]
fn two_pauses_are_a_habit_and_one_is_chance() {
    let mut vm = Alone::new();
    assert_eq!((vm.silent(15_000), vm.silent(12_000), vm.silent(14_000)), (0, 12_000, 14_000));
    assert_eq!(vm.silent(300), 14_000, "T_l lasts as long");
    // It uses up its windows, and pauses no more.
    for _ in 0..PAUSE_MEMORY * 13 {
        assert!(vm.epoch(vm.shown()) > 0);
    }
    assert_eq!((0..30).map(|_| vm.epoch(vm.shown())).last(), Some(0));
}

#[test]
fn a_vm_that_does_not_use_its_windows_says_nothing_of_pauses() {
    let mut vm = Alone::new();
    vm.silent(15_000);
    vm.silent(15_000);
    let idle = Shown { seen: Seen::default(), ..vm.shown() };
    for _ in 0..9_900 {
        assert_eq!(vm.epoch(idle), 15_000);
    }
    assert_eq!((0..200).map(|_| vm.epoch(idle)).last(), Some(0), "after 10 s it is forgotten");
}

#[test]
fn a_vm_at_rest_has_nothing_in_reserve() {
    let mut vm = Alone::new();
    vm.silent(15_000);
    vm.silent(15_000);
    let rest = |vm: &mut Alone| {
        vm.now_us += 1000;
        vm.pace.turn(&Shown { sent_bytes: 0, seen: Seen::default(), ..vm.shown() })
    };
    assert!(rest(&mut vm) > 0);
    assert_eq!((0..300).map(|_| rest(&mut vm)).last(), Some(0));
}

#[test]
fn what_the_queue_or_the_network_takes_is_no_pause() {
    let mut vm = Alone::new();
    for _ in 0..10 {
        assert_eq!(vm.unanswered(9_000, 8_000), 0, "its data was in the queue");
        let seen = Seen { pause_us: 40_000, vm_pause_us: 0, is_full: true };
        assert_eq!(vm.epoch(Shown { seen, rtt_us: 39_900, ..vm.shown() }), 0, "its peer is as far away");
    }
    // The peer waits for its core.
    vm.unanswered(15_000, 600);
    assert_eq!(vm.unanswered(15_000, 600), 15_000 - RTT_US);
    // With the right window the queue lasts as long as the pause, and no longer pause can be told from it.
    assert_eq!(vm.unanswered(16_000, 15_000), 15_000 - RTT_US);
    assert_eq!(vm.unanswered(16_000, 15_000), 15_000 - RTT_US);
}

/// When a VM has its core, in steps of 10 us.
type Core = Box<dyn Fn(u64) -> bool>;

/// A link, its queue, VMs that always have data, and the controller.
struct Host {
    settings: Settings,
    controller: Controller,
    vms: Vec<Sender>,
    queue: VecDeque<usize>,
    /// Whether the controller uses what is known of pauses.
    knows_pauses: bool,
}

struct Sender {
    core: Core,
    weight: u32,
    in_flight: u32,
    /// Acknowledged, as the port knows and as the VM does.
    acked: u32,
    heard: u32,
    /// What the last ACK said, as the port knows and as the VM does.
    told: Option<u32>,
    window: Option<u32>,
    limit: Option<u32>,
    pause: Pause,
    pace: Pace,
    rate: u64,
    sent: VecDeque<u64>,
    left: u64,
}

impl Host {
    fn new(cores: Vec<(Core, u32)>, knows_pauses: bool) -> Self {
        let vms = cores.into_iter().map(|(core, weight)| Sender {
            core,
            weight,
            in_flight: 0,
            acked: 0,
            heard: 0,
            told: None,
            window: None,
            limit: None,
            pause: Pause::default(),
            pace: Pace::default(),
            rate: 0,
            sent: VecDeque::from(vec![0; DEFAULTS.epochs as usize]),
            left: 0,
        });
        let (settings, controller) = (DEFAULTS, Controller::default());
        Self { settings, controller, vms: vms.collect(), queue: VecDeque::new(), knows_pauses }
    }

    /// 10 us: a segment leaves and is acknowledged, and VMs on their cores send.
    fn step(&mut self, step: u64) {
        let now_us = 10 * step;
        if let Some(of) = self.queue.pop_front() {
            let vm = &mut self.vms[of];
            vm.left += 1;
            let before = vm.told.map(|told| told as i32 - (vm.in_flight - vm.acked) as i32);
            let was_full = vm.told.zip(before).is_some_and(|(limit, room)| is_full(room, limit));
            vm.acked += 1;
            vm.told = vm.limit;
            if let Some(told) = vm.told {
                let room = told as i32 - (vm.in_flight - vm.acked) as i32;
                vm.pause.ack(now_us, was_full, room, 2);
            }
        }
        for (of, vm) in self.vms.iter_mut().enumerate() {
            if !(vm.core)(step) {
                continue;
            }
            vm.in_flight -= vm.acked - vm.heard;
            vm.acked = 0;
            vm.heard = 0;
            vm.window = vm.told;
            while vm.in_flight < vm.window.unwrap_or(2000) {
                vm.in_flight += 1;
                self.queue.push_back(of);
                vm.sent[0] += u64::from(SEGMENT);
                let room = vm.told.map(|told| told as i32 - vm.in_flight as i32);
                vm.pause.data(now_us, vm.told.zip(room).is_some_and(|(limit, room)| is_full(room, limit)));
            }
        }
        if step % 100 == 99 {
            self.epoch(now_us);
        }
    }

    fn epoch(&mut self, now_us: u64) {
        let queue_us = 10 * self.queue.len() as u32;
        let mut vms = Vec::new();
        for vm in &mut self.vms {
            let shown = Shown {
                now_us,
                sent_bytes: vm.sent[0],
                rate: vm.rate,
                epoch_us: self.settings.epoch_us,
                seen: vm.pause.take(),
                rtt_us: RTT_US,
                cover_us: 10 * self.settings.low_segments,
                queue_us,
            };
            let reserve_bytes = if self.knows_pauses { vm.pace.turn(&shown) } else { 0 };
            let (sent_bytes, usual_bytes) = (vm.sent.iter().sum(), vm.pace.usual_bytes());
            vm.sent.rotate_right(1);
            vm.sent[0] = 0;
            let weight = vm.weight;
            vms.push(Vm { sent_bytes, weight, rtt_us: RTT_US, flows: 1, reserve_bytes, usual_bytes, ..Vm::default() });
        }
        let queue_bytes = self.queue.len() as u64 * u64::from(SEGMENT);
        let window = self.settings.window(RATE, RTT_US);
        let verdict = self.controller.epoch(&self.settings, queue_bytes, RTT_US + queue_us, window);
        self.controller.divide(&self.settings, &mut vms, RATE);
        for (vm, found) in self.vms.iter_mut().zip(&vms) {
            vm.rate = found.rate;
            vm.limit = (verdict != Verdict::Free).then_some(found.window);
        }
    }

    /// Each VM's share of the link's rate, in percent, in `seconds` seconds after a first one; and the mean queue in
    /// segments.
    fn run(mut self, seconds: u64) -> (Vec<f64>, f64) {
        let (first, last) = (100_000, 100_000 * (seconds + 1));
        (0..first).for_each(|step| self.step(step));
        self.vms.iter_mut().for_each(|vm| vm.left = 0);
        let mut queue = 0;
        for step in first..last {
            self.step(step);
            queue += self.queue.len();
        }
        let steps = (last - first) as f64;
        (self.vms.iter().map(|vm| 100.0 * vm.left as f64 / steps).collect(), queue as f64 / steps)
    }
}

fn always() -> Core {
    Box::new(|_| true)
}

/// On its core for `on_ms`, then off it for `off_ms`, again and again.
fn turns(on_ms: u64, off_ms: u64) -> Core {
    Box::new(move |step| step / 100 % (on_ms + off_ms) < on_ms)
}

#[test]
fn a_vm_off_its_core_fills_the_link_as_it_does_not_without() {
    let run = |knows_pauses| Host::new(vec![(turns(10, 15), 1)], knows_pauses).run(2);
    let ((without, _), (with, queue)) = (run(false), run(true));
    assert!(without[0] < 60.0, "{without:?}");
    assert!(with[0] > 95.0, "{with:?}");
    // The link sends 1,500 segments while the VM is off its core, and the VM's own window is 2,000.
    assert!(queue < 1200.0, "{queue}");
}

#[test]
fn a_vm_off_its_core_has_its_share_beside_others() {
    let run = |knows_pauses| Host::new(vec![(turns(10, 15), 1), (always(), 1)], knows_pauses).run(2);
    let ((without, _), (with, _)) = (run(false), run(true));
    assert!(without[0] < 25.0, "{without:?}");
    assert!(with[0] > 43.0 && with[1] > 43.0, "{with:?}");
}

#[test]
fn vms_on_their_cores_have_a_short_queue() {
    let (with, queue) = Host::new(vec![(always(), 1), (always(), 3)], true).run(1);
    let (without, same) = Host::new(vec![(always(), 1), (always(), 3)], false).run(1);
    assert_eq!((with, queue), (without, same));
    assert!(queue < 70.0, "{queue}");
}

/// The same cases each time.
fn config() -> ProptestConfig {
    ProptestConfig { rng_seed: RngSeed::Fixed(26), failure_persistence: None, ..ProptestConfig::with_cases(32) }
}

proptest! {
    #![proptest_config(config())]

    /// However a VM pauses, it gains no more than its share by that.
    #[test]
    fn nobody_gains_by_pauses(
        on_ms in 1..120_u64,
        off_ms in 1..60_u64,
        others in 1..4_usize,
        weight in 1..4_u32,
    ) {
        let mut cores = vec![(turns(on_ms, off_ms), weight)];
        cores.extend((0..others).map(|_| (always(), 1)));
        let (shares, _) = Host::new(cores, true).run(3);
        let own = 100.0 * f64::from(weight) / (f64::from(weight) + others as f64);
        prop_assert!(shares[0] < own * 1.1 + 2.0, "{shares:?}");
        for share in &shares[1..] {
            prop_assert!(*share > (100.0 - own) / others as f64 * 0.88, "{shares:?}");
        }
    }

    /// Linux waits until a third of a window is free, or room for 45 segments, if its packets may be that large.
    #[test]
    fn a_sender_that_waits_for_a_larger_packet_makes_no_pause(segments in 2..3000_u32, of_ack in 1..4_u32) {
        const MSS: u32 = 1448;
        let window = segments * MSS;
        let waits_for = (45 * MSS).min(window / 3);
        let vm_pause_us = |is_large| {
            let (mut pause, mut room, mut now_us) = (Pause::default(), 0, 1000);
            pause.data(now_us, true);
            for _ in 0..10 * segments {
                now_us += u64::from(10 * of_ack);
                let was_full = is_full(room as i32, window);
                room = (room + of_ack * MSS).min(window);
                pause.ack(now_us, was_full, room as i32, enough_room(window, MSS, is_large));
                if room >= waits_for {
                    pause.data(now_us, true);
                    room = 0;
                }
            }
            pause.take().vm_pause_us
        };
        prop_assert_eq!(vm_pause_us(true), 0);
        // A sender of single segments that waits as long is off its core.
        prop_assert_eq!(vm_pause_us(false) > 0, waits_for > MSS * of_ack * 2u32.div_ceil(of_ack));
    }

    /// Whatever the controller is shown, the reserve is no more than what the link sends in the longest pause.
    #[test]
    fn reserves_are_bounded(
        all in prop::collection::vec((any::<[u64; 3]>(), any::<[u32; 6]>(), any::<bool>()), 1..100),
    ) {
        let mut pace = Pace::default();
        for ([now_us, sent_bytes, rate], times_us, is_full) in all {
            let [epoch_us, pause_us, vm_pause_us, rtt_us, cover_us, queue_us] = times_us;
            let seen = Seen { pause_us, vm_pause_us, is_full };
            let reserve = pace.turn(&Shown { now_us, sent_bytes, rate, epoch_us, seen, rtt_us, cover_us, queue_us });
            prop_assert!(pace.pause_us() <= LONGEST_PAUSE_US);
            prop_assert!(reserve <= (1 << 39) / 1_000_000 * u64::from(LONGEST_PAUSE_US) + u64::from(LONGEST_PAUSE_US));
        }
    }
}
