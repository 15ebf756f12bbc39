//! ProBoSCIS on simulated hosts: what its probes and its window do to a crowded port.

use std::collections::BTreeMap;

use evenkeel_scenario::Scenario;
use evenkeel_scenario::result::RunRecord;
use evenkeel_scenario::sweep::cells;
use evenkeel_sim::run::{Go, run};

/// Short flows of many senders to one port of 100 segments, marked from 20 on; elephants are there already.
fn crowded(host: &str, guests: &str) -> RunRecord {
    let text = format!(
        r#"
schema = 2
name = "crowded"
title = "Crowded"
duration_ms = 300
warmup_ms = 50
[network]
rate_mbit = 10000
delay_us = 20
buffer_segments = 100
queue = {{ discipline = "red", ecn_threshold_segments = 20 }}
[vms.sender]
count = 16
host_delay_us = 0
hz = 0
proboscis = {host}
tcp = {{ congestion_control = "reno", initial_window_segments = 10 {guests} }}
[vms.receiver]
host_delay_us = 0
hz = 0
proboscis = {host}
tcp = {{ congestion_control = "reno" {guests} }}
[workloads.w]
kind = "poisson"
from = "sender"
to = "receiver"
sizes = "websearch"
load = 0.9
[record]
tcp_info_period_ms = 0
"#
    );
    let loaded = Scenario::from_str(&text, "crowded.toml").unwrap_or_else(|e| panic!("{e}"));
    let cell = &cells(&loaded).unwrap()[0];
    run(cell, 0, &mut |_| Go::On).unwrap_or_else(|e| panic!("{e}")).record
}

fn sum(record: &RunRecord, counter: &str) -> i64 {
    record.counters.values().filter_map(|vm: &BTreeMap<String, i64>| vm.get(counter)).sum()
}

const OFF: &str = "{ mode = \"off\" }";
const ENFORCE: &str = "{ mode = \"enforce\" }";

#[test]
fn probes_are_sent_counted_and_kept_from_guests() {
    let record = crowded(ENFORCE, "");
    let (sent, seen) = (sum(&record, "ProboscisProbesSent"), sum(&record, "ProboscisProbesSeen"));
    assert!(sent >= 10 * record.metrics["flows"] as i64, "ten before each SYN: {sent}");
    assert!(seen > sent / 2 && seen <= sent, "{seen} of {sent}");
    assert!(sum(&record, "ProboscisProbesMarked") > 0);
    assert!(sum(&record, "ProboscisSynAcksScaled") + sum(&record, "ProboscisSynAcksOneMss") > 0);
    assert_eq!(sum(&record, "SimEcnMarksReceived"), 0, "marks are hidden from guests that know no ECN");
    assert!(sum(&record, "ProboscisMarksEchoed") > 0);
}

#[test]
fn marks_take_the_place_of_losses() {
    let (without, with) = (crowded(OFF, ""), crowded(ENFORCE, ""));
    for metric in ["port_drops", "retransmitted", "timeouts"] {
        let (lost, marked) = (without.metrics[metric], with.metrics[metric]);
        assert!(marked < lost, "{metric}: {marked} with, {lost} without");
    }
}

#[test]
fn observing_changes_nothing_but_counts() {
    let (off, observed) = (crowded(OFF, ""), crowded("{ mode = \"observe\" }", ""));
    assert_eq!(off.flows, observed.flows);
    assert!(sum(&observed, "ProboscisProbesSent") > 0);
}

/// Guests that agree on ECN keep their own.
#[test]
fn ecn_of_guests_is_theirs() {
    let record = crowded(ENFORCE, ", ecn = \"on\"");
    assert!(sum(&record, "SimEcnMarksReceived") > 0);
    assert_eq!(sum(&record, "ProboscisMarksEchoed"), 0);
    assert_eq!(sum(&record, "ProboscisWindowsLimited"), 0);
}

#[test]
fn a_lost_syn_is_sent_again_long_before_its_own_timer() {
    // A run is over before a guest's own timer of a second.
    let with = crowded(ENFORCE, "");
    let hasty = crowded("{ mode = \"enforce\", b1_us = 1000, b2_us = 1000 }", "");
    let never = crowded("{ mode = \"enforce\", max_time_us = 0 }", "");
    let counts = [&with, &hasty].map(|record| sum(record, "ProboscisSynsRepeated"));
    assert!(counts[0] > 0 && counts[1] >= counts[0]);
    assert_eq!(sum(&never, "ProboscisSynsRepeated"), 0);
}

/// The first flight keeps to the window, so elephants that are left alone must not be slower than those that are not.
#[test]
fn elephants_can_be_left_alone() {
    let (all, mice) = (crowded(ENFORCE, ""), crowded("{ mode = \"enforce\", elephant_bytes = 100000 }", ""));
    assert!(sum(&mice, "ProboscisWindowsLimited") < sum(&all, "ProboscisWindowsLimited"));
    assert!(sum(&mice, "ProboscisWindowsLimited") > 0);
}

/// As `crowded`, but the receiver opens the connections and asks; the arguments are both groups' ProBoSCIS settings.
fn asked(receiver: &str, senders: &str) -> RunRecord {
    let text = format!(
        r#"
schema = 2
name = "asked"
title = "Asked"
duration_ms = 3000
warmup_ms = 500
[network]
rate_mbit = 100
delay_us = 20
buffer_segments = 100
queue = {{ discipline = "red", ecn_threshold_segments = 20 }}
[vms.sender]
count = 4
host_delay_us = 0
hz = 0
proboscis = {senders}
tcp = {{ congestion_control = "reno" }}
[vms.receiver]
host_delay_us = 0
hz = 0
proboscis = {receiver}
[workloads.w]
kind = "poisson"
from = "sender"
to = "receiver"
sizes = 15000
request_bytes = 200
load = 0.2
burst_flows = 20
background_flows = 1
[record]
tcp_info_period_ms = 0
"#
    );
    let loaded = Scenario::from_str(&text, "asked.toml").unwrap_or_else(|e| panic!("{e}"));
    run(&cells(&loaded).unwrap()[0], 0, &mut |_| Go::On).unwrap_or_else(|e| panic!("{e}")).record
}

const ANSWERS: &str = "{ mode = \"enforce\", answers = true }";

#[test]
fn answers_have_probes_where_both_hosts_say_so() {
    let record = asked(ANSWERS, ANSWERS);
    let flows = record.metrics["flows"] as i64;
    let sent = sum(&record, "ProboscisAnswerProbesSent");
    assert!(sent >= 2 * flows && sent <= sum(&record, "ProboscisProbesSent"), "{sent} of {flows} flows");
    let cut = sum(&record, "ProboscisAnswersScaled") + sum(&record, "ProboscisAnswersOneMss");
    assert!(cut > flows * 9 / 10 && sum(&record, "ProboscisAnswersOneMss") > 0, "{cut} of {flows} flows");
    for (receiver, senders) in [(ANSWERS, ENFORCE), (ENFORCE, ANSWERS)] {
        let record = asked(receiver, senders);
        for counter in ["ProboscisAnswerProbesSent", "ProboscisAnswersScaled", "ProboscisAnswersOneMss"] {
            assert_eq!(sum(&record, counter), 0, "{counter}");
        }
    }
}

/// If one host does not ask, or does not answer, nothing changes but the bit that asks.
#[test]
fn one_host_with_answers_is_as_none() {
    let none = asked(ENFORCE, ENFORCE);
    assert_eq!(none.flows, asked(ANSWERS, ENFORCE).flows);
    assert_eq!(none.flows, asked(ENFORCE, ANSWERS).flows);
    assert_ne!(none.flows, asked(ANSWERS, ANSWERS).flows);
}

/// The first flights of twenty answers at once are more than the port holds.
#[test]
fn answers_that_are_probed_for_lose_less() {
    let (without, with) = (asked(ENFORCE, ENFORCE), asked(ANSWERS, ANSWERS));
    for metric in ["port_drops", "retransmitted", "timeouts"] {
        let (before, after) = (without.metrics[metric], with.metrics[metric]);
        assert!(after < before / 2.0, "{metric}: {after} with, {before} without");
    }
}
