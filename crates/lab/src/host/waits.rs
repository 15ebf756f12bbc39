//! How long virtual CPUs waited for a core, by the kernel's own figures (`/proc/TID/schedstat`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::cores::{self, CoreId, Policy};
use crate::error::LabError;

/// How often the figures are read.
const PERIOD_NS: u64 = 500_000;
/// That of the vCPU scheduler, above all others.
const PRIORITY: i32 = 50;

/// What the kernel says of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a core.
    pub ran_ns: u64,
    /// Time in which it could have run and had no core. It grows when the thread is given one.
    pub waited_ns: u64,
    /// How often it was given one.
    pub runs: u64,
}

impl SchedStat {
    /// Parses the three figures.
    pub fn parse(text: &str) -> Option<Self> {
        let mut figures = text.split_whitespace().map(|word| word.parse().ok());
        Some(Self { ran_ns: figures.next()??, waited_ns: figures.next()??, runs: figures.next()?? })
    }

    /// The increase since an earlier reading.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            ran_ns: self.ran_ns.saturating_sub(before.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
            runs: self.runs.saturating_sub(before.runs),
        }
    }
}

/// A thread's figures, open.
#[derive(Debug)]
pub struct SchedStatFile(File);

impl SchedStatFile {
    /// Of this thread.
    pub fn open(tid: i32) -> Result<Self, LabError> {
        let path = format!("/proc/{tid}/schedstat");
        File::open(&path).map(Self).map_err(|e| LabError::io(format!("opening {path}"), e))
    }

    /// None: the thread is gone.
    pub fn read(&self) -> Option<SchedStat> {
        let mut text = [0; 128];
        let length = self.0.read_at(&mut text, 0).ok()?;
        SchedStat::parse(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// A wait for a core: when it was over, CLOCK_MONOTONIC, and how long it was. Waits that end within the half
/// millisecond between two looks are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// When it was seen.
    pub end_ns: u64,
    /// Its length.
    pub waited_ns: u64,
}

/// Looks at virtual CPUs' figures until it is stopped.
#[derive(Debug)]
pub struct WaitSampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Vec<Wait>>>>,
}

impl WaitSampler {
    /// Samples these threads, on this core.
    pub fn start(tids: &[i32], core: CoreId) -> Result<Self, LabError> {
        let mut watched = tids.iter().map(|tid| Watched::new(*tid)).collect::<Result<Vec<_>, _>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&stop);
        let body = move || {
            // If these fail, it samples less often.
            let _ = cores::pin_current(&[core]).and_then(|()| cores::set_policy(0, Policy::Fifo(PRIORITY)));
            let mut next_ns = cores::monotonic_ns();
            while !over.load(Ordering::Relaxed) {
                watched.iter_mut().for_each(Watched::look);
                next_ns = (next_ns + PERIOD_NS).max(cores::monotonic_ns());
                cores::sleep_until_ns(next_ns);
            }
            watched.into_iter().map(|watched| watched.waits).collect()
        };
        let thread = std::thread::Builder::new()
            .name("ek-waits".into())
            .spawn(body)
            .map_err(|e| LabError::io("starting thread ek-waits", e))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// The waits of each thread, in their order.
    pub fn stop(mut self) -> Vec<Vec<Wait>> {
        self.end()
    }

    fn end(&mut self) -> Vec<Vec<Wait>> {
        self.stop.store(true, Ordering::Relaxed);
        // A panic in the thread has been printed.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for WaitSampler {
    fn drop(&mut self) {
        self.end();
    }
}

struct Watched {
    file: SchedStatFile,
    last: SchedStat,
    waits: Vec<Wait>,
}

impl Watched {
    fn new(tid: i32) -> Result<Self, LabError> {
        let file = SchedStatFile::open(tid)?;
        let last = file.read().unwrap_or_default();
        Ok(Self { file, last, waits: Vec::new() })
    }

    fn look(&mut self) {
        let Some(now) = self.file.read() else { return };
        let waited_ns = now.since(&self.last).waited_ns;
        if waited_ns > 0 {
            self.waits.push(Wait { end_ns: cores::monotonic_ns(), waited_ns });
        }
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_three_figures() {
        let read = SchedStat::parse("8230142 112 37\n").expect("read");
        assert_eq!(read, SchedStat { ran_ns: 8_230_142, waited_ns: 112, runs: 37 });
        assert_eq!(read.since(&SchedStat { ran_ns: 142, waited_ns: 2, runs: 30 }).runs, 7);
        assert_eq!(SchedStat::parse("8230142 112"), None);
        assert_eq!(SchedStat::parse(""), None);
    }

    #[test]
    fn waits_of_a_thread_add_up_to_what_it_waited() {
        let tid = nix::unistd::gettid().as_raw();
        let file = SchedStatFile::open(tid).expect("its figures");
        let core = cores::available().expect("cores")[0];
        let before = file.read().expect("read");
        let sampler = WaitSampler::start(&[tid], core).expect("started");
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let seen: u64 = sampler.stop()[0].iter().map(|wait| wait.waited_ns).sum();
        assert!(seen <= file.read().expect("read").since(&before).waited_ns);
    }
}
