//! Mechanisms by a word: which act in a group, or in all groups on a kind of hosts.

use evenkeel_settings::Mode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Scenario, VmGroup};

/// Which mechanisms act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// None of them.
    None,
    /// PVTCP, in the guests.
    Pvtcp,
    /// vFlood, on the hosts and in the guests.
    Vflood,
    /// vSnoop, on the hosts.
    Vsnoop,
    /// ProBoSCIS, on the hosts.
    Proboscis,
    /// CERA, on the hosts and in the guests.
    Cera,
    /// All five.
    All,
}

impl Preset {
    /// The modes of a group that these mechanisms set, with their tables' names.
    pub(crate) fn modes(self, group: &mut VmGroup) -> Vec<(&'static str, &mut Option<Mode>)> {
        let all = [
            (Self::Pvtcp, "pvtcp", &mut group.pvtcp.set.mode),
            (Self::Vflood, "vflood", &mut group.vflood.set.mode),
            (Self::Vsnoop, "vsnoop", &mut group.vsnoop.mode),
            (Self::Proboscis, "proboscis", &mut group.proboscis.mode),
            (Self::Cera, "cera", &mut group.cera.set.mode),
        ];
        let acts = |one: Self| self == Self::All || self == one;
        all.into_iter().filter(|(one, ..)| acts(*one)).map(|(_, name, mode)| (name, mode)).collect()
    }
}

impl Scenario {
    /// Switches on what `[mechanisms]` names.
    pub(crate) fn apply_mechanisms(&mut self) {
        for (name, preset) in &self.mechanisms {
            let is_meant = |(group, vms): &(&String, &mut VmGroup)| *group == name || vms.on.as_ref() == Some(name);
            for (_, vms) in self.vms.iter_mut().filter(is_meant) {
                preset.modes(vms).into_iter().for_each(|(_, mode)| *mode = Some(Mode::Enforce));
            }
        }
    }
}
