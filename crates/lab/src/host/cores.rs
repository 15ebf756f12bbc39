//! Cores, scheduling policies and clocks of this machine.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_getres};
use nix::unistd::Pid;

use crate::error::LabError;

/// A core of this machine.
pub type CoreId = usize;

/// How a thread is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// SCHED_OTHER.
    Other,
    /// SCHED_RR at this priority.
    RoundRobin(i32),
    /// SCHED_FIFO at this priority.
    Fifo(i32),
}

/// Sets a thread's policy; tid 0 is the calling thread.
pub fn set_policy(tid: i32, policy: Policy) -> Result<(), LabError> {
    let (number, priority) = match policy {
        Policy::Other => (libc::SCHED_OTHER, 0),
        Policy::RoundRobin(priority) => (libc::SCHED_RR, priority),
        Policy::Fifo(priority) => (libc::SCHED_FIFO, priority),
    };
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: param outlives the call, which only reads it.
    let rc = unsafe { libc::sched_setscheduler(tid, number, &param) };
    if rc == 0 {
        Ok(())
    } else {
        Err(LabError::io(format!("scheduling thread {tid} as {policy:?}"), std::io::Error::last_os_error()))
    }
}

/// The cores this process may use.
pub fn available() -> Result<Vec<CoreId>, LabError> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(|e| LabError::io("asking for this process's cores", e))?;
    Ok((0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect())
}

/// Pins a thread to some cores; tid 0 is the calling thread.
pub fn pin(tid: i32, cores: &[CoreId]) -> Result<(), LabError> {
    let mut set = CpuSet::new();
    cores
        .iter()
        .try_for_each(|core| set.set(*core))
        .and_then(|()| sched_setaffinity(Pid::from_raw(tid), &set))
        .map_err(|e| LabError::io(format!("pinning thread {tid} to cores {cores:?}"), e))
}

/// Pins the calling thread.
pub fn pin_current(cores: &[CoreId]) -> Result<(), LabError> {
    pin(0, cores)
}

/// `struct sched_attr` of the kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
    utilization_min: u32,
    utilization_max: u32,
}

fn attributes(tid: i32) -> Result<SchedAttr, LabError> {
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>();
    // SAFETY: attr has this size and outlives the call, which writes to it.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0) } {
        0 => Ok(attr),
        _ => Err(LabError::io(format!("asking how thread {tid} is scheduled"), std::io::Error::last_os_error())),
    }
}

/// The slice of an ordinary thread. None: this kernel does not tell (before 6.12).
pub fn slice_ns(tid: i32) -> Result<Option<u64>, LabError> {
    attributes(tid).map(|attr| Some(attr.runtime_ns).filter(|ns| *ns > 0))
}

/// Sets the slice of an ordinary thread; None asks for the scheduler's own. A kernel without such slices says nothing:
/// read it back.
pub fn set_slice(tid: i32, slice_ns: Option<u64>) -> Result<(), LabError> {
    let attr = SchedAttr { runtime_ns: slice_ns.unwrap_or(0), size: size_of::<SchedAttr>() as u32, ..attributes(tid)? };
    // SAFETY: attr says its size and outlives the call, which only reads it.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0) } {
        0 => Ok(()),
        _ => Err(LabError::io(format!("setting thread {tid}'s slice"), std::io::Error::last_os_error())),
    }
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time outlives the call; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME, the clock of packet timestamps.
pub fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// Ticks per second of this kernel. The coarse clock advances once per tick, so its resolution is the tick's length.
pub fn hz() -> Option<u32> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    let tick_ns = tick.tv_sec() * 1_000_000_000 + tick.tv_nsec();
    u32::try_from((1_000_000_000 + tick_ns / 2).checked_div(tick_ns)?).ok()
}

#[cfg(target_arch = "x86_64")]
fn time_stamp() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Other processors have none; the lab refuses them before it asks.
#[cfg(not(target_arch = "x86_64"))]
fn time_stamp() -> u64 {
    0
}

/// The rate of this machine's time-stamp counter, measured once.
pub fn tsc_khz() -> u64 {
    static KHZ: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *KHZ.get_or_init(|| {
        // The reading that took the least time is the one that was not interrupted.
        let read = || {
            let sample = || {
                let before_ns = clock_ns(libc::CLOCK_MONOTONIC_RAW);
                let ticks = time_stamp();
                let after_ns = clock_ns(libc::CLOCK_MONOTONIC_RAW);
                (after_ns - before_ns, before_ns + (after_ns - before_ns) / 2, ticks)
            };
            let (_, ns, ticks) = (0..16).map(|_| sample()).min_by_key(|s| s.0).unwrap_or_else(sample);
            (ns, ticks)
        };
        let (start_ns, start_ticks) = read();
        sleep_until_ns(monotonic_ns() + 100_000_000);
        let (end_ns, end_ticks) = read();
        ((end_ticks - start_ticks) as f64 * 1e6 / (end_ns - start_ns) as f64) as u64
    })
}

/// Sleeps until CLOCK_MONOTONIC reaches this time.
pub fn sleep_until_ns(deadline_ns: u64) {
    let time = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: time outlives the call; no remainder is asked for with an absolute time.
    while unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &time, std::ptr::null_mut()) }
        == libc::EINTR
    {}
}

/// Which cores every vCPU and QEMU's other threads run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Cores of each vCPU, in the order asked for: one, or those of its host.
    pub vcpus: Vec<Vec<CoreId>>,
    /// Core of QEMU's other threads and of the lab: the driver domain's.
    pub driver_domain: CoreId,
    /// Cores of each host that has some.
    pub hosts: Vec<Vec<CoreId>>,
}

/// A vCPU to place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToPlace {
    /// The host whose cores it shares, by its position, if there is one.
    pub host: Option<usize>,
    /// Whether it shares its core with co-located VMs.
    pub contended: bool,
    /// Whether its VM sends the workload's data, or is one of many that work as hard.
    pub sends: bool,
}

/// Places vCPUs: the last core is the driver domain's, and the first are the hosts', as many for each as `hosts` says.
/// If the others suffice for the vCPUs that are on no host, each has its own; else those that are contended (or, where
/// none is, those that send) share the other cores evenly and the rest run beside the driver domain.
pub fn place(vcpus: &[ToPlace], hosts: &[usize], cores: &[CoreId]) -> Option<Placement> {
    let (&driver_domain, guest_cores) = cores.split_last()?;
    let (of_hosts, others) = guest_cores.split_at_checked(hosts.iter().sum())?;
    if guest_cores.is_empty() {
        return None;
    }
    let mut left = of_hosts.iter().copied();
    let hosts: Vec<Vec<CoreId>> = hosts.iter().map(|count| left.by_ref().take(*count).collect()).collect();
    let own_core_each = others.len() >= vcpus.iter().filter(|v| v.host.is_none()).count();
    let any_contended = vcpus.iter().any(|v| v.contended);
    let mut next = 0;
    let placed = vcpus
        .iter()
        .map(|vcpu| {
            if let Some(host) = vcpu.host {
                return hosts.get(host).cloned();
            }
            let on_guest_core = own_core_each || if any_contended { vcpu.contended } else { vcpu.sends };
            if !on_guest_core || others.is_empty() {
                return Some(vec![driver_domain]);
            }
            let core = others[next % others.len()];
            next += 1;
            Some(vec![core])
        })
        .collect::<Option<_>>()?;
    Some(Placement { vcpus: placed, driver_domain, hosts })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: ToPlace = ToPlace { host: None, contended: false, sends: true };
    const RECEIVER: ToPlace = ToPlace { host: None, contended: false, sends: false };
    const CONTENDED: ToPlace = ToPlace { host: None, contended: true, sends: false };
    const ON_FIRST: ToPlace = ToPlace { host: Some(0), contended: false, sends: true };
    const ON_SECOND: ToPlace = ToPlace { host: Some(1), contended: false, sends: false };

    fn placed(vcpus: &[&[CoreId]], driver_domain: CoreId, hosts: &[&[CoreId]]) -> Option<Placement> {
        let owned = |sets: &[&[CoreId]]| sets.iter().map(|set| set.to_vec()).collect();
        Some(Placement { vcpus: owned(vcpus), driver_domain, hosts: owned(hosts) })
    }

    #[test]
    fn the_tick_rate_is_one_that_linux_can_have() {
        assert!([100, 250, 300, 1000].contains(&hz().expect("a tick rate")));
    }

    #[test]
    fn two_cores_keep_the_contended_apart() {
        assert_eq!(place(&[CONTENDED, SENDER], &[], &[0, 1]), placed(&[&[0], &[1]], 1, &[]));
    }

    #[test]
    fn two_cores_without_contention_split_senders_from_receivers() {
        assert_eq!(place(&[SENDER, SENDER, RECEIVER], &[], &[0, 1]), placed(&[&[0], &[0], &[1]], 1, &[]));
    }

    #[test]
    fn enough_cores_give_each_its_own() {
        let placement = place(&[CONTENDED, SENDER, RECEIVER], &[], &[2, 3, 4, 5]);
        assert_eq!(placement, placed(&[&[2], &[3], &[4]], 5, &[]));
    }

    #[test]
    fn one_core_is_not_enough() {
        assert_eq!(place(&[SENDER], &[], &[0]), None);
    }

    #[test]
    fn hosts_have_the_first_cores() {
        assert_eq!(place(&[ON_FIRST, RECEIVER], &[1], &[0, 1]), placed(&[&[0], &[1]], 1, &[&[0]]));
        let placement = place(&[ON_FIRST, SENDER, ON_SECOND, RECEIVER], &[2, 1], &[0, 1, 2, 3, 4]);
        assert_eq!(placement, placed(&[&[0, 1], &[3], &[2], &[4]], 4, &[&[0, 1], &[2]]));
        assert_eq!(place(&[ON_FIRST], &[2], &[0, 1]), None);
    }

    #[test]
    fn a_thread_has_the_slice_that_it_asked_for_or_the_kernel_has_none() {
        let default = slice_ns(0).expect("asked");
        set_slice(0, Some(500_000)).expect("set");
        let own = slice_ns(0).expect("asked");
        assert!(own == Some(500_000) || own.is_none(), "{own:?}");
        set_slice(0, None).expect("set");
        assert_eq!(slice_ns(0).expect("asked"), default);
    }
}
