//! Runs a scenario: boots the VMs it needs, runs every repetition of every cell, writes the results.

mod booted;
mod guest_agent;
mod http;
mod measured;
mod memcached;
mod metrics;
mod needs;
mod plan;
mod progress;
mod roles;
mod settings;
mod support;
mod task;
mod trace;
mod transfers;
mod web;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::format::{HostKind, Kernel, MachineKind, Scenario};
use evenkeel_scenario::lock::Lock;
use evenkeel_scenario::result::{Engine, RunRecord, RunSet};
use evenkeel_scenario::sweep;
use evenkeel_scenario::{LoadedScenario, io, select};

use crate::error::LabError;
use crate::host::preflight::{self, Machine};
use crate::host::vm::{Accelerator, Userland};
use crate::interrupt::Interrupt;
use crate::prepare::{self, GuestImage, KernelSeries};

/// What to run and where to leave the results.
#[derive(Debug, Clone)]
pub struct LabOptions {
    /// The scenario file.
    pub scenario: PathBuf,
    /// Where results go. None: `results/NAME` below the working directory.
    pub out: Option<PathBuf>,
    /// Instead of the scenario's own number of repetitions.
    pub repetitions: Option<u32>,
    /// Only cells with these labels, each as `AXIS=LABEL`.
    pub only: Vec<String>,
    /// Whether capture files are kept beside the results.
    pub keep_capture: bool,
    /// Whether progress is shown.
    pub progress: bool,
    /// How guest code is run.
    pub accelerator: Accelerator,
    /// The evenkeel binary to put into VMs.
    pub evenkeel: PathBuf,
    /// The command line that runs it again, for the report.
    pub command: String,
}

/// What a lab leaves.
#[derive(Debug)]
pub struct LabOutcome {
    /// Where the result files are.
    pub directory: PathBuf,
    /// The scenario.
    pub scenario: Scenario,
    /// What holds for all runs.
    pub set: RunSet,
    /// The runs.
    pub records: Vec<RunRecord>,
    /// Held until all that belongs to the results is written.
    pub lock: Lock,
}

/// Runs a scenario.
///
/// # Errors
/// A scenario that is not valid or asks for what the lab cannot do, a machine that lacks something, a VM that fails,
/// Ctrl-C. Whatever the reason, VMs, taps and the namespace are gone when this returns; runs that were finished are
/// kept.
pub fn run(options: &LabOptions) -> Result<LabOutcome, LabError> {
    let interrupt = Interrupt::install()?;
    let loaded = Scenario::load(&options.scenario)?;
    let cells = select::select(sweep::cells(&loaded)?, &options.only, &loaded)?;
    for cell in &cells {
        plan::check_supported(&cell.scenario, &loaded.file)?;
        plan::check_namespaces(&cell.scenario, &loaded.file, &preflight::namespace_congestion_controls())?;
    }
    let directory = options.out.clone().unwrap_or_else(|| Path::new("results").join(&loaded.scenario.name));
    // Before anything takes long.
    let lock = Lock::take(&directory)?;
    let repetitions = options.repetitions.unwrap_or(loaded.scenario.repetitions);
    sweep::check_runs(&loaded, &cells, repetitions)?;
    let machine = preflight::check(plan::largest_memory_mib(&cells), plan::largest_vm_count(&cells))?;
    let progress = progress::Progress::new(options.progress, &loaded.scenario.name);
    let images = prepare_images(&cells, options, &progress)?;
    let database_images = prepare_database_images(&cells, &images, &progress)?;
    interrupt.check()?;

    let set = run_set(&loaded, &cells, options, &machine, &images);
    io::create_results(&directory, &set).map_err(LabError::Scenario)?;
    booted::remove_counts(&directory)?;
    // All cells alike, so that they are compared in the same network.
    let own_hosts = cells.iter().any(|cell| needs::needs_own_hosts(&cell.scenario));
    let boots = plan::by_boot(cells);
    progress.start_runs(
        boots.iter().map(|b| b.cells.len() as u64).sum::<u64>() * u64::from(repetitions),
        plan::run_time(&loaded.scenario),
    );

    let batch = Batch {
        options,
        machine: &machine,
        images: &images,
        database_images: &database_images,
        repetitions,
        own_hosts,
        directory: &directory,
        interrupt: &interrupt,
        progress: &progress,
    };
    // A thread of its own, because the network namespace is the thread's and must not become the caller's.
    let records = std::thread::scope(|scope| {
        let runner = scope.spawn(|| batch.run_all(&boots));
        runner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    progress.finish();
    Ok(LabOutcome { directory, scenario: loaded.scenario, set, records, lock })
}

/// Makes the images for these kernels without running anything.
pub fn prepare_kernels(
    kernels: &[Kernel],
    evenkeel: &Path,
    report: &dyn Fn(&str),
) -> Result<Vec<GuestImage>, LabError> {
    let series: Vec<KernelSeries> = kernels.iter().copied().map(series_of).collect();
    Ok(prepare::prepare(&series, evenkeel, report)?)
}

fn series_of(kernel: Kernel) -> KernelSeries {
    match kernel {
        Kernel::V6_1 => KernelSeries::V6_1,
        Kernel::V6_12 => KernelSeries::V6_12,
        Kernel::Newest => KernelSeries::Newest,
    }
}

fn prepare_images(
    cells: &[Cell],
    options: &LabOptions,
    progress: &progress::Progress,
) -> Result<BTreeMap<Kernel, GuestImage>, LabError> {
    let groups = || cells.iter().flat_map(|c| c.scenario.vms.values());
    let mut kernels: Vec<Kernel> = groups().filter(|g| g.machine == MachineKind::Vm).map(|g| g.kernel).collect();
    if groups().any(|g| g.host == HostKind::Vm) {
        kernels.push(Kernel::Newest);
    }
    kernels.sort_unstable();
    kernels.dedup();
    let images = prepare_kernels(&kernels, &options.evenkeel, &|step| progress.prepare(step))?;
    Ok(kernels.into_iter().zip(images).collect())
}

/// Those of databases of web applications.
fn prepare_database_images(
    cells: &[Cell],
    images: &BTreeMap<Kernel, GuestImage>,
    progress: &progress::Progress,
) -> Result<BTreeMap<Kernel, GuestImage>, LabError> {
    let applications = cells.iter().filter(|cell| needs::has_database(&cell.scenario));
    let kernels: BTreeSet<Kernel> =
        applications.map(|cell| cell.scenario.vms[cell.scenario.workload.roles().0].kernel).collect();
    let image = |kernel| Ok((kernel, prepare::with_database(&images[&kernel], &|step| progress.prepare(step))?));
    kernels.into_iter().map(image).collect()
}

fn run_set(
    loaded: &LoadedScenario,
    cells: &[Cell],
    options: &LabOptions,
    machine: &Machine,
    images: &BTreeMap<Kernel, GuestImage>,
) -> RunSet {
    let mut versions = BTreeMap::from([
        ("evenkeel".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("QEMU".to_owned(), machine.qemu.clone()),
        ("host kernel".to_owned(), machine.kernel.clone()),
        ("host processor".to_owned(), format!("{} ({} cores)", machine.processor, machine.cores.len())),
    ]);
    for image in images.values() {
        versions.insert(format!("guest kernel {}", image.series), image.release.clone());
    }
    let mut remarks = Vec::new();
    if options.accelerator == Accelerator::Tcg {
        remarks.push(
            "Guest code was translated (QEMU TCG), because KVM does not work on this machine: CPU costs are \
             several times those of hardware."
                .to_owned(),
        );
        let several = cells.iter().any(|cell| cell.scenario.vms.values().any(|group| group.vcpus > 1));
        if several && !machine.translates_in_parallel {
            remarks.push(
                "The virtual CPUs of a VM ran by turns in one thread: this QEMU (before 8.1) cannot run them \
                 side by side while a kernel changes its own code."
                    .to_owned(),
            );
        }
    }
    let is_namespace = |name: &&String| {
        cells.iter().any(|cell| cell.scenario.vms.get(*name).is_some_and(|g| g.machine == MachineKind::Namespace))
    };
    for name in loaded.scenario.vms.keys().filter(is_namespace) {
        remarks.push(format!(
            "\"{name}\" in network namespaces of this machine, under its kernel ({}) and in its own code.",
            machine.kernel
        ));
    }
    RunSet {
        schema: 1,
        engine: Engine::Lab,
        scenario_toml: loaded.text.clone(),
        versions,
        command: options.command.clone(),
        started: jiff::Timestamp::now()
            .round(jiff::Unit::Second)
            .unwrap_or_else(|_| jiff::Timestamp::now())
            .to_string(),
        remarks,
    }
}

/// What all runs of a scenario share.
struct Batch<'a> {
    options: &'a LabOptions,
    machine: &'a Machine,
    images: &'a BTreeMap<Kernel, GuestImage>,
    /// The same with a database, where a cell has one.
    database_images: &'a BTreeMap<Kernel, GuestImage>,
    repetitions: u32,
    /// Whether each VM is on a host of its own.
    own_hosts: bool,
    directory: &'a Path,
    interrupt: &'a Interrupt,
    progress: &'a progress::Progress,
}

impl Batch<'_> {
    /// How many threads run a VM's virtual CPUs.
    fn vcpu_threads(&self, vcpus: u32) -> u32 {
        let parallel = self.options.accelerator == Accelerator::Kvm || self.machine.translates_in_parallel;
        if parallel { vcpus } else { 1 }
    }

    /// The programs of machines that are network namespaces.
    fn userland(&self) -> Userland {
        Userland { evenkeel: self.options.evenkeel.clone(), root: prepare::root_dir() }
    }

    fn run_all(&self, boots: &[plan::Boot]) -> Result<Vec<RunRecord>, LabError> {
        crate::host::net::enter_namespace()?;
        let mut records = Vec::new();
        for boot in boots {
            let moves = needs::moves(&boot.cells[0].scenario);
            let mut lab = booted::BootedLab::boot(&boot.cells[0].scenario, self)?;
            let mut is_fresh = true;
            // Repetitions outermost: whatever else the machine does in the meantime is spread over all variants alike.
            for repetition in 0..self.repetitions {
                for cell in &boot.cells {
                    self.interrupt.check()?;
                    if moves && !is_fresh {
                        // All VMs are to be where they belong. Its devices go first: the new ones have their names.
                        drop(lab);
                        lab = booted::BootedLab::boot(&boot.cells[0].scenario, self)?;
                    }
                    is_fresh = false;
                    self.progress.begin_run(&cell.labels, repetition);
                    let record = lab.run_cell(cell, repetition, self)?;
                    io::append_record(self.directory, &record).map_err(LabError::Scenario)?;
                    self.progress.end_run();
                    records.push(record);
                }
            }
        }
        Ok(records)
    }
}
