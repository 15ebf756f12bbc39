//! Small scenarios that a directory can have, and invented runs of them.

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_report::{Codes, Results, load, write_parquet};
use evenkeel_scenario::provenance::{Program, Provenance};
use evenkeel_scenario::result::{Engine, FlowRecord, RunRecord, RunSet};
use evenkeel_scenario::{Scenario, fingerprint};

/// A valid scenario with two cells; `paper` is text of `[[paper]]` tables.
pub fn scenario(name: &str, paper: &str) -> String {
    format!(
        r#"
schema = 2
name = "{name}"
title = "Two kinds of congestion control"
duration_ms = 1000
repetitions = 3
[network]
rate_mbit = 100
[vms.a]
[vms.b]
[workloads.w]
kind = "bulk"
from = "a"
to = "b"
[[axes]]
name = "cc"
key = "vms.a.tcp.congestion_control"
values = ["reno", "cubic"]
{paper}
[report]
columns = ["goodput_mbit", "timeouts"]
"#
    )
}

/// A repository: scenarios, pages, runs that are kept.
pub struct Repository(pub tempfile::TempDir);

impl Repository {
    pub fn new(scenarios: &[(&str, &str)]) -> Self {
        let repository = Self(tempfile::tempdir().unwrap());
        for (name, paper) in scenarios {
            repository.write(name, &scenario(name, paper));
        }
        fs::create_dir_all(repository.pages()).unwrap();
        repository
    }

    pub fn scenarios(&self) -> PathBuf {
        self.0.path().join("scenarios")
    }

    pub fn pages(&self) -> PathBuf {
        self.0.path().join("results")
    }

    pub fn data(&self) -> PathBuf {
        self.pages().join("data")
    }

    pub fn write(&self, name: &str, text: &str) {
        let file = self.scenarios().join(format!("{name}.toml"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// Keeps three runs of each cell, each with these metrics of Reno and CUBIC, made by the code that is current.
    pub fn run(&self, name: &str, metrics: &[(&str, [f64; 2])]) -> Results {
        self.run_all_but(name, metrics, "", "")
    }

    /// The same, but the second run of one label lacks a metric.
    pub fn run_all_but(&self, name: &str, metrics: &[(&str, [f64; 2])], label: &str, lacking: &str) -> Results {
        let file = self.scenarios().join(format!("{name}.toml"));
        let loaded = Scenario::load(&file).unwrap();
        let engine = if name.starts_with("sim/") { Engine::Sim } else { Engine::Lab };
        let code = if engine == Engine::Sim { codes().sim } else { codes().lab };
        let set = RunSet {
            schema: 1,
            engine,
            scenario_toml: loaded.text.clone(),
            versions: [("evenkeel".to_owned(), "0.1.0".to_owned())].into(),
            command: format!("evenkeel run {name}"),
            started: "2026-01-02T03:04:05Z".to_owned(),
            remarks: Vec::new(),
            provenance: Some(Provenance {
                program: Program { commit: None, clean: None, code },
                settings: fingerprint::of(&loaded).unwrap(),
                host: "a processor (2 cores), Linux 6.12.38".to_owned(),
                again: None,
            }),
        };
        let mut records = Vec::new();
        for repetition in 0..3 {
            for (place, cc) in ["reno", "cubic"].into_iter().enumerate() {
                // The middle one is the median.
                let factor = [1.0, 1.1, 0.9][repetition as usize];
                let of_run = |(name, of): &(&str, [f64; 2])| ((*name).to_owned(), of[place] * factor);
                let lacks = |metric: &str| repetition == 1 && cc == label && metric == lacking;
                let all = metrics.iter().map(of_run).filter(|(metric, _)| !lacks(metric));
                records.push(record(cc, repetition, all.collect()));
            }
        }
        write_parquet(&self.data().join(name), &set, &records).unwrap();
        load(&self.data().join(name)).unwrap()
    }
}

/// The code that is current.
pub fn codes() -> Codes {
    Codes { lab: "1ab".to_owned(), sim: "51m".to_owned() }
}

fn record(cc: &str, repetition: u32, metrics: std::collections::BTreeMap<String, f64>) -> RunRecord {
    let flow = FlowRecord { from: "a-0".to_owned(), to: "b-0".to_owned(), bytes: 1, start_us: 0, duration_us: 1 };
    RunRecord {
        cell: vec![("cc".to_owned(), cc.to_owned())],
        repetition,
        seed: 1,
        duration_us: 1_000_000,
        metrics,
        counters: [("a-0".to_owned(), [("TcpExtTCPTimeouts".to_owned(), 3)].into())].into(),
        flows: vec![flow],
        series: Vec::new(),
        packets: Vec::new(),
        remarks: Vec::new(),
    }
}

/// Whether a directory has kept runs.
pub fn is_kept(directory: &Path) -> bool {
    directory.join("tables.json").exists()
}
