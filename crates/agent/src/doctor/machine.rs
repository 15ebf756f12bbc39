//! Where this machine is: on bare metal or in a VM, and whether it gets its cores when it wants them.

use std::time::Duration;

use super::finding::{Finding, Level, Mechanism};
use super::kernel;
use super::readings::Readings;

/// Shares of lost time, in percent, from which a finding is a note, and a problem.
const NOTE_PERCENT: f64 = 0.1;
const PROBLEM_PERCENT: f64 = 1.0;
/// `/proc/stat` counts in steps of 10 ms: fewer steps than these in a second are rounding.
const SAMPLE_STEPS: u64 = 3;
/// A sleeper this late has lost its core to somebody.
const PAUSE: Duration = Duration::from_millis(8);

/// Where this machine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    /// The hypervisor, if this is a VM.
    pub hypervisor: Option<String>,
    /// Whether the hypervisor says when it takes the core away; `None` if that cannot be told.
    pub steal_clock: Option<bool>,
    /// The guest module's mode, if it is loaded.
    pub pvtcp_mode: Option<String>,
    /// Whether this kernel can take the guest module.
    pub takes_pvtcp: bool,
}

impl Machine {
    /// Tells where this machine is from what was read.
    pub fn of(readings: &Readings) -> Self {
        let flagged = readings.cpuinfo.as_deref().is_some_and(has_hypervisor_flag);
        let hypervisor = readings.hypervisor.clone().or_else(|| flagged.then(|| "a hypervisor".to_owned()));
        let ignored =
            readings.cmdline.as_deref().is_some_and(|c| c.split_whitespace().any(|word| word == "no-steal-acc"));
        let counted = readings.stat_after.as_deref().and_then(Times::parse).is_some_and(|t| t.steal > 0);
        let offered = match hypervisor.as_deref() {
            Some("QEMU without KVM (TCG)") => Some(false),
            Some("Xen") => Some(true),
            _ => readings.kvm_steal_clock,
        };
        let steal_clock = if counted {
            Some(true)
        } else if ignored {
            Some(false)
        } else {
            offered
        };
        Self {
            hypervisor,
            steal_clock,
            pvtcp_mode: readings.pvtcp_mode.clone(),
            takes_pvtcp: kernel::obstacles(readings).is_empty(),
        }
    }

    /// Whether this is a VM, so that others may use its cores.
    pub fn is_guest(&self) -> bool {
        self.hypervisor.is_some()
    }

    /// Whether the guest module is at work.
    pub fn is_protected(&self) -> bool {
        self.pvtcp_mode.as_deref() == Some("enforce")
    }
}

fn has_hypervisor_flag(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|l| l.starts_with("flags"));
    flags.is_some_and(|l| l.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// Where this machine is, as a finding.
pub(super) fn machine(machine: &Machine) -> Finding {
    match &machine.hypervisor {
        Some(name) => Finding::new(
            "machine",
            Level::Ok,
            format!("a VM, under {name}"),
            "Other VMs may share its cores. TCP in here cannot see when it is off its core, and takes that for \
             congestion.",
        ),
        None => Finding::new(
            "machine",
            Level::Ok,
            "no hypervisor below",
            "Its own TCP always has its cores. What is said of TCP here matters to the VMs it hosts, if their settings \
             are the same.",
        ),
    }
}

/// The processor's time, in steps of 10 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    busy: u64,
    steal: u64,
}

impl Times {
    /// Reads the line of all processors in `/proc/stat`.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|l| l.strip_prefix("cpu "))?;
        let fields: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal
        let [user, nice, system, _, _, irq, softirq, steal, ..] = fields[..] else { return None };
        Some(Self { busy: user + nice + system + irq + softirq, steal })
    }

    fn since(self, before: Self) -> Self {
        Self { busy: self.busy.saturating_sub(before.busy), steal: self.steal.saturating_sub(before.steal) }
    }

    /// The share of the wanted time that was not given, in percent.
    fn lost_percent(self) -> f64 {
        let wanted = self.busy + self.steal;
        if wanted == 0 { 0.0 } else { 100.0 * self.steal as f64 / wanted as f64 }
    }
}

/// How much of the wanted time others got.
pub(super) fn steal(readings: &Readings, machine: &Machine) -> Vec<Finding> {
    if !machine.is_guest() {
        return Vec::new();
    }
    let parse = |text: &Option<String>| text.as_deref().and_then(Times::parse);
    let clock = match machine.steal_clock {
        Some(true) => Finding::new(
            "steal clock",
            Level::Ok,
            "there",
            "The hypervisor says when it took a core away; PVTCP uses that beside the lateness of its timers.",
        ),
        Some(false) => Finding::new(
            "steal clock",
            Level::Note,
            "none",
            "Steal always reads 0, whatever is stolen. PVTCP needs no steal clock: it goes by the lateness of timers.",
        ),
        None => Finding::new(
            "steal clock",
            Level::Note,
            "unknown",
            "No steal has been counted; that may mean that none happened, or that this hypervisor does not tell.",
        ),
    };
    let mut findings = vec![clock];
    if machine.steal_clock != Some(false) {
        if let (Some(before), Some(after)) = (parse(&readings.stat_before), parse(&readings.stat_after)) {
            findings.push(lost_time(after, after.since(before), machine));
        }
    }
    findings.extend(pause(readings.longest_pause, machine));
    findings
}

fn lost_time(boot: Times, sample: Times, machine: &Machine) -> Finding {
    let (since_boot, now) = (boot.lost_percent(), sample.lost_percent());
    let fact = format!("{since_boot:.1} % of the core time it wanted since boot, {now:.1} % in the last second");
    let now_counts = sample.steal >= SAMPLE_STEPS;
    let at_least = |percent| since_boot >= percent || (now_counts && now >= percent);
    if at_least(PROBLEM_PERCENT) {
        let finding = Finding::new(
            "steal",
            Level::Problem,
            fact,
            "Others run when this VM wants to. Each time it comes back, timers of TCP have expired and round-trip \
             times are measured with the absence in them.",
        );
        return advise_pvtcp(finding, machine);
    }
    if at_least(NOTE_PERCENT) {
        return Finding::new(
            "steal",
            Level::Note,
            fact,
            "Little, on average. A share does not tell how long single absences are; one of 30 ms is enough to run a \
             timer.",
        );
    }
    Finding::new("steal", Level::Ok, fact, "This VM gets its cores when it wants them.")
}

fn pause(longest: Duration, machine: &Machine) -> Option<Finding> {
    let ms = longest.as_secs_f64() * 1e3;
    let fact = format!("a sleeper woke up to {ms:.1} ms late in one second");
    if longest < PAUSE {
        return Some(Finding::new("pauses", Level::Ok, fact, "Nothing held its core for long while this ran."));
    }
    let meaning = "A process of this machine or another VM had the core. TCP's timers are as late as that.";
    Some(advise_pvtcp(Finding::new("pauses", Level::Note, fact, meaning), machine))
}

/// Points to the guest module, unless it is at work already.
pub(super) fn advise_pvtcp(finding: Finding, machine: &Machine) -> Finding {
    if machine.is_protected() {
        let meaning = format!("{} PVTCP is loaded and takes care of that.", finding.meaning);
        return Finding { level: Level::Ok, meaning, ..finding };
    }
    if !machine.is_guest() {
        return finding;
    }
    let next =
        if machine.takes_pvtcp { "evenkeel guest pvtcp load" } else { "on a kernel that takes it, see PVTCP module" };
    finding.helped_by(Mechanism::Pvtcp).next(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  59595 0 22040 656048 1865 0 476 84 0 0\ncpu0 29020 0 9351 331265 239 0 64 42 0 0";

    fn guest() -> Machine {
        Machine { hypervisor: Some("KVM".into()), steal_clock: Some(true), pvtcp_mode: None, takes_pvtcp: true }
    }

    #[test]
    fn times_come_from_the_line_of_all_processors() {
        assert_eq!(Times::parse(STAT), Some(Times { busy: 59595 + 22040 + 476, steal: 84 }));
        assert_eq!(Times::parse("cpu  1 2 3"), None);
        assert_eq!(Times::parse(""), None);
    }

    #[test]
    fn a_share_is_of_the_time_that_was_wanted() {
        assert_eq!(Times { busy: 75, steal: 25 }.lost_percent(), 25.0);
        assert_eq!(Times { busy: 0, steal: 0 }.lost_percent(), 0.0);
    }

    #[test]
    fn steal_levels() {
        let judged = |boot_steal, sample_steal| {
            let sample = Times { busy: 100, steal: sample_steal };
            lost_time(Times { busy: 1_000_000, steal: boot_steal }, sample, &guest()).level
        };
        assert_eq!(judged(0, 0), Level::Ok);
        assert_eq!(judged(2_000, 0), Level::Note);
        assert_eq!(judged(20_000, 0), Level::Problem);
        // Rounding, and more than that.
        assert_eq!(judged(0, 2), Level::Ok);
        assert_eq!(judged(0, 10), Level::Problem);
    }

    #[test]
    fn a_loaded_module_takes_the_edge_off() {
        let machine = Machine { pvtcp_mode: Some("enforce".into()), ..guest() };
        let finding = lost_time(Times { busy: 90, steal: 10 }, Times { busy: 90, steal: 10 }, &machine);
        assert_eq!((finding.level, finding.mechanism), (Level::Ok, None));
    }

    #[test]
    fn a_clock_that_has_counted_is_there() {
        let readings = Readings {
            stat_after: Some(STAT.into()),
            cpuinfo: Some("flags : sse hypervisor".into()),
            ..Readings::default()
        };
        let machine = Machine::of(&readings);
        assert_eq!(machine.steal_clock, Some(true));
        assert_eq!(machine.hypervisor.as_deref(), Some("a hypervisor"));
    }

    #[test]
    fn tcg_has_no_steal_clock() {
        let readings = Readings { hypervisor: Some("QEMU without KVM (TCG)".into()), ..Readings::default() };
        let machine = Machine::of(&readings);
        assert_eq!(machine.steal_clock, Some(false));
        let findings = steal(&Readings { longest_pause: Duration::from_millis(60), ..readings }, &machine);
        assert_eq!(findings.iter().map(|f| f.topic).collect::<Vec<_>>(), ["steal clock", "pauses"]);
        assert_eq!(findings[1].mechanism, Some(Mechanism::Pvtcp));
    }
}
