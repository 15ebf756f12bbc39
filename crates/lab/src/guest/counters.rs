//! The kernel's counters, named as nstat names them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::host::qdisc;
use crate::proto::QDISC_DROPS;

/// Where the counters of the VM's network device are.
const ETH_STATISTICS: &str = "/sys/class/net/eth0/statistics";
/// What is read there.
const ETH_COUNTERS: [(&str, &str); 6] = [
    ("EthTxDropped", "tx_dropped"),
    ("EthRxDropped", "rx_dropped"),
    ("EthTxPackets", "tx_packets"),
    ("EthRxPackets", "rx_packets"),
    ("EthTxBytes", "tx_bytes"),
    ("EthRxBytes", "rx_bytes"),
];

/// Where PVTCP's counters are, while its module is loaded.
const PVTCP_PARAMETERS: &str = "/sys/module/evenkeel_pvtcp/parameters";
/// What is read there.
const PVTCP_COUNTERS: [(&str, &str); 13] = [
    ("PvtcpWakeups", "wakeups"),
    ("PvtcpWakeupsBySteal", "wakeups_by_steal"),
    ("PvtcpWakeupMaxUs", "wakeup_max_us"),
    ("PvtcpHeldRto", "held_rto"),
    ("PvtcpHeldTlp", "held_tlp"),
    ("PvtcpHeldReo", "held_reo"),
    ("PvtcpHeldOvertaken", "held_overtaken"),
    ("PvtcpHeldRan", "held_ran"),
    ("PvtcpHeldLeft", "held_left"),
    ("PvtcpHeldOverflow", "held_overflow"),
    ("PvtcpRttFiltered", "rtt_filtered"),
    ("PvtcpIdleFiltered", "idle_filtered"),
    ("PvtcpJitAcks", "jit_acks"),
];

/// All counters now; [`QDISC_DROPS`] among them. Those of eth0 are missing where there is no eth0, PVTCP's
/// where its module is not loaded.
///
/// Starts no program for them: on a processor that is full of packets, as a driver domain's, that takes seconds.
pub fn read() -> anyhow::Result<BTreeMap<String, i64>> {
    let mut values = BTreeMap::new();
    for path in ["/proc/net/netstat", "/proc/net/snmp"] {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        parse_pairs(&text, &mut values).with_context(|| format!("cannot understand {path}"))?;
    }
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let ticks_per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?.context("no clock tick")?;
    parse_stat(&stat, ticks_per_second, &mut values).context("cannot understand /proc/stat")?;
    read_files(Path::new(ETH_STATISTICS), &ETH_COUNTERS, &mut values)?;
    read_files(Path::new(PVTCP_PARAMETERS), &PVTCP_COUNTERS, &mut values)?;
    let dropped = qdisc::drops().context("cannot read queues")?;
    values.insert(QDISC_DROPS.into(), dropped.into_values().sum::<u64>() as i64);
    Ok(values)
}

/// Reads those of the files that exist.
fn read_files(directory: &Path, counters: &[(&str, &str)], values: &mut BTreeMap<String, i64>) -> anyhow::Result<()> {
    for (name, file) in counters {
        let path = directory.join(file);
        if let Ok(text) = fs::read_to_string(&path) {
            let value = text.trim().parse().with_context(|| format!("cannot understand {}", path.display()))?;
            values.insert((*name).into(), value);
        }
    }
    Ok(())
}

/// `Prefix: names` and `Prefix: values` in turn, as in /proc/net/netstat.
fn parse_pairs(text: &str, values: &mut BTreeMap<String, i64>) -> anyhow::Result<()> {
    let mut lines = text.lines();
    while let (Some(names), Some(numbers)) = (lines.next(), lines.next()) {
        let (prefix, names) = names.split_once(':').context("a line without a prefix")?;
        let (second, numbers) = numbers.split_once(':').context("a line without a prefix")?;
        anyhow::ensure!(prefix == second, "names of {prefix}, values of {second}");
        let (names, numbers) = (names.split_whitespace(), numbers.split_whitespace());
        anyhow::ensure!(names.clone().count() == numbers.clone().count(), "{prefix} has not as many values as names");
        for (name, number) in names.zip(numbers) {
            let number = number.parse().with_context(|| format!("{prefix}{name} is no number"))?;
            values.insert(format!("{prefix}{name}"), number);
        }
    }
    Ok(())
}

/// The first line of /proc/stat: busy, idle and stolen time of all CPUs.
fn parse_stat(text: &str, ticks_per_second: i64, values: &mut BTreeMap<String, i64>) -> anyhow::Result<()> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).context("no line of all CPUs")?;
    let ticks =
        line.split_whitespace().map(str::parse).collect::<Result<Vec<i64>, _>>().context("a time is no number")?;
    // Guest times, which follow, are part of user and nice.
    let &[user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks.as_slice() else {
        anyhow::bail!("too few times");
    };
    let to_us = |ticks: i64| ticks.saturating_mul(1_000_000) / ticks_per_second;
    values.insert("CpuBusyUs".into(), to_us(user + nice + system + irq + softirq));
    values.insert("CpuIdleUs".into(), to_us(idle + iowait));
    values.insert("CpuStealUs".into(), to_us(steal));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETSTAT: &str = "TcpExt: SyncookiesSent TCPTimeouts TCPLossProbes\nTcpExt: 0 12 34\n\
        IpExt: InNoRoutes InOctets\nIpExt: 0 9876543210\n";
    const SNMP: &str = "Ip: Forwarding DefaultTTL\nIp: 2 64\nTcp: RtoAlgorithm MaxConn RetransSegs\nTcp: 1 -1 77\n";

    #[test]
    fn names_are_those_of_nstat() {
        let mut values = BTreeMap::new();
        parse_pairs(NETSTAT, &mut values).expect("parsed");
        parse_pairs(SNMP, &mut values).expect("parsed");
        assert_eq!(values["TcpExtTCPTimeouts"], 12);
        assert_eq!(values["IpExtInOctets"], 9_876_543_210);
        assert_eq!(values["TcpRetransSegs"], 77);
        assert_eq!(values["TcpMaxConn"], -1);
        assert_eq!(values.len(), 10);
    }

    #[test]
    fn what_does_not_pair_is_an_error() {
        for (text, says) in [
            ("Tcp: A B\nTcp: 1\n", "as many"),
            ("Tcp: A\nUdp: 1\n", "names of Tcp"),
            ("Tcp: A\nTcp: x\n", "TcpA is no number"),
            ("Tcp A\nTcp: 1\n", "without a prefix"),
        ] {
            let error = parse_pairs(text, &mut BTreeMap::new()).expect_err(text);
            assert!(format!("{error:#}").contains(says), "{error:#}");
        }
    }

    #[test]
    fn cpu_time_is_told_in_microseconds() {
        let mut values = BTreeMap::new();
        parse_stat("cpu  10 1 20 400 5 2 3 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n", 100, &mut values).expect("parsed");
        assert_eq!((values["CpuBusyUs"], values["CpuIdleUs"], values["CpuStealUs"]), (360_000, 4_050_000, 70_000));
        assert!(parse_stat("cpu 1 2\n", 100, &mut values).is_err());
        assert!(parse_stat("", 100, &mut values).is_err());
    }

    #[test]
    fn files_that_are_there_are_read() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("held_rto"), "3\n").expect("written");
        let mut values = BTreeMap::new();
        read_files(directory.path(), &PVTCP_COUNTERS, &mut values).expect("read");
        assert_eq!(values, BTreeMap::from([("PvtcpHeldRto".to_owned(), 3)]));
        fs::write(directory.path().join("jit_acks"), "many\n").expect("written");
        let error = read_files(directory.path(), &PVTCP_COUNTERS, &mut values).expect_err("no number");
        assert!(format!("{error:#}").contains("jit_acks"), "{error:#}");
    }

    #[test]
    fn all_counters_of_the_module_are_read() {
        let module = include_str!("../../../../kernel/guest/pvtcp/counters.c");
        let counters = module.lines().filter_map(|line| line.strip_prefix("COUNTER(")?.split(',').next());
        let mut own: Vec<&str> = counters.chain(["wakeup_max_us"]).collect();
        let mut read: Vec<&str> = PVTCP_COUNTERS.iter().map(|(_, file)| *file).collect();
        own.sort_unstable();
        read.sort_unstable();
        assert_eq!(read, own);
    }

    #[test]
    fn this_machine_has_the_counters_the_lab_needs() {
        let values = read().expect("counters");
        for name in ["TcpExtTCPTimeouts", "TcpRetransSegs", "TcpExtTCPLossProbes", "CpuBusyUs", "CpuIdleUs"] {
            assert!(values.contains_key(name), "{name}");
        }
    }
}
