//! What TCP has counted since boot: how much of what it sent again was needless.

use std::collections::BTreeMap;

use super::finding::{Finding, Level};
use super::machine::{Machine, advise_pvtcp};
use super::readings::Readings;

/// Groups of counters that are TCP's.
const GROUPS: &[&str] = &["Tcp", "TcpExt"];
/// Fewer events are no evidence.
const ENOUGH: u64 = 50;
/// Shares of needless work, in percent, from which a finding is a note, and a problem.
const NOTE_PERCENT: f64 = 5.0;
const PROBLEM_PERCENT: f64 = 25.0;
/// Needless retransmissions below this share of all segments, in percent, cost next to nothing.
const COSTLY_PERCENT: f64 = 0.1;

/// Counters of these groups by nstat's names without the group: pairs of lines, names above values.
pub(super) fn counters<'a>(text: &'a str, groups: &[&str]) -> BTreeMap<&'a str, u64> {
    let mut found = BTreeMap::new();
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    for pair in lines.chunks_exact(2) {
        let (Some((group, names)), Some((same, values))) = (pair[0].split_once(':'), pair[1].split_once(':')) else {
            continue;
        };
        if group != same || !groups.contains(&group) {
            continue;
        }
        let values = values.split_whitespace().map(str::parse::<u64>);
        // Tcp's MaxConn is -1 and is not wanted.
        found.extend(names.split_whitespace().zip(values).filter_map(|(name, value)| Some((name, value.ok()?))));
    }
    found
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// Timeouts, retransmissions and probes.
pub(super) fn findings(readings: &Readings, machine: &Machine) -> Vec<Finding> {
    let Some(text) = &readings.netstat else { return Vec::new() };
    let counters = counters(text, GROUPS);
    let get = |name: &str| counters.get(name).copied().unwrap_or(0);
    vec![
        timeouts(get("TCPTimeouts"), get("TCPSynRetrans"), get("TCPLossUndo"), machine),
        retransmissions(get("RetransSegs"), get("OutSegs"), get("TCPDSACKRecv") + get("TCPDSACKOfoRecv"), machine),
        probes(get("TCPLossProbes"), get("TCPLossProbeRecovery"), machine),
    ]
}

fn level(share: f64, events: u64) -> Level {
    match share {
        _ if events < ENOUGH => Level::Ok,
        s if s >= PROBLEM_PERCENT => Level::Problem,
        s if s >= NOTE_PERCENT => Level::Note,
        _ => Level::Ok,
    }
}

fn timeouts(all: u64, syn: u64, undone: u64, machine: &Machine) -> Finding {
    let data = all.saturating_sub(syn);
    let share = percent(undone, data).min(100.0);
    let fact =
        format!("{data} since boot, {undone} of them found needless and undone ({share:.0} %); SYNs sent again: {syn}");
    let level = level(share, data);
    let meaning = match level {
        Level::Ok if data < ENOUGH => "Too few to judge.",
        Level::Ok => "Nearly all that were looked into were for real losses.",
        _ => {
            "Nothing was lost: the answer was only late, because a VM at either end was off its core or a queue was \
             long."
        }
    };
    let finding = Finding::new("timeouts", level, fact, meaning);
    if level == Level::Ok { finding } else { advise(finding, machine) }
}

/// Points to PVTCP. The counters go back to before it was loaded, so a loaded PVTCP does not make a finding `Ok`.
fn advise(finding: Finding, machine: &Machine) -> Finding {
    if !machine.is_protected() {
        return advise_pvtcp(finding, machine);
    }
    let meaning = format!("{} Some of it may date from before PVTCP was loaded.", finding.meaning);
    Finding { level: Level::Note, meaning, ..finding }
}

fn retransmissions(all: u64, sent: u64, needless: u64, machine: &Machine) -> Finding {
    let share = percent(needless, all).min(100.0);
    let fact = format!(
        "{:.2} % of the segments sent; the receivers had {needless} of {all} already ({share:.0} %)",
        percent(all, sent)
    );
    let costly = percent(needless, sent) >= COSTLY_PERCENT;
    let level = if costly { level(share, all) } else { level(share, all).min(Level::Note) };
    let meaning = match level {
        Level::Ok if all < ENOUGH => "Too few to judge.",
        Level::Ok => "What was sent again had mostly been lost.",
        _ => {
            "Sent again though it had arrived, as the receivers' DSACKs tell: needless timeouts and probes, or \
             reordering on the way."
        }
    };
    let finding = Finding::new("retransmitted", level, fact, meaning);
    if level == Level::Ok { finding } else { advise(finding, machine) }
}

fn probes(sent: u64, repaired: u64, machine: &Machine) -> Finding {
    let fact = format!("{sent} tail-loss probes since boot, {repaired} of them repaired a loss by themselves");
    let idle = sent.saturating_sub(repaired);
    // A probe that repaired nothing may still have told of a loss, so their number alone is never a problem.
    if sent < ENOUGH || percent(idle, sent) < PROBLEM_PERCENT {
        let meaning = if sent < ENOUGH { "Too few to judge." } else { "They are at work." };
        return Finding::new("probes", Level::Ok, fact, meaning);
    }
    let meaning = "Most met no loss: the ACK was only late.";
    let finding = Finding::new("probes", Level::Note, fact, meaning);
    advise(finding, machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETSTAT: &str = "TcpExt: SyncookiesSent TCPTimeouts TCPLossProbes TCPLossUndo TCPDSACKRecv\n\
        TcpExt: 0 900 400 450 300\n\
        IpExt: InNoRoutes TCPTimeouts\n\
        IpExt: 0 77\n\
        \n\
        Ip: Forwarding\n\
        Ip: 1\n\
        Tcp: RtoAlgorithm MaxConn OutSegs RetransSegs\n\
        Tcp: 1 -1 100000 1000\n";

    fn guest() -> Machine {
        Machine { hypervisor: Some("KVM".into()), steal_clock: None, pvtcp_mode: None, takes_pvtcp: true }
    }

    #[test]
    fn counters_of_tcp_only() {
        let counters = counters(NETSTAT, GROUPS);
        assert_eq!(counters["TCPTimeouts"], 900);
        assert_eq!(counters["OutSegs"], 100_000);
        assert!(!counters.contains_key("MaxConn") && !counters.contains_key("Forwarding"));
    }

    #[test]
    fn a_line_that_is_cut_off_is_passed_over() {
        assert!(counters("TcpExt: A B\n", GROUPS).is_empty());
        assert!(counters("TcpExt: A\nIpExt: 1\n", GROUPS).is_empty());
    }

    #[test]
    fn a_guest_that_was_hurt() {
        let readings = Readings { netstat: Some(NETSTAT.into()), ..Readings::default() };
        let findings = findings(&readings, &guest());
        let levels: Vec<_> = findings.iter().map(|f| (f.topic, f.level)).collect();
        assert_eq!(levels, [("timeouts", Level::Problem), ("retransmitted", Level::Problem), ("probes", Level::Note)]);
        assert!(findings[0].fact.contains("(50 %)"), "{}", findings[0].fact);
        assert!(findings.iter().all(|f| f.mechanism.is_some()));
    }

    #[test]
    fn few_events_are_no_evidence() {
        assert_eq!(timeouts(9, 2, 7, &guest()).level, Level::Ok);
        assert_eq!(retransmissions(10, 1000, 10, &guest()).level, Level::Ok);
        assert_eq!(probes(10, 0, &guest()).level, Level::Ok);
    }

    #[test]
    fn a_large_share_of_very_little_is_no_problem() {
        assert_eq!(retransmissions(61, 150_000, 56, &guest()).level, Level::Note);
        assert_eq!(retransmissions(610, 150_000, 560, &guest()).level, Level::Problem);
    }

    #[test]
    fn timeouts_of_syns_do_not_count() {
        assert_eq!(timeouts(1000, 990, 10, &guest()).level, Level::Ok);
        assert_eq!(timeouts(5, 12, 0, &guest()).level, Level::Ok);
    }
}
