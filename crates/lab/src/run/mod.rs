//! Runs the cells of a scenario: boots the VMs that they need, and makes a record of each run.

mod booted;
mod counters;
mod guest_agent;
mod hosts;
mod kernel_log;
mod measured;
mod measurements;
mod needs;
mod plan;
mod results;
mod settings;
mod support;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use evenkeel_quote::shown;
use evenkeel_scenario::Refused;
use evenkeel_scenario::batch::{self, Meter, Plan, Prepared, Status};
use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::format::{HostKind, Kernel, MachineKind, Scenario};
use evenkeel_scenario::result::{self, RunRecord};

use self::booted::BootedLab;
use crate::error::LabError;
use crate::host::cgroup::Hierarchy;
use crate::host::preflight::{self, Machine, Scheduling};
use crate::host::scratch;
use crate::host::vm::{Accelerator, Userland};
use crate::interrupt::Interrupt;
use crate::prepare::{self, GuestImage, KernelSeries};

/// The lab of this machine, as what a batch runs cells with.
#[derive(Debug, Clone)]
pub struct Lab {
    /// Whether capture files are kept beside the results.
    pub keep_capture: bool,
    /// How guest code is run.
    pub accelerator: Accelerator,
    /// The evenkeel binary to put into VMs.
    pub evenkeel: PathBuf,
}

impl batch::Engine for Lab {
    const NAME: result::Engine = result::Engine::Lab;
    const SHOWS_UNFINISHED: bool = true;
    type Error = LabError;
    type Setup = Shared;
    type Worker = Machines;

    fn check(&self, scenario: &Scenario) -> Result<(), Refused> {
        plan::check_supported(scenario)?;
        hosts::check(scenario, preflight::scheduling)?;
        plan::check_namespaces(scenario, &preflight::namespace_congestion_controls())
    }

    /// Groups cells that share booted VMs. In a group, repetitions are outermost: whatever else the machine does in the
    /// meantime is spread over its variants alike, and so is what a boot decides.
    fn groups(&self, cells: &[Cell]) -> Vec<Vec<usize>> {
        plan::by_boot(cells)
    }

    fn jobs(&self) -> NonZeroUsize {
        NonZeroUsize::MIN
    }

    fn options(&self) -> Vec<String> {
        self.keep_capture.then(|| "--keep-capture".to_owned()).into_iter().collect()
    }

    fn prepare(&self, plan: &Plan<'_>) -> Result<Prepared<Shared>, LabError> {
        let cells = plan.cells;
        let machine = preflight::check(plan::largest_memory_mib(cells), plan::largest_vm_count(cells))?;
        let images = prepare_images(cells, &self.evenkeel, plan.tell)?;
        let database_images = prepare_database_images(cells, &images, plan.tell)?;
        Ok(Prepared {
            versions: versions(&machine, self.accelerator, &images),
            remarks: remarks(cells, self.accelerator, &machine),
            setup: Shared {
                lab: self.clone(),
                machine,
                images,
                database_images,
                // All cells alike, so that they are compared in the same network.
                own_hosts: cells.iter().any(|cell| needs::needs_own_hosts(&cell.scenario)),
                boots: plan::by_boot(cells).iter().map(|boot| cells[boot[0]].scenario.clone()).collect(),
                directory: plan.directory.to_owned(),
                interrupt: Interrupt::of(plan.stop),
            },
        })
    }

    /// In a network namespace of the thread's own.
    fn worker(&self, shared: &Shared) -> Result<Machines, LabError> {
        booted::remove_counts(&shared.directory)?;
        scratch::remove_leftovers();
        if let Some(hierarchy) = Hierarchy::find() {
            hierarchy.remove_leftovers();
        }
        crate::host::net::enter_namespace()?;
        Ok(Machines::default())
    }

    fn run(
        &self,
        shared: &Shared,
        machines: &mut Machines,
        cell: &Cell,
        repetition: u32,
        meter: &Meter<'_>,
    ) -> Result<Option<RunRecord>, LabError> {
        match machines.run(shared, cell, repetition, meter) {
            Ok(record) => Ok(Some(record)),
            Err(LabError::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Milliseconds.
    fn size(&self, cell: &Cell) -> u64 {
        plan::run_time_ms(&cell.scenario)
    }

    fn words(status: &Status) -> String {
        status.step.clone()
    }
}

/// What all runs of a scenario share.
pub struct Shared {
    lab: Lab,
    machine: Machine,
    images: BTreeMap<Kernel, GuestImage>,
    /// The same with a database, where a cell has one.
    database_images: BTreeMap<Kernel, GuestImage>,
    /// Whether each VM is on a host of its own.
    own_hosts: bool,
    /// The scenarios that VMs are booted for, each the first of those that share them.
    boots: Vec<Scenario>,
    /// Where the results go.
    directory: PathBuf,
    interrupt: Interrupt,
}

impl Shared {
    /// How many threads run a VM's virtual CPUs.
    fn vcpu_threads(&self, vcpus: u32) -> u32 {
        let parallel = self.lab.accelerator == Accelerator::Kvm || self.machine.translates_in_parallel;
        if parallel { vcpus } else { 1 }
    }

    /// The programs of machines that are network namespaces.
    fn userland(&self) -> Userland {
        Userland { evenkeel: self.lab.evenkeel.clone(), root: prepare::root_dir() }
    }
}

/// VMs that stay booted for all cells of a repetition that can share them. They are gone when it is dropped.
///
/// Each repetition boots anew: what a boot decides for all of its runs, as where a guest's ticks lie among those of
/// this machine, is part of the spread then.
#[derive(Default)]
pub struct Machines {
    booted: Option<(Boot, BootedLab)>,
}

/// What VMs are booted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Boot {
    /// The position of their scenario in `Shared::boots`.
    scenario: usize,
    repetition: u32,
}

impl Machines {
    fn run(&mut self, shared: &Shared, cell: &Cell, repetition: u32, meter: &Meter<'_>) -> Result<RunRecord, LabError> {
        shared.interrupt.check()?;
        let fits = |scenario: &Scenario| plan::share_a_boot(scenario, &cell.scenario);
        let boot = Boot { scenario: shared.boots.iter().position(fits).unwrap_or_default(), repetition };
        let (_, lab) = match self.booted.take() {
            // VMs that move are not where they belong after a run.
            Some(booted) if booted.0 == boot && !needs::moves(&cell.scenario) => self.booted.insert(booted),
            others => {
                // The old devices go first: the new ones have the same names.
                drop(others);
                let lab = BootedLab::boot(&shared.boots[boot.scenario], shared, meter)?;
                self.booted.insert((boot, lab))
            }
        };
        let labels = cell.labels.iter().map(|(axis, label)| format!("{axis} {label}")).collect::<Vec<_>>().join(", ");
        tracing::info!(cell = labels, repetition, "run");
        meter.step(format!("{} #{}", shown(&labels), repetition + 1).trim_start());
        lab.run_cell(cell, repetition, shared)
    }
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
    evenkeel: &Path,
    tell: &dyn Fn(&str),
) -> Result<BTreeMap<Kernel, GuestImage>, LabError> {
    let groups = || cells.iter().flat_map(|c| c.scenario.vms.values());
    let mut kernels: Vec<Kernel> = groups().filter(|g| g.machine == MachineKind::Vm).map(|g| g.kernel).collect();
    if groups().any(|g| g.host == HostKind::Vm) {
        kernels.push(Kernel::Newest);
    }
    kernels.sort_unstable();
    kernels.dedup();
    let series: Vec<KernelSeries> = kernels.iter().copied().map(series_of).collect();
    let images = prepare::prepare(&series, evenkeel, tell)?;
    Ok(kernels.into_iter().zip(images).collect())
}

/// Those of databases of web applications.
fn prepare_database_images(
    cells: &[Cell],
    images: &BTreeMap<Kernel, GuestImage>,
    tell: &dyn Fn(&str),
) -> Result<BTreeMap<Kernel, GuestImage>, LabError> {
    let kernel = |cell: &Cell, group: &str| cell.scenario.vms[group].kernel;
    let of_cell = |cell: &Cell| -> Vec<Kernel> {
        needs::groups_with_database(&cell.scenario).into_iter().map(|group| kernel(cell, group)).collect()
    };
    let kernels: BTreeSet<Kernel> = cells.iter().flat_map(of_cell).collect();
    let image = |kernel| Ok((kernel, prepare::with_database(&images[&kernel], tell)?));
    kernels.into_iter().map(image).collect()
}

fn versions(
    machine: &Machine,
    accelerator: Accelerator,
    images: &BTreeMap<Kernel, GuestImage>,
) -> BTreeMap<String, String> {
    let runs = match accelerator {
        Accelerator::Kvm => "KVM",
        Accelerator::Tcg => "TCG: translated",
    };
    let mut versions = BTreeMap::from([
        ("QEMU".to_owned(), machine.qemu.clone()),
        ("guest code".to_owned(), runs.to_owned()),
        ("host kernel".to_owned(), machine.kernel.clone()),
        ("host processor".to_owned(), format!("{} ({} cores)", machine.processor, machine.cores.len())),
    ]);
    for image in images.values() {
        versions.insert(format!("guest kernel {}", image.series), image.release.clone());
    }
    versions
}

fn remarks(cells: &[Cell], accelerator: Accelerator, machine: &Machine) -> Vec<String> {
    let mut remarks = Vec::new();
    if accelerator == Accelerator::Tcg {
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
    if cells.iter().any(|cell| !hosts::linux_hosts(&cell.scenario).is_empty()) {
        remarks.push(own_scheduler(&machine.kernel, preflight::scheduling()));
    }
    let groups = || cells.iter().flat_map(|cell| &cell.scenario.vms);
    let namespaces: BTreeSet<&String> =
        groups().filter(|(_, group)| group.machine == MachineKind::Namespace).map(|(name, _)| name).collect();
    for name in namespaces {
        remarks.push(format!(
            "\"{name}\" in network namespaces of this machine, under its kernel ({}) and in its own code.",
            machine.kernel
        ));
    }
    remarks
}

/// What schedules VMs on hosts.
fn own_scheduler(kernel: &str, scheduling: Scheduling) -> String {
    let hz =
        scheduling.hz.map_or("how many ticks per second it has cannot be told".to_owned(), |hz| format!("{hz} Hz"));
    let slice = scheduling.slice_ns.map_or(String::new(), |ns| format!(", slices of {} us", ns / 1000));
    format!("VMs on hosts were ordinary threads under this machine's own scheduler ({kernel}; {hz}{slice}).")
}
