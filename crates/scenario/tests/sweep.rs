//! Axes and cells.

use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::format::Era;
use evenkeel_scenario::sweep;
use evenkeel_scenario::{LoadedScenario, Scenario};
use evenkeel_settings::Mode;

const TEXT: &str = r#"
schema = 2
name = "sweep"
title = "Sweep"
duration_ms = 1000
[vms.a.tcp]
rto_min_us = "smallest"
[vms.b]
[workloads.w]
kind = "bulk"
from = "a"
to = "b"
[[axes]]
name = "era"
key = "vms.a.tcp.era"
values = ["paper", "current"]
[[axes]]
name = "slices"
variants = [
  { label = "alone", set = {} },
  { label = "shared", set = { "vms.a.core.vms_per_core" = 3, "vms.a.core.slice_ms" = 10 } },
  { label = "shared, PVTCP", set = { "vms.a.core" = { vms_per_core = 3 }, "vms.a.pvtcp.mode" = "enforce" } },
]
"#;

fn loaded() -> LoadedScenario {
    Scenario::from_str(TEXT, "sweep.toml").unwrap_or_else(|e| panic!("{e}"))
}

fn labels(cell: &Cell) -> String {
    cell.labels.iter().map(|(axis, label)| format!("{axis}={label}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_last_axis_is_the_fastest() {
    let cells = sweep::cells(&loaded()).unwrap();
    let all: Vec<String> = cells.iter().map(labels).collect();
    assert_eq!(
        all,
        [
            "era=paper slices=alone",
            "era=paper slices=shared",
            "era=paper slices=shared, PVTCP",
            "era=current slices=alone",
            "era=current slices=shared",
            "era=current slices=shared, PVTCP",
        ]
    );
}

#[test]
fn mechanisms_are_compared_in_a_line() {
    let text = "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 1000\n[hosts.h]\n[vms.a]\non = \"h\"\n[vms.b]\n\
                [workloads.w]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n[[axes]]\nname = \"mechanism\"\n\
                key = \"mechanisms.h\"\nvalues = [\"none\", \"vflood\", \"all\"]\n";
    let loaded = Scenario::from_str(text, "t.toml").unwrap_or_else(|error| panic!("{error}"));
    let modes: Vec<_> = sweep::cells(&loaded)
        .unwrap()
        .iter()
        .map(|cell| {
            let group = &cell.scenario.vms["a"];
            (group.pvtcp.mode(), group.vflood.mode(), group.vsnoop.mode(), group.cera.mode())
        })
        .collect();
    let (off, on) = (Mode::Off, Mode::Enforce);
    assert_eq!(modes, [(off, off, off, off), (off, on, off, off), (on, on, on, on)]);
}

#[test]
fn a_cell_has_what_its_labels_set_and_keeps_the_rest() {
    let cells = sweep::cells(&loaded()).unwrap();
    let a = |cell: usize| cells[cell].scenario.vms["a"].clone();
    assert_eq!((a(0).core.vms_per_core, a(0).tcp.era), (1, Era::Paper));
    assert_eq!((a(1).core.vms_per_core, a(1).core.slice_ms), (3, 10.0));
    // A table replaces a table.
    assert_eq!((a(5).core.vms_per_core, a(5).core.slice_ms), (3, 30.0));
    assert_eq!((a(5).pvtcp.mode(), a(5).tcp.era), (Mode::Enforce, Era::Current));
    assert!(cells.iter().all(|c| c.scenario.vms["a"].tcp.rto_min_us == loaded().scenario.vms["a"].tcp.rto_min_us));
}

#[test]
fn a_scenario_without_axes_is_one_cell() {
    let text = TEXT.split("[[axes]]").next().unwrap();
    let loaded = Scenario::from_str(text, "sweep.toml").unwrap();
    let cells = sweep::cells(&loaded).unwrap();
    assert_eq!(cells, [Cell { labels: vec![], scenario: loaded.scenario }]);
}

#[test]
fn seeds_differ_by_repetition_and_stay() {
    let seeds: Vec<u64> = (0..3).map(|repetition| sweep::run_seed(1, repetition)).collect();
    // The first outputs of splitmix64 from state 1.
    assert_eq!(seeds, [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67, 0xf893_a2ee_fb32_555e]);
    assert_ne!(sweep::run_seed(1, 0), sweep::run_seed(2, 0));
}

/// Bulk workloads have `flows` too, up to a thousand.
#[test]
fn an_axis_is_held_to_the_bounds_of_its_own_workload() {
    let varied = |kind: &str, value: u32| {
        let text = TEXT.replace("kind = \"bulk\"", kind).replace("vms.a.tcp.era", "workloads.w.flows");
        Scenario::from_str(&text.replace("[\"paper\", \"current\"]", &format!("[1, {value}]")), "sweep.toml")
    };
    let loaded = varied("kind = \"poisson\"\nload = 0.5\nsizes = 1000", 20_000).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sweep::cells(&loaded).unwrap().len(), 6);
    assert!(varied("kind = \"bulk\"", 1000).is_ok());
    let error = varied("kind = \"bulk\"", 20_000).unwrap_err().to_string();
    assert!(error.starts_with("sweep.toml:16: axes[0].values[1]"), "{error}");
    assert!(error.contains("from 1 to 1000, not 20000 (in the cell"), "{error}");
}
