//! What the host agent needs of a kernel and of the devices, and what each lack costs.

use evenkeel_settings::host::Attach;

use super::finding::{Finding, Level};
use super::readings::{OffloadReading, Readings};
use crate::features::Part;

/// Fewer packets of ECN-capable flows are no evidence for or against marks.
const ENOUGH_PACKETS: u64 = 1000;

/// All findings on the host agent.
pub(super) fn findings(readings: &Readings) -> Vec<Finding> {
    let mut findings = vec![datapath(readings)];
    findings.push(holding(readings.features.lacking(Part::HostVflood)));
    findings.extend(vsnoop(readings));
    findings.extend(jit(readings));
    findings.extend(offloads(&readings.offloads));
    findings.extend(ecn(readings));
    findings
}

/// Why `evenkeel host` cannot start here; empty if it can.
fn obstacles(readings: &Readings) -> Vec<String> {
    let mut lacking: Vec<String> = readings.features.lacking(Part::HostAgent).into_iter().collect();
    if confidential(readings) {
        lacking.push("kernel lockdown forbids programs that read kernel memory".to_owned());
    }
    lacking
}

fn confidential(readings: &Readings) -> bool {
    readings.lockdown.as_deref().is_some_and(|lockdown| lockdown.contains("[confidentiality]"))
}

fn datapath(readings: &Readings) -> Finding {
    const TOPIC: &str = "host agent";
    let lacking = obstacles(readings);
    if let (true, Ok(hook)) = (lacking.is_empty(), readings.features.hook(Attach::Auto)) {
        return Finding::new(
            TOPIC,
            Level::Ok,
            format!("this kernel takes it: {hook} and a bpf file system are there"),
            "If VMs run here, ProBoSCIS can watch their connections and, once told to, steady them.",
        );
    }
    let hosts_vms = !readings.ports.is_empty();
    let meaning = if hosts_vms {
        "ProBoSCIS cannot work here: bursts of new connections go out unprobed, and guests without ECN lose packets \
         instead of being marked."
    } else {
        "No matter as long as this machine hosts no VMs."
    };
    let level = if hosts_vms { Level::Problem } else { Level::Note };
    let finding = Finding::new(TOPIC, level, format!("cannot run: {}", lacking.join("; ")), meaning);
    // Then only the bpf file system is missing.
    if readings.features.hook(Attach::Auto).is_ok() && !confidential(readings) {
        return finding.next("mount -t bpf bpf /sys/fs/bpf");
    }
    finding.next("evenkeel doctor --features lists what this kernel has")
}

/// Whether vSnoop can tell when to act.
fn vsnoop(readings: &Readings) -> Option<Finding> {
    let lacks = readings.features.lacking(Part::Vsnoop).filter(|_| !readings.ports.is_empty())?;
    let meaning = "vSnoop acknowledges nothing on this host. All else works.";
    let finding = Finding::new("vSnoop", Level::Note, format!("this kernel does not say enough: {lacks}"), meaning);
    Some(finding.next("evenkeel doctor --features"))
}

/// Whether vFlood can hold packets here.
fn holding(lacks: Option<String>) -> Finding {
    const TOPIC: &str = "vFlood on hosts";
    match lacks {
        None => Finding::new(TOPIC, Level::Ok, "this kernel can hold packets: qdiscs in BPF and netkit are there", ""),
        Some(lacks) => Finding::new(
            TOPIC,
            Level::Note,
            format!("this kernel cannot hold packets: {lacks}"),
            "vFlood stays off on this host: transfers of VMs that wait for a core go no faster. All else works.",
        )
        .next("boot a kernel with CONFIG_NET_SCH_BPF and CONFIG_NETKIT (Debian's 7.3 has both)"),
    }
}

fn jit(readings: &Readings) -> Option<Finding> {
    let enabled = readings.bpf_jit.as_deref()?;
    if enabled != "0" {
        return None;
    }
    let meaning = "Programs on the packet path are interpreted: each packet costs several times as much.";
    Some(
        Finding::new("BPF JIT", Level::Problem, "switched off (net.core.bpf_jit_enable)", meaning)
            .next("sysctl net.core.bpf_jit_enable=1"),
    )
}

fn offloads(devices: &[OffloadReading]) -> Option<Finding> {
    const TOPIC: &str = "offloads";
    if devices.is_empty() {
        return None;
    }
    let lacking: Vec<String> = devices
        .iter()
        .filter_map(|device| {
            let off = [(device.gro, "GRO"), (device.tso, "TSO")];
            let off: Vec<&str> = off.iter().filter(|(on, _)| *on == Some(false)).map(|(_, name)| *name).collect();
            (!off.is_empty()).then(|| format!("{} without {}", device.name, off.join(" and ")))
        })
        .collect();
    let names: Vec<&str> = devices.iter().map(|d| d.name.as_str()).collect();
    if lacking.is_empty() {
        return Some(Finding::new(TOPIC, Level::Ok, format!("GRO and TSO are on ({})", names.join(", ")), ""));
    }
    let meaning = "The programs then run once per segment instead of once per 64 KB: up to 45 times as often for bulk \
        data. Nothing breaks.";
    let first = devices.iter().find(|d| d.gro == Some(false) || d.tso == Some(false))?;
    let finding = Finding::new(TOPIC, Level::Note, lacking.join("; "), meaning);
    Some(finding.next(format!("ethtool -K {} gro on tso on", first.name)))
}

/// Marks that this machine's own traffic met; what is bridged to VMs is not in the kernel's counters.
fn ecn(readings: &Readings) -> Option<Finding> {
    const TOPIC: &str = "ECN";
    let counters = super::evidence::counters(readings.netstat.as_deref()?, &["IpExt"]);
    let get = |name: &str| counters.get(name).copied().unwrap_or(0);
    let (marked, capable) = (get("InCEPkts"), get("InECT0Pkts") + get("InECT1Pkts"));
    if marked > 0 {
        let share = 100.0 * marked as f64 / (marked + capable) as f64;
        return Some(Finding::new(
            TOPIC,
            Level::Ok,
            format!("{marked} packets came marked ({share:.2} % of those that could be)"),
            "Something on the path marks instead of dropping: that is what ProBoSCIS reads.",
        ));
    }
    let (fact, meaning) = if capable >= ENOUGH_PACKETS {
        (
            format!("none of {capable} ECN-capable packets came marked"),
            "Either no queue on their paths was long, or no switch marks. ProBoSCIS without marks still probes, and \
             sees lost probes only.",
        )
    } else {
        (
            "too few ECN-capable packets came to tell whether switches mark".to_owned(),
            "Only this machine's own traffic is counted here, and its TCP asks for ECN only if told so \
             (net.ipv4.tcp_ecn).",
        )
    };
    Some(Finding::new(TOPIC, Level::Note, fact, meaning).next(
        "let the switches mark from a quarter of the port's buffer on (DCTCP's setting), then see ce_seen in `evenkeel \
         status`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::readings::PortReading;
    use crate::features::{Feature, Features};

    fn able() -> Readings {
        Readings {
            ports: vec![PortReading { name: "vnet0".into(), ..PortReading::default() }],
            features: Features::made(&[]),
            ..Readings::default()
        }
    }

    fn lacking(features: &[Feature]) -> Readings {
        Readings { features: Features::made(features), ..able() }
    }

    #[test]
    fn a_kernel_with_tcx_takes_the_agent_and_so_does_one_with_clsact() {
        let finding = datapath(&able());
        assert_eq!(finding.level, Level::Ok);
        assert!(finding.fact.contains("tcx and"), "{}", finding.fact);
        // RHEL 9 has tcx under an older version number, Debian 12 has none: the number decides nothing.
        let old = Readings { release: Some("5.14.0-1.el9.x86_64".into()), ..able() };
        assert_eq!(datapath(&old), finding);
        let finding = datapath(&lacking(&[Feature::Tcx]));
        assert_eq!(finding.level, Level::Ok);
        assert!(finding.fact.contains("clsact and"), "{}", finding.fact);
    }

    #[test]
    fn each_lack_is_named() {
        let old = datapath(&lacking(&[Feature::Tcx, Feature::Clsact]));
        assert_eq!(old.level, Level::Problem);
        assert!(old.fact.contains("no tcx (") && old.fact.contains("no clsact ("), "{}", old.fact);
        let unmounted = datapath(&lacking(&[Feature::BpfFs, Feature::BpfQdisc]));
        assert_eq!(unmounted.next.as_deref(), Some("mount -t bpf bpf /sys/fs/bpf"));
        let typeless = datapath(&lacking(&[Feature::Btf]));
        assert!(typeless.fact.contains("types (BTF)"), "{}", typeless.fact);
        let locked = datapath(&Readings { lockdown: Some("none integrity [confidentiality]".into()), ..able() });
        assert!(locked.fact.contains("lockdown"), "{}", locked.fact);
        assert_eq!(vsnoop(&able()), None);
        let blind = vsnoop(&lacking(&[Feature::TaskState])).unwrap();
        assert!(blind.level == Level::Note && blind.fact.contains("state of threads"), "{}", blind.fact);
    }

    #[test]
    fn a_machine_without_vms_has_no_problem_with_that() {
        assert_eq!(datapath(&Readings { ports: Vec::new(), ..lacking(&[Feature::BpfFs]) }).level, Level::Note);
    }

    #[test]
    fn offloads_that_are_off_cost_time() {
        let device = |gro, tso| OffloadReading { name: "eth0".into(), gro, tso };
        assert_eq!(offloads(&[device(Some(true), Some(true))]).unwrap().level, Level::Ok);
        let off = offloads(&[device(Some(false), Some(true))]).unwrap();
        assert_eq!((off.level, off.fact.as_str()), (Level::Note, "eth0 without GRO"));
        assert_eq!(offloads(&[device(None, None)]).unwrap().level, Level::Ok);
        assert_eq!(offloads(&[]), None);
    }

    #[test]
    fn marks_are_evidence() {
        let judged = |ect: u64, ce: u64| {
            let netstat = format!("IpExt: InECT1Pkts InECT0Pkts InCEPkts\nIpExt: 0 {ect} {ce}\n");
            ecn(&Readings { netstat: Some(netstat), ..able() }).unwrap()
        };
        assert_eq!(judged(900, 100).level, Level::Ok);
        assert!(judged(900, 100).fact.contains("10.00 %"));
        assert!(judged(5000, 0).fact.contains("none of 5000"));
        assert!(judged(5, 0).fact.contains("too few"));
    }

    #[test]
    fn interpreted_programs_are_a_problem() {
        assert_eq!(jit(&Readings { bpf_jit: Some("0".into()), ..able() }).unwrap().level, Level::Problem);
        assert_eq!(jit(&Readings { bpf_jit: Some("1".into()), ..able() }), None);
    }
}
