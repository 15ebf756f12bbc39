//! Which of TCP's own defences against needless timeouts are on.

use super::finding::{Finding, Level};
use super::machine::Machine;
use super::readings::Readings;

/// The switches, one finding each where the kernel has it.
pub(super) fn findings(readings: &Readings, machine: &Machine) -> Vec<Finding> {
    let number =
        |name: &str| readings.sysctls.get(name).and_then(|text| text.split_whitespace().next()?.parse::<u32>().ok());
    let on = |name: &str| number(name).is_some_and(|n| n != 0);
    let mut findings = Vec::new();
    if let Some(mode) = number("tcp_early_retrans") {
        findings.push(tail_loss_probe(matches!(mode, 3 | 4) && on("tcp_sack"), machine));
    }
    if number("tcp_timestamps").is_some() {
        findings.push(undo(on("tcp_timestamps"), on("tcp_frto"), on("tcp_sack") && on("tcp_dsack")));
    }
    if let Some(recovery) = number("tcp_recovery") {
        findings.push(rack(recovery & 1 != 0 && on("tcp_sack"), machine));
    }
    if let Some(routes) = &readings.routes {
        findings.push(delayed_ack(routes));
    }
    findings
}

fn tail_loss_probe(on: bool, machine: &Machine) -> Finding {
    if on {
        let meaning = if machine.is_guest() {
            "After an absence of a few round trips the first answer is one needless probe and not yet a timeout. What \
             remains are probes, and round-trip times with the absence in them, from which later timeouts are made. \
             PVTCP holds probes off as well."
        } else {
            "A lost tail is found after two round trips instead of a timeout."
        };
        return Finding::new("TLP", Level::Ok, "on", meaning);
    }
    let meaning = "Without the tail-loss probe every absence that is longer than the timeout is a timeout, and a lost \
        tail always is.";
    Finding::new("TLP", Level::Note, "off", meaning)
        .next("sysctl net.ipv4.tcp_early_retrans=3 (needs net.ipv4.tcp_sack=1)")
}

fn undo(timestamps: bool, f_rto: bool, dsack: bool) -> Finding {
    let state = |on: bool| if on { "on" } else { "off" };
    let fact = format!("timestamps {}, F-RTO {}, DSACK {}", state(timestamps), state(f_rto), state(dsack));
    if timestamps {
        let meaning =
            "A sender that timed out needlessly finds out with the first ACK (Eifel) and takes its window back.";
        return Finding::new("undo", Level::Ok, fact, meaning);
    }
    let meaning = if f_rto {
        "Without timestamps a needless timeout is found only by F-RTO, which needs new data to send and two ACKs."
    } else {
        "A needless timeout is not found: the window stays at one segment and grows anew."
    };
    Finding::new("undo", Level::Note, fact, meaning).next("sysctl net.ipv4.tcp_timestamps=1")
}

fn rack(on: bool, machine: &Machine) -> Finding {
    if !on {
        let meaning =
            "Losses are found by three duplicate ACKs, which short transfers and lost retransmissions do not give.";
        return Finding::new("RACK", Level::Note, "off", meaning)
            .next("sysctl net.ipv4.tcp_recovery=1 (needs net.ipv4.tcp_sack=1)");
    }
    let guest =
        if machine.is_guest() { " Its reordering timer can run late after an absence, as the others do." } else { "" };
    Finding::new("RACK", Level::Ok, "on", format!("Losses are found by time, without three duplicate ACKs.{guest}"))
}

fn delayed_ack(routes: &str) -> Finding {
    let quick: Vec<&str> = routes
        .lines()
        .filter(|line| line.split_whitespace().collect::<Vec<_>>().windows(2).any(|pair| pair == ["quickack", "1"]))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if quick.is_empty() {
        let meaning = "The kernel's own rule: it adapts, and acknowledges at once where it pays. With a small RTO \
            floor at the sender, a delayed ACK (40 ms) of an old or foreign stack can run its timer.";
        return Finding::new("delayed ACK", Level::Ok, "on", meaning);
    }
    let meaning =
        "Every segment is acknowledged at once there. It costs processor time and, on a busy receiver, packets.";
    Finding::new("delayed ACK", Level::Note, format!("off on the route to {}", quick.join(", ")), meaning)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn judged(values: &[(&str, &str)]) -> BTreeMap<&'static str, (Level, String)> {
        let sysctls = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let readings = Readings { sysctls, ..Readings::default() };
        let machine =
            Machine { hypervisor: Some("KVM".into()), steal_clock: None, pvtcp_mode: None, takes_pvtcp: true };
        findings(&readings, &machine).into_iter().map(|f| (f.topic, (f.level, f.fact))).collect()
    }

    #[test]
    fn as_linux_ships() {
        let shipped = [
            ("tcp_early_retrans", "3"),
            ("tcp_sack", "1"),
            ("tcp_dsack", "1"),
            ("tcp_timestamps", "1"),
            ("tcp_frto", "2"),
            ("tcp_recovery", "1"),
        ];
        let judged = judged(&shipped);
        assert!(judged.values().all(|(level, _)| *level == Level::Ok), "{judged:?}");
        assert_eq!(judged["undo"].1, "timestamps on, F-RTO on, DSACK on");
    }

    #[test]
    fn as_in_the_papers_day() {
        let judged = judged(&[
            ("tcp_early_retrans", "0"),
            ("tcp_sack", "1"),
            ("tcp_timestamps", "0"),
            ("tcp_frto", "2"),
            ("tcp_recovery", "0"),
        ]);
        assert_eq!(judged["TLP"], (Level::Note, "off".to_owned()));
        assert_eq!(judged["RACK"], (Level::Note, "off".to_owned()));
        assert_eq!(judged["undo"].0, Level::Note);
    }

    #[test]
    fn without_sack_there_is_no_probe() {
        assert_eq!(judged(&[("tcp_early_retrans", "3"), ("tcp_sack", "0")])["TLP"].1, "off");
    }

    #[test]
    fn a_kernel_that_shows_nothing_is_not_judged() {
        assert!(judged(&[]).is_empty());
    }

    #[test]
    fn quick_acks_are_per_route() {
        assert_eq!(delayed_ack("default via 192.0.2.1 dev eth0\n").fact, "on");
        assert_eq!(
            delayed_ack("10.0.0.0/24 dev eth0 rto_min 1ms quickack 1\n").fact,
            "off on the route to 10.0.0.0/24"
        );
        assert_eq!(delayed_ack("10.0.0.0/24 dev eth0 quickack 0\n").fact, "on");
    }
}
