//! The decision on made-up answers, and the answers of this machine's kernel.

use std::collections::BTreeSet;

use nix::sched::{CloneFlags, unshare};

use super::ask::by_types;
use super::types::Types;
use super::*;
use crate::tc::{self, Side};

const ALL: [Feature; 13] = [
    Feature::Btf,
    Feature::BpfFs,
    Feature::Tcx,
    Feature::Clsact,
    Feature::Loop,
    Feature::TaskState,
    Feature::TaskIterators,
    Feature::TapTypes,
    Feature::BpfQdisc,
    Feature::Netkit,
    Feature::CongestionControl,
    Feature::Modules,
    Feature::Kprobes,
];

impl Features {
    /// The features of a kernel that has all but these.
    pub(crate) fn made(lacking: &[Feature]) -> Self {
        let answer = |feature: Feature| match lacking.contains(&feature) {
            true => Answer::No("it is made up so".to_owned()),
            false => Answer::Yes,
        };
        Self(ALL.iter().map(|feature| (*feature, answer(*feature))).collect())
    }
}

/// Names that a kernel's types know.
struct Known(BTreeSet<&'static str>);

impl Types for Known {
    fn has_struct(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    fn has_function(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    fn has_value(&self, enumeration: &str, value: &str) -> bool {
        self.0.contains(format!("{enumeration}.{value}").as_str())
    }
}

/// Runs `work` in a network namespace of its own.
fn apart(work: impl FnOnce() + Send + 'static) {
    let place = move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("this test needs root");
        work();
    };
    if let Err(panic) = std::thread::spawn(place).join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn tcx_is_taken_where_it_is_there_and_clsact_where_not() {
    let hook = |lacking: &[Feature], attach| Features::made(lacking).hook(attach);
    assert_eq!(hook(&[], Attach::Auto), Ok(Hook::Tcx));
    assert_eq!(hook(&[Feature::Tcx], Attach::Auto), Ok(Hook::Clsact));
    assert_eq!(hook(&[Feature::Clsact], Attach::Auto), Ok(Hook::Tcx));
    assert_eq!(hook(&[], Attach::Clsact), Ok(Hook::Clsact));
    let neither = hook(&[Feature::Tcx, Feature::Clsact], Attach::Auto).unwrap_err();
    assert_eq!(neither, "no tcx (it is made up so); no clsact (it is made up so)");
    assert_eq!(hook(&[Feature::Tcx], Attach::Tcx).unwrap_err(), "no tcx (it is made up so)");
    assert_eq!(hook(&[Feature::Clsact], Attach::Clsact).unwrap_err(), "no clsact (it is made up so)");
    // Without these neither hook works.
    for feature in [Feature::Btf, Feature::Loop] {
        assert!(hook(&[feature], Attach::Auto).is_err(), "{feature:?}");
    }
}

/// What the caller may not ask for is not reported as missing.
#[test]
fn what_could_not_be_asked_is_not_missing() {
    let mut features = Features::made(&[Feature::Tcx]);
    features.0.insert(Feature::Clsact, Answer::Unknown("trying it takes root".to_owned()));
    assert_eq!(features.hook(Attach::Auto), Ok(Hook::Clsact));
    assert!(Table::of(&features).to_string().contains("clsact not known: trying it takes root."));
}

#[test]
fn each_part_lacks_what_it_needs_and_the_others_go_on() {
    let without = |feature: Feature| -> Vec<Part> {
        let features = Features::made(&[feature]);
        Part::ALL.into_iter().filter(|part| features.lacking(*part).is_some()).collect()
    };
    assert_eq!(without(Feature::TaskState), [Part::Vsnoop]);
    assert_eq!(without(Feature::BpfQdisc), [Part::HostVflood]);
    assert_eq!(without(Feature::Netkit), [Part::HostVflood]);
    assert_eq!(without(Feature::Tcx), [Part::HostVflood]);
    assert_eq!(without(Feature::Clsact), []);
    assert_eq!(without(Feature::CongestionControl), [Part::GuestAgent]);
    assert_eq!(without(Feature::Kprobes), [Part::Pvtcp]);
    assert_eq!(without(Feature::BpfFs), [Part::HostAgent, Part::GuestAgent]);
    assert!(Part::ALL.into_iter().all(|part| Features::made(&[]).lacking(part).is_none()));
}

/// A line of the table for each feature, and one with the reason for each that is missing.
#[test]
fn the_table_has_a_reason_for_each_lack() {
    let lacking = [Feature::Tcx, Feature::BpfQdisc, Feature::TaskState];
    let table = Table::of(&Features::made(&lacking));
    let text = table.to_string();
    assert_eq!(text.lines().filter(|line| line.contains("it is made up so")).count(), lacking.len(), "{text}");
    assert!(text.contains("evenkeel host puts its programs on ports by clsact."), "{text}");
    assert!(text.contains("no tcx: it is made up so. So the host's programs attach by clsact."), "{text}");
    let json = serde_json::to_value(&table).unwrap();
    assert_eq!(json["attach"], "clsact");
    let rows = json["features"].as_array().unwrap();
    assert_eq!(rows.len(), ALL.len());
    let of = |name: &str| rows.iter().find(|row| row["feature"] == name).unwrap();
    assert_eq!((&of("tcx")["has"], &of("btf")["has"]), (&false.into(), &true.into()));
    assert_eq!(of("bpf_qdisc")["needed_by"], serde_json::json!(["host_vflood"]));
    let none = Table::of(&Features::made(&[Feature::BpfFs])).to_string();
    assert!(none.contains("evenkeel host cannot run here."), "{none}");
}

#[test]
fn types_are_asked_for_names() {
    let nothing = by_types(&Known(BTreeSet::new()));
    let asked = [
        Feature::Tcx,
        Feature::Loop,
        Feature::TaskState,
        Feature::TaskIterators,
        Feature::TapTypes,
        Feature::BpfQdisc,
        Feature::Netkit,
        Feature::CongestionControl,
    ];
    assert!(asked.iter().all(|feature| nothing.why_not(*feature).is_some()));
    let known = [
        "bpf_attach_type.BPF_TCX_INGRESS",
        "bpf_func_id.BPF_FUNC_loop",
        "bpf_task_from_pid",
        "bpf_task_release",
        "bpf_iter__task_file",
        "tun_struct",
        "bpf_qdisc_watchdog_schedule",
        "netkit_link",
        "bpf_struct_ops_tcp_congestion_ops",
    ];
    for (at, name) in known.iter().enumerate() {
        let features = by_types(&Known(known.iter().copied().filter(|other| other != name).collect()));
        let missing = asked.iter().filter(|feature| features.why_not(**feature).is_some()).count();
        assert_eq!(missing, 1, "without {name}, number {at}");
    }
    // Types alone do not say that programs can be attached by tcx.
    assert_eq!(by_types(&Known(known.into())).answer(Feature::Tcx), NOT_ASKED);
}

/// What a trial has put on `lo` is off again, and so is a qdisc that it has made.
#[test]
fn trials_leave_nothing() {
    apart(|| {
        let features = Features::ask_all();
        assert_eq!(features.answer(Feature::Btf), &Answer::Yes);
        assert_eq!(features.answer(Feature::Clsact), &Answer::Yes);
        let lo = 1;
        assert!(tc::filters(lo, Side::Ingress).unwrap().is_empty());
        assert!(tc::make(lo).unwrap(), "the trial has left its clsact");
        // A clsact that is somebody else's stays.
        assert_eq!(Features::ask_all().answer(Feature::Clsact), &Answer::Yes);
        assert!(!tc::make(lo).unwrap(), "the trial has removed somebody else's clsact");
    });
}
