//! CERA, by what must hold of it.

use evenkeel_algo::cera::{
    CLIENT_SLACK, Client, Controller, DEFAULTS, Far, LEAST_SEGMENTS, LeastRtt, Loop, MAX_EPOCHS, MAX_VMS, MAX_WINDOW,
    Meter, Settings, Traffic, Trip, Verdict, Vm, client_far, client_sets,
};
use evenkeel_algo::window::{self, By};
use proptest::prelude::*;

/// 1 Gbit/s.
const RATE: u64 = 125_000_000;

fn vm(sent_bytes: u64, weight: u32) -> Vm {
    Vm { sent_bytes, weight, rtt_us: 400, flows: 1, ..Vm::default() }
}

fn windows(settings: &Settings, vms: &[Vm]) -> Vec<u32> {
    let mut vms = vms.to_vec();
    Controller::default().divide(settings, &mut vms, RATE);
    vms.iter().map(|vm| vm.window).collect()
}

/// With CERA alone.
fn arbitrate(limit: Option<u32>, offered: u16, scale: u8, mss: u32) -> (u16, By) {
    window::arbitrate(window::Offers { cera_bytes: limit, ..Default::default() }, offered, scale, mss)
}

#[test]
fn equation_1_by_example() {
    // 125 MB/s for 400 us are 50,000 bytes: 32 segments of 1,538.
    assert_eq!(DEFAULTS.window(RATE, 400), 32 + DEFAULTS.low_segments);
    assert_eq!(DEFAULTS.window(0, 400), DEFAULTS.low_segments);
    assert_eq!(DEFAULTS.window(u64::MAX, u32::MAX), MAX_WINDOW);
    assert_eq!(Settings { segment_bytes: 0, ..DEFAULTS }.window(1_000_000, 10), 10 + DEFAULTS.low_segments);
}

#[test]
fn the_printed_shares_are_equation_2() {
    let printed = Settings { printed: true, low_segments: 68, ..DEFAULTS };
    assert_eq!(printed.window(RATE, 400), 100);
    // mu * n: 1 * 10, 2 * 10, 1 * 20 of 50.
    assert_eq!(windows(&printed, &[vm(10_000, 1), vm(10_000, 2), vm(20_000, 1)]), [20, 40, 40]);
}

#[test]
fn silent_vms_take_nothing_and_light_ones_what_they_need() {
    let settings = Settings { low_segments: 68, ..DEFAULTS };
    // The second needs twice its twentieth: 0.05 * 2 * 3 VMs = 0.3 of a weight; of 2.3 in all.
    // The first would have a share of 1 of 3.3.
    assert_eq!(windows(&settings, &[vm(0, 1), vm(5_000, 1), vm(47_500, 1), vm(47_500, 1)]), [30, 13, 44, 44]);
}

/// CERA eq. 2 feeds back: rates follow windows, and windows follow rates times weights.
#[test]
fn shares_settle_at_the_weights_and_the_printed_ones_do_not() {
    let settle = |settings: &Settings| {
        let mut vms = [vm(1_000_000, 1), vm(1_000_000, 2), vm(1_000_000, 5)];
        for _ in 0..30 {
            Controller::default().divide(settings, &mut vms, RATE);
            vms.iter_mut().for_each(|vm| vm.sent_bytes = u64::from(vm.window) * 10_000);
        }
        vms.map(|vm| vm.window)
    };
    let settings = Settings { low_segments: 768, ..DEFAULTS };
    // Half a segment for each flow comes on top.
    assert_eq!(windows(&settings, &[Vm { flows: 8, ..vm(1_000_000, 1) }, vm(1_000_000, 1)]), [404, 400]);
    assert_eq!(settle(&settings), [100, 201, 500]);
    let printed = settle(&Settings { printed: true, ..settings });
    assert!(printed[0] <= LEAST_SEGMENTS && printed[1] <= LEAST_SEGMENTS && printed[2] > 790, "{printed:?}");
}

#[test]
fn a_longer_rtt_is_not_less_rate() {
    let settings = Settings { low_segments: 30, ..DEFAULTS };
    let mut vms = [vm(500_000, 1), Vm { rtt_us: 40_000, ..vm(500_000, 1) }];
    for _ in 0..30 {
        Controller::default().divide(&settings, &mut vms, RATE);
        // The queue of 30 segments is 369 us.
        vms.iter_mut().for_each(|vm| vm.sent_bytes = u64::from(vm.window) * 1_000_000 / u64::from(vm.rtt_us + 369));
    }
    let shares = vms.map(|vm| vm.sent_bytes as f64 / (vms[0].sent_bytes + vms[1].sent_bytes) as f64);
    assert!((0.47..0.53).contains(&shares[0]), "{shares:?}");
}

/// A controller that has cut, with `flows` flows in one VM.
fn engaged(flows: u32, rtt_us: u32) -> Controller {
    let mut controller = Controller::default();
    assert_eq!(controller.epoch(&DEFAULTS, 61 * 1538, rtt_us, 62), Verdict::Cut);
    controller.divide(&DEFAULTS, &mut [Vm { flows, ..vm(1000, 1) }], RATE);
    controller
}

#[test]
fn a_controller_cuts_grows_and_lets_go() {
    assert_eq!(Controller::default().epoch(&DEFAULTS, 60 * 1538, 500, 62), Verdict::Free, "not more than T_u waits");
    let mut controller = engaged(4, 500);
    let mut epoch = |segments: u64| {
        let verdict = controller.epoch(&DEFAULTS, segments * 1538, 500, 62);
        (verdict, controller.extra())
    };
    // A segment per flow and RTT, and never more than an RTT's in an epoch.
    assert_eq!(epoch(50), (Verdict::Grow, 4));
    assert_eq!(epoch(58), (Verdict::Grow, 6), "there is room for two up to T_u");
    assert_eq!(epoch(60), (Verdict::Grow, 7));
    assert_eq!(epoch(70), (Verdict::Cut, 0));
    for step in 1..=61 {
        assert_eq!(epoch(0), (Verdict::Grow, 4 * step));
    }
    assert_eq!(epoch(0), (Verdict::Free, 0), "four times CERA eq. 1");
    assert_eq!(epoch(0), (Verdict::Free, 0));
}

#[test]
fn slow_growth_adds_up() {
    let mut controller = engaged(1, 5000);
    let grown: Vec<u32> = (0..10)
        .map(|_| {
            controller.epoch(&DEFAULTS, 0, 5000, 62);
            controller.extra()
        })
        .collect();
    assert_eq!(grown, [0, 0, 0, 0, 1, 1, 1, 1, 1, 2]);
}

#[test]
fn no_flow_of_a_busy_vm_is_given_more_than_its_own_growth() {
    let growth = |vms: &[Vm]| {
        let mut controller = Controller::default();
        controller.divide(&DEFAULTS, &mut vms.to_vec(), RATE);
        controller.per_rtt()
    };
    let busy = |sent, weight, flows| Vm { flows, ..vm(sent, weight) };
    assert_eq!(growth(&[busy(1000, 1, 8), busy(1000, 1, 8)]), 16);
    assert_eq!(growth(&[busy(1000, 1, 1), busy(2000, 2, 1), busy(3000, 3, 1)]), 2, "the heaviest grows by one");
    assert_eq!(growth(&[busy(1000, 1, 1), busy(1000, 1, 50)]), 2);
    // The one with 32 flows needs a tenth of a weight only: it is not busy. The other's part is 1 of 1.1.
    assert_eq!(growth(&[busy(1000, 1, 10), busy(26, 1, 32)]), 11);
    assert_eq!(growth(&[]), 0);
}

#[test]
fn a_meter_counts_the_last_epochs() {
    let mut meter = Meter::default();
    let (mut a, mut b) = (0, 0);
    meter.count(Some(&mut a), 100);
    meter.count(Some(&mut a), 100);
    meter.count(Some(&mut b), 50);
    meter.count(None, 7);
    let traffic = |bytes, newest_bytes, flows, is_fresh| Traffic { bytes, newest_bytes, flows, is_fresh };
    assert_eq!(meter.turn(2, 1), traffic(257, 257, 2, true));
    meter.count(Some(&mut a), 10);
    assert_eq!(meter.turn(2, 1), traffic(267, 10, 2, true), "each flow counts once");
    assert_eq!(meter.turn(2, 1), traffic(10, 0, 2, true));
    assert_eq!(meter.turn(2, 1), traffic(0, 0, 2, false), "flows stay longer");
    for age in 1..100 {
        meter.count(Some(&mut b), 1);
        let now = meter.turn(2, 1);
        assert_eq!((now.is_fresh, now.flows), (age <= 4, if age < 14 { 2 } else { 1 }), "{age}");
    }
    assert_eq!(meter.turn(MAX_EPOCHS, 1), traffic(15, 0, 1, false));
}

#[test]
fn a_flow_is_active_for_two_rtts() {
    let stride = DEFAULTS.stride(40_000);
    let mut meter = Meter::default();
    meter.count(Some(&mut 0), 100);
    let active = (0..1000).take_while(|_| meter.turn(4, stride).flows > 0).count();
    assert!((80..110).contains(&active), "{active} ms");
    assert_eq!(DEFAULTS.stride(0), 1);
    assert_eq!(Settings { epoch_us: 0, ..DEFAULTS }.stride(u32::MAX), u32::MAX / 15 * 2 + 1);
}

#[test]
fn the_least_rtt_is_forgotten_in_time() {
    let mut rtt = LeastRtt::default();
    assert_eq!(rtt.get(), None);
    for (second, us, least) in
        [(0, 900, 900), (1, 300, 300), (2, 500, 300), (11, 700, 300), (22, 600, 600), (33, 800, 600)]
    {
        rtt.sample(second * 1_000_000, us);
        assert_eq!(rtt.get(), Some(least), "at {second} s");
    }
}

#[test]
fn a_vms_own_rtt_counts_where_it_is_longer() {
    assert_eq!((LeastRtt::without(900, 300), LeastRtt::without(300, 300)), (600, 1));
    assert_eq!((LeastRtt::of_vm(250, 600), LeastRtt::of_vm(250, 1)), (600, 250));
}

/// A VM with a near peer: windows for 400 us, of which the queue has 370 at T_l.
const NEAR: Loop = Loop { rtt_us: 400, loop_us: 770, cover_us: 370 };

#[test]
fn a_flows_round_trip_is_timed_from_its_data_to_the_ack() {
    // Numbers wrap.
    let seq = u32::MAX - 1000;
    let mut trip = Trip::new(seq);
    assert_eq!(trip.longer_us(&NEAR), 0, "not known");
    trip.sent(1_000, seq.wrapping_add(1448), 100);
    trip.sent(5_000, seq.wrapping_add(2896), 100);
    trip.acked(6_000, seq);
    trip.acked(6_000, seq.wrapping_add(2898));
    trip.acked(6_000, seq.wrapping_add(1 << 30));
    assert_eq!(trip.longer_us(&NEAR), 0, "nothing was acknowledged, or what was not sent");
    trip.acked(21_100, seq.wrapping_add(1448));
    // 20.1 ms less 0.1 in the queue; what T_l takes to send is no difference.
    assert_eq!(trip.longer_us(&NEAR), 20_000 - 400 - 370);
    // Longer ones are the receiver's delayed ACKs.
    trip.sent(30_000, seq.wrapping_add(4344), 0);
    trip.acked(90_000, seq.wrapping_add(4344));
    assert_eq!(trip.longer_us(&NEAR), 20_000 - 400 - 370);
    trip.sent(100_000, seq.wrapping_add(5792), 0);
    trip.acked(110_000, seq.wrapping_add(5792));
    assert_eq!(trip.longer_us(&NEAR), 10_000 - 400 - 370);
    // One that is near among far ones.
    let far = Loop { rtt_us: 30_000, loop_us: 30_370, cover_us: 370 };
    assert_eq!(trip.longer_us(&far), -(30_000 - 2 * 10_000 - 370));
    // The VM may have as long a part in a handshake as the path.
    assert_eq!(trip.longer_us(&Loop { rtt_us: 20_370, ..far }), 0);
    assert_eq!(trip.longer_us(&Loop { rtt_us: 20_371, ..far }), -1);
    // The queue may have been shorter when the segment left: without it a near flow is no nearer.
    let mut near = Trip::new(1);
    near.sent(1_000, 1449, 600);
    near.acked(1_150, 1449);
    assert_eq!(near.longer_us(&Loop { cover_us: 100, ..NEAR }), 0);
    assert_eq!(near.longer_us(&Loop { rtt_us: 410, cover_us: 100, ..NEAR }), -10);
}

#[test]
fn what_was_sent_twice_is_not_timed() {
    let mut trip = Trip::new(1);
    trip.sent(1_000, 1449, 0);
    trip.sent(10_000, 1449, 0);
    trip.acked(10_001, 1449);
    assert_eq!(trip.longer_us(&NEAR), 0, "whose ACK it is, is not known");
    // Nor is data that was sent before what came again.
    trip.sent(20_000, 2897, 0);
    trip.sent(20_000, 4345, 0);
    trip.sent(50_000, 2897, 0);
    trip.acked(50_001, 4345);
    assert_eq!(trip.longer_us(&NEAR), 0);
    trip.sent(60_000, 5793, 0);
    trip.acked(80_000, 5793);
    assert!(trip.longer_us(&NEAR) > 19_000, "the next is");
}

#[test]
fn a_window_lasts_for_the_flows_own_round_trip() {
    let (part, least) = (8 * 1448, 2 * 1448);
    assert_eq!(NEAR.window(part, 0, least), part);
    // 770 us and 20 ms more, at the same rate.
    assert_eq!(NEAR.window(part, 20_000, least), part + part * 20_000 / 770);
    let far = Loop { rtt_us: 30_000, loop_us: 30_370, cover_us: 370 };
    assert_eq!(far.window(100 * part, -20_000, least), 100 * part - 100 * part * 20_000 / 30_370);
    assert_eq!(far.window(part, -29_000, least), u64::from(least));
    assert_eq!(far.window(part, i64::MIN + 1, least), u64::from(least));
    assert_eq!(Loop::default().window(part, 20_000, least), part, "of a VM without a limit");
    assert!(NEAR.window((1 << 30) - 1, i64::from(u32::MAX), least) > 1 << 30);
    assert_eq!(NEAR.window(1 << 41, i64::from(u32::MAX), least), 1 << 41, "no window field says as much");
}

/// A VM's window lasts for d and T_l at its part of the rate, whatever its part is.
#[test]
fn it_is_said_how_long_a_vms_window_lasts() {
    let mut vms = [vm(10_000, 1), vm(10_000, 3), vm(0, 1)];
    Controller::default().divide(&DEFAULTS, &mut vms, RATE);
    let expected = 400 + DEFAULTS.low_segments * DEFAULTS.segment_bytes * 8 / 1000;
    for vm in &vms {
        // Half a segment for each flow comes on top, and fractions of one go round.
        assert!(vm.loop_us.abs_diff(expected) <= expected / 8, "{} us, {expected}: {vms:?}", vm.loop_us);
    }
    Controller::default().divide(&DEFAULTS, &mut vms, 0);
    assert_eq!(vms[0].loop_us, u32::MAX);
    Controller::default().divide(
        &Settings { segment_bytes: u32::MAX, low_segments: MAX_WINDOW, ..DEFAULTS },
        &mut vms,
        RATE,
    );
    assert_eq!(vms[0].loop_us, u32::MAX);
}

#[test]
fn the_farthest_flow_counts_for_a_second() {
    let mut far = Far::default();
    assert_eq!(far.epoch(0, 0), 0);
    assert_eq!(far.epoch(1_000, 20_000), 20_000);
    assert_eq!(far.epoch(2_000, 0), 20_000);
    assert_eq!(far.epoch(1_000_999, 5_000), 20_000);
    assert_eq!(far.epoch(1_001_000, 5_000), 5_000);
    assert_eq!(far.epoch(1_002_000, u32::MAX), 200_000, "as long as the longest pause");
    assert_eq!(far.longer_us(), 200_000);
}

#[test]
fn a_client_leaves_far_flows_to_the_host() {
    assert_eq!(client_far(10, 100, 100), 10);
    assert_eq!(client_far(10, 150, 100), 15);
    assert_eq!(client_far(10, 50, 100), 10, "a flow that came since");
    assert_eq!((client_far(10, 0, 100), client_far(10, 400, 0)), (10, 10), "not known");
    assert_eq!(client_far(MAX_WINDOW, u32::MAX, 1), MAX_WINDOW);
}

#[test]
fn a_client_sets_what_it_has_lowered_and_nothing_was_lost_of() {
    assert!(client_sets(11, 10, false, false), "too large");
    assert!(!client_sets(10, 10, true, true));
    assert!(client_sets(9, 10, true, true), "its share has grown");
    assert!(!client_sets(9, 10, false, true), "its own algorithm has lowered it");
    assert!(!client_sets(9, 10, true, false), "it has no use for more");
}

#[test]
fn limits_can_leave_room_for_whole_segments() {
    assert_eq!(arbitrate(Some(2896), 500, 7, 1448).0, 22, "2,816 bytes: one segment and a part");
    assert_eq!(arbitrate(Some(window::with_room(2896, 7)), 500, 7, 1448).0, 23);
    assert_eq!(window::with_room(2896, 0), 2896);
    assert_eq!(window::with_room(u32::MAX, 14), u32::MAX);
}

#[test]
fn cera_is_one_of_the_arbiters_limits() {
    assert_eq!(arbitrate(Some(10_000), 500, 7, 1448), (78, By::Cera));
    assert_eq!(arbitrate(None, 500, 7, 1448), (500, By::Receiver));
    // What is in flight is not taken back.
    let beyond = |in_flight_bytes| {
        let offers = window::Offers { cera_bytes: Some(10_000), in_flight_bytes, ..Default::default() };
        window::arbitrate(offers, 500, 7, 1448)
    };
    assert_eq!(beyond(9_000), (78, By::Cera));
    assert_eq!(beyond(20_000), (157, By::Cera), "rounded up");
    assert_eq!(beyond(70_000), (500, By::Receiver));
}

fn any_settings() -> impl Strategy<Value = Settings> {
    (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<bool>()).prop_map(
        |(high_segments, low_segments, epoch_us, epochs, segment_bytes, printed)| Settings {
            high_segments,
            low_segments,
            epoch_us,
            epochs,
            segment_bytes,
            printed,
        },
    )
}

fn any_vm() -> impl Strategy<Value = Vm> {
    (any::<[u64; 3]>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<bool>()).prop_map(
        |([sent_bytes, reserve_bytes, usual_bytes], weight, rtt_us, flows, is_fresh)| Vm {
            sent_bytes,
            weight,
            rtt_us,
            reserve_bytes,
            usual_bytes,
            flows,
            is_fresh,
            ..Vm::default()
        },
    )
}

/// Whether a VM has a part of the host's window.
fn is_active(settings: &Settings, vm: &Vm) -> bool {
    vm.sent_bytes > 0 || (vm.reserve_bytes > 0 && !settings.printed)
}

/// What a host can have: weights from 1 to 100, flows up to 50.
fn real_vm() -> impl Strategy<Value = Vm> {
    (0..50_000_000_u64, 1..100_u32, 1..50_u32, any::<bool>()).prop_map(|(sent_bytes, weight, flows, is_fresh)| Vm {
        sent_bytes,
        weight,
        rtt_us: 300,
        flows,
        is_fresh,
        ..Vm::default()
    })
}

proptest! {
    /// Windows stay in bounds, whatever comes in.
    #[test]
    fn any_input_gives_bounded_windows(
        settings in any_settings(),
        mut vms in prop::collection::vec(any_vm(), 0..40),
        rate in any::<u64>(),
        queues in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u32>()), 1..20),
    ) {
        let mut controller = Controller::default();
        for (queue, rtt, window) in queues {
            controller.epoch(&settings, queue, rtt, window);
            controller.divide(&settings, &mut vms, rtt_rate(rate));
            prop_assert!(controller.per_rtt() <= MAX_WINDOW);
            prop_assert!(controller.extra() <= MAX_WINDOW);
        }
        let active = controller.divide(&settings, &mut vms, rtt_rate(rate));
        prop_assert_eq!(active as usize, vms.iter().filter(|vm| is_active(&settings, vm)).count());
        for vm in &vms {
            prop_assert!(vm.window >= LEAST_SEGMENTS && vm.window <= 3 * MAX_WINDOW, "{:?}", vm);
        }
    }

    /// The sum of all windows is at most W plus half a segment for each flow, except for what the flows' least windows
    /// take.
    #[test]
    fn shares_do_not_exceed_the_window(
        vms in prop::collection::vec(real_vm(), 1..64),
        low in 0..20_000_u32,
        printed in any::<bool>(),
    ) {
        let settings = Settings { low_segments: low, printed, ..DEFAULTS };
        let whole = u64::from(settings.window(RATE, 300));
        let windows = windows(&settings, &vms);
        let least = |vm: &Vm| vm.flows * LEAST_SEGMENTS;
        let (mut floors, mut shares) = (0, 0);
        for (vm, &window) in vms.iter().zip(&windows).filter(|(vm, _)| vm.sent_bytes > 0) {
            prop_assert!(window >= least(vm), "no VM starves");
            if window > least(vm) { shares += u64::from(window) } else { floors += u64::from(window) }
        }
        let flows: u32 = vms.iter().filter(|vm| vm.sent_bytes > 0).map(|vm| vm.flows).sum();
        let whole = whole + if printed { 0 } else { u64::from(flows).div_ceil(2) };
        prop_assert!(shares <= whole);
        prop_assert!(floors == 0 || shares + floors <= whole + floors);
        if floors == 0 && shares > 0 {
            prop_assert!(shares + 64 > whole, "all of it is given away: {shares} of {whole}");
        }
    }

    /// VMs that use what they have share by weight, to the segment.
    #[test]
    fn backlogged_vms_share_by_weight(
        weights in prop::collection::vec(1..100_u32, 1..32),
        low in 500..20_000_u32,
        skew in 60..100_u64,
    ) {
        let settings = Settings { low_segments: low, ..DEFAULTS };
        let vms: Vec<Vm> = weights
            .iter()
            .enumerate()
            .map(|(index, &weight)| vm(u64::from(weight) * 10_000 * if index == 0 { skew } else { 100 }, weight))
            .collect();
        let whole = f64::from(settings.window(RATE, 400));
        let all = f64::from(weights.iter().sum::<u32>());
        for (window, weight) in windows(&settings, &vms).into_iter().zip(&weights) {
            let share = whole * f64::from(*weight) / all + 0.5;
            let least = f64::from(LEAST_SEGMENTS);
            let window = f64::from(window);
            prop_assert!(window < (share + 1.0).max(least + 0.1) && window > share - 1.0, "{window} {share}");
        }
    }

    /// Remainders of less than a segment go from VM to VM, so that over some RTTs none is worse off than another.
    #[test]
    fn remainders_go_round(weights in prop::collection::vec(1..10_u32, 2..8), low in 300..400_u32) {
        let settings = Settings { low_segments: low, ..DEFAULTS };
        let mut controller = Controller::default();
        let mut vms: Vec<Vm> = weights.iter().map(|&weight| vm(u64::from(weight) * 10_000, weight)).collect();
        let (mut sums, rounds) = (vec![0; vms.len()], 1_000);
        for _ in 0..rounds {
            // Two epochs are an RTT.
            for turns in [false, true] {
                controller.epoch(&settings, u64::MAX, 2 * settings.epoch_us, 0);
                prop_assert_eq!(controller.has_turned(), turns);
                controller.divide(&settings, &mut vms, RATE);
            }
            sums.iter_mut().zip(&vms).for_each(|(sum, vm)| *sum += vm.window);
        }
        let (whole, all) = (f64::from(settings.window(RATE, 400)), f64::from(weights.iter().sum::<u32>()));
        for (sum, weight) in sums.into_iter().zip(&weights) {
            let (mean, share) = (f64::from(sum) / f64::from(rounds), whole * f64::from(*weight) / all + 0.5);
            prop_assert!((mean - share).abs() < 0.02, "{mean} {share}");
        }
    }

    /// Where rates follow windows, and windows of new flows double, a VM that sends its first packets has its share
    /// after ten epochs at the latest, and keeps it.
    #[test]
    fn a_vm_that_wakes_up_has_its_share_in_ten_epochs(others in 1..8_usize, weight in 1..10_u32, first in 4..40_u32) {
        let settings = Settings { low_segments: 600, ..DEFAULTS };
        let all = others as u32 + weight;
        let share = settings.window(RATE, 400) * weight / all;
        let mut vms = vec![vm(1, 1); others + 1];
        vms[others].weight = weight;
        let mut meters = vec![Meter::default(); others + 1];
        let mut own = first;
        for epoch in 0..40 {
            for (index, meter) in meters.iter_mut().enumerate() {
                let window = vms[index].window;
                let sends = match index == others {
                    false if window > 0 => window,
                    false => 100,
                    true if epoch < 10 => 0,
                    true => {
                        own *= 2;
                        own = own.min(window.max(first));
                        own
                    }
                };
                meter.count(Some(&mut 0), sends * 1538);
                let traffic = meter.turn(DEFAULTS.epochs, 1);
                let one = &mut vms[index];
                (one.sent_bytes, one.flows, one.is_fresh) = (traffic.bytes, traffic.flows, traffic.is_fresh);
            }
            Controller::default().divide(&settings, &mut vms, RATE);
            prop_assert!(epoch < 20 || vms[others].window + 1 >= share, "epoch {epoch}: {vms:?}");
        }
    }

    /// Shares of flows differ by one at most and add up to the window, unless it is too small for all.
    #[test]
    fn flows_share_a_window(window in 0..5_000_u32, flows in 1..200_u32, rounds in 1..5_usize) {
        let mut client = Client::default();
        let active: Vec<u32> = (0..flows).map(|place| 3 * place).collect();
        for _ in 0..rounds {
            let shares: Vec<u32> = client.share(window, &active).map(|share| share - CLIENT_SLACK).collect();
            prop_assert_eq!(shares.len(), flows as usize);
            prop_assert!(shares.iter().all(|&share| share >= LEAST_SEGMENTS));
            if window / flows >= LEAST_SEGMENTS {
                prop_assert_eq!(shares.iter().sum::<u32>(), window);
                prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
            }
        }
    }

    /// After as many epochs as there are flows, each has had the remainder as often as any other, give or take one.
    #[test]
    fn the_remainder_goes_round(window in 400..5_000_u32, flows in 1..100_u32, epochs in 1..300_u32) {
        let mut client = Client::default();
        let mut had = vec![0_u32; flows as usize];
        let active: Vec<u32> = (0..flows).map(|place| 2 * place + 1).collect();
        for _ in 0..epochs {
            for (sum, share) in had.iter_mut().zip(client.share(window, &active)) {
                *sum += share - CLIENT_SLACK - window / flows;
            }
        }
        prop_assume!(window / flows >= LEAST_SEGMENTS);
        prop_assert!(had.iter().max().unwrap() - had.iter().min().unwrap() <= 1, "{had:?}");
    }

    /// When a flow ends, the remainder goes on at the flow that was next, or, if that one has ended, at the one behind
    /// it.
    #[test]
    fn the_rotation_survives_the_end_of_a_flow(window in 0..1000_u32, flows in 2..50_usize, gone in 0..50_usize) {
        let mut list: Vec<usize> = (0..flows).collect();
        let gone = gone % flows;
        let mut client = Client::default();
        let _ = client.share(window, &(0..flows as u32).collect::<Vec<_>>());
        let next = list[client.next() as usize];
        let expected = if next == gone { (next + 1) % flows } else { next };
        list.remove(gone);
        client.removed(gone as u32);
        prop_assert_eq!(list[client.next() as usize % list.len()], expected);
    }

    /// CERA eq. 1 gives what it would with unbounded integers.
    #[test]
    fn equation_1_does_not_overflow(settings in any_settings(), rate in any::<u64>(), rtt_us in any::<u32>()) {
        let rate = rtt_rate(rate);
        let flight = u128::from(rate.min(1 << 39)) * u128::from(rtt_us.min(1 << 24)) / 1_000_000;
        let whole = flight / u128::from(settings.segment_bytes.max(1)) + u128::from(settings.low_segments);
        prop_assert_eq!(u128::from(settings.window(rate, rtt_us)), whole.min(MAX_WINDOW.into()));
    }
}

/// Rates of all sizes, and not only huge ones.
fn rtt_rate(rate: u64) -> u64 {
    rate >> (rate % 64)
}

#[test]
fn more_vms_than_there_can_be_are_left_without_a_window() {
    let mut vms = vec![vm(1000, 1); MAX_VMS + 1];
    assert_eq!(Controller::default().divide(&DEFAULTS, &mut vms, RATE), MAX_VMS as u32);
    assert_eq!(vms[MAX_VMS].window, 0);
    assert_eq!(vms[MAX_VMS - 1].window, LEAST_SEGMENTS);
}
