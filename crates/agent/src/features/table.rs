//! The table of features, for people and programs.

use std::fmt;

use evenkeel_settings::host::Attach;
use serde::Serialize;

use super::{Answer, Feature, Features, Hook, Part};

/// What holds for a feature on any kernel: its name, who needs it, and what is used or lost without it.
const ALL: [(Feature, &str, &[Part], &str); 13] = [
    (Feature::Btf, "types (BTF)", &[Part::HostAgent, Part::GuestAgent], "neither agent runs"),
    (Feature::BpfFs, "bpf file system", &[Part::HostAgent, Part::GuestAgent], "neither agent runs"),
    (Feature::Tcx, "tcx", &[Part::HostAgent, Part::HostVflood], "the host's programs attach by clsact"),
    (Feature::Clsact, "clsact", &[Part::HostAgent], "the host's programs attach by tcx alone"),
    (Feature::Loop, "helper bpf_loop", &[Part::HostAgent], "the host agent does not run"),
    (
        Feature::TaskState,
        "state of threads",
        &[Part::Vsnoop],
        "nobody knows whether a VM has its core, and vSnoop acknowledges nothing",
    ),
    (
        Feature::TaskIterators,
        "task iterators",
        &[Part::Vsnoop],
        "nobody knows which threads a VM has, and vSnoop acknowledges nothing",
    ),
    (
        Feature::TapTypes,
        "types of taps",
        &[Part::Vsnoop],
        "nobody knows what a tap has room for, and vSnoop acknowledges nothing",
    ),
    (Feature::BpfQdisc, "qdiscs in BPF", &[Part::HostVflood], "vFlood is off on this host"),
    (Feature::Netkit, "netkit devices", &[Part::HostVflood], "vFlood is off on this host"),
    (
        Feature::CongestionControl,
        "struct_ops",
        &[Part::GuestAgent],
        "no vFlood in this guest, and the host limits it by the ACKs that it gets (CERA)",
    ),
    (Feature::Modules, "modules", &[Part::Pvtcp], "no PVTCP in this guest"),
    (Feature::Kprobes, "kprobes", &[Part::Pvtcp], "no PVTCP in this guest"),
];

/// A feature's name.
pub(super) fn name(feature: Feature) -> &'static str {
    ALL.iter().find(|(listed, ..)| *listed == feature).map_or("feature", |(_, name, ..)| name)
}

/// A feature of this kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Which.
    pub feature: Feature,
    /// Its name for people.
    pub name: &'static str,
    /// Whether it is there; nothing if that could not be asked.
    pub has: Option<bool>,
    /// Why it is not, or could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Who needs it.
    pub needed_by: &'static [Part],
    /// What is used instead of it, or is lost.
    pub otherwise: &'static str,
}

/// What this kernel can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The hook by which `evenkeel host` puts its programs on ports; `None` if it cannot run.
    pub attach: Option<Hook>,
    /// All features.
    pub features: Vec<Row>,
}

impl Table {
    /// The table of these answers.
    pub fn of(features: &Features) -> Self {
        let row = |(feature, name, needed_by, otherwise)| {
            let (has, why) = match features.answer(feature) {
                Answer::Yes => (Some(true), None),
                Answer::No(why) => (Some(false), Some(why.clone())),
                Answer::Unknown(why) => (None, Some(why.clone())),
            };
            Row { feature, name, has, why, needed_by, otherwise }
        };
        let attach = features.hook(Attach::Auto).ok().filter(|_| features.lacking(Part::HostAgent).is_none());
        Self { attach, features: ALL.map(row).into() }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<17} {:<5} needed by", "feature", "here")?;
        for row in &self.features {
            let here = match row.has {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "?",
            };
            let parts: Vec<String> = row.needed_by.iter().map(Part::to_string).collect();
            writeln!(f, "{:<17} {here:<5} {}", row.name, parts.join(", "))?;
        }
        match self.attach {
            Some(hook) => writeln!(f, "\nevenkeel host puts its programs on ports by {hook}.")?,
            None => writeln!(f, "\nevenkeel host cannot run here.")?,
        }
        for row in &self.features {
            match (row.has, &row.why) {
                (Some(false), Some(why)) => writeln!(f, "no {}: {why}. So {}.", row.name, row.otherwise)?,
                (None, Some(why)) => writeln!(f, "{} not known: {why}.", row.name)?,
                _ => {}
            }
        }
        Ok(())
    }
}
