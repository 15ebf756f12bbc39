//! What a host needs: ports whose queues are long enough, privileges, and QEMU with KVM for the lab.

use super::finding::{Finding, Level};
use super::readings::{PortReading, Readings};

/// A share of packets dropped at a port, in percent, that is a problem.
const PROBLEM_PERCENT: f64 = 0.01;
/// A queue that one absence of its VM fills, in packets.
const SHORT_QUEUE: u64 = 750;
/// Capabilities by their bits, with what needs them.
const CAPABILITIES: &[(u32, &str, &str)] = &[
    (12, "CAP_NET_ADMIN", "the lab's network and the host agent"),
    (16, "CAP_SYS_MODULE", "loading PVTCP"),
    (23, "CAP_SYS_NICE", "the lab's core slices"),
    (38, "CAP_PERFMON", "the host agent's programs"),
    (39, "CAP_BPF", "the host agent's programs and maps"),
];

/// What came of trying KVM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kvm {
    /// A guest ran.
    Works,
    /// There is no `/dev/kvm`.
    Absent,
    /// It is there and does not work: why.
    Fails(String),
    /// It could not be tried.
    NotTried,
}

/// QEMU and KVM.
pub(super) fn tools(qemu: Option<&str>, kvm: &Kvm) -> Vec<Finding> {
    let Some(version) = qemu else {
        let meaning = "Only the lab needs it; mechanisms run without.";
        return vec![
            Finding::new("QEMU", Level::Note, "not installed", meaning).next("apt-get install qemu-system-x86"),
        ];
    };
    let kvm = match kvm {
        Kvm::Works => Finding::new("KVM", Level::Ok, "works: a test guest ran", "The lab's VMs run at full speed."),
        Kvm::Absent => Finding::new(
            "KVM",
            Level::Note,
            "no /dev/kvm",
            "The lab translates guest code instead (TCG): slower, and complete.",
        ),
        Kvm::Fails(why) => Finding::new(
            "KVM",
            Level::Note,
            format!("/dev/kvm exists, but a test guest did not run: {why}"),
            "Common inside VMs. The lab translates guest code instead (TCG): slower, and complete.",
        ),
        Kvm::NotTried => Finding::new("KVM", Level::Note, "not tried", "There is no QEMU to try it with."),
    };
    vec![Finding::new("QEMU", Level::Ok, version.trim_start_matches("QEMU emulator "), "The lab can run VMs."), kvm]
}

/// What this process may do.
pub(super) fn privileges(readings: &Readings) -> Finding {
    const TOPIC: &str = "privileges";
    let Some(mask) = readings.status.as_deref().and_then(effective_capabilities) else {
        return Finding::new(TOPIC, Level::Note, "unknown", "/proc/self/status cannot be read.");
    };
    let lacking: Vec<String> = CAPABILITIES
        .iter()
        .filter(|(bit, _, _)| mask & (1 << bit) == 0)
        .map(|(_, name, purpose)| format!("{name} ({purpose})"))
        .collect();
    if lacking.is_empty() {
        return Finding::new(TOPIC, Level::Ok, "all that evenkeel needs", "");
    }
    Finding::new(TOPIC, Level::Note, format!("lacking {}", lacking.join(", ")), "The doctor itself needs none.")
        .next("run the commands that need them with sudo")
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Queues of the ports that lead to VMs.
pub(super) fn ports(ports: &[PortReading]) -> Finding {
    const TOPIC: &str = "VM ports";
    if ports.is_empty() {
        return Finding::new(
            TOPIC,
            Level::Ok,
            "none",
            "This machine has no taps or vifs, so it hosts no VMs with a network.",
        );
    }
    let share = |p: &PortReading| 100.0 * p.tx_dropped as f64 / (p.tx_packets + p.tx_dropped).max(1) as f64;
    let mut dropping: Vec<&PortReading> = ports.iter().filter(|p| p.tx_dropped > 0).collect();
    dropping.sort_by(|a, b| share(b).total_cmp(&share(a)));
    let Some(worst) = dropping.first() else {
        let shortest = ports.iter().map(|p| p.queue_length).min().unwrap_or(0);
        let fact = format!("{}, none of them dropped a packet; shortest queue {shortest} packets", ports.len());
        if shortest >= SHORT_QUEUE {
            return Finding::new(TOPIC, Level::Ok, fact, "");
        }
        let meaning = "A queue this short fills within one absence of its VM (30 ms at 300 Mbit/s are 750 packets), \
            and the rest is lost.";
        return Finding::new(TOPIC, Level::Note, fact, meaning)
            .next("run `evenkeel host`: it raises the queues and puts them back (port_queue_segments)");
    };
    let fact = format!(
        "{} of {} dropped packets on the way to their VM; worst {}: {} ({:.3} %), queue {} packets",
        dropping.len(),
        ports.len(),
        worst.name,
        worst.tx_dropped,
        share(worst),
        worst.queue_length
    );
    let level = if share(worst) >= PROBLEM_PERCENT { Level::Problem } else { Level::Note };
    let meaning = "While a VM is off its core, its packets wait in this queue; what does not fit is lost, and TCP \
        slows down. A longer queue loses less, and lets bulk data delay all else.";
    let longer = (worst.queue_length.max(250)) * 4;
    Finding::new(TOPIC, level, fact, meaning).next(format!("ip link set {} txqueuelen {longer}", worst.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, tx_packets: u64, tx_dropped: u64) -> PortReading {
        PortReading { name: name.into(), tx_packets, tx_dropped, queue_length: 1000 }
    }

    #[test]
    fn a_port_that_drops_is_named_with_the_cure() {
        let finding = ports(&[port("tap0", 1_000_000, 1), port("tap1", 1000, 10), port("tap2", 5, 0)]);
        assert_eq!(finding.level, Level::Problem);
        assert!(finding.fact.starts_with("2 of 3") && finding.fact.contains("tap1"), "{}", finding.fact);
        assert_eq!(finding.next.as_deref(), Some("ip link set tap1 txqueuelen 4000"));
    }

    #[test]
    fn few_drops_are_a_note_and_none_are_fine() {
        assert_eq!(ports(&[port("tap0", 1_000_000, 1)]).level, Level::Note);
        assert_eq!(ports(&[port("tap0", 0, 0)]).level, Level::Ok);
        assert_eq!(ports(&[]).level, Level::Ok);
        let short = ports(&[PortReading { queue_length: 32, ..port("vif1.0", 100, 0) }]);
        assert_eq!(short.level, Level::Note);
        assert!(short.fact.contains("32 packets"), "{}", short.fact);
    }

    #[test]
    fn capabilities_that_lack_are_named() {
        let judged = |mask: &str| {
            privileges(&Readings { status: Some(format!("Name:\tx\nCapEff:\t{mask}\n")), ..Readings::default() })
        };
        assert_eq!(judged("000001ffffffffff").level, Level::Ok);
        assert!(judged("0000000000000000").fact.contains("CAP_NET_ADMIN"));
        let container = judged("00000000a80425fb");
        assert!(container.fact.contains("CAP_SYS_MODULE"), "{}", container.fact);
    }

    #[test]
    fn kvm_that_is_there_and_fails_says_why() {
        let judged = tools(Some("QEMU emulator version 7.2.22"), &Kvm::Fails("QEMU aborted".into()));
        assert_eq!(judged[0].fact, "version 7.2.22");
        assert!(judged[1].fact.contains("QEMU aborted"));
        assert_eq!(tools(None, &Kvm::NotTried).len(), 1);
    }
}
