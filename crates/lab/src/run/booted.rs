//! Booted VMs, and one run in them from settings to record.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use evenkeel_scenario::format::{Mode, Scenario, VmGroup, Workload};
use evenkeel_scenario::result::RunRecord;
use evenkeel_scenario::sweep::{self, Cell};

use super::Batch;
use super::metrics::{self, Counters, Measured};
use super::settings::{self, Neighbour};
use super::trace::{Trace, Traced};
use super::workload::{Roles, Running};
use crate::error::LabError;
use crate::host::agent::{Agent, Port};
use crate::host::cores::{self, Placement, ToPlace};
use crate::host::marking::MarkingPorts;
use crate::host::net::{self, Place};
use crate::host::qdisc::BacklogSampler;
use crate::host::schedule::{Schedule, ScheduledVcpu};
use crate::host::vm::{Nic, Vm, VmSpec};
use crate::proto::{Answer, Op, Recorded};

/// How long a VM may take to boot; on a busy machine, TCG needs a while for nine at once.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);

/// Loading takes a second in a VM without hardware help that is off its core half of the time.
const RELOADS_TIMEOUT: Duration = Duration::from_secs(900);

/// VMs at a switch.
pub struct BootedLab {
    vms: Vec<Vm>,
    /// Where each of them is.
    places: Vec<Place>,
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
        let mut lab = Self { vms: Vec::with_capacity(specs.len()), places: Vec::new(), hz: 0, directory };
        for (number, spec) in (1..).zip(specs) {
            let place = Place::new(number, batch.own_hosts);
            place.make()?;
            lab.places.push(place);
            lab.vms.push(Vm::spawn(spec, lab.directory.path(), batch.interrupt.clone())?);
        }
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
        let receiver_port = self.first(roles.to)?.spec.port();
        let bottlenecks = self.bottlenecks(scenario, &roles);
        self.set_up_guests(scenario)?;
        let marking = self.set_up_ports(scenario, &bottlenecks)?;
        let placement = self.place(scenario, &roles, batch)?;
        let seed = sweep::run_seed(scenario.seed, repetition);
        let schedule = Schedule::start(&self.scheduled(scenario, &placement)?, placement.driver_domain, seed)?;
        let capture = match scenario.record.capture {
            true => Some(Trace::start(self.first(roles.from)?, receiver_port, self.directory.path())?),
            false => None,
        };
        let mut agent = self.start_agent(scenario, batch)?;
        let bottleneck = &bottlenecks[0];
        let outcome = self.measure(scenario, &roles, bottleneck, seed, marking.as_ref(), agent.as_mut(), batch);
        let off = schedule.stop();
        // Whatever failed, the next run must not meet this one's tasks.
        let stopped = self.in_all(|vm| vm.call(Op::Stop));
        let agent_stopped = agent.map(Agent::stop).transpose();
        let captured = capture.map(|capture| capture.finish(self.directory.path())).transpose();
        let mut measured = outcome?;
        stopped?;
        agent_stopped?;
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
            self.vms.iter().map(|vm| Neighbour { address: vm.spec.address, mac: vm.spec.mac().to_owned() }).collect();
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

    /// The switch's ports that are shaped: the one towards the receiver, or those towards all that receive in an open loop.
    fn bottlenecks(&self, scenario: &Scenario, roles: &Roles) -> Vec<String> {
        let receivers = self.vms.iter().zip(&self.places).filter(|(vm, _)| vm.spec.group == roles.to);
        let ports = receivers.map(|(_, place)| place.switch_port.clone());
        match scenario.workload {
            Workload::Poisson { .. } => ports.collect(),
            _ => ports.take(1).collect(),
        }
    }

    /// Sets queues, MTU, rates; what marks at the bottlenecks, if they mark.
    fn set_up_ports(&self, scenario: &Scenario, bottlenecks: &[String]) -> Result<Option<MarkingPorts>, LabError> {
        for (vm, place) in self.vms.iter().zip(&self.places) {
            place.configure(scenario.vms[&vm.spec.group].port_queue_segments, scenario.network.mtu_bytes)?;
        }
        for port in bottlenecks {
            net::shape_port(port, &scenario.network)?;
        }
        let threshold = scenario.network.queue.ecn_threshold_segments;
        threshold.map(|segments| MarkingPorts::start(bottlenecks, segments)).transpose()
    }

    /// Starts the host agent on all ports, if any group wants it.
    fn start_agent(&self, scenario: &Scenario, batch: &Batch) -> Result<Option<Agent>, LabError> {
        if !uses_agent(scenario) {
            return Ok(None);
        }
        let port = |vm: &Vm| Port::of(vm.spec.port(), &scenario.vms[&vm.spec.group], vm.spec.number);
        let ports = self.vms.iter().map(port).collect::<Result<Vec<_>, _>>()?;
        let directory = self.directory.path().join("agent");
        Agent::start(&batch.options.evenkeel, &directory, &ports, batch.interrupt).map(Some)
    }

    fn place(&self, scenario: &Scenario, roles: &Roles, batch: &Batch) -> Result<Placement, LabError> {
        // Several that receive are more work than those that send: beside the driver domain they would leave the other cores idle.
        let one_receives = self.vms.iter().filter(|vm| vm.spec.group == roles.to).count() == 1;
        let spreads = matches!(scenario.workload, Workload::Poisson { .. }) && !one_receives;
        let to_place: Vec<ToPlace> = self
            .vms
            .iter()
            .flat_map(|vm| {
                let vcpu = ToPlace {
                    contended: scenario.vms[&vm.spec.group].core.vms_per_core > 1,
                    sends: spreads || vm.spec.group == roles.from,
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
    #[expect(clippy::too_many_arguments, reason = "what a run consists of")]
    fn measure(
        &self,
        scenario: &Scenario,
        roles: &Roles,
        bottleneck: &str,
        seed: u64,
        marking: Option<&MarkingPorts>,
        mut agent: Option<&mut Agent>,
        batch: &Batch,
    ) -> Result<Measured, LabError> {
        let running = Running::start(scenario, roles, seed, &self.vms)?;
        batch.interrupt.sleep(Duration::from_millis(scenario.warmup_ms), || self.check_alive())?;
        let period_ms = scenario.record.tcp_info_period_ms;
        let before = self.in_all(counters)?;
        let drops_before = self.drops()?;
        let marks_before = marking.map(MarkingPorts::read).transpose()?;
        let counted_before = agent.as_mut().map(|agent| agent.read()).transpose()?;
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
        let marks_after = marking.map(MarkingPorts::read).transpose()?;
        let counted_after = agent.map(Agent::read).transpose()?;
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
                port: vm.spec.port().to_owned(),
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
            marks: marks_after.zip(marks_before).map(|(after, before)| after.since(before)),
            agent: counted_after.zip(counted_before).map(|(after, before)| after.since(&before)),
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
        self.places.iter().map(Place::drops).sum()
    }
}

impl Drop for BootedLab {
    fn drop(&mut self) {
        self.vms.clear();
        for place in self.places.drain(..) {
            if let Err(error) = place.remove() {
                tracing::debug!(?place, %error, "the namespace takes it along");
            }
        }
        tracing::debug!(directory = %self.directory.path().display(), "torn down");
    }
}

/// Whether a cell needs the host agent.
fn uses_agent(scenario: &Scenario) -> bool {
    scenario.vms.values().any(|group| {
        [group.proboscis.mode, group.vsnoop.mode, group.vflood.mode, group.cera.mode].iter().any(|m| *m != Mode::Off)
    })
}

/// Whether a cell needs each VM on a host of its own: where ports mark, or the agent's programs have the switch before them.
pub fn needs_own_hosts(scenario: &Scenario) -> bool {
    uses_agent(scenario) || scenario.network.queue.ecn_threshold_segments.is_some()
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
                number: index,
                image: batch.images[kernel].clone(),
                vcpus: *vcpus,
                vcpu_threads: batch.vcpu_threads(*vcpus),
                memory_mib: *memory_mib,
                nics: vec![Nic {
                    tap: Place::new(number, batch.own_hosts).tap,
                    mac: format!("52:54:00:00:00:{number:02x}"),
                }],
                address: Ipv4Addr::new(10, 0, 0, number),
                channels: Vec::new(),
                segmentation_offload: scenario.network.segmentation_offload,
                accelerator: batch.options.accelerator,
            });
        }
    }
    specs
}
