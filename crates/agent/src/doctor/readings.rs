//! What the doctor reads of the machine. Everything that judges it is pure and lives in the other files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::time::ClockId;

use crate::features::Features;
use crate::guest::agent::KernelReading;
use crate::netdevice::{NetDevices, Offload};

/// How long the processor's time is watched.
const SAMPLE: Duration = Duration::from_secs(1);
/// How often a sleeper looks at the clock meanwhile.
const NAP: Duration = Duration::from_millis(1);

/// Settings of TCP that the doctor judges.
const SYSCTLS: &[&str] = &[
    "tcp_available_congestion_control",
    "tcp_dsack",
    "tcp_early_retrans",
    "tcp_frto",
    "tcp_recovery",
    "tcp_rto_min_us",
    "tcp_sack",
    "tcp_timestamps",
];

/// What was read; `None` is what is not there or may not be read.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    /// Kernel release, as `uname -r`.
    pub release: Option<String>,
    /// Processor architecture, in Rust's words.
    pub arch: &'static str,
    /// Whether the kernel can load modules at all.
    pub has_modules: bool,
    /// `/proc/sys/kernel/modules_disabled`.
    pub modules_disabled: Option<String>,
    /// Whether the kernel has kprobes; `None` if its symbols cannot be read.
    pub has_kprobes: Option<bool>,
    /// `/sys/kernel/security/lockdown`.
    pub lockdown: Option<String>,
    /// `/sys/module/module/parameters/sig_enforce`.
    pub sig_enforce: Option<String>,
    /// Whether the guest module is installed for this kernel.
    pub pvtcp_installed: bool,
    /// The loaded guest module's mode; `None` if it is not loaded.
    pub pvtcp_mode: Option<String>,
    /// `/proc/self/status`.
    pub status: Option<String>,
    /// `/proc/cpuinfo`.
    pub cpuinfo: Option<String>,
    /// What the hypervisor calls itself, by the CPUID instruction.
    pub hypervisor: Option<String>,
    /// Whether KVM offers a steal clock; `None` where that cannot be asked.
    pub kvm_steal_clock: Option<bool>,
    /// `/proc/cmdline`.
    pub cmdline: Option<String>,
    /// `/proc/stat` when the watch began.
    pub stat_before: Option<String>,
    /// `/proc/stat` when it ended.
    pub stat_after: Option<String>,
    /// The longest that a sleeper overslept meanwhile.
    pub longest_pause: Duration,
    /// Length of a tick.
    pub tick: Option<Duration>,
    /// Whether timers are finer than ticks.
    pub high_resolution: bool,
    /// Values below `/proc/sys/net/ipv4`, by name.
    pub sysctls: BTreeMap<String, String>,
    /// `ip route show table all`; `None` without iproute2.
    pub routes: Option<String>,
    /// `/proc/net/netstat` and `/proc/net/snmp`, one after the other.
    pub netstat: Option<String>,
    /// Ports of VMs on this machine.
    pub ports: Vec<PortReading>,
    /// Whether a bpf file system is where pins go.
    pub has_bpffs: bool,
    /// Which of the features that evenkeel needs the kernel has.
    pub features: Features,
    /// `/proc/sys/net/core/bpf_jit_enable`; only root may read it.
    pub bpf_jit: Option<String>,
    /// Offloads of the devices that lead out of this machine.
    pub offloads: Vec<OffloadReading>,
    /// Which of the things that the guest agent needs the kernel has.
    pub guest_kernel: KernelReading,
    /// Names of this machine's virtio-serial ports.
    pub virtio_ports: Vec<String>,
    /// First line of QEMU's version; `None` if it is not installed.
    pub qemu: Option<String>,
}

/// A device that leads to a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortReading {
    /// Name.
    pub name: String,
    /// Packets on the way to the VM.
    pub tx_packets: u64,
    /// Packets that were dropped on that way.
    pub tx_dropped: u64,
    /// `txqueuelen`.
    pub queue_length: u64,
}

/// What a network card does for the kernel; `None` is what it does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OffloadReading {
    /// Name of the device.
    pub name: String,
    /// Whether received segments are put together.
    pub gro: Option<bool>,
    /// Whether the card cuts large packets.
    pub tso: Option<bool>,
}

impl Readings {
    /// Reads the machine; takes about a second, because steal is watched that long.
    pub fn take() -> Self {
        let release = read("/proc/sys/kernel/osrelease");
        let (hypervisor, kvm_steal_clock) = cpuid::hypervisor();
        let stat_before = read("/proc/stat");
        let longest_pause = watch_for_pauses();
        Self {
            arch: std::env::consts::ARCH,
            has_modules: Path::new("/proc/modules").exists(),
            modules_disabled: read("/proc/sys/kernel/modules_disabled"),
            // Not the kernel's config: many kernels carry none, and all of these symbols are there or none.
            has_kprobes: read("/proc/kallsyms").map(|symbols| symbols.contains(" register_kprobe\n")),
            lockdown: read("/sys/kernel/security/lockdown"),
            sig_enforce: read("/sys/module/module/parameters/sig_enforce"),
            pvtcp_installed: release.as_deref().is_some_and(is_pvtcp_installed),
            pvtcp_mode: read("/sys/module/evenkeel_pvtcp/parameters/mode"),
            status: read("/proc/self/status"),
            cpuinfo: read("/proc/cpuinfo"),
            hypervisor: hypervisor.or_else(|| read("/sys/hypervisor/type")),
            kvm_steal_clock,
            cmdline: read("/proc/cmdline"),
            stat_before,
            stat_after: read("/proc/stat"),
            longest_pause,
            // The coarse clock moves once per tick, and says so.
            tick: clock_resolution(ClockId::CLOCK_MONOTONIC_COARSE),
            high_resolution: clock_resolution(ClockId::CLOCK_MONOTONIC).is_some_and(|r| r < Duration::from_micros(1)),
            sysctls: sysctls(),
            routes: output("ip", &["route", "show", "table", "all"]),
            netstat: read("/proc/net/netstat").map(|text| text + "\n" + &read("/proc/net/snmp").unwrap_or_default()),
            ports: ports(Path::new("/sys/class/net")),
            has_bpffs: statfs("/sys/fs/bpf").is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC),
            features: Features::ask(),
            bpf_jit: read("/proc/sys/net/core/bpf_jit_enable"),
            offloads: offloads(Path::new("/sys/class/net")),
            guest_kernel: KernelReading::take(),
            virtio_ports: virtio_ports(Path::new("/sys/class/virtio-ports")),
            qemu: output("qemu-system-x86_64", &["--version"]).and_then(|text| Some(text.lines().next()?.to_owned())),
            release,
        }
    }
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end_matches('\n').to_owned())
}

fn virtio_ports(directory: &Path) -> Vec<String> {
    let ports = fs::read_dir(directory).into_iter().flatten().flatten();
    ports.filter_map(|port| read(port.path().join("name"))).collect()
}

fn is_pvtcp_installed(release: &str) -> bool {
    read(format!("/lib/modules/{release}/modules.dep")).is_some_and(|text| text.contains("/evenkeel_pvtcp.ko"))
}

fn clock_resolution(clock: ClockId) -> Option<Duration> {
    nix::time::clock_getres(clock).ok().map(Duration::from)
}

/// Sleeps through the sample in naps. Returns how late the worst of them ended.
fn watch_for_pauses() -> Duration {
    let begin = Instant::now();
    let mut longest = Duration::ZERO;
    while begin.elapsed() < SAMPLE {
        let before = Instant::now();
        std::thread::sleep(NAP);
        longest = longest.max(before.elapsed().saturating_sub(NAP));
    }
    longest
}

fn sysctls() -> BTreeMap<String, String> {
    let value = |name: &&str| Some(((*name).to_owned(), read(format!("/proc/sys/net/ipv4/{name}"))?));
    SYSCTLS.iter().filter_map(value).collect()
}

/// What a program prints; `None` if it is not there or fails.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ports(directory: &Path) -> Vec<PortReading> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut ports: Vec<PortReading> = entries
        .filter_map(|entry| {
            let (path, name) = (entry.path(), entry.file_name().into_string().ok()?);
            let uevent = read(path.join("uevent")).unwrap_or_default();
            // Xen's ports are known by their names alone.
            let is_port = path.join("tun_flags").exists()
                || uevent.lines().any(|l| l == "DEVTYPE=macvtap")
                || name.strip_prefix("vif").is_some_and(|rest| rest.contains('.'));
            let number = |file: &str| read(path.join(file)).and_then(|text| text.parse().ok()).unwrap_or(0);
            is_port.then(|| PortReading {
                tx_packets: number("statistics/tx_packets"),
                tx_dropped: number("statistics/tx_dropped"),
                queue_length: number("tx_queue_len"),
                name,
            })
        })
        .collect();
    ports.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    ports
}

/// Offloads of devices that have hardware below them.
fn offloads(directory: &Path) -> Vec<OffloadReading> {
    let Ok(devices) = NetDevices::new() else { return Vec::new() };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let cards = entries.filter(|entry| entry.path().join("device").exists());
    let names = cards.filter_map(|entry| entry.file_name().into_string().ok());
    let mut offloads: Vec<OffloadReading> = names
        .map(|name| OffloadReading {
            gro: devices.offload(&name, Offload::Gro).ok(),
            tso: devices.offload(&name, Offload::Tso).ok(),
            name,
        })
        .collect();
    offloads.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    offloads
}

/// The hypervisor's name from CPUID's 12 bytes.
#[cfg(any(test, target_arch = "x86_64"))]
fn vendor(bytes: &[u8; 12]) -> String {
    use std::ffi::CStr;

    let mut text = bytes.to_vec();
    text.push(0);
    let signature = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy).unwrap_or_default();
    let name = match &*signature {
        "KVMKVMKVM" => "KVM",
        "TCGTCGTCGTCG" => "QEMU without KVM (TCG)",
        "XenVMMXenVMM" => "Xen",
        "VMwareVMware" => "VMware",
        "Microsoft Hv" => "Hyper-V",
        other => other,
    };
    name.to_owned()
}

#[cfg(target_arch = "x86_64")]
mod cpuid {
    use std::arch::x86_64::{__cpuid, CpuidResult};

    const HYPERVISOR_BIT: u32 = 1 << 31;
    /// Leaf of the hypervisor's name; the next one has KVM's features.
    const HYPERVISOR: u32 = 0x4000_0000;
    const KVM_FEATURE_STEAL_TIME: u32 = 1 << 5;

    /// The CPUID instruction; calling it is unsafe in older versions of Rust and safe in newer ones.
    #[allow(unused_unsafe)]
    fn leaf(number: u32) -> CpuidResult {
        // SAFETY: every x86-64 processor has CPUID.
        unsafe { __cpuid(number) }
    }

    /// The hypervisor's name if there is one, and whether KVM has a steal clock.
    pub(super) fn hypervisor() -> (Option<String>, Option<bool>) {
        if leaf(1).ecx & HYPERVISOR_BIT == 0 {
            return (None, None);
        }
        let CpuidResult { ebx, ecx, edx, .. } = leaf(HYPERVISOR);
        let mut bytes = [0; 12];
        for (chunk, register) in bytes.chunks_exact_mut(4).zip([ebx, ecx, edx]) {
            chunk.copy_from_slice(&register.to_le_bytes());
        }
        let name = super::vendor(&bytes);
        let steal = (name == "KVM").then(|| leaf(HYPERVISOR + 1).eax & KVM_FEATURE_STEAL_TIME != 0);
        (Some(name), steal)
    }
}

/// Other processors have no such instruction: QEMU shows in its firmware's tables, or without those in its device tree.
#[cfg(not(target_arch = "x86_64"))]
mod cpuid {
    pub(super) fn hypervisor() -> (Option<String>, Option<bool>) {
        let devices = std::fs::read_dir("/proc/device-tree").into_iter().flatten().flatten();
        let is_qemu = super::read("/sys/class/dmi/id/sys_vendor").as_deref() == Some("QEMU")
            || devices.map(|device| device.file_name()).any(|name| name.as_encoded_bytes().starts_with(b"fw-cfg@"));
        (is_qemu.then(|| "QEMU".to_owned()), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hypervisors_have_names() {
        assert_eq!(vendor(b"KVMKVMKVM\0\0\0"), "KVM");
        assert_eq!(vendor(b"TCGTCGTCGTCG"), "QEMU without KVM (TCG)");
        assert_eq!(vendor(b"SomethingNew"), "SomethingNew");
    }

    #[test]
    fn ports_are_told_from_other_devices() {
        let root = tempfile::tempdir().unwrap();
        let device = |name: &str, files: &[(&str, &str)]| {
            let path = root.path().join(name);
            fs::create_dir_all(path.join("statistics")).unwrap();
            files.iter().for_each(|(file, text)| fs::write(path.join(file), text).unwrap());
        };
        device("eth0", &[("uevent", "INTERFACE=eth0\n"), ("tx_queue_len", "1000\n")]);
        device("tap1", &[("tun_flags", "0x1002\n"), ("tx_queue_len", "1000\n"), ("statistics/tx_dropped", "7\n")]);
        device("vif3.0", &[("tx_queue_len", "32\n"), ("statistics/tx_packets", "90\n")]);
        let ports = ports(root.path());
        let tap = PortReading { name: "tap1".into(), tx_dropped: 7, queue_length: 1000, ..PortReading::default() };
        let vif = PortReading { name: "vif3.0".into(), tx_packets: 90, queue_length: 32, ..PortReading::default() };
        assert_eq!(ports, [tap, vif]);
    }
}
