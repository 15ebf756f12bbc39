//! A directory with a scenario, in which the program is run.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// Two axes, eight cells; a run takes milliseconds.
pub const SMALL: &str = r#"
schema = 2
name = "small"
title = "Two machines"
duration_ms = 100
repetitions = 2
[network]
rate_mbit = 100
[vms.a]
[vms.b]
[workloads.w]
kind = "bulk"
from = "a"
to = "b"
[[axes]]
name = "rate"
key = "network.rate_mbit"
values = [10, 20, 30, 40]
[[axes]]
name = "cc"
key = "vms.a.tcp.congestion_control"
values = ["reno", "cubic"]
[report]
columns = ["goodput_mbit", "timeouts"]
"#;

/// A scenario in a directory of its own.
pub struct Bed {
    directory: TempDir,
}

impl Bed {
    pub fn new(scenario: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("s.toml"), scenario).unwrap();
        Self { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.args(arguments).current_dir(self.directory.path()).env_remove("EVENKEEL_LOG");
        command
    }

    /// Exit code, standard output, standard error.
    pub fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    pub fn good(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {err}");
        out
    }

    pub fn lines(&self, out: &str) -> Vec<u8> {
        fs::read(self.path(out).join("runs.jsonl")).unwrap()
    }
}
