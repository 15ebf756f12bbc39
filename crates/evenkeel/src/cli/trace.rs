//! What is written of a run for other programs, and of a scenario for other simulators.

use std::path::PathBuf;

use clap::Args;

use super::axis_label;

/// Arguments of a traced simulation.
#[derive(Debug, Args)]
pub struct SimTrace {
    /// Run one cell once and write, instead of results, the packets at all ports as pcapng for Wireshark: into FILE
    /// with an interface for each port, or into the existing directory DIR with a file for each port.
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = NO_RESULTS)]
    pub pcapng: Option<PathBuf>,
    /// With --pcapng, write payloads too (all bytes are 0) instead of only headers.
    #[arg(long, requires = "pcapng")]
    pub payload: bool,
    /// Run one cell once and write, instead of results, its events as a trace for Perfetto (JSON).
    #[arg(long, value_name = "FILE", conflicts_with_all = NO_RESULTS)]
    pub trace: Option<PathBuf>,
    /// The repetition of the cell to trace, counted from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub repetition: u32,
}

/// Arguments that have no meaning for a traced run, which leaves no results.
const NO_RESULTS: [&str; 6] = ["out", "repetitions", "jobs", "format", "json", "resume"];

/// Write a scenario as the input of another simulator.
///
/// Writes one cell, with the flows that its workload draws in the first repetition. A key that the other simulator
/// cannot express is an error.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("peer").required(true))]
pub struct Export {
    /// The scenario file.
    pub scenario: PathBuf,
    /// Only the cell with this label on this axis; repeat it until one cell is left.
    #[arg(long, value_name = "AXIS=LABEL", value_parser = axis_label)]
    pub only: Vec<String>,
    /// Write the input of the program in bench/ns3.
    #[arg(long, value_name = "FILE", group = "peer")]
    pub ns3: Option<PathBuf>,
    /// Write the traffic as a connection matrix for csg-htsim (.cm), with hosts as nodes. Network and transport are set
    /// on htsim's command line.
    #[arg(long, value_name = "FILE", group = "peer")]
    pub htsim: Option<PathBuf>,
}
