//! Cores, scheduling policies and clocks of this machine.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
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

/// Pins a thread to one core; tid 0 is the calling thread.
pub fn pin(tid: i32, core: CoreId) -> Result<(), LabError> {
    let mut set = CpuSet::new();
    set.set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(tid), &set))
        .map_err(|e| LabError::io(format!("pinning thread {tid} to core {core}"), e))
}

/// Pins the calling thread.
pub fn pin_current(core: CoreId) -> Result<(), LabError> {
    pin(0, core)
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

/// The rate of this machine's time-stamp counter, measured once.
pub fn tsc_khz() -> u64 {
    static KHZ: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *KHZ.get_or_init(|| {
        // The reading with the least time around it is the one that was not interrupted.
        let read = || {
            let sample = || {
                let before_ns = clock_ns(libc::CLOCK_MONOTONIC_RAW);
                // SAFETY: every x86-64 processor has RDTSC.
                let ticks = unsafe { std::arch::x86_64::_rdtsc() };
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

/// Which core every vCPU and QEMU's other threads run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Core of each vCPU, in the order asked for.
    pub vcpus: Vec<CoreId>,
    /// Core of QEMU's other threads and of the lab: the driver domain's.
    pub driver_domain: CoreId,
}

/// A vCPU to place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToPlace {
    /// Whether it shares its core with co-located VMs.
    pub contended: bool,
    /// Whether its VM sends the workload's data, or is one of many that work as hard.
    pub sends: bool,
}

/// Places vCPUs: the last core is the driver domain's. With a core for each vCPU, each has its own; else those that are
/// contended (or, where none is, those that send) share the other cores evenly and the rest run beside the driver
/// domain.
pub fn place(vcpus: &[ToPlace], cores: &[CoreId]) -> Option<Placement> {
    let (&driver_domain, guest_cores) = cores.split_last()?;
    if guest_cores.is_empty() {
        return None;
    }
    let own_core_each = guest_cores.len() >= vcpus.len();
    let any_contended = vcpus.iter().any(|v| v.contended);
    let mut next = 0;
    let placed = vcpus
        .iter()
        .map(|vcpu| {
            let on_guest_core = own_core_each || if any_contended { vcpu.contended } else { vcpu.sends };
            if !on_guest_core {
                return driver_domain;
            }
            let core = guest_cores[next % guest_cores.len()];
            next += 1;
            core
        })
        .collect();
    Some(Placement { vcpus: placed, driver_domain })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: ToPlace = ToPlace { contended: false, sends: true };
    const RECEIVER: ToPlace = ToPlace { contended: false, sends: false };
    const CONTENDED: ToPlace = ToPlace { contended: true, sends: false };

    #[test]
    fn two_cores_keep_the_contended_apart() {
        let placement = place(&[CONTENDED, SENDER], &[0, 1]).unwrap();
        assert_eq!(placement, Placement { vcpus: vec![0, 1], driver_domain: 1 });
    }

    #[test]
    fn two_cores_without_contention_split_senders_from_receivers() {
        let placement = place(&[SENDER, SENDER, RECEIVER], &[0, 1]).unwrap();
        assert_eq!(placement.vcpus, [0, 0, 1]);
    }

    #[test]
    fn enough_cores_give_each_its_own() {
        let placement = place(&[CONTENDED, SENDER, RECEIVER], &[2, 3, 4, 5]).unwrap();
        assert_eq!(placement, Placement { vcpus: vec![2, 3, 4], driver_domain: 5 });
    }

    #[test]
    fn one_core_is_not_enough() {
        assert_eq!(place(&[SENDER], &[0]), None);
    }
}
