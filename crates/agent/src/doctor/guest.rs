//! What the guest agent needs: a kernel that takes its programs, and a channel to the host.

use evenkeel_settings::address::PORT_NAME;

use super::finding::{Finding, Level};
use super::machine::Machine;
use super::readings::Readings;

/// All findings on the guest agent; none on a machine that is no guest.
pub(super) fn findings(readings: &Readings, machine: &Machine) -> Vec<Finding> {
    if !machine.is_guest() {
        return Vec::new();
    }
    let mut findings = vec![programs(readings), channel(readings)];
    findings.extend(f_rto(readings));
    findings
}

fn programs(readings: &Readings) -> Finding {
    const TOPIC: &str = "guest agent";
    let kernel = &readings.guest_kernel;
    let lacking = kernel.lacking().or_else(|| (!readings.has_bpffs).then_some("no bpf file system is at /sys/fs/bpf"));
    let Some(lacking) = lacking else {
        let fact = "this kernel takes it: BTF, struct_ops and a bpf file system are there";
        return Finding::new(TOPIC, Level::Ok, fact, "vFlood and CERA's client can run here, if the host has them.");
    };
    let meaning = "No vFlood in this guest; CERA's limits are the host's to enforce, in the ACKs that this guest gets.";
    let finding = Finding::new(TOPIC, Level::Note, format!("cannot run: {lacking}"), meaning);
    if kernel.lacking().is_none() {
        return finding.next("mount -t bpf bpf /sys/fs/bpf");
    }
    finding.next("boot a kernel with CONFIG_DEBUG_INFO_BTF and CONFIG_BPF_JIT, as distributions' are")
}

fn channel(readings: &Readings) -> Finding {
    const TOPIC: &str = "guest channel";
    if readings.virtio_ports.iter().any(|name| name == PORT_NAME) {
        return Finding::new(TOPIC, Level::Ok, format!("a virtio-serial port named {PORT_NAME}"), "");
    }
    let fact = match readings.virtio_ports.as_slice() {
        [] => "no virtio-serial port".to_owned(),
        others => format!("no virtio-serial port named {PORT_NAME} (there is {})", others.join(", ")),
    };
    let meaning = "The host cannot tell this guest anything: no vFlood, and CERA without a client. vsock and TCP do as \
        well (channel.address).";
    Finding::new(TOPIC, Level::Note, fact, meaning)
        .next(format!("give the VM a virtserialport named {PORT_NAME}; in the guest, modprobe virtio_console"))
}

/// F-RTO beside vFlood: its tests misread the ACKs of held packets that the host lets out.
fn f_rto(readings: &Readings) -> Option<Finding> {
    let has_vflood = readings.sysctls.get("tcp_available_congestion_control")?.split(' ').any(|name| name == "vflood");
    let is_on = readings.sysctls.get("tcp_frto")? != "0";
    (has_vflood && is_on).then(|| {
        let meaning =
            "After a timeout, F-RTO takes the ACKs of what the host still lets out for proof that nothing was lost.";
        Finding::new("F-RTO", Level::Note, "on, beside vFlood", meaning)
            .next("leave vflood.disable_f_rto at true, or sysctl net.ipv4.tcp_frto=0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::agent::KernelReading;

    fn able() -> Readings {
        let all = KernelReading { has_btf: true, has_struct_ops: true, has_tx_start: false };
        Readings {
            guest_kernel: all,
            has_bpffs: true,
            virtio_ports: vec!["org.qemu.guest_agent.0".into(), PORT_NAME.into()],
            ..Readings::default()
        }
    }

    fn guest() -> Machine {
        Machine { hypervisor: Some("KVM".into()), steal_clock: None, pvtcp_mode: None, takes_pvtcp: true }
    }

    fn levels(readings: &Readings) -> Vec<Level> {
        findings(readings, &guest()).iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn an_able_guest_lacks_nothing() {
        assert_eq!(levels(&able()), [Level::Ok, Level::Ok]);
        let host = Machine { hypervisor: None, ..guest() };
        assert_eq!(findings(&able(), &host), []);
    }

    #[test]
    fn each_lack_is_named_with_what_to_do() {
        let kernel = KernelReading { has_struct_ops: false, ..able().guest_kernel };
        let finding = programs(&Readings { guest_kernel: kernel, ..able() });
        assert!(finding.fact.contains("struct_ops") && finding.next.unwrap().contains("kernel"), "{}", finding.fact);
        let finding = programs(&Readings { guest_kernel: KernelReading::default(), ..able() });
        assert!(finding.fact.contains("BTF"), "{}", finding.fact);
        let finding = programs(&Readings { has_bpffs: false, ..able() });
        assert_eq!(finding.next.as_deref(), Some("mount -t bpf bpf /sys/fs/bpf"));
        let finding = channel(&Readings { virtio_ports: vec!["org.qemu.guest_agent.0".into()], ..able() });
        assert!(finding.level == Level::Note && finding.fact.contains("guest_agent"), "{}", finding.fact);
        assert!(channel(&Readings { virtio_ports: Vec::new(), ..able() }).fact.contains("no virtio-serial port"));
    }

    #[test]
    fn f_rto_beside_vflood_is_noted() {
        let with = |algorithms: &str, frto: &str| {
            let pairs = [("tcp_available_congestion_control", algorithms), ("tcp_frto", frto)];
            f_rto(&Readings { sysctls: pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into(), ..able() })
        };
        assert_eq!(with("reno cubic vflood", "2").unwrap().level, Level::Note);
        assert!(with("reno cubic vflood", "0").is_none() && with("reno cubic", "2").is_none());
    }
}
