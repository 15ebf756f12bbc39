//! Advice on this machine's own TCP, if it is a VM: what its absences do to TCP.

use super::super::figures::{Figures, TcpFigures, percent};
use super::{Advice, Cost, Cure, ms};

/// Fewer events are no evidence.
const ENOUGH: u64 = 10;
/// From this share of timeouts and probes, or of retransmitted segments, in percent, needless ones get advice.
const NEEDLESS_PERCENT: f64 = 25.0;
/// From this share of the segments sent, in percent, losses get advice.
const COSTLY_PERCENT: f64 = 0.1;
/// From this share of the wanted time, in percent, time that was not given is mentioned.
const STEAL_PERCENT: f64 = 1.0;
/// Settings, and what they are by default; all are off at 0.
const REMEDIES: [(&str, &str); 5] =
    [("tcp_sack", "1"), ("tcp_timestamps", "1"), ("tcp_early_retrans", "3"), ("tcp_recovery", "1"), ("tcp_frto", "2")];

pub(super) fn advise(figures: &Figures) -> Vec<Advice> {
    let Some(tcp) = figures.tcp.as_ref().filter(|_| figures.is_guest) else { return Vec::new() };
    let Some(harm) = needless(tcp).or_else(|| losses(tcp)) else { return Vec::new() };
    let is_needless = needless(tcp).is_some();
    let mut all: Vec<Advice> = settings(figures, &harm).into_iter().collect();
    let absences = absences(figures);
    if !is_needless || absences.is_some() {
        let why = absences.as_ref().map_or_else(|| harm.clone(), |absences| format!("{harm}; {absences}"));
        let how = "`evenkeel doctor --for 60` on the host: a quota's period, a short queue, neighbours";
        all.push(advice(Cost::Command, Cure::HostBelow, why, how));
    }
    if is_needless && figures.pvtcp_mode.as_deref() != Some("enforce") {
        let why = absences.map_or(harm.clone(), |absences| format!("{harm}; {absences}"));
        let how = "evenkeel guest pvtcp install, then evenkeel guest pvtcp load";
        all.push(advice(Cost::Install, Cure::Pvtcp, why, how));
    }
    all
}

fn advice(cost: Cost, cure: Cure, why: String, how: &str) -> Advice {
    Advice { cost, cure, subject: "this machine".to_owned(), why, how: how.to_owned() }
}

/// Timers that ran although nothing was lost.
fn needless(tcp: &TcpFigures) -> Option<String> {
    let timers = tcp.timeouts + tcp.probes;
    let is_undone = timers >= ENOUGH && percent(tcp.undone as f64, timers as f64) >= NEEDLESS_PERCENT;
    let share = percent(tcp.needless as f64, tcp.retransmitted as f64);
    let is_sent_in_vain = tcp.needless >= ENOUGH && share >= NEEDLESS_PERCENT;
    (is_undone || is_sent_in_vain).then(|| {
        format!(
            "{} timeouts and {} probes, of which {} were undone as needless ({} by F-RTO); the receivers had {} of {} \
             retransmitted segments already",
            tcp.timeouts, tcp.probes, tcp.undone, tcp.spurious, tcp.needless, tcp.retransmitted
        )
    })
}

/// Segments that really were lost.
fn losses(tcp: &TcpFigures) -> Option<String> {
    let lost = tcp.retransmitted.saturating_sub(tcp.needless);
    (lost >= ENOUGH && percent(lost as f64, tcp.sent as f64) >= COSTLY_PERCENT).then(|| {
        format!(
            "{lost} segments were lost, {:.2} % of those sent, and {} timeouts ran",
            percent(lost as f64, tcp.sent as f64),
            tcp.timeouts
        )
    })
}

/// What this VM knows of its own absences; `None` if there were none to speak of.
fn absences(figures: &Figures) -> Option<String> {
    let steal = figures.steal_percent.filter(|share| *share >= STEAL_PERCENT);
    let late = (figures.sleeper.late > 0).then(|| {
        let sleeper = figures.sleeper;
        format!("a sleeper woke up {} times 8 ms late or more, {} at worst", sleeper.late, ms(sleeper.longest_ms))
    });
    let words: Vec<String> = steal
        .map(|share| format!("{share:.1} % of the core time it wanted was stolen"))
        .into_iter()
        .chain(late)
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// TCP's own remedies that are switched off.
fn settings(figures: &Figures, harm: &str) -> Option<Advice> {
    let is_off = |(name, _): &&(&str, &str)| figures.sysctls.get(*name).is_some_and(|value| value == "0");
    let off: Vec<_> = REMEDIES.iter().filter(is_off).collect();
    if off.is_empty() {
        return None;
    }
    let names: Vec<&str> = off.iter().map(|(name, _)| *name).collect();
    let commands: Vec<String> = off.iter().map(|(name, value)| format!("net.ipv4.{name}={value}")).collect();
    let why = format!("{harm}; and what finds that out or repairs it sooner is switched off: {}", names.join(", "));
    Some(advice(Cost::Command, Cure::TcpSettings, why, &format!("sysctl -w {}", commands.join(" "))))
}
