//! The measured time of a run: counters before and after, and what was recorded meanwhile.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use evenkeel_scenario::format::{Scenario, Workload};

use super::agents::read;
use super::ports::Watched;
use super::readings::{Counting, Moment, Readings};
use super::reloads::finish_reloads;
use super::{BootedLab, Control};
use crate::error::LabError;
use crate::host::agent::{Agent, Counted};
use crate::host::clock::{Clock, clock_offset_ns};
use crate::host::linux::{Linux, Scheduling, Watch};
use crate::host::marking::{MarkingPorts, Marks};
use crate::host::vm::Vm;
use crate::host::waits::Wait;
use crate::proto::{Answer, Op, Recorded};
use crate::run::Shared;
use crate::run::measured::{Counters, Measured, Moved, VmMeasured};
use crate::run::trace::Traced;
use crate::workload::{self, Roles, transfers};

/// The counters of a run, where they are.
struct Sources<'s, 'a> {
    lab: &'s BootedLab,
    marking: Option<&'s MarkingPorts>,
    linux: Option<&'s Linux>,
    agents: &'s mut [Agent<'a>],
    /// How many workloads each VM records.
    workloads: usize,
    /// How often sockets of this group's VMs are sampled; 0: never.
    sampled: (&'s str, u32),
}

impl Counting for Sources<'_, '_> {
    fn begin(&mut self) -> Result<Vec<Counters>, LabError> {
        let (group, period_ms) = self.sampled;
        let workloads = self.workloads as u8;
        self.lab.in_all(|vm| {
            let tcp_info_period_ms = if vm.spec.group == group { period_ms } else { 0 };
            counters(vm, Op::Mark { workloads, tcp_info_period_ms })
        })
    }

    fn end(&mut self) -> Result<Vec<Counters>, LabError> {
        self.lab.in_all(|vm| counters(vm, Op::End))
    }

    fn scheduling(&mut self) -> Result<Vec<Counters>, LabError> {
        self.lab.scheduling(self.linux)
    }

    fn drops(&mut self) -> Result<u64, LabError> {
        self.lab.drops()
    }

    fn marks(&mut self) -> Result<Option<Marks>, LabError> {
        self.marking.map(MarkingPorts::read).transpose()
    }

    fn domains(&mut self) -> Result<Vec<Counters>, LabError> {
        self.lab.domains().map(|domain| counters(domain, Op::Counters)).collect()
    }

    fn agents(&mut self) -> Result<Option<Counted>, LabError> {
        read(self.agents)
    }

    fn recorded(&mut self) -> Result<Vec<Vec<Recorded>>, LabError> {
        self.lab.in_all(|vm| match vm.call(Op::Collect)? {
            Answer::Recorded { workloads } if workloads.len() == self.workloads => Ok(workloads),
            other => Err(LabError::Vm {
                name: vm.spec.name.clone(),
                why: format!("unexpected answer to collect: {other:?}"),
            }),
        })
    }
}

impl BootedLab {
    /// Starts the workloads, lets them warm up, and measures. `roles` are those of the first workload.
    pub(super) fn measure(
        &self,
        scenario: &Scenario,
        roles: &Roles,
        seed: u64,
        marking: Option<&MarkingPorts>,
        control: &mut Control<'_, '_>,
    ) -> Result<Measured, LabError> {
        let shared = control.shared;
        let are_transfers = |workload: &Workload| matches!(workload, Workload::Transfers { .. });
        let mut clocks = match scenario.workloads.values().any(are_transfers) {
            true => self.in_all(Clock::of)?,
            false => Vec::new(),
        };
        let running = workload::start(scenario, seed, &self.vms)?;
        let started = Instant::now();
        shared.interrupt.sleep(Duration::from_millis(scenario.warmup_ms), || self.check_alive())?;
        let workloads = scenario.workloads.len();
        let sampled = (roles.from, scenario.record.tcp_info_period_ms);
        let watched = self.watch_queue(scenario, roles)?;
        let linux = control.linux;
        let watch = linux.map(|linux| linux.watch(control.placement.driver_domain)).transpose()?;
        let before_mark = Instant::now();
        let agents = &mut *control.agents;
        let before = Readings::begin(&mut Sources { lab: self, marking, linux, agents, workloads, sampled })?;
        tracing::debug!(after_ms = started.elapsed().as_millis(), "the measured time has begun");
        let Moment { instant: began, monotonic_ns: mark_monotonic_ns, realtime_ns: mark_realtime_ns } = before.at;
        let reloads = self.start_reloads(scenario)?;
        let moved = self.migrate(scenario, began, control)?;
        self.wait_for_end(scenario, roles, began, shared)?;
        let reloaded = finish_reloads(scenario, reloads)?;
        let at_least = began.elapsed();
        let backlog = watched.map(Watched::stop).transpose()?.unwrap_or_default();
        let mut sources = Sources { lab: self, marking, linux, agents: &mut *control.agents, workloads, sampled };
        let after = Readings::end(&mut sources)?;
        let at_most = after.at.instant - before_mark;
        let mut recorded = sources.recorded()?;
        let measured_ns = mark_monotonic_ns..=after.at.monotonic_ns;
        let mut waits: BTreeMap<String, Vec<Wait>> = BTreeMap::new();
        for (vm, seen) in watch.map(Watch::stop).unwrap_or_default() {
            waits.entry(vm).or_default().extend(seen.iter().filter(|wait| measured_ns.contains(&wait.end_ns)));
        }
        for (index, (vm, recorded)) in self.vms.iter().zip(&recorded).enumerate() {
            let stood_still = moved.iter().filter(|moved| moved.vm == index).map(Moved::downtime).sum();
            check_clock(vm, &recorded[0], at_least, at_most, stood_still)?;
        }
        for moved in &moved {
            if let Some(clock) = clocks.get_mut(moved.vm) {
                clock.later = Some((moved.stopped_ns(), clock_offset_ns(&self.vms[moved.vm])?));
            }
        }
        let addresses: Vec<Ipv4Addr> = self.vms.iter().map(|vm| vm.spec.address).collect();
        for (index, workload) in scenario.workloads.values().enumerate() {
            if let Workload::Transfers { transfers, .. } = workload {
                let mut own: Vec<&mut Recorded> = recorded.iter_mut().map(|of_vm| &mut of_vm[index]).collect();
                transfers::complete(&mut own, &addresses, &clocks, mark_monotonic_ns, *transfers);
            }
        }
        let iperf3 = workload::finish(running, &self.vms, after.at.monotonic_ns)?;
        let scheduled = before.scheduling.iter().zip(&after.scheduling);
        let counted =
            before.vms.iter().zip(&after.vms).zip(scheduled).map(|((before, after), (own_before, own_after))| {
                let mut counted = after.since(before);
                counted.0.extend(own_after.since(own_before).0);
                counted
            });
        let vms = self
            .vms
            .iter()
            .zip(recorded)
            .zip(counted)
            .map(|((vm, recorded), counters)| VmMeasured {
                waits: waits.remove(&vm.spec.name).unwrap_or_default(),
                name: vm.spec.name.clone(),
                group: vm.spec.group.clone(),
                address: vm.spec.address,
                port: vm.spec.port().to_owned(),
                recorded,
                counters,
            })
            .collect();
        let domains = self.domains().zip(before.domains.iter().zip(&after.domains));
        Ok(Measured {
            domains: domains.map(|(vm, (before, after))| (vm.spec.name.clone(), after.since(before))).collect(),
            duration: after.at.instant - began,
            mark_monotonic_ns,
            mark_realtime_ns,
            vms,
            dropped: after.dropped_since(&before),
            marks: after.marks.zip(before.marks).map(|(after, before)| after.since(before)),
            agent: after.agents.zip(before.agents).map(|(after, before)| after.since(&before)),
            backlog,
            iperf3,
            reloaded,
            complaints: Vec::new(),
            trace: Traced::default(),
            moved,
        })
    }

    /// What this machine's kernel says of the virtual CPUs of VMs on hosts, VM by VM.
    fn scheduling(&self, linux: Option<&Linux>) -> Result<Vec<Counters>, LabError> {
        let of_vm = |vm: &Vm| {
            let read = linux.map(|linux| linux.read(&vm.spec.name)).transpose()?.flatten();
            Ok(read.as_ref().map(scheduling_counters).unwrap_or_default())
        };
        self.vms.iter().map(of_vm).collect()
    }

    fn wait_for_end(
        &self,
        scenario: &Scenario,
        roles: &Roles,
        began: Instant,
        shared: &Shared,
    ) -> Result<(), LabError> {
        let end = began + Duration::from_millis(scenario.duration_ms);
        let limit = end.saturating_duration_since(Instant::now());
        // The VMs that may be done before the time is up, and how many requests are enough.
        let (clients, enough) = match scenario.workload() {
            Workload::Strobe { requests: 1.., .. } => (vec![self.first(roles.to)?], u32::MAX),
            Workload::Transfers { transfers: enough @ 1.., .. } => {
                (self.vms.iter().filter(|vm| vm.spec.group == roles.from).collect(), *enough)
            }
            _ => return shared.interrupt.sleep(limit, || self.check_alive()),
        };
        while Instant::now() < end {
            shared.interrupt.sleep(Duration::from_millis(200), || self.check_alive())?;
            let mut done = true;
            for client in &clients {
                match client.call(Op::Progress)? {
                    Answer::Progress { error: Some(why), .. } => {
                        return Err(LabError::Vm { name: client.spec.name.clone(), why });
                    }
                    Answer::Progress { requests, ended, .. } => done &= ended || requests >= enough,
                    _ => done = false,
                }
            }
            if done {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn scheduling_counters(scheduling: &Scheduling) -> Counters {
    let Scheduling { threads, quota } = scheduling;
    let counts = [
        ("CpuRanUs", threads.ran_ns / 1000),
        ("CpuWaitedUs", threads.waited_ns / 1000),
        ("CpuQuotaPeriods", quota.periods),
        ("CpuThrottledPeriods", quota.throttled),
        ("CpuThrottledUs", quota.throttled_us),
    ];
    Counters(counts.map(|(name, count)| (name.to_owned(), count as i64)).into())
}

/// An error if a guest's clock does not keep time with this machine's: every time it measured would be wrong. It must
/// have counted at least the time between the calls that began and ended the measurement, less the time that the VM
/// stood still, and at most that time with the calls.
fn check_clock(
    vm: &Vm,
    recorded: &Recorded,
    between: Duration,
    with_calls: Duration,
    stood_still: Duration,
) -> Result<(), LabError> {
    let between = between.saturating_sub(stood_still);
    let guest = Duration::from_micros(recorded.measured_us);
    if guest >= between.mul_f64(0.99) && guest <= with_calls.mul_f64(1.01) {
        return Ok(());
    }
    let why =
        format!("its clock counted {guest:.2?} in {between:.2?}: it is wrong, and so is every time measured by it");
    Err(LabError::Vm { name: vm.spec.name.clone(), why })
}

/// A VM's counters, which it answers this with.
fn counters(vm: &Vm, op: Op) -> Result<Counters, LabError> {
    let mut values = match vm.call(op)? {
        Answer::Counters { values } => values,
        other => {
            return Err(LabError::Vm {
                name: vm.spec.name.clone(),
                why: format!("unexpected answer to counters: {other:?}"),
            });
        }
    };
    if vm.spec.is_namespace() {
        // Those are of this machine's processors and module.
        values.retain(|name, _| !name.starts_with("Cpu") && !name.starts_with("Pvtcp"));
    }
    Ok(Counters(values))
}
