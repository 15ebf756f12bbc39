//! vFlood and vSnoop on simulated hosts: what they gain, and that they take nothing from anybody.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_algo::congestion::Kind;
use evenkeel_algo::vflood::{DEFAULTS, Settings};
use evenkeel_scenario::Scenario;
use evenkeel_scenario::format::{CoreSharing, Workload as Spec};
use evenkeel_scenario::result::RunRecord;
use evenkeel_scenario::slices::Turns;
use evenkeel_scenario::sweep::cells;
use evenkeel_settings::Mode;
use evenkeel_sim::guest::GuestSpec;
use evenkeel_sim::guest::vflood::Agent;
use evenkeel_sim::host::PortSpec as Driver;
use evenkeel_sim::host::vflood::{Spec as VfloodSpec, Vflood};
use evenkeel_sim::net::{BufferSpec, PortSpec, QueueSpec, Shape, TopologySpec};
use evenkeel_sim::packet::{GuestId, HostId};
use evenkeel_sim::run::{Go, run};
use evenkeel_sim::tcp::{CongestionControl, TcpConfig};
use evenkeel_sim::time::{Duration, Instant};
use evenkeel_sim::units::Rate;
use evenkeel_sim::workload::{Member, Members, Side, Workload};
use evenkeel_sim::world::{NoRecorder, World};

fn simulate(network: &str, sender: &str, receiver: &str, workload: &str) -> RunRecord {
    simulate_for(60_000, network, sender, receiver, workload)
}

fn simulate_for(ms: u32, network: &str, sender: &str, receiver: &str, workload: &str) -> RunRecord {
    let text = format!(
        "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = {ms}\nwarmup_ms = 100\n[network]\nrate_mbit = 1000\n\
         {network}\n\
         [vms.sender]\n{sender}\n[vms.receiver]\n{receiver}\n[workloads.w]\nfrom = \"sender\"\nto = \"receiver\"\n\
         {workload}\n\
         [record]\ntcp_info_period_ms = 0\n"
    );
    let loaded = Scenario::from_str(&text, "t.toml").unwrap_or_else(|e| panic!("{e}"));
    let cell = &cells(&loaded).unwrap()[0];
    run(cell, 0, &mut |_| Go::On).unwrap_or_else(|e| panic!("{e}")).record
}

fn sum(record: &RunRecord, counter: &str) -> i64 {
    record.counters.values().filter_map(|vm: &BTreeMap<String, i64>| vm.get(counter)).sum()
}

const SHARED: &str =
    "core = { vms_per_core = 3, load = 0.6, slice_jitter = 0.5, idle_us = 20 }\ntcp = { era = \"paper\" }";
const MACHINE: &str = "hypervisor = false\ntcp = { era = \"paper\" }";
const TRANSFERS: &str = "kind = \"transfers\"\nbytes = 100000\ntransfers = 60\npause_ms = 500";
const SHALLOW: &str = "topology = \"dumbbell\"\nedge_rate_mbit = 10000\nbuffer_segments = 12";

fn transfers(network: &str, vflood: &str) -> RunRecord {
    simulate(network, &format!("{SHARED}\nvflood = {{ {vflood} }}"), MACHINE, TRANSFERS)
}

#[test]
fn transfers_no_longer_wait_for_the_vm_at_every_round_trip() {
    let (without, with) = (transfers("", "mode = \"off\""), transfers("", "mode = \"enforce\""));
    let (slow, fast) = (without.metrics["throughput_p50_mbit"], with.metrics["throughput_p50_mbit"]);
    assert!(fast > 2.0 * slow, "{fast} Mbit/s with, {slow} without");
    assert!(sum(&with, "VfloodHeld") > 0 && sum(&with, "VfloodGrants") > 0);
    assert_eq!(with.metrics["flows"], 60.0);
}

/// With vFlood a transfer needs the VM's core twice: for the SYN-ACK, which it waits for, and for the data.
#[test]
fn the_wait_for_the_core_in_a_handshake_is_in_one_of_two_times() {
    let record = transfers("", "mode = \"enforce\"");
    let (opened_ms, connected_ms) = (record.metrics["fct_p50_ms"], record.metrics["fct_connected_p50_ms"]);
    assert!(connected_ms > 0.8 && opened_ms > 2.0 * connected_ms, "{opened_ms} ms of it {connected_ms}");
}

#[test]
fn every_byte_arrives_over_a_port_that_drops() {
    for extra in ["", ", congestion_control = \"cubic\"", ", congestion_control = \"vegas\"", ", policy = \"none\""] {
        let record = transfers(SHALLOW, &format!("mode = \"enforce\", buffer_segments = 100{extra}"));
        assert_eq!((record.metrics["flows"], record.metrics["flows_unfinished"]), (60.0, 0.0), "{extra}");
        assert!(record.metrics["port_drops"] > 0.0 || extra.contains("vegas"), "{extra}");
    }
}

#[test]
fn a_loss_takes_the_flow_offline() {
    let record = transfers(SHALLOW, "mode = \"enforce\"");
    assert!(sum(&record, "VfloodLosses") > 0);
}

#[test]
fn a_receiver_off_its_core_for_longer_than_the_timeout_costs_nobody_a_window() {
    const SMALL: &str = ", send_buffer_bytes = 131072";
    let away = |era| {
        format!(
            "core = {{ vms_per_core = 10, load = 0.8, slice_jitter = 0.5 }}\n\
             tcp = {{ era = \"{era}\", receive_buffer_bytes = 262144 }}"
        )
    };
    // Without timestamps and with them. A VM with a small send buffer has little held, and so gets its ACKs, and its
    // timer runs out.
    for (era, send_buffer) in [("paper", ""), ("current", ""), ("paper", SMALL), ("current", SMALL)] {
        let sender = format!(
            "tcp = {{ era = \"{era}\", tail_loss_probe = false{send_buffer} }}\n\
             vflood = {{ mode = \"enforce\", off_core_percent = 0 }}"
        );
        let bulk = "kind = \"transfers\"\nbytes = 10000000\ntransfers = 5\npause_ms = 50";
        let record = simulate("", &sender, &away(era), bulk);
        let metric = |name: &str| record.metrics[name];
        assert_eq!((metric("flows"), metric("port_drops")), (5.0, 0.0), "{era}{send_buffer}");
        let (losses, undone) = (sum(&record, "VfloodLosses"), sum(&record, "VfloodUndone"));
        assert_eq!(undone, losses, "{era}{send_buffer}: not all taken back");
        assert!(undone > 0 || send_buffer.is_empty(), "{era}: no timer ran out");
        // What a guest without timestamps sends again needlessly stays on the host.
        assert!(metric("dsacks") <= 3.0 * metric("timeouts"), "{era}{send_buffer}: {:?}", record.metrics);
    }
}

#[test]
fn the_same_run_twice_is_the_same() {
    let once = || transfers(SHALLOW, "mode = \"enforce\", policy = \"priority\"");
    assert_eq!(once(), once());
}

#[test]
fn observing_changes_nothing_but_counts() {
    let (off, observed) = (transfers(SHALLOW, "mode = \"off\""), transfers(SHALLOW, "mode = \"observe\""));
    assert_eq!(off.flows, observed.flows);
    assert!(sum(&observed, "VfloodHeld") > 0);
    let asks = "kind = \"request-response\"\nrequest_bytes = 100\nresponse_bytes = 200000";
    let vsnoop = |mode: &str| {
        simulate(
            SHALLOW,
            MACHINE,
            &format!("{SHARED}\nport_queue_segments = 40\nvsnoop = {{ mode = \"{mode}\" }}"),
            asks,
        )
    };
    let (off, observed) = (vsnoop("off"), vsnoop("observe"));
    assert_eq!(off.flows, observed.flows);
    assert!(sum(&observed, "VsnoopEarlyAcks") > 0);
}

#[test]
fn a_vm_that_asks_has_its_answers_sooner_with_vsnoop() {
    let asks = "kind = \"request-response\"\nrequest_bytes = 100\nresponse_bytes = 1000000\nthink_time_us = 500000";
    let record = |mode: &str| simulate("", MACHINE, &format!("{SHARED}\nvsnoop = {{ mode = \"{mode}\" }}"), asks);
    let (without, with) = (record("off"), record("enforce"));
    let (slow, fast) = (without.metrics["fct_p50_ms"], with.metrics["fct_p50_ms"]);
    assert!(fast < 0.8 * slow, "{fast} ms with, {slow} without");
    assert!(sum(&with, "VsnoopEarlyAcks") > 0 && sum(&with, "VsnoopDropped") > 0);
    assert_eq!(with.metrics["timeouts"], 0.0);
}

/// Questions are acknowledged early while answers are held. No early ACK rides here: what lets answers out is a
/// question's first segment, which is the VM's to acknowledge.
#[test]
fn both_act_on_one_connection() {
    let both = format!("{SHARED}\nvflood = {{ mode = \"enforce\" }}\nvsnoop = {{ mode = \"enforce\" }}");
    let asks = "kind = \"request-response\"\nrequest_bytes = 300000\nresponse_bytes = 300000\noutstanding = 4";
    let record = simulate("", &both, &both, asks);
    assert!(record.metrics["flows"] > 20.0);
    assert!(sum(&record, "VsnoopEarlyAcks") > 0 && sum(&record, "VfloodHeld") > 0);
    assert_eq!(sum(&record, "VsnoopOnData"), 0);
}

const ALONE: &str = "tcp = { era = \"current\" }";
const CURRENT: &str = "hypervisor = false";

#[test]
fn it_rests_where_the_vm_has_its_core_and_acts_where_it_waits() {
    let held = |sender: &str, vflood: &str| {
        let record =
            simulate(SHALLOW, &format!("{sender}\nvflood = {{ mode = \"enforce\"{vflood} }}"), CURRENT, TRANSFERS);
        assert_eq!((record.metrics["flows"], record.metrics["flows_unfinished"]), (60.0, 0.0));
        (sum(&record, "VfloodHeld") > 0, sum(&record, "VfloodPassedOver"))
    };
    let crowded = "core = { vms_per_core = 2, slice_jitter = 0.5 }";
    assert_eq!(held(ALONE, ""), (false, 60));
    assert_eq!(held(ALONE, ", off_core_percent = 0"), (true, 0));
    assert_eq!(held(crowded, ""), (true, 0));
    // It waits for its core for half of the time.
    assert_eq!(held(crowded, ", off_core_percent = 100"), (false, 60));
}

/// Echoes of marks are for a sender's window. The host's does not heed them, so it is not to be in the VM's place.
#[test]
fn guests_with_ecn_are_as_without_it() {
    let marks = "topology = \"dumbbell\"\nedge_rate_mbit = 10000\n[network.queue]\ndiscipline = \"red\"\n\
                 ecn_threshold_segments = 20";
    let again = "kind = \"transfers\"\nbytes = 3000000\ntransfers = 20\npause_ms = 100";
    let record = |vflood: &str| {
        let sender = format!("tcp = {{ ecn = \"on\" }}\nvflood = {{ {vflood} }}");
        simulate_for(3000, marks, &sender, "hypervisor = false\ntcp = { ecn = \"on\" }", again)
    };
    let (off, left) = (record(""), record("mode = \"enforce\", off_core_percent = 0"));
    assert!(off.metrics["ecn_marks"] > 0.0);
    assert_eq!((&off.flows, off.metrics["ecn_marks"]), (&left.flows, left.metrics["ecn_marks"]));
    assert_eq!((sum(&left, "VfloodNativeEcn"), sum(&left, "VfloodHeld")), (20, 0));
}

/// The VM's own TCP is as it is without vFlood, slow start and all: on connections that begin with the run, too.
#[test]
fn where_it_rests_a_vm_is_as_without_it() {
    let record = |mode: &str, workload: &str| {
        simulate_for(3000, SHALLOW, &format!("{ALONE}\nvflood = {{ mode = \"{mode}\" }}"), CURRENT, workload)
    };
    let again = "kind = \"transfers\"\nbytes = 3000000\ntransfers = 20\npause_ms = 100";
    let (off, rests) = (record("off", again), record("enforce", again));
    assert_eq!(off.flows, rests.flows);
    assert!(off.metrics["port_drops"] > 0.0);
    let bulk = "kind = \"bulk\"\nflows = 2";
    let (off, rests) = (record("off", bulk), record("enforce", bulk));
    assert_eq!(off.metrics["goodput_mbit"], rests.metrics["goodput_mbit"]);
}

#[test]
fn packets_of_several_segments_are_segments_on_the_wire() {
    let record = |gso_segments: u32, vflood: &str| {
        let sender = format!(
            "core = {{ vms_per_core = 3, load = 0.6, slice_jitter = 0.5, idle_us = 20 }}\n\
             tcp = {{ gso_segments = {gso_segments} }}\nvflood = {{ mode = \"{vflood}\" }}"
        );
        simulate(SHALLOW, &sender, CURRENT, TRANSFERS)
    };
    let packets = |record: &RunRecord| record.counters["sender-0"]["EthTxPackets"];
    // Without a host that holds them the network card cuts them, and the network sees the same segments.
    let (single, joined) = (record(1, "off"), record(16, "off"));
    assert_eq!(single.flows, joined.flows);
    assert!(4 * packets(&joined) < 3 * packets(&single), "{} and {}", packets(&joined), packets(&single));
    let held = record(16, "enforce");
    assert_eq!((held.metrics["flows"], held.metrics["flows_unfinished"]), (60.0, 0.0));
    assert!(sum(&held, "VfloodHeld") > 0 && sum(&held, "VfloodSplit") > 0);
    let observed = record(16, "observe");
    assert_eq!(observed.flows, joined.flows);
}

/// Two senders at one bottleneck, neither off its core: the first VM's host has vFlood.
fn share(kind: Kind, guest: TcpConfig) -> [u64; 2] {
    let port =
        |mbit| PortSpec { rate: Rate::from_mbit(mbit), delay: Duration::from_us(100), queue: QueueSpec::drop_tail(60) };
    let topology = TopologySpec {
        shape: Shape::Dumbbell { left: 2, right: 2 },
        nic: PortSpec { queue: QueueSpec::drop_tail(1000), ..port(1000) },
        edge: port(1000),
        core: port(100),
        top: port(100),
        buffer: BufferSpec::PerPort,
    };
    let tcp = |flood| Arc::new(TcpConfig { flood, f_rto: !flood, ..guest.clone() });
    let driver = Some(Driver { delay: Duration::from_us(50), queue_segments: 1000, ring_slots: None });
    let guests: Vec<GuestSpec> = (0..4)
        .map(|host| GuestSpec { port: driver.clone(), ..GuestSpec::plain(HostId(host), tcp(host == 0)) })
        .collect();
    let member = |guest: u32| Member { guest: GuestId(guest), host: HostId(guest) };
    let members = Members {
        from: vec![member(0), member(1)],
        to: vec![member(2), member(3)],
        capacity_bps: 100_000_000,
        seed: 3,
    };
    let spec = Spec::Bulk { from: "a".to_owned(), to: "b".to_owned(), flows: 4 };
    let workload = Workload::new(&spec, members).unwrap();
    let mut world = World::new(&topology, &guests, 3, workload, NoRecorder);
    let settings = Settings { congestion: kind, initial_window: guest.initial_window_segments, ..DEFAULTS };
    let vflood = Vflood::new(VfloodSpec {
        mode: Mode::Enforce,
        settings,
        mss_bytes: guest.mss_bytes,
        port_queue_segments: 1000,
        off_core_permille: 0,
    });
    world.core.guest_mut(GuestId(0)).and_then(|guest| guest.port.as_mut()).unwrap().shims.add(Box::new(vflood));
    world.run(Instant::START + Duration::from_s(60), u64::MAX);
    let mut delivered = [0; 2];
    for (flow, ends) in world.core.flows() {
        delivered[ends[0].0 as usize] += world.core.connection(flow, Side::Acceptor).map_or(0, |end| end.delivered());
    }
    delivered
}

/// Repeated losses cost neither more than a tenth of its share.
#[test]
fn beside_a_plain_sender_it_has_its_share() {
    let reno = TcpConfig { congestion_control: CongestionControl::Reno, ..TcpConfig::current(250) };
    let cases = [(Kind::Reno, TcpConfig::paper(1000)), (Kind::Reno, reno), (Kind::Cubic, TcpConfig::current(250))];
    for (kind, guest) in cases {
        let generation = guest.generation;
        let [with, without] = share(kind, guest);
        let ratio = with as f64 / without as f64;
        assert!((0.9..=1.1).contains(&ratio), "{kind:?}, {generation:?}: {with} bytes with vFlood, {without} without");
    }
}

/// When a VM has its core again, its connections flood no more, and go on.
#[test]
fn a_connection_that_flooded_goes_on_plain_where_it_rests() {
    let port = PortSpec { rate: Rate::from_mbit(100), delay: Duration::from_us(100), queue: QueueSpec::drop_tail(60) };
    let topology = TopologySpec {
        shape: Shape::Star { hosts: 2 },
        nic: port.clone(),
        edge: port.clone(),
        core: port.clone(),
        top: port,
        buffer: BufferSpec::PerPort,
    };
    let tcp = |flood| Arc::new(TcpConfig { flood, f_rto: !flood, ..TcpConfig::current(250) });
    let driver = Some(Driver { delay: Duration::from_us(50), queue_segments: 1000, ring_slots: None });
    let guests: Vec<GuestSpec> = (0..2)
        .map(|host| GuestSpec { port: driver.clone(), ..GuestSpec::plain(HostId(host), tcp(host == 0)) })
        .collect();
    let member = |guest: u32| Member { guest: GuestId(guest), host: HostId(guest) };
    let members = Members { from: vec![member(0)], to: vec![member(1)], capacity_bps: 100_000_000, seed: 3 };
    let spec = Spec::Bulk { from: "a".to_owned(), to: "b".to_owned(), flows: 1 };
    let workload = Workload::new(&spec, members).unwrap();
    let mut world = World::new(&topology, &guests, 3, workload, NoRecorder);
    let vflood = Vflood::new(VfloodSpec {
        mode: Mode::Enforce,
        settings: DEFAULTS,
        mss_bytes: 1448,
        port_queue_segments: 1000,
        off_core_permille: 250,
    });
    world.core.guest_mut(GuestId(0)).and_then(|guest| guest.port.as_mut()).unwrap().shims.add(Box::new(vflood));
    // Until now it had neighbours.
    let crowded = CoreSharing { vms_per_core: 3, ..CoreSharing::default() };
    world.core.add_vflood_agent(GuestId(0), Agent::new(Some(Turns::new(&crowded, 3, 0))));
    let mut after = |seconds: u64| {
        world.run(Instant::START + Duration::from_s(seconds), u64::MAX);
        let floods = world.core.guests()[0].vflood.as_ref().is_some_and(|agent| agent.floods());
        let vflood = world.core.vflood_of(GuestId(0)).map(|vflood| (vflood.attests(), vflood.rests())).unwrap();
        let flow = world.core.flows().next().unwrap().0;
        let sender = world.core.connection(flow, Side::Opener).unwrap();
        (floods, vflood, sender.acked())
    };
    let (floods, vflood, acked) = after(5);
    assert!(floods && vflood == (true, false) && acked > 0, "it floods for as long as it may be without its core");
    let (floods, vflood, before) = after(20);
    assert!(!floods && vflood == (false, true));
    let (.., acked) = after(30);
    let mbit = (acked - before) as f64 * 8.0 / 10e6;
    assert!(mbit > 80.0, "{mbit} Mbit/s");
}
