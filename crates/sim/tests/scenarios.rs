//! The scenarios at the papers' scale.

use std::path::{Path, PathBuf};

use evenkeel_scenario::format::{CoreSharing, Scenario, VmGroup};

fn files(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/sim").join(directory);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| entry.expect("a directory can be read to its end").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}

fn load(file: &Path) -> Scenario {
    Scenario::load(file).unwrap_or_else(|e| panic!("{e}")).scenario
}

#[test]
fn every_file_is_valid() {
    for directory in ["pvtcp", "proboscis", "cera", "vflood", "hosts", "validation", "scale"] {
        let files = files(directory);
        assert!(!files.is_empty(), "no scenarios in {directory}");
        for file in files {
            load(&file);
        }
    }
}

/// What the PVTCP paper does not give was chosen once, on its figures for TCP, and holds for everything else.
#[test]
fn one_testbed_in_all_of_pvtcp() {
    let files = files("pvtcp");
    let place = files.iter().find(|file| file.ends_with("fig5a.toml")).expect("the testbed stands in fig5a");
    let testbed = load(place);
    let core = &testbed.vms["sender"].core;
    for file in &files {
        let scenario = load(file);
        assert_eq!(scenario.network, testbed.network, "{}: [network] differs from fig5a's", file.display());
        for (name, group) in &scenario.vms {
            let at = format!("{}: vms.{name}", file.display());
            let costs = |group: &VmGroup| (group.host_delay_us, group.packet_cost_ns, group.read_cost_ns);
            assert_eq!(costs(group), costs(&testbed.vms["sender"]), "{at}: what a packet takes differs from fig5a's");
            assert_eq!(group.hz(), testbed.vms["sender"].hz(), "{at}.hz differs from fig5a's");
            assert!(same_neighbours(group, core), "{at}.core differs from fig5a's");
        }
    }
}

/// PVTCP Fig. 4 wants exact slices and neighbours that are always busy, to show the peaks; a core of one's own has no
/// neighbours.
fn same_neighbours(group: &VmGroup, testbed: &CoreSharing) -> bool {
    let exact = CoreSharing { vms_per_core: group.core.vms_per_core, ..CoreSharing::default() };
    let same = CoreSharing { vms_per_core: group.core.vms_per_core, ..testbed.clone() };
    group.core == exact || group.core == same
}
