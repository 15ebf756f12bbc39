//! The report for people.

use std::fmt::{Formatter, Result};

use super::super::finding::wrap;
use super::Report;
use super::figures::{Drops, Figures, PortFigures, ThreadFigures, VmFigures};

/// Everything, in the order it is best read.
pub(super) fn write(f: &mut Formatter<'_>, report: &Report) -> Result {
    let figures = &report.figures;
    let kernel = figures.kernel.as_deref().unwrap_or("unknown");
    let machine = if figures.is_guest { "a VM" } else { "no hypervisor below" };
    writeln!(f, "{:.1} s, Linux {kernel}, {machine}", figures.window_s)?;
    if !figures.ports.is_empty() {
        ports(f, figures)?;
        vms(f, figures)?;
    }
    own(f, figures)?;
    for missing in &figures.missing {
        wrap(f, "not known", missing)?;
    }
    advice(f, report)
}

fn ports(f: &mut Formatter<'_>, figures: &Figures) -> Result {
    writeln!(
        f,
        "\n{:<15} {:>8} {:>11} {:>9} {:>9} {:>11} {:>9} {:>7} {:>13}",
        "port", "process", "to VM", "ring full", "queue", "from VM", "dropped", "length", "backlog bytes"
    )?;
    for port in &figures.ports {
        let process = port.process.map_or("-".to_owned(), |process| process.to_string());
        writeln!(
            f,
            "{:<15} {process:>8} {:>11} {:>9} {:>9} {:>11} {:>9} {:>7} {:>13}",
            port.name,
            port.to_vm_packets,
            port.dropped(Drops::ToVmRing),
            port.dropped(Drops::ToVmQueue),
            port.from_vm_packets,
            port.dropped(Drops::FromVm),
            port.queue_length,
            port.backlog_max.bytes
        )?;
    }
    for port in &figures.ports {
        if let Some(words) = other_drops(port) {
            writeln!(f, "{}: {words}", port.name)?;
        }
    }
    Ok(())
}

/// Causes that have no column.
fn other_drops(port: &PortFigures) -> Option<String> {
    let causes = [
        (Drops::ToVmErrors, "that the device could not send"),
        (Drops::FromVmErrors, "of the VM that were no packets"),
        (Drops::Filter, "dropped by tc's filters and programs"),
    ];
    let words = causes.map(|(cause, words)| (port.dropped(cause), words));
    let words: Vec<String> =
        words.iter().filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} packets {words}")).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn vms(f: &mut Formatter<'_>, figures: &Figures) -> Result {
    if figures.vms.is_empty() {
        return writeln!(f, "no process was found that has one of them open");
    }
    writeln!(f, "\n{:<25} {:>5} {:>8} {:>9} {:>13}  quota", "VM", "vCPUs", "ran", "off core", "vhost waited")?;
    for vm in &figures.vms {
        vm_lines(f, vm)?;
    }
    Ok(())
}

fn vm_lines(f: &mut Formatter<'_>, vm: &VmFigures) -> Result {
    let name = format!("{} {}", vm.process, vm.command);
    let waited = |threads: &[ThreadFigures]| threads.iter().map(|thread| thread.waited_ms).sum::<f64>();
    let vhost = if vm.vhost.is_empty() { "no vhost".to_owned() } else { format!("{:.1} ms", waited(&vm.vhost)) };
    let quota = if vm.groups.is_empty() { "none" } else { "as follows" };
    writeln!(
        f,
        "{name:<25} {:>5} {:>6.1} % {:>7.1} % {vhost:>13}  {quota}",
        vm.vcpus.len(),
        vm.ran_percent,
        vm.off_core_percent
    )?;
    for group in &vm.groups {
        let ms = |us: u64| us as f64 / 1e3;
        writeln!(
            f,
            "  {}\n    {} of {} ms, used up in {} of {} periods, cores refused for {:.0} ms",
            group.path,
            ms(group.quota_us),
            ms(group.period_us),
            group.nr_throttled,
            group.nr_periods,
            ms(group.throttled_usec)
        )?;
    }
    Ok(())
}

fn own(f: &mut Formatter<'_>, figures: &Figures) -> Result {
    writeln!(f, "\nthis machine's own TCP")?;
    if let Some(tcp) = &figures.tcp {
        writeln!(
            f,
            "  segments sent {}, again {}, of which the receivers had {} already\n  timeouts {}, of SYNs {}, probes \
             {}; undone as needless {}, spurious by F-RTO {}",
            tcp.sent,
            tcp.retransmitted,
            tcp.needless,
            tcp.timeouts,
            tcp.syn_timeouts,
            tcp.probes,
            tcp.undone,
            tcp.spurious
        )?;
    }
    let sleeper = figures.sleeper;
    let percent = |share| format!("{share:.1} % of the core time wanted");
    let steal = figures.steal_percent.map_or("not known".to_owned(), percent);
    writeln!(
        f,
        "  steal {steal}; of {} naps {} ended 8 ms late or later, the latest {:.1} ms",
        sleeper.naps, sleeper.late, sleeper.longest_ms
    )?;
    if let Some(dropped) = figures.softnet_dropped.filter(|count| *count > 0) {
        writeln!(f, "  {dropped} packets were dropped between devices and the stack")?;
    }
    if let Some(counters) = &figures.pvtcp {
        let mode = figures.pvtcp_mode.as_deref().unwrap_or("-");
        let words: Vec<String> =
            counters.iter().filter(|(_, count)| **count > 0).map(|(name, count)| format!("{name} {count}")).collect();
        let words = if words.is_empty() { "nothing happened".to_owned() } else { words.join(", ") };
        writeln!(f, "  PVTCP ({mode}): {words}")?;
    }
    Ok(())
}

fn advice(f: &mut Formatter<'_>, report: &Report) -> Result {
    if report.advice.is_empty() {
        return writeln!(f, "\nNothing in this window asks for a change.");
    }
    writeln!(f, "\nWhat would help, cheapest first:")?;
    for (at, advice) in report.advice.iter().enumerate() {
        writeln!(f, "{}. {}: {} (costs {})", at + 1, advice.subject, advice.cure, advice.cost)?;
        wrap(f, "   because", &advice.why)?;
        writeln!(f, "{:<23}{}", "   do", advice.how)?;
    }
    Ok(())
}
