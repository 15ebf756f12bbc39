//! The report as text, JSON and OpenMetrics.

use std::collections::BTreeMap;

use super::super::Report;
use super::super::figures::{Drops, Figures, PortFigures};
use super::advice::{HURT, group, guest, host, port, thread, vm};

fn throttled() -> Report {
    let port = PortFigures { name: "vnet\"0\\".into(), ..port(&[(Drops::ToVmRing, 5000), (Drops::Filter, 3)]) };
    let figures = host(port, vm(thread("CPU 0/KVM", 3000.0, 6950.0), vec![group(3_000_000)]));
    let missing = vec!["queues in front of ports: the kernel does not answer (no)".into()];
    Report::of(Figures { missing, ..figures })
}

#[test]
fn people_read_what_costs_least_first() {
    let text = throttled().to_string();
    assert!(text.starts_with("10.0 s, Linux 6.1.0-32-amd64, no hypervisor below\n"), "{text}");
    // What is to be copied is in one line.
    let is_short = |line: &str| line.starts_with("   do ") || line.chars().count() <= 120;
    assert!(text.lines().all(is_short), "{text}");
    for line in [
        "10 qemu-system-x86            1   30.0 %    69.5 %        1.0 ms  as follows\n",
        "/libvirt/vcpu0\n    30 of 100 ms, used up in 100 of 100 periods, cores refused for 6900 ms\n",
        "vnet\"0\\: 3 packets dropped by tc's filters and programs\n",
        "not known              queues in front of ports: the kernel does not answer (no)\n",
        "1. qemu-system-x86 (process 10): a shorter quota period (costs a command)\n   because             its quota",
        "2. vnet\"0\\: a longer queue (costs a command)\n",
    ] {
        assert!(text.contains(line), "no {line:?}: {text}");
    }
    let quiet = Report::of(Figures::default()).to_string();
    assert!(quiet.ends_with("\nNothing in this window asks for a change.\n"), "{quiet}");
}

#[test]
fn a_guest_says_what_the_module_did() {
    let pvtcp = BTreeMap::from([("wakeups".to_owned(), 7), ("held_rto".to_owned(), 0)]);
    let figures = Figures { pvtcp: Some(pvtcp), pvtcp_mode: Some("observe".into()), ..guest(HURT) };
    let text = Report::of(figures).to_string();
    assert!(text.contains("  PVTCP (observe): wakeups 7\n"), "{text}");
    assert!(
        text.contains("steal 30.0 % of the core time wanted; of 40000 naps 500 ended 8 ms late or later"),
        "{text}"
    );
}

#[test]
fn programs_read_figures_and_advice() {
    let json = serde_json::to_value(throttled()).unwrap();
    assert_eq!(json["ports"][0]["drops"]["to_vm_ring"], 5000);
    assert_eq!(json["vms"][0]["groups"][0]["nr_throttled"], 100);
    assert_eq!((&json["advice"][0]["cure"], &json["advice"][0]["cost"]), (&"quota_period".into(), &"command".into()));
}

#[test]
fn prometheus_reads_gauges() {
    let text = throttled().openmetrics(1.5e9).unwrap();
    let vm = r#"process="10",command="qemu-system-x86",ports="vnet0""#;
    for line in [
        "# TYPE evenkeel_doctor_window_seconds gauge".to_owned(),
        "evenkeel_doctor_window_seconds 10.0".to_owned(),
        r#"evenkeel_doctor_port_dropped_packets{port="vnet\"0\\",cause="to_vm_ring"} 5000.0"#.to_owned(),
        r#"evenkeel_doctor_port_dropped_packets{port="vnet\"0\\",cause="from_vm"} 0.0"#.to_owned(),
        format!("evenkeel_doctor_vm_off_core_percent{{{vm}}} 69.5"),
        format!(
            "evenkeel_doctor_group_throttled_periods{{{vm},group=\"{}\"}} 100.0",
            r"/sys/fs/cgroup/machine.slice/machine-qemu\\x2d1.scope/libvirt/vcpu0"
        ),
        r#"evenkeel_doctor_advice{subject="qemu-system-x86 (process 10)",cure="quota_period",cost="command"} 1.0"#
            .into(),
    ] {
        assert!(text.lines().any(|found| found == line), "no {line}: {text}");
    }
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
    let is_gauge = |line: &str| line.strip_prefix("# TYPE ").is_none_or(|rest| rest.ends_with(" gauge"));
    assert!(text.lines().all(is_gauge), "{text}");
}

#[test]
fn rules_and_dashboard_ask_for_gauges_that_there_are() {
    let text = Report::of(Figures { tcp: Some(HURT), ..throttled().figures }).openmetrics(1.5e9).unwrap();
    for used in [
        include_str!("../../../../../../packaging/prometheus/evenkeel.rules.yml"),
        include_str!("../../../../../../packaging/grafana/evenkeel.json"),
    ] {
        // Metrics that rules record have a colon in their names.
        let words = used.split(|c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c));
        let used: Vec<&str> = words.filter(|word| word.starts_with("evenkeel_doctor_")).collect();
        assert!(used.len() > 3);
        let is_known = |name: &&str| text.contains(&format!("\n# TYPE {name} gauge\n"));
        assert_eq!(used.into_iter().filter(|name| !is_known(name)).collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
