//! What the loaded module is set to and has counted.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::error::PvtcpError;
use super::settings::PARAMETERS;
use super::{MODULE, SYSFS};

/// The module's counters, with what they count.
pub const COUNTERS: &[(&str, &str)] = &[
    ("wakeups", "times a virtual CPU came back to its core"),
    ("wakeups_by_steal", "of these, seen by the steal clock alone"),
    ("wakeup_max_us", "the longest absence, in microseconds"),
    ("held_rto", "retransmission timeouts held off"),
    ("held_tlp", "tail-loss probes held off"),
    ("held_reo", "reordering timers held off"),
    ("held_overtaken", "held timers that an ACK made needless"),
    ("held_ran", "held timers that ran after all"),
    ("held_left", "held timers left to run a tick or two later: their socket was in use"),
    ("held_overflow", "timers beyond the room for held ones, put off by one tick"),
    ("rtt_filtered", "round-trip times replaced by the smoothed one"),
    ("idle_filtered", "idle times that an absence was taken out of"),
    ("jit_acks", "connections told to acknowledge at once"),
];

/// Functions that the module watches. Of the names in one entry, a kernel has one.
const PROBED: &[&[&str]] = &[
    &["tick_sched_timer", "tick_nohz_handler"],
    &["tcp_write_timer_handler"],
    &["tcp_ack_update_rtt"],
    &["tcp_cwnd_restart"],
    &["tcp_event_data_recv"],
];

/// The module's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Whether it is loaded. If not, the rest is empty.
    pub loaded: bool,
    /// Its version, if it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Parameters by name.
    pub parameters: BTreeMap<String, String>,
    /// Counters by name, since the module was loaded or its counters were reset.
    pub counters: BTreeMap<String, u64>,
    /// Why counters may tell less than the truth; empty if they can be trusted.
    pub doubts: Vec<String>,
}

/// Asks the module.
///
/// # Errors
/// [`PvtcpError::Io`] if it is loaded and does not answer.
pub fn status() -> Result<Status, PvtcpError> {
    let mut status = read_status(Path::new(SYSFS))?;
    if status.loaded {
        let text = |path: &str| fs::read_to_string(path).ok();
        status.doubts = doubts(
            text("/sys/kernel/debug/kprobes/enabled").as_deref(),
            text("/sys/kernel/debug/kprobes/list").as_deref(),
            text("/proc/sys/kernel/ftrace_enabled").as_deref(),
        );
        status.doubts.extend(doubts_of_mode(&status));
    }
    Ok(status)
}

/// Parameters and counters below the module's directory.
fn read_status(module: &Path) -> Result<Status, PvtcpError> {
    let mut status = Status {
        loaded: module.exists(),
        version: None,
        parameters: BTreeMap::new(),
        counters: BTreeMap::new(),
        doubts: Vec::new(),
    };
    if !status.loaded {
        return Ok(status);
    }
    status.version = fs::read_to_string(module.join("version")).ok().map(|text| text.trim().to_owned());
    for parameter in PARAMETERS.iter() {
        if let Some(value) = read_parameter(module, parameter.name)? {
            status.parameters.insert(parameter.name.to_owned(), value);
        }
    }
    for (name, _) in COUNTERS {
        if let Some(value) = read_parameter(module, name)?.and_then(|text| text.parse().ok()) {
            status.counters.insert((*name).to_owned(), value);
        }
    }
    Ok(status)
}

/// A parameter or counter of the loaded module; `None` if it has none of that name.
pub(super) fn read_parameter(module: &Path, name: &str) -> Result<Option<String>, PvtcpError> {
    let path = module.join("parameters").join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PvtcpError::io(format!("cannot read {}", path.display()), error)),
    }
}

/// Reasons to doubt the counters: if the kernel's probes are switched off, the module stops without noticing it.
fn doubts(kprobes_enabled: Option<&str>, kprobes: Option<&str>, ftrace_enabled: Option<&str>) -> Vec<String> {
    let mut doubts = Vec::new();
    if kprobes_enabled.is_some_and(|text| text.trim() == "0") {
        doubts.push(
            "all kprobes of this kernel are switched off (/sys/kernel/debug/kprobes/enabled): the module does nothing"
                .to_owned(),
        );
    }
    if ftrace_enabled.is_some_and(|text| text.trim() == "0") {
        doubts.push("ftrace is switched off (kernel.ftrace_enabled=0), and the module's probes with it".to_owned());
    }
    let Some(kprobes) = kprobes else {
        doubts.push(
            "the list of kprobes cannot be read (root and debugfs are needed), so nobody checked that all \
             probes are in place"
                .to_owned(),
        );
        return doubts;
    };
    for names in PROBED {
        let is_live = |line: &str| {
            let on_function = |name: &&str| line.split_whitespace().any(|word| word.split('+').next() == Some(*name));
            names.iter().any(on_function) && !line.contains("[DISABLED]") && !line.contains("[GONE]")
        };
        if !kprobes.lines().any(is_live) {
            doubts.push(format!("the probe on {}() is not in place", names.join("() or ")));
        }
    }
    doubts
}

fn doubts_of_mode(status: &Status) -> Option<String> {
    match status.parameters.get("mode").map(String::as_str) {
        Some("off") => Some("the mode is off: nothing is counted".to_owned()),
        Some("observe") => Some(
            "the mode is observe: counters say what would have been done, and more of it than in mode enforce, where a \
             held timer spares those after it"
                .to_owned(),
        ),
        _ => None,
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.loaded {
            return writeln!(f, "{MODULE} is not loaded");
        }
        let version = self.version.as_ref().map(|v| format!(" {v}")).unwrap_or_default();
        writeln!(f, "{MODULE}{version} is loaded\n\nparameters")?;
        for parameter in PARAMETERS.iter() {
            let value = self.parameters.get(parameter.name).map_or("-", String::as_str);
            writeln!(f, "  {:<18} {value:>12}", parameter.name)?;
        }
        writeln!(f, "\ncounters")?;
        for (name, what) in COUNTERS {
            let value = self.counters.get(*name).map_or("-".to_owned(), u64::to_string);
            writeln!(f, "  {name:<18} {value:>12}  {what}")?;
        }
        writeln!(f)?;
        if self.doubts.is_empty() {
            return writeln!(f, "The counters can be trusted: every probe of the module is in place.");
        }
        self.doubts.iter().try_for_each(|doubt| writeln!(f, "doubt: {doubt}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = include_str!("../../../../../kernel/guest/pvtcp/counters.c");
    const LIST: &str = "ffffffff9c1 k  tick_nohz_handler+0x0    [FTRACE]\n\
        ffffffff9c2 k  tcp_write_timer_handler+0x0    [FTRACE]\n\
        ffffffff9c3 k  tcp_ack_update_rtt+0x0    [FTRACE]\n\
        ffffffff9c5 k  tcp_cwnd_restart+0x0    [FTRACE]\n\
        ffffffff9c4 k  tcp_event_data_recv+0x0    [FTRACE]\n";

    #[test]
    fn all_probes_in_place_leave_no_doubt() {
        assert_eq!(doubts(Some("1\n"), Some(LIST), Some("1\n")), [""; 0]);
        assert_eq!(doubts(None, Some(&LIST.replace("tick_nohz_handler", "tick_sched_timer")), None), [""; 0]);
    }

    #[test]
    fn probes_that_are_off_are_named() {
        let list = LIST.replace("rtt+0x0    [FTRACE]", "rtt+0x0    [DISABLED][FTRACE]");
        let found = doubts(Some("0\n"), Some(&list), Some("0"));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[2].contains("tcp_ack_update_rtt"));
        assert_eq!(doubts(None, None, None).len(), 1);
    }

    #[test]
    fn the_probes_are_the_modules() {
        let module = include_str!("../../../../../kernel/guest/pvtcp/main.c");
        let named = |name: &&str| module.contains(&format!("symbol_name = \"{name}\""));
        assert!(PROBED.concat().iter().all(named), "{PROBED:?}");
        assert_eq!(module.matches("symbol_name = \"").count(), PROBED.concat().len());
    }

    #[test]
    fn the_table_is_the_modules() {
        for (name, _) in COUNTERS {
            assert!(SOURCE.contains(&format!("({name}, ")), "{name} is not a counter of the module");
        }
        let there = SOURCE.lines().filter(|l| l.starts_with("COUNTER(")).count();
        // The longest absence has a line of another shape.
        assert_eq!(there + 1, COUNTERS.len());
    }

    #[test]
    fn a_module_that_is_not_loaded_has_a_status() {
        let status = read_status(Path::new("/nonexistent")).unwrap();
        assert!(!status.loaded);
        assert_eq!(status.to_string(), "evenkeel_pvtcp is not loaded\n");
    }

    #[test]
    fn a_loaded_module_is_read_whole() {
        let module = tempfile::tempdir().unwrap();
        let parameters = module.path().join("parameters");
        fs::create_dir(&parameters).unwrap();
        for (name, value) in [("mode", "observe\n"), ("hold_rto", "Y\n"), ("wakeups", "12\n"), ("reset_counters", "")] {
            fs::write(parameters.join(name), value).unwrap();
        }
        let status = read_status(module.path()).unwrap();
        assert_eq!((status.parameters["mode"].as_str(), status.counters["wakeups"]), ("observe", 12));
        assert!(doubts_of_mode(&status).unwrap().contains("observe"));
        let text = status.to_string();
        assert!(text.contains("wakeups                      12  times a virtual CPU"), "{text}");
    }
}
