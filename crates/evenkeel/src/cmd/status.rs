//! `evenkeel status`.

use std::fmt::Write as _;

use evenkeel_agent::datapath::{Beside, COUNTERS, Others};
use evenkeel_agent::host::{
    AGENT_COUNTERS, CeraReport, Channel, Client, Lacking, Status, Trial, VfloodPort, VsnoopPort,
};
use evenkeel_settings::Mode;

use crate::cli;
use crate::cmd::flows::amount;
use crate::cmd::port::words;
use crate::error::CliError;
use crate::output;

/// Asks the agent.
pub fn run(arguments: &cli::Status) -> Result<(), CliError> {
    let status = Client::connect(&arguments.agent.socket)?.status()?;
    if arguments.agent.json {
        output::print_json(&status)
    } else {
        output::print(&text(&output::on_one_line(&status)?))
    }
}

fn text(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text, status);
    text
}

fn write(text: &mut String, status: &Status) -> std::fmt::Result {
    let began = if status.took_over { "took over a running datapath" } else { "loaded the datapath" };
    writeln!(
        text,
        "evenkeel host {}, process {}, up {}; {began}",
        status.version,
        status.pid,
        uptime(status.uptime_s)
    )?;
    match &status.config_refused {
        None if status.config_is_default => {
            writeln!(text, "configuration: the defaults, because there is no {}", status.config.display())?;
        }
        None => writeln!(text, "configuration {}", status.config.display())?,
        Some(why) => writeln!(text, "configuration REFUSED, the settings before it hold: {why}")?,
    }
    if let Some(why) = &status.notes_error {
        writeln!(text, "what is changed here CANNOT BE NOTED, and no more queues are changed: {why}")?;
    }
    if let Some(hook) = status.attach {
        writeln!(text, "programs are on ports by {hook}")?;
    }
    for Lacking { part, why } in &status.lacking {
        writeln!(text, "{part} CANNOT WORK on this kernel: {why}")?;
    }
    if status.probe_keys == 0 {
        writeln!(text, "no probe key: no probes are sent or believed")?;
    }
    writeln!(
        text,
        "connections {} of {}, SYNs without an answer {}, SYN-ACKs held {}",
        status.flows, status.flows_room, status.syns_pending, status.synacks_held
    )?;
    if let Some(managed) = status.vflood_connections {
        writeln!(text, "connections of vFlood {managed} of {}", status.vflood_connections_room)?;
    }
    writeln!(text, "\n{:<16} {:<16} {:>7}  {:<8} {:>14}  state", "port", "domain", "ifindex", "mode", "queue")?;
    for port in &status.ports {
        let queue = match port.queue_before_segments {
            Some(before) => format!("{} (was {before})", port.queue_segments),
            None => port.queue_segments.to_string(),
        };
        let state = port.error.as_deref().unwrap_or("ok");
        let domain = port.domain().unwrap_or("-");
        writeln!(text, "{:<16} {domain:<16} {:>7}  {:<8} {queue:>14}  {state}", port.name, port.ifindex, port.mode)?;
    }
    if status.ports.is_empty() {
        writeln!(text, "(none; `ports` of the configuration has the patterns)")?;
    }
    for port in &status.ports {
        if let Some(vm) = &port.vm {
            writeln!(text, "VM at {}: {vm}{}", port.name, port.tap.map_or_else(String::new, |tap| format!("; {tap}")))?;
        }
        if let Some(trial) = &port.trial {
            writeln!(text, "TRIAL on {}: {}", port.name, tried(trial))?;
        }
        if let Some(left) = &port.offline {
            writeln!(text, "{} is OFFLINE: {}", port.name, words(left))?;
        }
        if let Some(words) = beside(&port.others) {
            writeln!(text, "other programs on {}: {words}", port.name)?;
        }
        if let Some(vsnoop) = &port.vsnoop {
            writeln!(text, "vSnoop on {}: {}", port.name, early_acks(vsnoop))?;
        }
        if let Some(vflood) = &port.vflood {
            writeln!(text, "vFlood on {}: {}", port.name, held(vflood))?;
        }
        if let Some(channel) = &port.channel {
            writeln!(text, "channel of {} at {}: {}", port.name, channel.address, guest(channel))?;
        }
    }
    if let Some(cera) = &status.cera {
        write_cera(text, status, cera)?;
    }
    writeln!(text, "\ncounters of the datapath, all ports together")?;
    counters(text, COUNTERS, &status.counters)?;
    writeln!(text, "\ncounters of the agent")?;
    counters(text, AGENT_COUNTERS, &status.agent)
}

fn write_cera(text: &mut String, status: &Status, cera: &CeraReport) -> std::fmt::Result {
    match &cera.error {
        Some(error) => writeln!(text, "\nCERA does NOTHING: {error}")?,
        None => {
            let window = match cera.window_segments {
                0 => "nobody is limited".to_owned(),
                window => format!("window {window} segments"),
            };
            writeln!(text, "\nCERA: {} segments wait, {window}, RTT {} us", cera.queue_segments, cera.rtt_us)?;
        }
    }
    for uplink in &cera.uplinks {
        let mbit = uplink.bytes_per_s / 125_000;
        writeln!(text, "uplink {} ({}), {mbit} Mbit/s ({})", uplink.name, uplink.qdisc, uplink.rate_from)?;
    }
    let seconds = cera.cpu_us as f64 / 1e6;
    writeln!(
        text,
        "{} cuts in {} epochs of {} us, {} epochs missed, {seconds:.1} s of a CPU",
        cera.cuts, cera.epochs, cera.epoch_us, cera.epochs_missed
    )?;
    writeln!(
        text,
        "{:<16} {:<8} {:>6} {:>8} {:>6} {:>8} {:>8}  windows set by",
        "port", "mode", "weight", "window", "flows", "B/s", "RTT us"
    )?;
    for port in status.ports.iter().filter(|port| port.cera.mode != Mode::Off) {
        let own = &port.cera;
        let window = if own.window_segments > 0 { own.window_segments.to_string() } else { "-".to_owned() };
        let by = if own.has_client { "its agent, this host" } else { "this host" };
        writeln!(
            text,
            "{:<16} {:<8} {:>6} {window:>8} {:>6} {:>8} {:>8}  {by}",
            port.name,
            own.mode,
            own.weight,
            own.flows,
            amount(own.bytes_per_s),
            own.rtt_us
        )?;
    }
    Ok(())
}

fn counters(
    text: &mut String,
    known: &[(&str, &str)],
    values: &std::collections::BTreeMap<String, u64>,
) -> std::fmt::Result {
    for (name, help) in known {
        let value = values.get(*name).map_or("-".to_owned(), u64::to_string);
        writeln!(text, "  {name:<18} {value:>14}  {help}")?;
    }
    Ok(())
}

fn tried(trial: &Trial) -> String {
    let Trial { mechanism, mode, configured, who, ends_in_ms } = trial;
    format!(
        "{} is in {mode} by {who}, and in {configured} again when that ends, or if nothing is heard of it for {} s",
        mechanism.word(),
        ends_in_ms.div_ceil(1000)
    )
}

/// Programs of others, if there are any, by the kernel's numbers.
fn beside(others: &Others) -> Option<String> {
    let at = |way: &str, Beside { before, after }: &Beside| -> Vec<String> {
        let places = [(before, "before"), (after, "after")].into_iter().filter(|(all, _)| !all.is_empty());
        let list = |all: &[u32]| all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        places.map(|(all, place)| format!("{} {place} evenkeel's {way}", list(all))).collect()
    };
    let words = [at("to the VM", &others.to_vm), at("from the VM", &others.from_vm)].concat();
    (!words.is_empty()).then(|| words.join("; "))
}

fn early_acks(vsnoop: &VsnoopPort) -> String {
    let VsnoopPort { mode, budget_segments, outstanding_segments, coming_segments, endpoint, vcpus, .. } = vsnoop;
    let obstacles = vsnoop.obstacles();
    let why = if obstacles.is_empty() { String::new() } else { format!("; NO early ACKs: {}", obstacles.join("; ")) };
    format!(
        "{mode}, the VM is {endpoint} ({vcpus}), of {budget_segments} segments {outstanding_segments} are promised and \
         {coming_segments} may come{why}"
    )
}

fn held(vflood: &VfloodPort) -> String {
    let VfloodPort { mode, trouble, rests, connections, held_segments, promised_segments, buffer_segments } = vflood;
    match trouble {
        Some(why) => format!("{mode}, but OFF: {why}"),
        None => {
            let rests = if *rests { "; it rests, because the VM has its core" } else { "" };
            format!(
                "{mode}, {connections} connections, {held_segments} of {buffer_segments} segments are held, \
                 {promised_segments} more are promised{rests}"
            )
        }
    }
}

/// Who is at the other end of a channel, in words.
fn guest(channel: &Channel) -> String {
    let Some(guest) = &channel.guest else {
        return match &channel.trouble {
            Some(why) if !channel.is_connected => format!("no connection ({why})"),
            _ => "connected, no agent in the guest".to_owned(),
        };
    };
    let vflood = match (guest.has_vflood, guest.is_flooding) {
        (false, _) => "no vFlood",
        (true, false) => "vFlood offline",
        (true, true) => "vFlood online",
    };
    let cera = if guest.has_cera { format!("CERA, epoch {}", guest.epoch) } else { "no CERA".to_owned() };
    let off_core = guest
        .off_core_permille
        .map_or_else(String::new, |permille| format!("; its core is missing for {}% of the time", (permille + 5) / 10));
    format!("agent in the guest; {vflood}; {cera}{off_core}")
}

/// Seconds in words.
pub fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_others_are_named_by_their_order() {
        let to_vm = Beside { before: vec![7], after: vec![] };
        assert_eq!(beside(&Others::default()), None);
        let from_vm = Beside { before: vec![], after: vec![8, 9] };
        let words = beside(&Others { to_vm, from_vm }).unwrap();
        assert_eq!(words, "7 before evenkeel's to the VM; 8, 9 after evenkeel's from the VM");
    }

    #[test]
    fn times_are_short() {
        assert_eq!([3, 90, 7300, 200_000].map(uptime), ["3 s", "1 min", "2 h 1 min", "2 d 7 h"]);
    }
}
