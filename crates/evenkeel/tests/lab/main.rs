//! The lab as a user meets it: the real binary boots real VMs. Needs root and what `make deps` installs.

mod agents;
mod ends;
mod hosts;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_scenario::result::RunRecord;

/// The machine: two tests that boot VMs at the same time would only take each other's time.
static MACHINE: Mutex<()> = Mutex::new(());

fn machine() -> MutexGuard<'static, ()> {
    // A test that failed has said so itself.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn lab(scenario: &Path, out: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("lab").arg(scenario).arg("--out").arg(out).args(arguments).stdin(Stdio::null());
    command
}

/// Starts a lab, with its results and temporary files below `scratch`.
fn start(scenario: &Path, scratch: &Path, arguments: &[&str]) -> Child {
    let mut command = lab(scenario, &scratch.join("out"), arguments);
    command.env("TMPDIR", scratch).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends Ctrl-C, waits for the end, and checks its exit code.
fn interrupt(lab: Child) {
    // SAFETY: kill takes plain numbers; the process is our child and not yet waited for.
    assert_eq!(unsafe { libc::kill(lab.id() as i32, libc::SIGINT) }, 0);
    let output = lab.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a scenario, and returns its records.
fn run(scenario: &Path, arguments: &[&str]) -> Vec<RunRecord> {
    let out = tempfile::tempdir().unwrap();
    let output = lab(scenario, out.path(), arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    evenkeel_scenario::io::read_results(out.path()).unwrap().1
}

fn labelled<'a>(records: &'a [RunRecord], axis: &str, label: &str) -> Vec<&'a RunRecord> {
    let found: Vec<_> = records.iter().filter(|r| r.cell.iter().any(|(a, l)| a == axis && l == label)).collect();
    assert!(!found.is_empty(), "no run with {axis} = {label}");
    found
}

/// Counts wanted processes with a path below `directory` on their command lines, whose arguments end in zeros.
fn processes_below(directory: &Path, is_wanted: impl Fn(&str) -> bool) -> usize {
    let directory = directory.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|p| std::fs::read(p.path().join("cmdline")).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .filter(|line| is_wanted(line) && line.contains(directory))
        .count()
}

/// VMs of labs whose temporary directory is below `directory`.
fn vms_below(directory: &Path) -> usize {
    processes_below(directory, |line| line.starts_with("qemu-system"))
}

/// Agents of labs whose temporary directory is below `directory`.
fn agents_below(directory: &Path) -> usize {
    processes_below(directory, |line| line.contains("\0host\0"))
}

fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes a group a machine of its own, under this machine's kernel.
const NAMESPACE: &str = "hypervisor = false\nmachine = \"namespace\"\ntcp.congestion_control = \"reno\"";

fn assert_left_clean(scratch: &Path) {
    let left: Vec<_> = std::fs::read_dir(scratch)
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .filter(|name| name.to_string_lossy().starts_with("evenkeel-lab-"))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}
