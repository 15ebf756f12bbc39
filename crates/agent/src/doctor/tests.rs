//! The examination as a whole, on machines made up.

use std::time::Duration;

use super::*;

/// A Debian 13 guest under KVM that loses a third of its core, with the smallest RTO floor.
fn contended_guest() -> Readings {
    Readings {
        release: Some("6.12.107+deb13-cloud-amd64".into()),
        arch: "x86_64",
        has_modules: true,
        has_kprobes: Some(true),
        high_resolution: true,
        pvtcp_installed: true,
        hypervisor: Some("KVM".into()),
        kvm_steal_clock: Some(true),
        stat_before: Some("cpu  1000 0 500 9000 0 0 20 700 0 0".into()),
        stat_after: Some("cpu  1060 0 500 9000 0 0 20 730 0 0".into()),
        longest_pause: Duration::from_millis(60),
        tick: Some(Duration::from_millis(4)),
        sysctls: [("tcp_rto_min_us", "4000"), ("tcp_early_retrans", "3"), ("tcp_sack", "1")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        ..Readings::default()
    }
}

fn level(report: &Report, topic: &str) -> Level {
    report.findings.iter().find(|f| f.topic == topic).unwrap_or_else(|| panic!("no finding on {topic}: {report}")).level
}

#[test]
fn a_contended_guest_is_sent_to_pvtcp() {
    let report = judge(&contended_guest(), &Kvm::NotTried);
    assert_eq!(report.worst, Level::Problem);
    assert_eq!(level(&report, "steal"), Level::Problem);
    assert_eq!(level(&report, "RTO floor"), Level::Problem);
    let text = report.to_string();
    assert!(text.contains("-> PVTCP would help: evenkeel guest pvtcp load"), "{text}");
    assert!(text.contains("PVTCP would help with: steal, pauses, RTO floor."), "{text}");
}

#[test]
fn the_same_guest_with_pvtcp_has_no_problem() {
    let readings = Readings { pvtcp_mode: Some("enforce".into()), ..contended_guest() };
    let report = judge(&readings, &Kvm::NotTried);
    assert!(report.worst < Level::Problem, "{report}");
    assert!(report.findings.iter().all(|f| f.mechanism.is_none()), "{report}");
}

#[test]
fn observing_is_not_yet_protection() {
    let readings = Readings { pvtcp_mode: Some("observe".into()), ..contended_guest() };
    assert_eq!(level(&judge(&readings, &Kvm::NotTried), "steal"), Level::Problem);
}

#[test]
fn a_host_is_not_told_of_steal() {
    let readings = Readings { hypervisor: None, kvm_steal_clock: None, ..contended_guest() };
    let report = judge(&readings, &Kvm::NotTried);
    assert!(report.findings.iter().all(|f| f.topic != "steal" && f.mechanism.is_none()), "{report}");
}

#[test]
fn a_machine_that_shows_nothing_is_still_judged() {
    let report = judge(&Readings::default(), &Kvm::NotTried);
    assert_eq!(level(&report, "kernel"), Level::Problem);
}

#[test]
fn json_has_levels_and_topics() {
    let json = serde_json::to_value(judge(&contended_guest(), &Kvm::NotTried)).unwrap();
    assert_eq!(json["worst"], "problem");
    let steal = json["findings"].as_array().unwrap().iter().find(|f| f["topic"] == "steal").unwrap();
    assert_eq!((steal["level"].as_str(), steal["mechanism"].as_str()), (Some("problem"), Some("pvtcp")));
}
