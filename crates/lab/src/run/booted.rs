//! Booted VMs, and one run in them from settings to record.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use evenkeel_scenario::format::{Scenario, VmGroup, Workload};
use evenkeel_scenario::result::RunRecord;
use evenkeel_scenario::sweep::{self, Cell};

use super::Batch;
use super::metrics::{self, Counters, Measured};
use super::settings::{self, Neighbour};
use super::trace::{Trace, Traced};
use super::workload::{Roles, Running};
use crate::error::LabError;
use crate::host::cores::{self, Placement, ToPlace};
use crate::host::net;
use crate::host::qdisc::BacklogSampler;
use crate::host::schedule::{Schedule, ScheduledVcpu};
use crate::host::vm::{Vm, VmSpec};
use crate::proto::{Answer, Op, Recorded};

/// How long a VM may take to boot; on a busy machine, TCG needs a while for nine at once.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);

/// Loading takes a second in a VM without hardware help that is off its core half of the time.
const RELOADS_TIMEOUT: Duration = Duration::from_secs(900);

/// VMs on a bridge.
pub struct BootedLab {
    vms: Vec<Vm>,
    /// Ticks per second of the guests' kernels: all of Debian's have the same.
    hz: u32,
    /// Sockets and consoles; removed when dropped, after the VMs.
    directory: tempfile::TempDir,
}

impl BootedLab {
    /// Boots the VMs of a scenario in the calling thread's network namespace.
    pub fn boot(scenario: &Scenario, batch: &Batch) -> Result<Self, LabError> {
        let directory = tempfile::Builder::new()
            .prefix("evenkeel-lab-")
            .tempdir()
            .map_err(|e| LabError::io("making a temporary directory", e))?;
        let specs = specs(scenario, batch);
        batch.progress.boot(specs.len());
        // VMs already started are ended by their drop if a later one fails.
        let mut vms = Vec::with_capacity(specs.len());
        for spec in specs {
            net::add_tap(&spec.tap)?;
            vms.push(Vm::spawn(spec, directory.path(), batch.interrupt.clone())?);
        }
        let mut lab = Self { vms, hz: 0, directory };
        for vm in &lab.vms {
            let (release, hz) = vm.wait_ready(BOOT_TIMEOUT)?;
            tracing::debug!(vm = vm.spec.name, release, hz, "up");
            lab.hz = hz;
        }
        lab.set_up_network()?;
        Ok(lab)
    }

    fn first(&self, group: &str) -> Result<&Vm, LabError> {
        let missing = || LabError::Vm { name: group.to_owned(), why: "the group has no VM".into() };
        self.vms.iter().find(|vm| vm.spec.group == group).ok_or_else(missing)
    }

    fn check_alive(&self) -> Result<(), LabError> {
        self.vms.iter().try_for_each(Vm::check_alive)
    }

    /// Does something in all VMs at once; results in their order.
    fn in_all<T: Send>(&self, work: impl Fn(&Vm) -> Result<T, LabError> + Sync) -> Result<Vec<T>, LabError> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = self.vms.iter().map(|vm| scope.spawn(|| work(vm))).collect();
            threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }

    /// One repetition of one cell.
    pub fn run_cell(&self, cell: &Cell, repetition: u32, batch: &Batch) -> Result<RunRecord, LabError> {
        let scenario = &cell.scenario;
        let roles = Roles::of(&scenario.workload);
        let bottleneck = &self.first(roles.to)?.spec.tap;
        self.set_up_guests(scenario)?;
        self.set_up_ports(scenario, bottleneck)?;
        let placement = self.place(scenario, &roles, batch)?;
        let seed = sweep::run_seed(scenario.seed, repetition);
        let schedule = Schedule::start(&self.scheduled(scenario, &placement)?, placement.driver_domain, seed)?;
        let capture = match scenario.record.capture {
            true => Some(Trace::start(self.first(roles.from)?, bottleneck, self.directory.path())?),
            false => None,
        };
        let outcome = self.measure(scenario, &roles, bottleneck, batch);
        let off = schedule.stop();
        // Whatever failed, the next run must not meet this one's tasks.
        let stopped = self.in_all(|vm| vm.call(Op::Stop));
        let captured = capture.map(|capture| capture.finish(self.directory.path())).transpose();
        let mut measured = outcome?;
        stopped?;
        measured.complaints = self.kernel_complaints()?;
        if let Some(captured) = captured? {
            let shown = [roles.from, roles.to]
                .into_iter()
                .find(|g| scenario.vms[*g].core.vms_per_core > 1)
                .unwrap_or(roles.from);
            let off = off.get(&self.first(shown)?.spec.name).map_or(&[][..], Vec::as_slice);
            measured.trace = captured.analyse(&scenario.vms[roles.from].tcp, self.hz, off)?;
            if batch.options.keep_capture {
                captured.keep(batch.directory, &cell.labels, repetition)?;
            }
        }
        Ok(metrics::record(cell, repetition, seed, &roles, measured))
    }

    /// Lines in the guests' kernel logs that no healthy kernel writes, each log read once.
    fn kernel_complaints(&self) -> Result<Vec<String>, LabError> {
        let logs = self.in_all(|vm| vm.shell("dmesg -c"))?;
        Ok(self
            .vms
            .iter()
            .zip(logs)
            .flat_map(|(vm, log)| {
                metrics::complaints(&log).map(|line| format!("{}: {line}", vm.spec.name)).collect::<Vec<_>>()
            })
            .collect())
    }

    fn set_up_network(&self) -> Result<(), LabError> {
        let neighbours: Vec<Neighbour> =
            self.vms.iter().map(|vm| Neighbour { address: vm.spec.address, mac: vm.spec.mac.clone() }).collect();
        self.in_all(|vm| {
            let others: Vec<Neighbour> = neighbours.iter().filter(|n| n.address != vm.spec.address).cloned().collect();
            vm.shell(&settings::boot_script(vm.spec.address, &others))
        })
        .map(drop)
    }

    fn set_up_guests(&self, scenario: &Scenario) -> Result<(), LabError> {
        self.in_all(|vm| {
            let group = &scenario.vms[&vm.spec.group];
            let tcp = settings::tcp_script(vm.spec.address, &group.tcp, &scenario.network);
            vm.shell(&format!("{tcp}{}", settings::pvtcp_script(&group.pvtcp)))
        })
        .map(drop)
    }

    fn set_up_ports(&self, scenario: &Scenario, bottleneck: &str) -> Result<(), LabError> {
        for vm in &self.vms {
            net::set_port(&vm.spec.tap, scenario.vms[&vm.spec.group].port_queue_segments, scenario.network.mtu_bytes)?;
        }
        net::shape_port(bottleneck, &scenario.network)
    }

    fn place(&self, scenario: &Scenario, roles: &Roles, batch: &Batch) -> Result<Placement, LabError> {
        let to_place: Vec<ToPlace> = self
            .vms
            .iter()
            .flat_map(|vm| {
                let vcpu = ToPlace {
                    contended: scenario.vms[&vm.spec.group].core.vms_per_core > 1,
                    sends: vm.spec.group == roles.from,
                };
                std::iter::repeat_n(vcpu, vm.spec.vcpu_threads as usize)
            })
            .collect();
        let placement = cores::place(&to_place, &batch.machine.cores).ok_or_else(|| LabError::Missing {
            what: "the lab needs two cores".into(),
            help: "give this machine a second core".into(),
        })?;
        let mut placed = placement.vcpus.iter().copied();
        for vm in &self.vms {
            let cores: Vec<_> = placed.by_ref().take(vm.spec.vcpu_threads as usize).collect();
            vm.pin(&cores, placement.driver_domain)?;
        }
        Ok(placement)
    }

    fn scheduled(&self, scenario: &Scenario, placement: &Placement) -> Result<Vec<ScheduledVcpu>, LabError> {
        let mut cores = placement.vcpus.iter().copied();
        let mut scheduled = Vec::new();
        for vm in &self.vms {
            for (index, (tid, core)) in vm.vcpu_threads()?.into_iter().zip(cores.by_ref()).enumerate() {
                let sharing = scenario.vms[&vm.spec.group].core.clone();
                scheduled.push(ScheduledVcpu { vm: vm.spec.name.clone(), index: index as u32, tid, core, sharing });
            }
        }
        Ok(scheduled)
    }

    /// Starts the workload, lets it warm up, and measures.
    fn measure(
        &self,
        scenario: &Scenario,
        roles: &Roles,
        bottleneck: &str,
        batch: &Batch,
    ) -> Result<Measured, LabError> {
        let running = Running::start(scenario, roles, &self.vms)?;
        batch.interrupt.sleep(Duration::from_millis(scenario.warmup_ms), || self.check_alive())?;
        let period_ms = scenario.record.tcp_info_period_ms;
        let before = self.in_all(counters)?;
        let drops_before = self.drops()?;
        let backlog = match scenario.record.queue_period_ms {
            0 => None,
            period_ms => Some(BacklogSampler::start(bottleneck, "pfifo", period_ms)?),
        };
        let before_mark = Instant::now();
        self.in_all(|vm| {
            vm.call(Op::Mark { tcp_info_period_ms: if vm.spec.group == roles.from { period_ms } else { 0 } })
        })?;
        let (mark_monotonic_ns, mark_realtime_ns) = (cores::monotonic_ns(), cores::realtime_ns());
        let began = Instant::now();
        let reloads = self.start_reloads(scenario)?;
        self.wait_for_end(scenario, roles, batch)?;
        let reloaded = finish_reloads(scenario, reloads)?;
        let duration = began.elapsed();
        let recorded: Vec<Recorded> = self.in_all(|vm| match vm.call(Op::Collect)? {
            Answer::Recorded(recorded) => Ok(recorded),
            other => Err(LabError::Vm {
                name: vm.spec.name.clone(),
                why: format!("unexpected answer to collect: {other:?}"),
            }),
        })?;
        for (vm, recorded) in self.vms.iter().zip(&recorded) {
            check_clock(vm, recorded, duration, before_mark.elapsed())?;
        }
        let after = self.in_all(counters)?;
        let drops_after = self.drops()?;
        let iperf3 = running.finish(&self.vms)?;
        let vms = self
            .vms
            .iter()
            .zip(recorded)
            .zip(before.into_iter().zip(after))
            .map(|((vm, recorded), (before, after))| metrics::VmMeasured {
                name: vm.spec.name.clone(),
                group: vm.spec.group.clone(),
                address: vm.spec.address,
                recorded,
                counters: after.since(&before),
            })
            .collect();
        Ok(Measured {
            duration,
            mark_monotonic_ns,
            mark_realtime_ns,
            vms,
            dropped: drops_after.saturating_sub(drops_before),
            backlog: backlog.map(BacklogSampler::stop).unwrap_or_default(),
            iperf3,
            reloaded,
            complaints: Vec::new(),
            trace: Traced::default(),
        })
    }

    /// Starts to unload and load PVTCP in the VMs that shall do so: the VM and its task.
    fn start_reloads(&self, scenario: &Scenario) -> Result<Vec<(&Vm, u64)>, LabError> {
        let mut tasks = Vec::new();
        for vm in &self.vms {
            if let Some(script) = settings::pvtcp_reload_script(&scenario.vms[&vm.spec.group].pvtcp) {
                let argv = ["/bin/sh", "-e", "-c", &script].map(str::to_owned).to_vec();
                if let Answer::Started { task } = vm.call(Op::Spawn { argv })? {
                    tasks.push((vm, task));
                }
            }
        }
        Ok(tasks)
    }

    fn wait_for_end(&self, scenario: &Scenario, roles: &Roles, batch: &Batch) -> Result<(), LabError> {
        let limit = Duration::from_millis(scenario.duration_ms);
        let Workload::Strobe { requests: 1.., .. } = scenario.workload else {
            return batch.interrupt.sleep(limit, || self.check_alive());
        };
        let client = self.first(roles.to)?;
        let end = Instant::now() + limit;
        while Instant::now() < end {
            batch.interrupt.sleep(Duration::from_millis(200), || self.check_alive())?;
            match client.call(Op::Progress)? {
                Answer::Progress { error: Some(why), .. } => {
                    return Err(LabError::Vm { name: client.spec.name.clone(), why });
                }
                Answer::Progress { ended: true, .. } => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }

    fn drops(&self) -> Result<u64, LabError> {
        self.vms.iter().map(|vm| net::drops(&vm.spec.tap).map(|d| d.buffer + d.port_queue)).sum()
    }
}

impl Drop for BootedLab {
    fn drop(&mut self) {
        let taps: Vec<String> = self.vms.drain(..).map(|vm| vm.spec.tap.clone()).collect();
        for tap in taps {
            if let Err(error) = net::remove_tap(&tap) {
                tracing::debug!(tap, %error, "the namespace takes it along");
            }
        }
        tracing::debug!(directory = %self.directory.path().display(), "torn down");
    }
}

/// An error if a guest's clock does not keep time with ours: every time it measured would be wrong. It must have counted at least the
/// time between the calls that began and ended the measurement, and at most the time with them.
fn check_clock(vm: &Vm, recorded: &Recorded, between: Duration, with_calls: Duration) -> Result<(), LabError> {
    let guest = Duration::from_micros(recorded.measured_us);
    if guest >= between.mul_f64(0.99) && guest <= with_calls.mul_f64(1.01) {
        return Ok(());
    }
    let why =
        format!("its clock counted {guest:.2?} in {between:.2?}: it is wrong, and so is every time measured by it");
    Err(LabError::Vm { name: vm.spec.name.clone(), why })
}

/// Waits for the reloads to be done; how many there were.
fn finish_reloads(scenario: &Scenario, tasks: Vec<(&Vm, u64)>) -> Result<u32, LabError> {
    let mut reloaded = 0;
    for (vm, task) in tasks {
        match vm.call_within(Op::Wait { task }, RELOADS_TIMEOUT)? {
            Answer::Exec { status: 0, .. } => reloaded += scenario.vms[&vm.spec.group].pvtcp.reloads,
            other => {
                return Err(LabError::Vm {
                    name: vm.spec.name.clone(),
                    why: format!("reloading PVTCP failed: {other:?}"),
                });
            }
        }
    }
    Ok(reloaded)
}

fn counters(vm: &Vm) -> Result<Counters, LabError> {
    let mut values = match vm.call(Op::Counters)? {
        Answer::Counters { values } => values,
        other => {
            return Err(LabError::Vm {
                name: vm.spec.name.clone(),
                why: format!("unexpected answer to counters: {other:?}"),
            });
        }
    };
    let pvtcp = vm.shell(settings::PVTCP_COUNTERS_SCRIPT)?;
    values.extend(metrics::parse_pvtcp_counters(&pvtcp));
    Ok(Counters(values))
}

fn specs(scenario: &Scenario, batch: &Batch) -> Vec<VmSpec> {
    let mut number: u8 = 0;
    let mut specs = Vec::new();
    for (group, VmGroup { count, kernel, vcpus, memory_mib, .. }) in &scenario.vms {
        for index in 0..*count {
            number += 1;
            specs.push(VmSpec {
                name: format!("{group}-{index}"),
                group: group.clone(),
                image: batch.images[kernel].clone(),
                vcpus: *vcpus,
                vcpu_threads: batch.vcpu_threads(*vcpus),
                memory_mib: *memory_mib,
                tap: format!("vm{number}"),
                address: Ipv4Addr::new(10, 0, 0, number),
                mac: format!("52:54:00:00:00:{number:02x}"),
                segmentation_offload: scenario.network.segmentation_offload,
                accelerator: batch.options.accelerator,
            });
        }
    }
    specs
}
