//! Which of the features that evenkeel needs this kernel has. The kernel is asked, and never judged by its version:
//! distributions port features back, and leave others out.
//!
//! [`Features::ask`] asks, [`Features::hook`] and [`Features::lacking`] decide by the answers alone.

mod ask;
mod table;
mod trial;
mod types;

pub use ask::has_tun_types;
pub use table::{Row, Table};

use std::collections::BTreeMap;
use std::fmt;

use evenkeel_settings::host::Attach;
use serde::{Deserialize, Serialize};

/// Something that a kernel has or lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// It tells its types (BTF).
    Btf,
    /// A bpf file system to pin to.
    BpfFs,
    /// Programs in a device's list (tcx).
    Tcx,
    /// Programs in filters of tc's, at clsact.
    Clsact,
    /// The helper `bpf_loop`.
    Loop,
    /// A program can ask whether a thread runs.
    TaskState,
    /// A program can go over all processes and their files.
    TaskIterators,
    /// The types of the tap driver.
    TapTypes,
    /// Qdiscs in BPF.
    BpfQdisc,
    /// netkit devices.
    Netkit,
    /// Congestion controls in BPF (`struct_ops`).
    CongestionControl,
    /// Kernel modules.
    Modules,
    /// kprobes.
    Kprobes,
}

/// A part of evenkeel, as far as parts need different things of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The host's agent, with ProBoSCIS and CERA.
    HostAgent,
    /// vSnoop, which is the host's.
    Vsnoop,
    /// vFlood's half on the host.
    HostVflood,
    /// The guest's agent: vFlood's half in the guest, CERA's client.
    GuestAgent,
    /// The guest's module.
    Pvtcp,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::HostAgent => "host agent",
            Self::Vsnoop => "vSnoop",
            Self::HostVflood => "vFlood (host)",
            Self::GuestAgent => "guest agent",
            Self::Pvtcp => "PVTCP",
        })
    }
}

/// The hook by which the host's programs are on devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// Links in a device's list of programs.
    Tcx,
    /// Filters at the qdisc clsact.
    Clsact,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}

/// What the kernel said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is there.
    Yes,
    /// It is not there: how that is known, in words.
    No(String),
    /// It could not be asked, in words.
    Unknown(String),
}

/// All answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features(BTreeMap<Feature, Answer>);

/// The answer for a feature that was not asked about.
const NOT_ASKED: &Answer = &Answer::Unknown(String::new());

impl Features {
    /// What the kernel said of a feature.
    pub fn answer(&self, feature: Feature) -> &Answer {
        self.0.get(&feature).unwrap_or(NOT_ASKED)
    }

    /// Why a feature is not there; nothing if it is, or if that could not be asked.
    fn why_not(&self, feature: Feature) -> Option<&str> {
        match self.answer(feature) {
            Answer::No(why) => Some(why),
            Answer::Yes | Answer::Unknown(_) => None,
        }
    }

    /// The hook by which the host's programs are put on ports, if `attach` is wanted.
    ///
    /// # Errors
    /// What this kernel lacks for that, in words.
    pub fn hook(&self, attach: Attach) -> Result<Hook, String> {
        let lacking = |features: &[Feature]| -> Vec<String> {
            features.iter().filter_map(|feature| self.missing(*feature)).collect()
        };
        let mut lacks = lacking(&[Feature::Btf, Feature::Loop]);
        let (tcx, clsact) = (lacking(&[Feature::Tcx]), lacking(&[Feature::Clsact]));
        let hook = match attach {
            Attach::Auto if tcx.is_empty() => Hook::Tcx,
            Attach::Auto => {
                if !clsact.is_empty() {
                    lacks.extend([tcx, clsact].concat());
                }
                Hook::Clsact
            }
            Attach::Tcx => {
                lacks.extend(tcx);
                Hook::Tcx
            }
            Attach::Clsact => {
                lacks.extend(clsact);
                Hook::Clsact
            }
        };
        if lacks.is_empty() { Ok(hook) } else { Err(lacks.join("; ")) }
    }

    /// What is missing for a part of evenkeel, in words; `None` if it can work. The parts are independent: one that
    /// cannot work stops none of the others, except that parts on the host need the host's agent.
    pub fn lacking(&self, part: Part) -> Option<String> {
        let mut lacks: Vec<String> = part.needs().iter().filter_map(|feature| self.missing(*feature)).collect();
        if part == Part::HostAgent {
            lacks.extend(self.hook(Attach::Auto).err());
        }
        (!lacks.is_empty()).then(|| lacks.join("; "))
    }

    /// A feature that is missing, with the reason.
    fn missing(&self, feature: Feature) -> Option<String> {
        self.why_not(feature).map(|why| format!("no {} ({why})", table::name(feature)))
    }
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::HostAgent, Self::Vsnoop, Self::HostVflood, Self::GuestAgent, Self::Pvtcp];

    /// The features that it needs, all of them. [`Features::hook`] knows what else the host's agent needs.
    const fn needs(self) -> &'static [Feature] {
        match self {
            Self::HostAgent => &[Feature::BpfFs],
            Self::Vsnoop => &[Feature::TaskState, Feature::TaskIterators, Feature::TapTypes],
            // Programs are on its own devices by links, whatever hook the ports have.
            Self::HostVflood => &[Feature::BpfQdisc, Feature::Netkit, Feature::Tcx],
            Self::GuestAgent => &[Feature::Btf, Feature::BpfFs, Feature::CongestionControl],
            Self::Pvtcp => &[Feature::Modules, Feature::Kprobes],
        }
    }
}

#[cfg(test)]
mod tests;
