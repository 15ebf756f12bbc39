//! Programs that run in the VM.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{SigHandler, Signal, killpg, signal};
use nix::unistd::Pid;

use crate::proto::Answer;

/// How long a program has to end after SIGINT.
const GRACE: Duration = Duration::from_secs(2);
/// How long to wait for output after a program's end: a child of it may hold the pipe for ever.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);
/// Most bytes kept of each of the two outputs.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// What is known of a program.
#[derive(Debug, Default)]
struct State {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    open_outputs: u32,
    ended: Option<ExitStatus>,
    answered: bool,
}

/// A started program; its output is read as it comes.
#[derive(Debug)]
pub struct Program {
    group: Pid,
    state: Mutex<State>,
    changed: Condvar,
}

impl Program {
    /// Starts a program in a process group of its own, without input.
    pub fn start(argv: &[String]) -> anyhow::Result<Arc<Self>> {
        let (name, arguments) = argv.split_first().context("no program named")?;
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        // SAFETY: sigaction is async-signal-safe, and sets no handler. SIGINT is how the program will be ended, so it
        // must not inherit that SIGINT is ignored, as a shell has it for what it starts in the background.
        unsafe {
            command.pre_exec(|| signal(Signal::SIGINT, SigHandler::SigDfl).map(drop).map_err(Into::into));
        }
        let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
        let program = Arc::new(Self {
            group: Pid::from_raw(i32::try_from(child.id()).context("no process number")?),
            state: Mutex::new(State { open_outputs: 2, ..State::default() }),
            changed: Condvar::new(),
        });
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        program.read_in_background("stdout", stdout.context("no standard output")?, |state| &mut state.stdout)?;
        program.read_in_background("stderr", stderr.context("no standard error")?, |state| &mut state.stderr)?;
        let waiter = Arc::clone(&program);
        thread::Builder::new().name("waiter".into()).spawn(move || {
            // `wait` fails only for a child that was reaped elsewhere, which nobody does.
            let status = child.wait().unwrap_or_else(|_| ExitStatus::from_raw(-1));
            waiter.update(|state| state.ended = Some(status));
        })?;
        Ok(program)
    }

    /// Waits for the end and the output.
    pub fn wait(&self) -> Answer {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.changed.wait_while(state, |s| s.ended.is_none()).unwrap_or_else(PoisonError::into_inner);
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, OUTPUT_GRACE, |s| s.open_outputs > 0)
            .unwrap_or_else(PoisonError::into_inner);
        state.answered = true;
        Answer::Exec {
            status: state.ended.and_then(|status| status.code()).unwrap_or(-1),
            stdout: String::from_utf8_lossy(&state.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&state.stderr).into_owned(),
        }
    }

    /// Whether its end has been reported.
    pub fn answered(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).answered
    }

    /// SIGINT, after [`GRACE`] SIGKILL, to the program and its children.
    pub fn kill(&self) -> Answer {
        for signal in [Signal::SIGINT, Signal::SIGKILL] {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            // The number of an ended program's group may belong to somebody else by now.
            if state.ended.is_some() {
                break;
            }
            // Fails only when the group has just ended, which is what is wanted.
            let _ = killpg(self.group, signal);
            drop(
                self.changed
                    .wait_timeout_while(state, GRACE, |s| s.ended.is_none())
                    .unwrap_or_else(PoisonError::into_inner),
            );
        }
        self.wait()
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn read_in_background(
        self: &Arc<Self>,
        name: &str,
        mut pipe: impl Read + Send + 'static,
        output: fn(&mut State) -> &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        let program = Arc::clone(self);
        thread::Builder::new().name(name.into()).spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                // Output above the limit is read all the same: a full pipe would stop the program.
                program.update(|state| {
                    let output = output(state);
                    let room = MAX_OUTPUT_BYTES.saturating_sub(output.len());
                    output.extend_from_slice(&buffer[..n.min(room)]);
                });
            }
            program.update(|state| state.open_outputs -= 1);
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn start(argv: &[&str]) -> anyhow::Result<Arc<Program>> {
        Program::start(&argv.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    fn parts(answer: Answer) -> (i32, String, String) {
        let Answer::Exec { status, stdout, stderr } = answer else { panic!("not an end: {answer:?}") };
        (status, stdout, stderr)
    }

    #[test]
    fn output_and_exit_code_come_back() {
        let program = start(&["sh", "-c", "echo out; echo err >&2; exit 3"]).expect("started");
        assert_eq!(parts(program.wait()), (3, "out\n".into(), "err\n".into()));
    }

    #[test]
    fn kill_interrupts_and_returns_what_was_printed() {
        let program = start(&["sh", "-c", "trap 'echo bye; exit 0' INT; echo ready; while :; do sleep 0.01; done"])
            .expect("started");
        while program.state.lock().expect("lock").stdout.is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        let (status, stdout, _) = parts(program.kill());
        assert_eq!((status, stdout.as_str()), (0, "ready\nbye\n"));
    }

    #[test]
    fn a_program_that_ignores_sigint_is_killed() {
        let program = start(&["sh", "-c", "trap '' INT; echo ready; while :; do sleep 0.01; done"]).expect("started");
        while program.state.lock().expect("lock").stdout.is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        let asked = Instant::now();
        assert_eq!(parts(program.kill()).0, -1);
        assert!(asked.elapsed() >= GRACE);
    }

    #[test]
    fn a_child_that_holds_the_pipe_does_not_hold_the_answer() {
        let program = start(&["sh", "-c", "sleep 5 & echo started"]).expect("started");
        let asked = Instant::now();
        assert_eq!(parts(program.wait()).1, "started\n");
        assert!(asked.elapsed() < Duration::from_secs(4));
    }

    #[test]
    fn a_missing_program_is_named() {
        assert!(start(&["no-such-program"]).expect_err("not there").to_string().contains("no-such-program"));
        assert!(start(&[]).is_err());
    }
}
