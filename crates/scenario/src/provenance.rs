//! Which code made results, of which settings, and on which machine.

use serde::{Deserialize, Serialize};

/// The program, as it was built.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The commit that was checked out, 40 digits; none where the sources were in no repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Whether the sources of the program were as that commit has them; none where nobody could tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clean: Option<bool>,
    /// Digests of the sources that decide what a run of this engine gives, separated by
    /// [`BETWEEN_PARTS`](Self::BETWEEN_PARTS): the engine's with metrics and, in the simulator, all mechanisms;
    /// in the lab also those of PVTCP's module, the agents with their programs, and CERA's and vFlood's parts of these,
    /// where they act.
    pub code: String,
}

/// Where results come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// What made them.
    pub program: Program,
    /// Digest of the scenario's settings (see [`crate::fingerprint`]).
    pub settings: String,
    /// The machine: processor, cores, kernel.
    pub host: String,
    /// Who has last run some of the runs again and found them equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
}

/// Runs that another program has run again, with the same results to the last digit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// That program.
    pub program: Program,
    /// Digest of the same settings as that program has it: it may know keys that the first did not.
    pub settings: String,
    /// How many runs they are.
    pub runs: usize,
}

impl Program {
    /// Separates digests; no digest contains it.
    pub const BETWEEN_PARTS: &'static str = "-";

    /// The commit's first digits and whether that is all, as in `18b6d2d01a2c and changes`.
    pub fn commit_in_words(&self) -> String {
        let Some(commit) = &self.commit else { return "of no known commit".to_owned() };
        let commit = commit.get(..12).unwrap_or(commit);
        match self.clean {
            Some(true) => format!("commit {commit}"),
            Some(false) => format!("commit {commit} and changes"),
            None => format!("commit {commit} or changed since"),
        }
    }
}

/// This machine, as in `AMD EPYC 9R14 (2 cores), Linux 6.18.5`.
pub fn host() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of_model = |line: &str| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned());
    let processor = cpuinfo.lines().find_map(of_model);
    let processor = processor.unwrap_or_else(|| format!("processor of {}", std::env::consts::ARCH));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
    let kernel = nix::sys::utsname::uname().map(|names| names.release().to_string_lossy().into_owned());
    format!("{processor} ({cores}), Linux {}", kernel.unwrap_or_else(|_| "of an unknown version".to_owned()))
}

/// What the clock says, in UTC and to the second, as in `2026-01-31T12:00:00Z`.
pub fn now() -> String {
    let now = jiff::Timestamp::now();
    now.round(jiff::Unit::Second).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_says_whether_it_is_all() {
        let commit = Some("18b6d2d01a2c18b6d2d01a2c18b6d2d01a2c1234".to_owned());
        let words = |clean| Program { commit: commit.clone(), clean, code: String::new() }.commit_in_words();
        assert_eq!(words(Some(true)), "commit 18b6d2d01a2c");
        assert_eq!(words(Some(false)), "commit 18b6d2d01a2c and changes");
        assert_eq!(words(None), "commit 18b6d2d01a2c or changed since");
        assert_eq!(Program::default().commit_in_words(), "of no known commit");
    }

    #[test]
    fn the_host_has_a_processor_and_a_kernel() {
        let host = host();
        assert!(host.contains(" core") && host.contains(", Linux ") && !host.contains("unknown"), "{host}");
    }
}
