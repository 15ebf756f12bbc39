//! Checks what the lab needs of this machine before anything is made: one clear line for each lack.

use std::path::Path;
use std::process::{Command, Stdio};

use super::cgroup::Hierarchy;
use super::cores::{self, CoreId, Policy};
use crate::error::LabError;

/// QEMU's own memory beside the guest's.
const QEMU_OVERHEAD_MIB: u64 = 120;

/// What the lab found.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Cores this process may use.
    pub cores: Vec<CoreId>,
    /// First line of `qemu-system-x86_64 --version`.
    pub qemu: String,
    /// Whether its translated vCPUs may run in threads of their own. Before 8.1 (commit deba78709ae8), QEMU lost a
    /// change of guest code that another vCPU was translating: a kernel that patches itself, as for every kprobe, went
    /// on in code that was no longer there.
    pub translates_in_parallel: bool,
    /// `uname -r`.
    pub kernel: String,
    /// Processor's name.
    pub processor: String,
}

/// What hosts under this machine's scheduler depend on.
#[derive(Debug, Clone, Copy)]
pub struct Scheduling {
    /// Cores that this process may use.
    pub cores: usize,
    /// Ticks per second, if the kernel tells.
    pub hz: Option<u32>,
    /// The slice of threads that ask for none, if it tells.
    pub slice_ns: Option<u64>,
    /// Whether threads can have slices of their own.
    pub has_own_slices: bool,
    /// Whether there are cgroups with the processor's controller.
    pub has_controller: bool,
}

/// How this machine schedules threads, tried on a thread that ends afterwards.
pub fn scheduling() -> Scheduling {
    let asked = std::thread::spawn(|| {
        let reset = cores::set_policy(0, Policy::Other).and_then(|()| cores::set_slice(0, None));
        let slice_ns = reset.and_then(|()| cores::slice_ns(0)).ok().flatten();
        let own = cores::set_slice(0, Some(TRIED_SLICE_NS)).and_then(|()| cores::slice_ns(0)).ok().flatten();
        (slice_ns, own == Some(TRIED_SLICE_NS))
    });
    let (slice_ns, has_own_slices) = asked.join().unwrap_or_default();
    Scheduling {
        cores: cores::available().map_or(0, |cores| cores.len()),
        hz: cores::hz(),
        slice_ns,
        has_own_slices,
        has_controller: Hierarchy::find().is_some(),
    }
}

/// A slice that is no kernel's default.
const TRIED_SLICE_NS: u64 = 777_000;

/// Checks privileges, programs, devices, cores and memory for guests of this size in all.
pub fn check(guest_memory_mib: u64, vms: u64) -> Result<Machine, LabError> {
    let missing = |what: &str, help: &str| Err(LabError::Missing { what: what.to_owned(), help: help.to_owned() });
    if !cfg!(target_arch = "x86_64") {
        return missing("the lab runs x86-64 guests and needs an x86-64 machine", "use an x86-64 machine");
    }
    if !nix::unistd::geteuid().is_root() {
        return missing(
            "the lab needs root: it makes a network namespace, taps and real-time threads",
            "run it with sudo",
        );
    }
    let Some(qemu) = first_line("qemu-system-x86_64", "--version") else {
        return missing("qemu-system-x86_64 is not installed", "apt-get install qemu-system-x86");
    };
    for (program, package, flag) in [("ip", "iproute2", "-V"), ("tc", "iproute2", "-V")] {
        if first_line(program, flag).is_none() {
            return missing(&format!("`{program}` is not installed"), &format!("apt-get install {package}"));
        }
    }
    if !Path::new("/dev/net/tun").exists() {
        return missing("/dev/net/tun does not exist: this kernel has no tun driver loaded", "modprobe tun");
    }
    let cores = cores::available()?;
    if cores.len() < 2 {
        return missing(
            "the lab needs two cores: one for guests, one for QEMU's other threads",
            "give this machine (or this process's affinity) a second core",
        );
    }
    // Refused in a cgroup of version 1 without real-time budget, as a new one is.
    let real_time = std::thread::spawn(|| cores::set_policy(0, Policy::RoundRobin(1))).join();
    if !matches!(real_time, Ok(Ok(()))) {
        return missing(
            "threads of this process may not run in real time, as virtual CPUs with slices do",
            "leave its cgroup, or give that time (cpu.rt_runtime_us of version 1); in a container allow CAP_SYS_NICE",
        );
    }
    let needed_mib = guest_memory_mib + vms * QEMU_OVERHEAD_MIB;
    let available_mib = meminfo_available_mib().unwrap_or(u64::MAX);
    if needed_mib > available_mib {
        return missing(
            &format!("no room: the VMs need {needed_mib} MiB of memory, {available_mib} MiB are available"),
            "use fewer VMs (`vms.*.count`) or less memory each (`vms.*.memory_mib`)",
        );
    }
    let processor = std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| processor_name(&text))
        .unwrap_or_else(|| "unknown".to_owned());
    let kernel = nix::sys::utsname::uname().map(|u| u.release().to_string_lossy().into_owned()).unwrap_or_default();
    let translates_in_parallel = qemu_version(&qemu).is_some_and(|version| version >= (8, 1));
    Ok(Machine { cores, qemu, translates_in_parallel, kernel, processor })
}

/// The congestion controls that network namespaces may have: those that this machine's kernel lets anybody use.
pub fn namespace_congestion_controls() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Major and minor version, of `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)`.
fn qemu_version(line: &str) -> Option<(u32, u32)> {
    let mut numbers = line.split_whitespace().skip_while(|word| *word != "version").nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn first_line(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

fn meminfo_available_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib / 1024)
}

fn processor_name(cpuinfo: &str) -> Option<String> {
    cpuinfo.lines().find(|l| l.starts_with("model name"))?.split_once(':').map(|(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::qemu_version;

    #[test]
    fn versions_of_qemu() {
        assert_eq!(qemu_version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)"), Some((7, 2)));
        assert_eq!(qemu_version("QEMU emulator version 10.0.2"), Some((10, 0)));
        assert_eq!(qemu_version("QEMU emulator"), None);
        assert_eq!(qemu_version("QEMU emulator version x.y"), None);
    }
}
