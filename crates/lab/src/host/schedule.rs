//! Takes virtual CPUs off their core and puts them back, slice by slice.
//!
//! A vCPU thread that has its slice runs at a real-time priority above a spinning thread that stands for the co-located
//! VMs; one that waits has a priority below it. So a waiting vCPU gets nothing at all, as in the papers' hypervisor,
//! and only the vCPU thread waits: QEMU's other threads (the driver domain) run on another core. SIGSTOP would stop
//! those too.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use evenkeel_scenario::format::CoreSharing;
use evenkeel_scenario::slices::{Turn, Turns};

use super::cores::{self, CoreId, Policy};

use crate::error::LabError;

const PRIORITY_WAITING: i32 = 2;
const PRIORITY_NEIGHBOUR: i32 = 5;
const PRIORITY_RUNNING: i32 = 10;
const PRIORITY_FIRST: i32 = 11;
const PRIORITY_SCHEDULER: i32 = 50;
/// How long one vCPU goes first where several have their slice on the same core. The kernel's own round robin would
/// take 100 ms.
const FIRST_NS: u64 = 2_000_000;
/// How often a vCPU that gives up its slice when idle is checked for having something to do.
const LOOK_NS: u64 = 250_000;
/// Wake at least this often, to see that the run has ended.
const IDLE_NS: u64 = 20_000_000;

/// A virtual CPU to schedule.
#[derive(Debug, Clone)]
pub struct ScheduledVcpu {
    /// VM it belongs to.
    pub vm: String,
    /// Its number in that VM.
    pub index: u32,
    /// Its thread.
    pub tid: i32,
    /// The core it is pinned to.
    pub core: CoreId,
    /// How it shares that core.
    pub sharing: CoreSharing,
}

/// A time off the core, CLOCK_REALTIME.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffInterval {
    /// When the vCPU lost its core.
    pub start_ns: u64,
    /// When it got it back.
    pub end_ns: u64,
}

/// Times off the core by VM (vCPU 0 of each).
pub type OffIntervals = BTreeMap<String, Vec<OffInterval>>;

/// A running schedule; ends, with every vCPU on its core, when dropped.
#[derive(Debug)]
pub struct Schedule {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    off: Arc<Mutex<OffIntervals>>,
    tids: Vec<i32>,
}

struct Entry {
    vcpu: ScheduledVcpu,
    turns: Turns,
    /// Tells when the vCPU has nothing to do, if that ends its slice.
    idle: Option<IdleWatch>,
    on: bool,
    next_ns: u64,
    off_ns: u64,
    went_off_ns: u64,
}

/// What the kernel says of a thread: whether it sleeps, and how often it has run.
struct IdleWatch {
    /// How long the thread may sleep.
    limit_ns: u64,
    stat: File,
    schedstat: File,
    /// How often it had run at the last look, and since when.
    runs: u64,
    since_ns: u64,
}

impl IdleWatch {
    fn new(tid: i32, limit_ns: u64) -> Result<Self, LabError> {
        let open = |name: &str| {
            let path = format!("/proc/{tid}/{name}");
            File::open(&path).map_err(|e| LabError::io(format!("opening {path}"), e))
        };
        Ok(Self { limit_ns, stat: open("stat")?, schedstat: open("schedstat")?, runs: 0, since_ns: 0 })
    }

    /// Whether the thread has slept for as long as it may. A thread that is gone has not: the run notices that by
    /// itself.
    fn is_idle(&mut self, now_ns: u64) -> bool {
        let mut text = [0; 512];
        let runs = read_at_start(&self.schedstat, &mut text).and_then(runs_of);
        let sleeps = read_at_start(&self.stat, &mut text).is_some_and(sleeps);
        if !sleeps || runs != Some(self.runs) {
            self.runs = runs.unwrap_or(0);
            self.since_ns = now_ns;
        }
        sleeps && now_ns >= self.since_ns + self.limit_ns
    }
}

fn read_at_start<'a>(file: &File, text: &'a mut [u8]) -> Option<&'a str> {
    let length = file.read_at(text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()
}

/// The third figure of `schedstat`: how often the thread has been given a core.
fn runs_of(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(2)?.parse().ok()
}

/// Whether `stat` says that the thread sleeps; its name, which may be anything, is in parentheses.
fn sleeps(stat: &str) -> bool {
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
}

impl Schedule {
    /// Starts the turns of these vCPUs, each of which shares its core.
    pub fn start(vcpus: Vec<ScheduledVcpu>, scheduler_core: CoreId, seed: u64) -> Result<Self, LabError> {
        let mut schedule = Self {
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
            off: Arc::new(Mutex::new(OffIntervals::new())),
            tids: vcpus.iter().map(|v| v.tid).collect(),
        };
        if vcpus.is_empty() {
            return Ok(schedule);
        }
        let mut used_cores: Vec<CoreId> = vcpus.iter().map(|v| v.core).collect();
        used_cores.sort_unstable();
        used_cores.dedup();
        let now_ns = cores::monotonic_ns();
        let entries = vcpus
            .into_iter()
            .enumerate()
            .map(|(index, vcpu)| {
                let mut turns = Turns::new(&vcpu.sharing, seed, index as u64);
                let idle = turns.idle_ns().map(|limit_ns| IdleWatch::new(vcpu.tid, limit_ns)).transpose()?;
                let phase_ns = turns.phase_ns();
                let turn = turns.next().unwrap_or(Turn { on_ns: 0, off_ns: 0 });
                Ok(Entry {
                    vcpu,
                    turns,
                    idle,
                    on: true,
                    next_ns: now_ns + turn.on_ns.max(1) + phase_ns,
                    off_ns: turn.off_ns,
                    went_off_ns: 0,
                })
            })
            .collect::<Result<Vec<_>, LabError>>()?;
        for entry in &entries {
            cores::set_policy(entry.vcpu.tid, Policy::RoundRobin(PRIORITY_RUNNING))?;
        }
        for core in used_cores {
            let stop = Arc::clone(&schedule.stop);
            schedule.threads.push(spawn_named("ek-neighbours", move || {
                if cores::pin_current(&[core]).is_ok() && cores::set_policy(0, Policy::Fifo(PRIORITY_NEIGHBOUR)).is_ok()
                {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                }
            })?);
        }
        let (stop, off) = (Arc::clone(&schedule.stop), Arc::clone(&schedule.off));
        schedule.threads.push(spawn_named("ek-scheduler", move || {
            if cores::pin_current(&[scheduler_core]).is_ok()
                && cores::set_policy(0, Policy::Fifo(PRIORITY_SCHEDULER)).is_ok()
            {
                turn_by_turn(entries, &stop, &off);
            }
        })?);
        Ok(schedule)
    }

    /// Ends the schedule: every vCPU has its core again. Returns the times in which each VM was off its core.
    pub fn stop(mut self) -> OffIntervals {
        self.end();
        std::mem::take(&mut *self.off.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in the thread has been printed; the vCPUs are put back all the same.
            let _ = thread.join();
        }
        for tid in self.tids.drain(..) {
            // The VM may have ended meanwhile.
            let _ = cores::set_policy(tid, Policy::Other);
        }
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn_named(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, LabError> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map_err(|e| LabError::io(format!("starting thread {name}"), e))
}

fn turn_by_turn(mut entries: Vec<Entry>, stop: &AtomicBool, off: &Mutex<OffIntervals>) {
    let (mut first, mut passed_ns) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let now_ns = cores::monotonic_ns();
        let Some(due_ns) = entries.iter().map(|e| e.next_ns).min() else { return };
        let crowded = entries.iter().filter(|e| e.on).count() > 1;
        let watched = entries.iter().any(|e| e.on && e.idle.is_some());
        let look_ns = match (watched, crowded) {
            (true, _) => LOOK_NS,
            (false, true) => FIRST_NS,
            (false, false) => IDLE_NS,
        };
        let wake_ns = due_ns.min(now_ns + look_ns);
        cores::sleep_until_ns(wake_ns);
        for entry in entries.iter_mut().filter(|e| e.on) {
            give_up_if_idle(entry, off);
        }
        if wake_ns == due_ns {
            for entry in entries.iter_mut().filter(|e| e.next_ns <= due_ns) {
                switch(entry, off);
            }
        } else if crowded && passed_ns + FIRST_NS <= wake_ns {
            first = pass_on(&entries, first);
            passed_ns = wake_ns;
        }
    }
}

/// Lets the next vCPU that has its slice go before the others; returns its number.
fn pass_on(entries: &[Entry], first: usize) -> usize {
    let next = (1..=entries.len()).map(|step| (first + step) % entries.len()).find(|i| entries[*i].on).unwrap_or(first);
    // A thread that is gone belongs to a VM that has ended, which the run notices by itself.
    if entries[first].on {
        let _ = cores::set_policy(entries[first].vcpu.tid, Policy::RoundRobin(PRIORITY_RUNNING));
    }
    let _ = cores::set_policy(entries[next].vcpu.tid, Policy::RoundRobin(PRIORITY_FIRST));
    next
}

/// Ends the slice of a vCPU that has nothing to do, as if it had halted, if a neighbour has a use for the core.
fn give_up_if_idle(entry: &mut Entry, off: &Mutex<OffIntervals>) {
    let now_ns = cores::monotonic_ns();
    if entry.off_ns > 0 && entry.next_ns > now_ns && entry.idle.as_mut().is_some_and(|idle| idle.is_idle(now_ns)) {
        entry.next_ns = now_ns;
        switch(entry, off);
    }
}

/// Takes a vCPU off its core, or puts it back.
fn switch(entry: &mut Entry, off: &Mutex<OffIntervals>) {
    if entry.on && entry.off_ns == 0 {
        take_turn(entry);
        return;
    }
    let policy = if entry.on { Policy::Fifo(PRIORITY_WAITING) } else { Policy::RoundRobin(PRIORITY_RUNNING) };
    if cores::set_policy(entry.vcpu.tid, policy).is_err() {
        entry.next_ns = u64::MAX;
        return;
    }
    if entry.on {
        entry.went_off_ns = cores::realtime_ns();
        entry.on = false;
        entry.next_ns += entry.off_ns;
        return;
    }
    if entry.vcpu.index == 0 {
        let interval = OffInterval { start_ns: entry.went_off_ns, end_ns: cores::realtime_ns() };
        let mut off = off.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        off.entry(entry.vcpu.vm.clone()).or_default().push(interval);
    }
    entry.on = true;
    take_turn(entry);
}

fn take_turn(entry: &mut Entry) {
    if let Some(turn) = entry.turns.next() {
        entry.next_ns += turn.on_ns.max(1);
        entry.off_ns = turn.off_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_on_a_thread() {
        assert_eq!(runs_of("8230142 112 37\n"), Some(37));
        assert_eq!(runs_of("8230142"), None);
        assert!(sleeps("4711 (CPU 0/TCG) S 1 4711"));
        assert!(sleeps("4711 (a) R) S 1 4711"));
        assert!(!sleeps("4711 (CPU S) R 1 4711"));
        assert!(!sleeps(""));
    }

    #[test]
    fn a_thread_that_sleeps_is_idle_and_one_that_runs_is_not() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            tell.send(nix::unistd::gettid().as_raw()).expect("told");
            // Until the other end is dropped.
            let _ = ended.recv();
        });
        let mut watch = IdleWatch::new(told.recv().expect("a thread"), 1_000_000).expect("its files");
        let end_ns = cores::monotonic_ns() + 20_000_000_000;
        while !watch.is_idle(cores::monotonic_ns()) {
            assert!(cores::monotonic_ns() < end_ns, "a sleeping thread is idle at last");
        }
        drop(end);
        sleeper.join().expect("ends");
        let mut own = IdleWatch::new(nix::unistd::gettid().as_raw(), 0).expect("its files");
        assert!(!own.is_idle(cores::monotonic_ns()), "it runs");
    }
}
