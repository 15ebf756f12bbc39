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
/// neighbour's packets. evenkeel says what hurts on a machine (doctor), cures it (host, guest, guest pvtcp), and proves
/// that with real VMs (lab) and in simulation (sim).
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version = crate::program::VERSION.as_str(), after_help = exit::HELP, max_term_width = 100)]
pub struct Cli {
    /// How the log on standard error is written.
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    pub log: LogFormat,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// An object a line: `timestamp`, `level`, `message`, and what the event names.
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
/// what TCP does. Prints a table and the path of the HTML report. It begins afresh, whatever the results directory
/// holds; after Ctrl-C, a failure or a kill, --resume goes on. Needs root, two cores and QEMU.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Lab {
    /// Or one of these.
    #[command(subcommand)]
    pub command: Option<LabCommand>,
    /// What to run.
    #[command(flatten)]
    pub run: LabRun,
}

impl Lab {
    /// Whether the user wants to see no progress.
    pub fn is_quiet(&self) -> bool {
        match &self.command {
            Some(LabCommand::Prepare(prepare)) => prepare.quiet,
            None => self.run.quiet,
        }
    }
}

/// What the lab does beside running scenarios.
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
    /// Where the results go [default: results/NAME below the working directory].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How often each cell of the sweep is run, instead of what the scenario says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Run only cells with this label on this axis; may be given more than once.
    #[arg(long, value_name = "AXIS=LABEL", value_parser = axis_label)]
    pub only: Vec<String>,
    /// Keep the packet captures beside the results.
    #[arg(long)]
    pub keep_capture: bool,
    /// Fail at once where KVM does not run a guest, instead of translating guest code.
    #[arg(long)]
    pub require_kvm: bool,
    /// Go on where an earlier lab was interrupted: runs that are finished in the results directory are kept. It begins
    /// if there are none, and refuses those of another scenario text, version, kernel, --only or --repetitions.
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
/// load, at scales that no lab here reaches. Prints a table and the path of the HTML report. The same scenario and seed
/// give the same results to the byte, whatever --jobs is. Needs no privileges. It begins afresh, whatever the results
/// directory holds; after Ctrl-C, `evenkeel sweep` goes on, or the same with --resume.
#[derive(Debug, Args)]
pub struct Sim {
    /// The scenario file.
    pub scenario: PathBuf,
    /// What to run, and how.
    #[command(flatten)]
    pub run: SimRun,
    /// Go on where an earlier simulation was interrupted, as `evenkeel sweep` does.
    #[arg(long)]
    pub resume: bool,
    /// What to write of one run instead of results.
    #[command(flatten)]
    pub trace: SimTrace,
}

/// Run a scenario in the simulator, and go on where an earlier sweep was interrupted.
///
/// As sim, but runs that are finished in the results directory are kept: after Ctrl-C, a kill or a power cut the same
/// command goes on with what is missing. What a complete sweep has left is shown again. Runs of another scenario text,
/// version, --only or --repetitions are not mixed with: the command refuses and says what differs.
///
/// Many machines divide a sweep with --shard, each into a directory of its own; --merge puts these together. What comes
/// of it has the bytes of a sweep that was not divided.
#[derive(Debug, Args)]
pub struct Sweep {
    /// The scenario file.
    #[arg(required_unless_present = "merge")]
    pub scenario: Option<PathBuf>,
    /// What to run, and how.
    #[command(flatten)]
    pub run: SimRun,
    /// Only the I-th of N parts of all runs, into the directory shard-I-of-N where the results would go.
    #[arg(long, value_name = "I/N", conflicts_with_all = ["format", "json"])]
    pub shard: Option<Shard>,
    /// Put shards together that --shard has made: their directories, or one that has them in it. Nothing is written
    /// unless all runs are there; what is missing is said.
    #[arg(long, value_name = "DIR", num_args = 1..)]
    #[arg(conflicts_with_all = ["scenario", "shard", "repetitions", "only", "jobs"])]
    pub merge: Vec<PathBuf>,
    /// Begin again, whatever the results directory holds.
    #[arg(long)]
    pub restart: bool,
}

/// Arguments of a simulation.
#[derive(Debug, Args)]
pub struct SimRun {
    /// Where the results go [default: results/sim/NAME below the working directory].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How often each cell of the sweep is run, instead of what the scenario says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Run only cells with this label on this axis; may be given more than once.
    #[arg(long, value_name = "AXIS=LABEL", value_parser = axis_label)]
    pub only: Vec<String>,
    /// How many runs at once [default: one per core].
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Format of the result files [default: jsonl; what a complete sweep has left stays as it is].
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

/// Fetch kernels and build what VMs boot, ahead of time.
///
/// `evenkeel lab` does this by itself when it has to. The first time takes a minute or two and the network.
#[derive(Debug, Args)]
pub struct Prepare {
    /// Kernels to prepare, as in `6.1,newest` [default: all].
    #[arg(long = "kernel", value_name = "LIST", value_delimiter = ',', value_parser = kernel)]
    pub kernels: Vec<KernelSeries>,
    /// Print where the images are as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub quiet: bool,
}

/// The runner inside a lab's VM.
#[derive(Debug, Args)]
pub struct LabGuest {
    /// The virtio port to the lab; with --root, a Unix socket to listen at.
    #[arg(long, value_name = "PATH")]
    pub control: PathBuf,
    /// Run in a network namespace of this machine, with this root.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// What only computes beside a lab's VMs.
#[derive(Debug, Args)]
pub struct LabNeighbour {
    /// Share of each cycle, from 0 to 1.
    #[arg(long)]
    pub load: f64,
    /// Length of a cycle.
    #[arg(long)]
    pub duty_us: u64,
    /// How far into its first cycle it is.
    #[arg(long)]
    pub phase_us: u64,
}

/// Check scenario files, or print their schema.
#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// Check scenario files; says file, line, key and what is allowed.
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

/// Say what this machine supports, what hurts TCP here, and what would help.
///
/// Looks at the kernel, the hypervisor, stolen core time, TCP's settings and counters, the ports of VMs, QEMU and KVM.
/// Takes a second or two, changes nothing, needs no privileges (with root it sees more). Findings do not change the
/// exit code; scripts read `worst` from --json. With root, a program that lets everything pass is on `lo` for an
/// instant. With --for, it says what happens now and not what was counted since boot: drops at ports by cause, waits of
/// VMs and their quotas, TCP's needless work, and what would help, cheapest first. That needs Linux 5.4 and no BPF.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print what this kernel has of what evenkeel needs, who needs it, and why what is missing is so.
    #[arg(long, conflicts_with = "seconds")]
    pub features: bool,
    /// Print the findings, the figures or the features as JSON.
    #[arg(long)]
    pub json: bool,
    /// Watch for so many seconds (1-86400), and say what happened in them.
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: Option<u32>,
    /// Print the figures as gauges for Prometheus, in OpenMetrics form, as node_exporter's textfile collector reads
    /// them.
    #[arg(long, requires = "seconds", conflicts_with = "json")]
    pub openmetrics: bool,
}

/// Run the host agent: ProBoSCIS, vSnoop, vFlood and CERA on the ports of this machine's VMs.
///
/// Finds the ports by name as they appear and go, puts eBPF programs on them and keeps their settings; sends again what
/// was lost on the way to a connection; raises queues that are too short; answers `evenkeel status`, `flows` and `top`;
/// serves metrics. Runs in the foreground until SIGTERM or Ctrl-C, which leave the programs at work without it, as a
/// crash does: a new agent takes them over with their connections. Only --stop removes everything and puts back what
/// was changed. SIGHUP reads the configuration again. Needs root or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and of the
/// kernel tcx or clsact and type information (BTF); `evenkeel doctor --features` says what is missing.
#[derive(Debug, Args)]
pub struct Host {
    /// The configuration file [default: /etc/evenkeel/host.toml, or its defaults if that is not there].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// End a running agent, remove the programs and everything else, and put queue lengths back.
    #[arg(long, conflicts_with_all = ["config", "check", "print_config"])]
    pub stop: bool,
    /// Check the configuration file and end.
    #[arg(long, conflicts_with = "print_config")]
    pub check: bool,
    /// Say whether an agent of this version can take over what is pinned here, and end: exit code 1 if it cannot.
    #[arg(long, conflicts_with_all = ["config", "stop", "check", "print_config"])]
    pub check_pins: bool,
    /// Print a commented configuration with every key at its default, and end.
    #[arg(long, conflicts_with = "config")]
    pub print_config: bool,
    /// Where the lock and the notes on what was changed are kept.
    #[arg(long, value_name = "DIR", default_value = evenkeel_settings::host::DEFAULT_RUN_DIR)]
    pub run_dir: PathBuf,
    /// Where programs and maps are pinned: a directory in a bpf file system.
    #[arg(long, value_name = "DIR", default_value = evenkeel_settings::host::DEFAULT_PIN_DIR)]
    pub pin_dir: PathBuf,
    /// Print what --stop, --check and --check-pins have to say as JSON.
    #[arg(long, conflicts_with = "print_config")]
    pub json: bool,
}

/// Show what the host agent does: ports, modes, counters.
#[derive(Debug, Args)]
pub struct Status {
    /// Where the agent answers.
    #[command(flatten)]
    pub agent: Agent,
}

/// Where the host agent answers.
#[derive(Debug, Args)]
pub struct Agent {
    /// The agent's control socket (control.socket of its configuration).
    #[arg(long, value_name = "PATH", default_value = evenkeel_settings::host::DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Show the connections that the host agent sees, those with the most bytes first.
#[derive(Debug, Args)]
pub struct Flows {
    /// Where the agent answers.
    #[command(flatten)]
    pub agent: Agent,
    /// Say of one connection, in words, which mechanism set its window, and why. Written as in the list, either end
    /// first: 10.0.0.1:4000-10.0.0.2:80 or [fd00::1]:4000-[fd00::2]:80.
    #[arg(long, value_name = "TUPLE", conflicts_with = "limit")]
    pub explain: Option<evenkeel_agent::host::Tuple>,
    /// Show only so many [default: all].
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// Take a VM's port offline before the VM moves to another host, or online again.
#[derive(Debug, Subcommand)]
pub enum Port {
    Offline(PortOffline),
    Online(PortOnline),
}

/// Make a port ready for its VM to leave, and wait until it is.
///
/// vFlood lets out what it holds and the guest goes back to plain TCP, vSnoop acknowledges nothing more for the VM,
/// CERA's limit ends. Connections go on. The port stays offline until it goes away, `evenkeel port online`, or the
/// agent's end.
#[derive(Debug, Args)]
pub struct PortOffline {
    /// The port, as in `evenkeel status`.
    pub port: String,
    /// Wait so many seconds at most until nothing is held or promised; 0 does not wait.
    #[arg(long, value_name = "S", default_value_t = 30.0, value_parser = patience)]
    pub wait: f64,
    /// Where the agent answers.
    #[command(flatten)]
    pub agent: Agent,
}

/// Give a port back what it had, after a migration that was called off.
///
/// New connections have vFlood; those that were there while the port was offline go on without.
#[derive(Debug, Args)]
pub struct PortOnline {
    /// The port, as in `evenkeel status`.
    pub port: String,
    /// Where the agent answers.
    #[command(flatten)]
    pub agent: Agent,
}

/// Watch ports and connections.
///
/// q or Esc ends it, s sorts the connections by another column.
#[derive(Debug, Args)]
pub struct Top {
    /// Where the agent answers. With --json, one line per look.
    #[command(flatten)]
    pub agent: Agent,
    /// Seconds between looks.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Connections that are looked at.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub limit: usize,
    /// End after so many looks [default: never].
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// Run the guest agent: vFlood's congestion control and CERA's client, as the host says over a virtio-serial port.
///
/// Registers the congestion control `vflood`, which floods the host only while the host's agent attests that it holds
/// this guest's packets, and sets the windows of flows to their shares of what the host has for this guest. Runs in the
/// foreground until SIGTERM or Ctrl-C: then TCP is plain at once, as it is within three heartbeats when the agent, the
/// channel or the host's agent dies. Only --stop takes the congestion control and the settings back. SIGHUP reads the
/// configuration again. Needs a kernel with type information (BTF) and struct_ops, root or CAP_BPF, CAP_NET_ADMIN,
/// CAP_PERFMON and CAP_DAC_OVERRIDE; `evenkeel doctor` says what is missing.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Guest {
    /// Or one of these.
    #[command(subcommand)]
    pub command: Option<GuestCommand>,
    /// The agent.
    #[command(flatten)]
    pub agent: GuestAgent,
}

/// Arguments of the guest agent.
#[derive(Debug, Args)]
pub struct GuestAgent {
    /// The configuration file [default: /etc/evenkeel/guest.toml, or its defaults if that is not there].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// End a running agent, unregister the congestion control, and put settings, windows and connections back.
    #[arg(long, conflicts_with_all = ["config", "check", "print_config", "status"])]
    pub stop: bool,
    /// Show what is registered, attested, changed and counted, and end.
    #[arg(long, conflicts_with_all = ["config", "check", "print_config"])]
    pub status: bool,
    /// Check the configuration file and end.
    #[arg(long, conflicts_with = "print_config")]
    pub check: bool,
    /// Print a commented configuration with every key at its default, and end.
    #[arg(long, conflicts_with = "config")]
    pub print_config: bool,
    /// Where the lock and the notes on what was changed are kept.
    #[arg(long, value_name = "DIR", default_value = evenkeel_settings::guest::DEFAULT_RUN_DIR)]
    pub run_dir: PathBuf,
    /// Where maps are pinned: a directory in a bpf file system.
    #[arg(long, value_name = "DIR", default_value = evenkeel_settings::guest::DEFAULT_PIN_DIR)]
    pub pin_dir: PathBuf,
    /// Print what --stop, --status and --check have to say as JSON.
    #[arg(long, conflicts_with = "print_config")]
    pub json: bool,
}

/// What there is inside a guest beside the agent.
#[derive(Debug, Subcommand)]
pub enum GuestCommand {
    /// PVTCP: TCP that does not take being off the core for congestion.
    #[command(subcommand)]
    Pvtcp(Pvtcp),
}

/// Print a results directory's table again, and make its HTML report anew.
///
/// With --check, say which pages in a directory were made with the scenarios and the code as they are now.
#[derive(Debug, Args)]
pub struct Report {
    /// The directory that `evenkeel lab`, `sim` or `sweep` wrote, with JSON lines or Parquet tables; with --check, the
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
    /// Keep the runs in this directory as Parquet tables of at most 200 KB: what makes them larger is left out (series
    /// and packets, then flows, then counters). May be given with --page.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["markdown", "json", "check"])]
    pub keep: Option<PathBuf>,
    /// Write what the runs have over time (series, flows, packets around a wake-up) as a trace for Perfetto (JSON).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["markdown", "json", "check"])]
    pub trace: Option<PathBuf>,
    /// Write the runs as data of flent, for its plots: FILE, as in `NAME.flent.gz`, or with several runs one file for
    /// each, numbered from 0.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["markdown", "json", "check"])]
    pub flent: Option<PathBuf>,
    /// Say of each page in DIR whether it is current, and why not. Old pages are no error.
    #[arg(long, conflicts_with_all = ["markdown", "page"])]
    pub check: bool,
    /// Say in old pages that they are old and why, and in current ones no longer.
    #[arg(long, requires = "check")]
    pub mark: bool,
    /// Where the scenario files are that --check holds pages against.
    #[arg(long, value_name = "DIR", default_value = "scenarios", requires = "check")]
    pub scenarios: PathBuf,
    /// Print the results as JSON.
    #[arg(long, conflicts_with_all = ["markdown", "page"])]
    pub json: bool,
}

/// Hold what papers report against the runs that are kept.
///
/// Prints, as Markdown, a row for each figure, table and claim of the papers: what the simulator and the lab have for
/// it, and a verdict by a rule that the page says. Nothing is run.
#[derive(Debug, Args)]
pub struct Scorecard {
    /// Directories of results by the scenarios' names; of each scenario, the first that has any counts.
    #[arg(value_name = "DIR", default_value = "docs/results/data")]
    pub results: Vec<PathBuf>,
    /// The file with the rows; pages are linked to that are beside it.
    #[arg(long, value_name = "FILE", default_value = "docs/results/scorecard.toml")]
    pub rows: PathBuf,
    /// Where the scenario files are.
    #[arg(long, value_name = "DIR", default_value = "scenarios")]
    pub scenarios: PathBuf,
    /// Write it to this file, and beside it a page for each mechanism, with every statement of the papers.
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
}

/// Run some of the simulator's kept runs again, and say whether they are equal.
///
/// Runs of the simulator follow from the scenario and the code alone. Where the runs that are run again are equal to
/// the last digit, the results and the pages that were made of them say so, and count as current again. Ends with 1
/// where any differ.
#[derive(Debug, Args)]
pub struct Verify {
    /// A directory of kept results, or one with such directories in it.
    #[arg(value_name = "DIR", default_value = "docs/results/data")]
    pub results: PathBuf,
    /// Where the pages are.
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    pub pages: PathBuf,
    /// Where the scenario files are.
    #[arg(long, value_name = "DIR", default_value = "scenarios")]
    pub scenarios: PathBuf,
    /// Runs of each set, at equal distances.
    #[arg(long, value_name = "N", default_value = "3")]
    pub runs: NonZeroUsize,
    /// Runs at once; as many as there are cores, if not given.
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

/// Print completions for a shell.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    pub shell: clap_complete::Shell,
}

/// Write a manual page for each command, for packages.
#[derive(Debug, Args)]
pub struct Man {
    /// The directory that they are written to.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Where the axis ends, only the scenario can tell.
fn axis_label(text: &str) -> Result<String, String> {
    if text.contains('=') {
        Ok(text.to_owned())
    } else {
        Err("write it as AXIS=LABEL, with names from the scenario's [[axes]]".to_owned())
    }
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is wanted, as in 0.5".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("0.1 to 3600 seconds are allowed".to_owned()) }
}

fn patience(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is wanted, as in 10".to_owned())?;
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
