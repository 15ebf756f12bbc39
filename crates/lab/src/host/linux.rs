//! This machine's own scheduler: virtual CPUs as ordinary threads, as KVM's are, in a cgroup for each VM, and
//! neighbours that compute.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use evenkeel_scenario::format::Quota;
use nix::sched::CloneFlags;

use super::cgroup::{Hierarchy, Share, Throttled, Tree, VmGroup};
use super::cores::{self, CoreId};
use super::load::Load;
use super::vm::{Vm, ends_with_the_lab};
use super::waits::{SchedStat, SchedStatFile, Wait, WaitSampler};
use crate::error::LabError;

/// A VM on a host.
pub struct OnHost<'a> {
    /// The VM.
    pub vm: &'a Vm,
    /// Its weight; the default is 100.
    pub weight: u32,
    /// Its quota.
    pub quota: Option<Quota>,
    /// The slice that its virtual CPUs ask for.
    pub slice_us: Option<u32>,
    /// Whether QEMU's own threads are on the host's cores too.
    pub has_others: bool,
}

/// A VM that only computes.
#[derive(Debug, Clone)]
pub struct Neighbour {
    /// Cores of its host.
    pub cores: Vec<CoreId>,
    /// What it computes.
    pub load: Load,
}

/// Virtual CPUs of hosts, and their neighbours, under this machine's scheduler. A drop restores the former and ends the
/// latter.
#[derive(Debug)]
pub struct Linux {
    // Fields are dropped in this order: neighbours leave their groups before the tree is removed.
    _neighbours: Vec<Process>,
    vms: Vec<Scheduled>,
    _tree: Tree,
}

/// A VM's threads and group.
#[derive(Debug)]
struct Scheduled {
    name: String,
    tids: Vec<i32>,
    files: Vec<SchedStatFile>,
    group: VmGroup,
    has_slice: bool,
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        for tid in self.tids.iter().filter(|_| self.has_slice) {
            // The VM may have ended meanwhile.
            let _ = cores::set_slice(*tid, None);
        }
    }
}

/// What the kernel says of a VM's virtual CPUs, all together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scheduling {
    /// Of the threads.
    pub threads: SchedStat,
    /// Of the group.
    pub quota: Throttled,
}

impl Linux {
    /// Puts VMs, which are on their cores already, into groups, and starts their neighbours, run by
    /// the binary `evenkeel`.
    pub fn start(vms: &[OnHost<'_>], neighbours: &[Neighbour], evenkeel: &Path) -> Result<Self, LabError> {
        let hierarchy = Hierarchy::find().ok_or_else(no_controller)?;
        let mut tree = Tree::make(hierarchy)?;
        let mut scheduled = Vec::new();
        for on_host in vms {
            scheduled.push(Scheduled::start(on_host, &mut tree)?);
        }
        let mut processes = Vec::new();
        for (number, neighbour) in neighbours.iter().enumerate() {
            let process = Process::start(neighbour, evenkeel)?;
            tree.add_process(&format!("neighbour.{number}"), process.0.id())?;
            processes.push(process);
        }
        Ok(Self { _neighbours: processes, vms: scheduled, _tree: tree })
    }

    /// What the kernel says of a VM's virtual CPUs; None: it is on no host.
    pub fn read(&self, vm: &str) -> Result<Option<Scheduling>, LabError> {
        let Some(scheduled) = self.vms.iter().find(|scheduled| scheduled.name == vm) else { return Ok(None) };
        let mut threads = SchedStat::default();
        for stat in scheduled.files.iter().filter_map(SchedStatFile::read) {
            threads.ran_ns += stat.ran_ns;
            threads.waited_ns += stat.waited_ns;
            threads.runs += stat.runs;
        }
        Ok(Some(Scheduling { threads, quota: scheduled.group.throttled()? }))
    }

    /// Watches how long virtual CPUs wait, from this core.
    pub fn watch(&self, core: CoreId) -> Result<Watch, LabError> {
        let threads = || self.vms.iter().flat_map(|vm| vm.tids.iter().map(|tid| (vm.name.clone(), *tid)));
        let tids: Vec<i32> = threads().map(|(_, tid)| tid).collect();
        let sampler = WaitSampler::start(&tids, core)?;
        Ok(Watch { vms: threads().map(|(name, _)| name).collect(), sampler })
    }
}

impl Scheduled {
    fn start(on_host: &OnHost<'_>, tree: &mut Tree) -> Result<Self, LabError> {
        let vm = on_host.vm;
        let tids = vm.vcpu_threads()?;
        let name = vm.spec.name.clone();
        let group = tree.add_vm(&name, Share { weight: Some(on_host.weight), quota: on_host.quota })?;
        let others = if on_host.has_others { vm.other_threads()? } else { Vec::new() };
        tree.put(&group, vm.pid(), &tids, &others)?;
        let files = tids.iter().map(|tid| SchedStatFile::open(*tid)).collect::<Result<_, _>>()?;
        let scheduled = Self { name, tids, files, group, has_slice: on_host.slice_us.is_some() };
        if let Some(slice_ns) = on_host.slice_us.map(|us| u64::from(us) * 1000) {
            scheduled.tids.iter().try_for_each(|tid| cores::set_slice(*tid, Some(slice_ns)))?;
        }
        Ok(scheduled)
    }
}

/// Virtual CPUs that are watched.
#[derive(Debug)]
pub struct Watch {
    /// The VM of each.
    vms: Vec<String>,
    sampler: WaitSampler,
}

impl Watch {
    /// The waits of each virtual CPU, with its VM.
    pub fn stop(self) -> Vec<(String, Vec<Wait>)> {
        self.vms.into_iter().zip(self.sampler.stop()).collect()
    }
}

/// A process that computes; killed when dropped.
#[derive(Debug)]
struct Process(Child);

impl Process {
    fn start(neighbour: &Neighbour, evenkeel: &Path) -> Result<Self, LabError> {
        let Load { share, duty, phase } = neighbour.load;
        let mut command = Command::new(evenkeel);
        command
            .arg("lab-neighbour")
            .args(["--load", &share.to_string()])
            .args(["--duty-us", &duty.as_micros().to_string()])
            .args(["--phase-us", &phase.as_micros().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        ends_with_the_lab(&mut command, CloneFlags::empty());
        let child = command.spawn().map_err(|e| LabError::io("starting a neighbour", e))?;
        let process = Self(child);
        cores::pin(process.0.id() as i32, &neighbour.cores)?;
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the lab lacks without cgroups.
fn no_controller() -> LabError {
    LabError::Missing {
        what: "this machine has no cgroups with the processor's controller (`cpu`), which hosts need".into(),
        help: "mount cgroup2, or version 1 of `cpu`".into(),
    }
}
