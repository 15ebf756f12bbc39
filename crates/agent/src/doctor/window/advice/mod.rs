//! What would help, cheapest first: pure, from the figures of a window.

mod guest;
mod port;
mod vm;

use std::fmt;

use serde::Serialize;

use super::figures::Figures;

/// What a cure costs, cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// A command, at work at once and taken back as easily.
    Command,
    /// The VM is configured otherwise and started again.
    Restart,
    /// Something is installed in the guest.
    Install,
    /// Cores, which others do not get.
    Capacity,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Command => "a command",
            Self::Restart => "a restart",
            Self::Install => "an installation",
            Self::Capacity => "cores",
        })
    }
}

/// What would help. Cures of the same cost are listed in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cure {
    /// A shorter period of the quota, at the same share.
    QuotaPeriod,
    /// Unused quota is saved for later.
    QuotaBurst,
    /// To look into the VM, which takes no packets.
    Guest,
    /// A longer queue at the port.
    QueueLength,
    /// Settings of TCP that undo needless timeouts.
    TcpSettings,
    /// More room between device and stack.
    NetdevBacklog,
    /// To look at the host below.
    HostBelow,
    /// Shorter slices for virtual CPUs.
    Slice,
    /// The kernel carries the VM's packets.
    Vhost,
    /// Several queues, with a thread of vhost each.
    Multiqueue,
    /// A longer ring in the VM's network card.
    RingSize,
    /// The guest module.
    Pvtcp,
    /// More quota.
    Quota,
    /// Fewer neighbours on the VM's cores.
    Cores,
}

impl fmt::Display for Cure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::QuotaPeriod => "a shorter quota period",
            Self::QuotaBurst => "a burst on top of the quota",
            Self::Guest => "a look into the VM",
            Self::QueueLength => "a longer queue",
            Self::TcpSettings => "TCP's own remedies",
            Self::NetdevBacklog => "a longer backlog",
            Self::HostBelow => "a look at the host below",
            Self::Slice => "shorter slices",
            Self::Vhost => "vhost",
            Self::Multiqueue => "several queues",
            Self::RingSize => "a longer ring in the VM",
            Self::Pvtcp => "PVTCP in the guest",
            Self::Quota => "more quota",
            Self::Cores => "fewer neighbours",
        })
    }
}

/// An advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What it costs.
    pub cost: Cost,
    /// What would help.
    pub cure: Cure,
    /// What it is for: `tap0`, `qemu-system-x86 (process 7)`, `this machine`.
    pub subject: String,
    /// The reason: what was measured.
    pub why: String,
    /// What to do.
    pub how: String,
}

/// What would help, cheapest first; of the same cost and cure, in the order of ports and VMs.
pub(super) fn advise(figures: &Figures) -> Vec<Advice> {
    let mut all: Vec<Advice> = figures.vms.iter().flat_map(|vm| vm::advise(vm, figures)).collect();
    all.extend(figures.ports.iter().flat_map(|port| port::advise(port, figures)));
    all.extend(guest::advise(figures));
    all.extend(port::host_backlog(figures));
    all.sort_by_key(|advice| (advice.cost, advice.cure));
    all
}

/// A time in milliseconds, as people read it.
fn ms(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0} ms") } else { format!("{value:.1} ms") }
}

/// A path as a shell takes it: systemd's names have backslashes in them.
fn in_shell(path: &str) -> String {
    if path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) {
        return path.to_owned();
    }
    format!("'{}'", path.replace('\'', r"'\''"))
}
