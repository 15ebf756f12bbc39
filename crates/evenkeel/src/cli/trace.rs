//! What is written of a run for other programs, and of a scenario for other simulators.

use std::path::PathBuf;

use clap::Args;

use super::axis_label;

/// Arguments of a simulation that is traced.
#[derive(Debug, Args)]
pub struct SimTrace {
    /// Run one cell once, leave no results, and write the packets at all ports as pcapng, for Wireshark: into FILE with
    /// an interface for each port, or into the directory DIR, which must be there, with a file for each port.
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = NO_RESULTS)]
    pub pcapng: Option<PathBuf>,
    /// With --pcapng, write payloads too, all of whose bytes are 0; without, only headers.
    #[arg(long, requires = "pcapng")]
    pub payload: bool,
    /// Run one cell once, leave no results, and write what happens in it as a trace for Perfetto (JSON).
    #[arg(long, value_name = "FILE", conflicts_with_all = NO_RESULTS)]
    pub trace: Option<PathBuf>,
    /// Of a run that is traced: which repetition of the cell it is, counted from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub repetition: u32,
}

/// Who traces a run leaves no results.
const NO_RESULTS: [&str; 6] = ["out", "repetitions", "jobs", "format", "json", "resume"];

/// Write a scenario as the input of another simulator.
///
/// One cell of it, with the flows that its workload draws in the first repetition. What the other simulator cannot
/// express is an error that names the key.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("peer").required(true))]
pub struct Export {
    /// The scenario file.
    pub scenario: PathBuf,
    /// Only the cell with this label on this axis; may be given more than once, until one is left.
    #[arg(long, value_name = "AXIS=LABEL", value_parser = axis_label)]
    pub only: Vec<String>,
    /// Write the input of the program in bench/ns3.
    #[arg(long, value_name = "FILE", group = "peer")]
    pub ns3: Option<PathBuf>,
    /// Write the traffic as a connection matrix of csg-htsim (.cm): hosts are its nodes. Network and transport are
    /// htsim's command line.
    #[arg(long, value_name = "FILE", group = "peer")]
    pub htsim: Option<PathBuf>,
}
