//! What holds for any scenario, and for any text.

use std::collections::BTreeMap;

use evenkeel_scenario::format::{
    CoreSharing, Era, GuestTcp, Kernel, Network, Pvtcp, Record, ReportSpec, RtoMin, RtoMinWord, Scenario, VmGroup,
    Workload,
};
use evenkeel_scenario::{select, sweep};
use evenkeel_settings::pvtcp::PvtcpOverride;
use evenkeel_settings::{Bounded, Mode};
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use toml::{Table, Value};

const EXAMPLE: &str = include_str!("../../../scenarios/pvtcp/shared-core.toml");

fn core() -> impl Strategy<Value = CoreSharing> {
    let shared = (2..=16u32, 1.0..=1000.0f64, 0.0..=1.0f64, 0.0..=1.0f64);
    let shared = shared.prop_map(|(vms_per_core, slice_ms, slice_jitter, load)| CoreSharing {
        idle_us: None,
        vms_per_core,
        slice_ms,
        slice_jitter,
        load,
    });
    prop_oneof![Just(CoreSharing::default()), shared]
}

fn tcp() -> impl Strategy<Value = GuestTcp> {
    let rto_min_us = prop_oneof![
        Just(RtoMin::Word(RtoMinWord::Smallest)),
        Just(RtoMin::Word(RtoMinWord::Default)),
        (1000..=60_000_000u32).prop_map(RtoMin::Us),
    ];
    let era = prop_oneof![Just(Era::Current), Just(Era::Paper)];
    let switches = (option::of(any::<bool>()), option::of(any::<bool>()), option::of(any::<bool>()));
    (era, rto_min_us, option::of("[a-z0-9_-]{1,15}"), switches).prop_map(
        |(era, rto_min_us, congestion_control, switches)| GuestTcp {
            era,
            rto_min_us,
            congestion_control,
            rack: switches.0,
            timestamps: switches.1,
            f_rto: switches.2,
            ..GuestTcp::default()
        },
    )
}

fn pvtcp() -> impl Strategy<Value = Pvtcp> {
    let on = (any::<bool>(), any::<[Option<bool>; 5]>(), any::<bool>()).prop_map(|(observe, switches, acks_late)| {
        let [hold_rto, hold_tlp, hold_reo, filter_rtt, filter_idle] = switches;
        let mode = Some(if observe { Mode::Observe } else { Mode::Enforce });
        let jit_segments = acks_late.then(|| Bounded::new(0));
        let set = PvtcpOverride {
            mode,
            hold_rto,
            hold_tlp,
            hold_reo,
            filter_rtt,
            filter_idle,
            jit_segments,
            ..PvtcpOverride::default()
        };
        Pvtcp { set, ..Pvtcp::default() }
    });
    prop_oneof![Just(Pvtcp::default()), on]
}

fn group(count: std::ops::RangeInclusive<u32>) -> impl Strategy<Value = VmGroup> {
    let kernel = prop_oneof![Just(Kernel::V6_1), Just(Kernel::V6_12), Just(Kernel::Newest)];
    let sizes = (count, 1..=8u32, 96..=4096u32, 1..=1_000_000u32);
    (kernel, sizes, core(), tcp(), pvtcp()).prop_map(
        |(kernel, (count, vcpus, memory_mib, port_queue_segments), core, tcp, pvtcp)| VmGroup {
            count,
            kernel,
            vcpus,
            memory_mib,
            core,
            port_queue_segments,
            tcp,
            pvtcp,
            ..VmGroup::default()
        },
    )
}

fn workload() -> impl Strategy<Value = Workload> {
    let ends = || ("sender".to_owned(), "receiver".to_owned());
    prop_oneof![
        (1..=1000u32).prop_map(move |flows| {
            let (from, to) = ends();
            Workload::Bulk { from, to, flows }
        }),
        (1..=1_048_576u32, 0..=10_000_000u32).prop_map(move |(block_kib, requests)| {
            let (from, to) = ends();
            Workload::Strobe { from, to, block_kib, requests }
        }),
        (1..=1000u32).prop_map(move |flows| {
            let (from, to) = ends();
            Workload::Iperf3 { from, to, flows }
        }),
    ]
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let texts = ("[a-z0-9][a-z0-9/-]{0,40}", "\\PC{1,40}", any::<String>(), any::<String>());
    let times = (0..=i64::MAX as u64, 1..=1000u32, 100..=3_600_000u64, 0..=600_000u64);
    let network = (1..=400_000u32, 1..=1_000_000u32, 0..=10_000_000u32, 576..=9000u32, any::<bool>()).prop_map(
        |(rate_mbit, buffer_segments, delay_us, mtu_bytes, segmentation_offload)| Network {
            rate_mbit,
            buffer_segments,
            delay_us,
            mtu_bytes,
            segmentation_offload,
            ..Network::default()
        },
    );
    let record = (0..=60_000u32, any::<bool>(), 0..=60_000u32, any::<bool>()).prop_map(
        |(tcp_info_period_ms, capture, queue_period_ms, sender_nic)| Record {
            tcp_info_period_ms,
            capture,
            queue_period_ms,
            sender_nic,
        },
    );
    (texts, times, network, group(1..=63), group(1..=1), workload(), record).prop_map(
        |(
            (name, title, description, source),
            (seed, repetitions, duration_ms, warmup_ms),
            network,
            sender,
            receiver,
            workload,
            record,
        )| {
            Scenario {
                hosts: BTreeMap::new(),
                mechanisms: BTreeMap::new(),
                schema: 2,
                name,
                title,
                description,
                source,
                seed,
                repetitions,
                duration_ms,
                warmup_ms,
                network,
                vms: BTreeMap::from([("sender".to_owned(), sender), ("receiver".to_owned(), receiver)]),
                workloads: BTreeMap::from([("w".to_owned(), workload)]),
                record,
                axes: vec![],
                paper: vec![],
                report: ReportSpec::default(),
            }
        },
    )
}

/// Every line of a message is a problem of the file `x\ny.toml`, and steers no terminal.
fn only_problems(message: &str) -> Result<(), TestCaseError> {
    for line in message.lines() {
        prop_assert!(line.starts_with("x\\ny.toml:"), "{message:?}");
        prop_assert!(!line.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}')), "{line:?}");
    }
    Ok(())
}

/// Cuts and pastes as an editor slip would.
fn slip(text: &str, (at, length, insert): (prop::sample::Index, usize, String)) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.is_empty() {
        return insert;
    }
    let at = at.index(chars.len());
    let end = (at + length).min(chars.len());
    chars[..at].iter().copied().chain(insert.chars()).chain(chars[end..].iter().copied()).collect()
}

/// Names that nobody should choose, and some that exist.
fn odd() -> impl Strategy<Value = String> {
    let text = "[a-z=.`'\"\\\\ \n\r\t\u{1b}\u{85}\u{202e}\u{2028}\u{e9}]{0,6}";
    prop_oneof![4 => text.prop_map(|text| text), 1 => Just("s\nder".to_owned()), 1 => Just("sender".to_owned())]
}

/// The example with a name put in one of its places, or added to it.
fn renamed(base: &Table, place: usize, name: &str, other: &str) -> Table {
    let mut tree = base.clone();
    let text = |text: &str| Value::String(text.to_owned());
    let mut at = |path: &[&str], value: Value| {
        let (last, tables) = path.split_last().unwrap();
        let table = tables.iter().fold(&mut tree, |table, key| table[*key].as_table_mut().unwrap());
        table.insert((*last).to_owned(), value);
    };
    let axis = |name: &str, key: &str, values: Vec<Value>| {
        let fields = [("name", text(name)), ("key", text(key)), ("values", Value::Array(values))];
        let table: Table = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Value::Array(vec![Value::Table(table.clone()), Value::Table(table)])
    };
    match place {
        0 => at(&["vms", name], Value::Table(Table::new())),
        1 => at(&["workloads", "bulk", "from"], text(name)),
        2 => at(&["workloads", "bulk", "kind"], text(name)),
        3 => at(&["network", name], text(other)),
        4 => at(&["axes"], axis(name, other, vec![text(name), text(other)])),
        5 => at(&["axes"], axis(name, "network.rate_mbit", vec![text(other), Value::Integer(5)])),
        6 => at(&["axes"], axis(name, &format!("vms.{other}.count"), vec![Value::Integer(1), text(other)])),
        7 => at(&["report", "columns"], Value::Array(vec![text(name), text(other)])),
        8 => at(&["name"], text(name)),
        _ => at(&[name], text(other)),
    }
    tree
}

/// The seed comes from `.cargo/config.toml`, by the test's environment.
#[test]
fn random_tests_draw_the_same_in_every_run() {
    let seed = ProptestConfig::default().rng_seed;
    assert!(matches!(seed, RngSeed::Fixed(_)), "{seed:?}: run it by cargo, or set PROPTEST_RNG_SEED");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_valid_scenario_reads_back_as_written(scenario in scenario()) {
        let text = toml::to_string(&scenario).unwrap();
        let loaded = Scenario::from_str(&text, "x.toml").map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(&loaded.scenario, &scenario);
        let cells = sweep::cells(&loaded).unwrap();
        prop_assert_eq!(cells.len(), 1);
    }

    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        let _ = Scenario::from_str(&text, "x.toml");
    }

    #[test]
    fn a_scenario_with_slips_is_answered(
        slips in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, "[ -~\n]{0,6}"), 1..4),
    ) {
        let text = slips.into_iter().fold(EXAMPLE.to_owned(), |text, s| slip(&text, s));
        if let Err(error) = Scenario::from_str(&text, "x.toml") {
            prop_assert!(error.to_string().lines().all(|line| line.starts_with("x.toml:")), "{}", error);
        }
    }

    #[test]
    fn names_from_outside_stay_on_the_line_of_their_problem(place in 0..10usize, name in odd(), other in odd()) {
        let tree = renamed(&toml::from_str(EXAMPLE).unwrap(), place, &name, &other);
        let loaded = Scenario::from_str(&toml::to_string(&tree).unwrap(), "x\ny.toml");
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return only_problems(&error.to_string()),
        };
        if let Err(error) = select::select(sweep::cells(&loaded).unwrap(), &[format!("{name}={other}")], &loaded) {
            only_problems(&error.to_string())?;
        }
    }

    #[test]
    fn any_value_of_any_key_is_answered(
        key in prop_oneof![
            Just("duration_ms"), Just("network.rate_mbit"), Just("vms.sender.tcp.rto_min_us"), Just("vms.sender.core"),
            Just("vms.sender"), Just("vms"), Just("workloads"), Just("workloads.bulk.kind"), Just("report"), Just(""),
            Just("vms..x"),
        ],
        value in prop_oneof![
            "-?[0-9]{1,18}", Just("nan".to_owned()), Just("{}".to_owned()), Just("[]".to_owned()), "\"[a-z]{0,8}\"",
        ],
    ) {
        let axis = format!("[[axes]]\nname = \"new\"\nkey = \"{key}\"\nvalues = [{value}]");
        let _ = Scenario::from_str(&format!("{EXAMPLE}\n{axis}"), "x.toml");
    }
}
