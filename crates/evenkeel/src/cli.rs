//! Commands and their arguments. The comments are what `--help` prints.

mod pvtcp;
mod trace;
mod trial;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use evenkeel_lab::prepare::KernelSeries;
use evenkeel_scenario::batch::Shard;

use crate::exit;

pub use pvtcp::{Pvtcp, PvtcpLoad};
pub use trace::{Export, SimTrace};
pub use trial::Trial;

/// Keeps TCP between virtual machines on an even keel.
///
/// TCP between VMs is slow for reasons that TCP cannot see: the VM was off its core, or a queue was full of a
/// neighbour's packets. evenkeel finds what hurts on a machine (doctor), cures it (host, guest, guest pvtcp), and shows
/// that with real VMs (lab) and in simulation (sim).
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version = crate::program::VERSION.as_str(), after_help = exit::HELP, max_term_width = 100)]
pub struct Cli {
    /// Format of the log on standard error.
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    pub log: LogFormat,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// One object per line: `timestamp`, `level`, `message` and the event's fields.
    Json,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Lab(Lab),
    Sim(Sim),
    Sweep(Sweep),
    #[command(subcommand)]
    Scenario(Scenario),
    Doctor(Doctor),
    Host(Host),
    Status(Status),
    Flows(Flows),
    #[command(subcommand)]
    Port(Port),
    Top(Top),
    Trial(Trial),
    Guest(Guest),
    Report(Report),
    Scorecard(Scorecard),
    Verify(Verify),
    Export(Export),
    Completions(Completions),
    #[command(hide = true)]
    Man(Man),
    #[command(hide = true)]
    LabGuest(LabGuest),
    #[command(hide = true)]
    LabNeighbour(LabNeighbour),
}

/// Run a scenario with real VMs on this machine.
///
/// Boots stock kernels in QEMU, lets their virtual CPUs share a core as the scenario says, runs its workload and counts
/// what TCP does. Prints a table and the path of the HTML report. Replaces what the results directory holds; after
/// Ctrl-C, a failure or a kill, --resume continues. Needs root, two cores and QEMU.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Lab {
    /// Another command instead of a run.
    #[command(subcommand)]
    pub command: Option<LabCommand>,
    /// What to run, and how.
    #[command(flatten)]
    pub run: LabRun,
}

impl Lab {
    /// Whether progress is not to be shown.
    pub fn is_quiet(&self) -> bool {
        match &self.command {
            Some(LabCommand::Prepare(prepare)) => prepare.quiet,
            None => self.run.quiet,
        }
    }
}

/// Commands of the lab other than running a scenario.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    Prepare(Prepare),
}

/// Arguments of a run.
#[derive(Debug, Args)]
pub struct LabRun {
    /// The scenario file.
    #[arg(required = true)]
    pub scenario: Option<PathBuf>,
    /// Directory for the results [default: results/NAME in the working directory].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Runs of each cell of the sweep, instead of the scenario's number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Run only cells with this label on this axis; may be repeated.
    #[arg(long, value_name = "AXIS=LABEL", value_parser = axis_label)]
    pub only: Vec<String>,
    /// Keep the packet captures with the results.
    #[arg(long)]
    pub keep_capture: bool,
    /// Fail at once if KVM cannot run a guest, instead of translating guest code.
    #[arg(long)]
    pub require_kvm: bool,
    /// Continue an interrupted lab: finished runs in the results directory are kept. Starts anew if there are none;
    /// refuses runs of another scenario text, version, kernel, --only or --repetitions.
    #[arg(long)]
    pub resume: bool,
    /// Print the results as JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Run a scenario in the simulator.
///
/// Simulates the scenario's machines, hypervisors and network packet by packet, with the same mechanisms that kernels
/// load, at scales that no lab reaches. Prints a table and the path of the HTML report. The same scenario and seed give
/// the same results to the byte, with any --jobs. Needs no privileges. Replaces what the results directory holds; after
/// Ctrl-C, `evenkeel sweep` or --resume continues.
#[derive(Debug, Args)]
pub struct Sim {
    /// The scenario file.
    pub scenario: PathBuf,
    /// What to run, and how.
    #[command(flatten)]
    pub run: SimRun,
    /// Continue an interrupted simulation, as `evenkeel sweep` does.
    #[arg(long)]
    pub resume: bool,
    /// Traces of one run instead of results.
    #[command(flatten)]
    pub trace: SimTrace,
}

/// Run a scenario in the simulator, and continue an interrupted sweep.
///
/// Like sim, but finished runs in the results directory are kept: after Ctrl-C, a kill or a power cut the same command
/// runs what is missing. The results of a complete sweep are shown again. If the directory holds runs of another
/// scenario text, version, --only or --repetitions, the command refuses and says what differs.
///
/// Several machines can share a sweep with --shard, each with a directory of its own; --merge joins these. The result
/// is the same, byte for byte, as that of an undivided sweep.
#[derive(Debug, Args)]
pub struct Sweep {
    /// The scenario file.
    #[arg(required_unless_present = "merge")]
    pub scenario: Option<PathBuf>,
    /// What to run, and how.
    #[command(flatten)]
    pub run: SimRun,
    /// Run only the I-th of N parts of all runs, into the directory shard-I-of-N inside that of the results.
    #[arg(long, value_name = "I/N", conflicts_with_all = ["format", "json"])]
    pub shard: Option<Shard>,
    /// Join shards made by --shard: their directories, or one that contains them. Nothing is written unless all runs
    /// are there; otherwise the command names what is missing.
    #[arg(long, value_name = "DIR", num_args = 1..)]
    #[arg(conflicts_with_all = ["scenario", "shard", "repetitions", "only", "jobs"])]
    pub merge: Vec<PathBuf>,
    /// Start anew and replace what the results directory holds.
    #[arg(long)]
    pub restart: bool,
}

/// Arguments of a simulation.
#[derive(Debug, Args)]
pub struct SimRun {
    /// Directory for the results [default: results/sim/NAME in the working directory].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Runs of each cell of the sweep, instead of the scenario's number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Run only cells with this label on this axis; may be repeated.
    #[arg(long, value_name = "AXIS=LABEL", value_parser = axis_label)]
    pub only: Vec<String>,
    /// Runs at the same time [default: one per core].
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Format of the result files [default: jsonl; files of a complete sweep keep theirs].
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Print the results as JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Format of result files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object per run, in runs.jsonl.
    #[default]
    Jsonl,
    /// Parquet tables: runs, counters, flows, series, packets, remarks.
    Parquet,
}

/// Fetch kernels and build the images that VMs boot, ahead of time.
///
/// `evenkeel lab` does this by itself when needed. The first time it takes a minute or two and needs the network.
#[derive(Debug, Args)]
pub struct Prepare {
    /// Kernels to prepare, e.g. `6.1,newest` [default: all].
    #[arg(long = "kernel", value_name = "LIST", value_delimiter = ',', value_parser = kernel)]
    pub kernels: Vec<KernelSeries>,
    /// Print the paths of the images as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub quiet: bool,
}

/// The runner inside a lab's VM.
#[derive(Debug, Args)]
pub struct LabGuest {
    /// The virtio port to the lab; with --root, a Unix socket to listen on.
    #[arg(long, value_name = "PATH")]
    pub control: PathBuf,
    /// Run in a network namespace of this machine, with this root directory.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// A process that only computes beside a lab's VMs.
#[derive(Debug, Args)]
pub struct LabNeighbour {
    /// Share of each cycle in which it computes, from 0 to 1.
    #[arg(long)]
    pub load: f64,
    /// Length of a cycle, in microseconds.
    #[arg(long)]
    pub duty_us: u64,
    /// Offset into its first cycle, in microseconds.
    #[arg(long)]
    pub phase_us: u64,
}

/// Check scenario files, or print their schema.
#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// Check scenario files; errors name file, line, key and what is allowed.
    Check {
        /// Scenario files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print the outcome as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON schema of scenario files, for editors.
    Schema,
}

/// Show what this machine supports, what hurts TCP here, and what would help.
///
/// Looks at the kernel, the hypervisor, stolen core time, TCP's settings and counters, the ports of VMs, QEMU and KVM.
/// Takes a second or two, changes nothing, needs no privileges (with root it sees more). Findings do not change the
/// exit code; scripts read `worst` from --json. As root it attaches a program that passes every packet to `lo` for an
/// instant. With --for it reports what happens now instead of since boot: drops at ports by cause, waits of VMs and
/// their quotas, needless work of TCP, and what would help, cheapest first. That needs Linux 5.4 or newer, and no BPF.
#[derive(Debug, Args)]
pub struct Doctor {
    /// List the kernel features that evenkeel needs: who needs each, whether it is there, and if not, why.
    #[arg(long, conflicts_with = "seconds")]
    pub features: bool,
    /// Print the findings, the figures or the features as JSON.
    #[arg(long)]
    pub json: bool,
    /// Watch for this many seconds (1-86400) and report what happened.
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: Option<u32>,
    /// Print the figures as gauges in OpenMetrics form, for node_exporter's textfile collector.
    #[arg(long, requires = "seconds", conflicts_with = "json")]
    pub openmetrics: bool,
}

/// Run the host agent: ProBoSCIS, vSnoop, vFlood and CERA on the ports of this machine's VMs.
///
/// Finds the ports by name as they come and go, attaches eBPF programs to them and keeps their settings; repeats lost
/// SYNs and probes; raises queues that are too short; answers `evenkeel status`, `flows` and `top`; serves metrics.
/// Runs in the foreground until SIGTERM or Ctrl-C. The programs then stay at work without it, as after a crash, and a
/// new agent takes them over with their connections. Only --stop removes everything and puts back what was changed.
/// SIGHUP reads the configuration again. Needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and a kernel with type
/// information (BTF) and tcx or clsact; `evenkeel doctor --features` lists what is missing.
#[derive(Debug, Args)]
pub struct Host {
    /// The configuration file [default: /etc/evenkeel/host.toml, or built-in defaults if there is none].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// End a running agent, remove the programs and everything else, and put queue lengths back.
    #[arg(long, conflicts_with_all = ["config", "check", "print_config"])]
    pub stop: bool,
    /// Check the configuration file and exit.
    #[arg(long, conflicts_with = "print_config")]
    pub check: bool,
    /// Check whether an agent of this version can take over what is pinned here, and exit: code 1 if it cannot.
    #[arg(long, conflicts_with_all = ["config", "stop", "check", "print_config"])]
    pub check_pins: bool,
    /// Print a commented configuration with every key at its default, and exit.
    #[arg(long, conflicts_with = "config")]
    pub print_config: bool,
    /// Directory for the lock and the notes on what was changed.
    #[arg(long, value_name = "DIR", default_value = evenkeel_settings::host::DEFAULT_RUN_DIR)]
    pub run_dir: PathBuf,
    /// Directory in a bpf file system where programs and maps are pinned.
    #[arg(long, value_name = "DIR", default_value = evenkeel_settings::host::DEFAULT_PIN_DIR)]
    pub pin_dir: PathBuf,
    /// Print the outcome of --stop, --check or --check-pins as JSON.
    #[arg(long, conflicts_with = "print_config")]
    pub json: bool,
}

/// Show the host agent's ports, modes and counters.
#[derive(Debug, Args)]
pub struct Status {
    /// The agent.
    #[command(flatten)]
    pub agent: Agent,
}

/// Address of the host agent.
#[derive(Debug, Args)]
pub struct Agent {
    /// The agent's control socket (control.socket of its configuration).
    #[arg(long, value_name = "PATH", default_value = evenkeel_settings::host::DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Show the connections that the host agent sees, most bytes first.
#[derive(Debug, Args)]
pub struct Flows {
    /// The agent.
    #[command(flatten)]
    pub agent: Agent,
    /// Explain in words which mechanism set the window of one connection, and why. Written as in the list, either end
    /// first: 10.0.0.1:4000-10.0.0.2:80 or [fd00::1]:4000-[fd00::2]:80.
    #[arg(long, value_name = "TUPLE", conflicts_with = "limit")]
    pub explain: Option<evenkeel_agent::host::Tuple>,
    /// Show at most this many [default: all].
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// Take a VM's port offline before the VM moves to another host, or back online.
#[derive(Debug, Subcommand)]
pub enum Port {
    Offline(PortOffline),
    Online(PortOnline),
}

/// Make a port ready for its VM to leave, and wait until it is.
///
/// vFlood sends what it holds and the guest goes back to plain TCP, vSnoop sends no more early ACKs, and CERA's limit
/// ends. Connections go on. The port stays offline until it goes away, until `evenkeel port online`, or until the agent
/// ends.
#[derive(Debug, Args)]
pub struct PortOffline {
    /// The port, as in `evenkeel status`.
    pub port: String,
    /// Wait at most this many seconds until nothing is held or promised; 0 does not wait.
    #[arg(long, value_name = "S", default_value_t = 30.0, value_parser = patience)]
    pub wait: f64,
    /// The agent.
    #[command(flatten)]
    pub agent: Agent,
}

/// Bring a port back online after a migration that was called off.
///
/// New connections get vFlood; those that existed while the port was offline go on without it.
#[derive(Debug, Args)]
pub struct PortOnline {
    /// The port, as in `evenkeel status`.
    pub port: String,
    /// The agent.
    #[command(flatten)]
    pub agent: Agent,
}

/// Watch ports and connections.
///
/// Keys: q or Esc ends it, s sorts the connections by another column.
#[derive(Debug, Args)]
pub struct Top {
    /// The agent. With --json, one line per interval.
    #[command(flatten)]
    pub agent: Agent,
    /// Seconds between updates.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Number of connections to show.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub limit: usize,
    /// End after this many updates [default: never].
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// Run the guest agent: vFlood's congestion control and CERA's client, directed by the host over a channel.
///
/// Registers the congestion control `vflood`, which floods the host only while the host's agent attests that it holds
/// this guest's packets, and sets the windows of flows to their shares of the window that the host grants this guest.
/// Runs in the foreground until SIGTERM or Ctrl-C: then TCP is plain at once. It is plain within three heartbeats when
/// the agent, the channel or the host's agent dies. Only --stop takes the congestion control and the settings back.
/// SIGHUP reads the configuration again. Needs a kernel with type information (BTF) and struct_ops, and root or
/// CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_DAC_OVERRIDE; `evenkeel doctor` lists what is missing.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Guest {
    /// Another command instead of a run.
    #[command(subcommand)]
    pub command: Option<GuestCommand>,
    /// The agent.
    #[command(flatten)]
    pub agent: GuestAgent,
}

/// Arguments of the guest agent.
#[derive(Debug, Args)]
pub struct GuestAgent {
    /// The configuration file [default: /etc/evenkeel/guest.toml, or built-in defaults if there is none].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// End a running agent, unregister the congestion control, and put settings, windows and connections back.
    #[arg(long, conflicts_with_all = ["config", "check", "print_config", "status"])]
    pub stop: bool,
    /// Show what is registered, attested, changed and counted, and exit.
    #[arg(long, conflicts_with_all = ["config", "check", "print_config"])]
    pub status: bool,
    /// Check the configuration file and exit.
    #[arg(long, conflicts_with = "print_config")]
    pub check: bool,
    /// Print a commented configuration with every key at its default, and exit.
    #[arg(long, conflicts_with = "config")]
    pub print_config: bool,
    /// Directory for the lock and the notes on what was changed.
    #[arg(long, value_name = "DIR", default_value = evenkeel_settings::guest::DEFAULT_RUN_DIR)]
    pub run_dir: PathBuf,
    /// Directory in a bpf file system where maps are pinned.
    #[arg(long, value_name = "DIR", default_value = evenkeel_settings::guest::DEFAULT_PIN_DIR)]
    pub pin_dir: PathBuf,
    /// Print the outcome of --stop, --status or --check as JSON.
    #[arg(long, conflicts_with = "print_config")]
    pub json: bool,
}

/// Commands inside a guest other than the agent.
#[derive(Debug, Subcommand)]
pub enum GuestCommand {
    /// PVTCP: TCP that does not mistake being off the core for congestion.
    #[command(subcommand)]
    Pvtcp(Pvtcp),
}

/// Print the table of a results directory again, and write its HTML report again.
///
/// With --check, list which pages in a directory were made with the present scenarios and code.
#[derive(Debug, Args)]
pub struct Report {
    /// The results directory of `evenkeel lab`, `sim` or `sweep`, with JSON lines or Parquet tables; with --check, the
    /// directory of the pages.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Print the table as Markdown, and write nothing.
    #[arg(long)]
    pub markdown: bool,
    /// Write the table as Markdown to this file, and plots of the kinds `plane`, `heat` and `factors` as SVG files
    /// beside it.
    #[arg(long, value_name = "FILE", conflicts_with = "markdown")]
    pub page: Option<PathBuf>,
    /// Keep the runs in this directory as Parquet tables of at most 200 KB; to fit, series and packets are left out,
    /// then flows, then counters. Can be combined with --page.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["markdown", "json", "check"])]
    pub keep: Option<PathBuf>,
    /// Write the runs' series, flows and packets around a wake-up as a trace for Perfetto (JSON).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["markdown", "json", "check"])]
    pub trace: Option<PathBuf>,
    /// Write the runs as flent data files for its plots: FILE, e.g. `NAME.flent.gz`; with several runs one file each,
    /// numbered from 0.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["markdown", "json", "check"])]
    pub flent: Option<PathBuf>,
    /// Say for each page in DIR whether it is current, and if not, why. Old pages are no error.
    #[arg(long, conflicts_with_all = ["markdown", "page"])]
    pub check: bool,
    /// Write into old pages that they are old and why; remove the remark from current pages.
    #[arg(long, requires = "check")]
    pub mark: bool,
    /// Directory of the scenario files that --check compares pages with.
    #[arg(long, value_name = "DIR", default_value = "scenarios", requires = "check")]
    pub scenarios: PathBuf,
    /// Print the results as JSON.
    #[arg(long, conflicts_with_all = ["markdown", "page"])]
    pub json: bool,
}

/// Compare what the papers report with the kept runs.
///
/// Prints, as Markdown, a row for each figure, table and claim of the papers: the simulator's and the lab's values, and
/// a verdict by the rule that stands on the page. Nothing is run.
#[derive(Debug, Args)]
pub struct Scorecard {
    /// Directories of results by scenario name; for each scenario, the first that has results counts.
    #[arg(value_name = "DIR", default_value = "docs/results/data")]
    pub results: Vec<PathBuf>,
    /// The file with the rows; the scorecard links to the pages in its directory.
    #[arg(long, value_name = "FILE", default_value = "docs/results/scorecard.toml")]
    pub rows: PathBuf,
    /// Directory of the scenario files.
    #[arg(long, value_name = "DIR", default_value = "scenarios")]
    pub scenarios: PathBuf,
    /// Write it to this file, and a page for each mechanism with every statement of the papers next to it.
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
}

/// Repeat the simulator's kept runs and check that they are equal.
///
/// Runs of the simulator follow from the scenario and the code alone. If all kept runs are equal to the last digit,
/// the results and their pages record it and count as current again. Exits with 1 if any differ.
#[derive(Debug, Args)]
pub struct Verify {
    /// A directory of kept results, or one that contains such directories.
    #[arg(value_name = "DIR", default_value = "docs/results/data")]
    pub results: PathBuf,
    /// Directory of the pages.
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    pub pages: PathBuf,
    /// Directory of the scenario files.
    #[arg(long, value_name = "DIR", default_value = "scenarios")]
    pub scenarios: PathBuf,
    /// A sample: repeat so many runs of each set, evenly spread over it, and record nothing [default: all runs].
    #[arg(long, value_name = "N")]
    pub runs: Option<NonZeroUsize>,
    /// Runs at the same time [default: one per core].
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

/// Print shell completions.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    pub shell: clap_complete::Shell,
}

/// Write a manual page for each command, for packages.
#[derive(Debug, Args)]
pub struct Man {
    /// The directory to write them to.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Only the scenario tells where the axis ends: names may contain `=`.
fn axis_label(text: &str) -> Result<String, String> {
    if text.contains('=') {
        Ok(text.to_owned())
    } else {
        Err("write it as AXIS=LABEL, with names from the scenario's [[axes]]".to_owned())
    }
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds, e.g. 0.5".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("0.1 to 3600 seconds are allowed".to_owned()) }
}

fn patience(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds, e.g. 10".to_owned())?;
    if (0.0..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("0 to 3600 seconds are allowed".to_owned()) }
}

fn kernel(text: &str) -> Result<KernelSeries, String> {
    text.parse().map_err(|error: evenkeel_lab::prepare::PrepareError| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_commands_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_names_a_label_has_an_equals_sign() {
        assert_eq!(axis_label("rto=min=8"), Ok("rto=min=8".to_owned()));
        assert!(axis_label("rto").is_err());
    }

    #[test]
    fn prepare_needs_no_scenario() {
        let cli = Cli::try_parse_from(["evenkeel", "lab", "prepare", "--kernel", "6.1,newest"]).unwrap();
        let Command::Lab(Lab { command: Some(LabCommand::Prepare(prepare)), .. }) = cli.command else { panic!() };
        assert_eq!(prepare.kernels, [KernelSeries::V6_1, KernelSeries::Newest]);
        assert!(Cli::try_parse_from(["evenkeel", "lab"]).is_err());
    }
}
