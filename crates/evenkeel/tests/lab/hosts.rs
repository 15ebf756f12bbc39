//! Kernels, and cores that machines share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{labelled, machine, run, start, vms_below, wait_until, workspace};

/// Every kernel boots, TCP flows, the module loads, sees the core being shared and holds timers off.
#[test]
fn pvtcp_acts_on_every_kernel() {
    let _machine = machine();
    let records = run(&workspace().join("scenarios/pvtcp/reload.toml"), &[]);
    for kernel in ["6.1", "6.12", "newest"] {
        for record in labelled(&records, "kernel", kernel) {
            let metric =
                |name: &str| *record.metrics.get(name).unwrap_or_else(|| panic!("{kernel}: no {name}: {record:#?}"));
            assert_eq!(metric("kernel_complaints"), 0.0, "{kernel}: {:?}", record.remarks);
            assert_eq!(metric("pvtcp_reloads"), 100.0, "{kernel}");
            assert!(metric("goodput_mbit") > 1.0, "{kernel}: {}", metric("goodput_mbit"));
            // The barrier of the strobe stands still if a single connection does.
            let blocks = record.series.iter().find(|s| s.name == "block_ms").expect("blocks");
            let (start_us, block_ms) = *blocks.points.last().expect("at least one block");
            let end_us = start_us + (block_ms * 1e3) as i64;
            assert!(
                end_us + 1_500_000 > record.duration_us as i64,
                "{kernel}: the last block ended {end_us} us into {} us",
                record.duration_us
            );
        }
    }
}

const QUOTA: &str = r#"
schema = 2
name = "quota"
title = "A VM with a quota beside a neighbour"
duration_ms = 2000
warmup_ms = 300
repetitions = 1
[hosts.h]
neighbours = { per_core = 1, load = 0.5 }
[vms.sender]
on = "h"
quota = { us = 30000 }
own_load = { load = 1 }
[vms.receiver]
[workloads.w]
kind = "bulk"
from = "sender"
to = "receiver"
"#;

/// The cgroups of a lab, by its process, in either version's hierarchies.
fn cgroups_of(lab: u32) -> Vec<PathBuf> {
    let below = |directory: &Path| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let root = Path::new("/sys/fs/cgroup");
    let groups = below(root).into_iter().flat_map(|hierarchy| below(&hierarchy)).chain(below(root));
    let prefix = format!("evenkeel-lab-{lab}-");
    groups.filter(|group| group.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))).collect()
}

/// A quota of this machine's scheduler throttles a VM. No cgroup is left of it, nor of a lab before it that was killed.
#[test]
fn a_vm_with_a_quota_is_throttled_and_no_cgroup_is_left() {
    let _machine = machine();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let scenario = first.path().join("quota.toml");
    std::fs::write(&scenario, QUOTA).unwrap();
    let mut killed = start(&scenario, first.path(), &[]);
    wait_until("the VM to be in its cgroup", Duration::from_secs(300), || !cgroups_of(killed.id()).is_empty());
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_until("the VMs to end", Duration::from_secs(5), || vms_below(first.path()) == 0);
    let other = start(&scenario, second.path(), &[]);
    let labs = [killed.id(), other.id()];
    let output = other.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<PathBuf> = labs.into_iter().flat_map(cgroups_of).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    let (_, records) = evenkeel_scenario::io::read_results(&second.path().join("out")).unwrap();
    let counters = &records[0].counters["sender-0"];
    let count = |name: &str| counters.get(name).copied().unwrap_or(0);
    // Periods of 100 ms: the VM uses up its quota in each, and has nothing for about 70 ms of it. A VM with so little
    // takes its time to say what it has counted, so more is measured than was asked for.
    let measured_us = records[0].duration_us as i64;
    let (from, to) = (measured_us / 2, measured_us * 17 / 20);
    assert!(count("CpuThrottledPeriods") >= measured_us * 3 / 4 / 100_000, "{measured_us} us: {counters:?}");
    assert!((from..to).contains(&count("CpuThrottledUs")), "{measured_us} us: {counters:?}");
    assert!(count("CpuWaitedUs") >= from, "{measured_us} us: {counters:?}");
    // All counters are of the same time.
    let periods_us = count("CpuQuotaPeriods") * 100_000;
    assert!(periods_us.abs_diff(measured_us) <= 200_000, "{measured_us} us: {counters:?}");
    assert_eq!(records[0].metrics["throttled_ms"], count("CpuThrottledUs") as f64 / 1e3);
    assert!(records[0].metrics["vcpu_wait_max_ms"] > 40.0, "{:?}", records[0].metrics);
    let waits = records[0].series.iter().find(|s| s.name == "vcpu_wait_ms" && s.subject == "sender-0").expect("waits");
    assert!(waits.points.iter().any(|(_, ms)| *ms > 40.0), "{waits:?}");
}
