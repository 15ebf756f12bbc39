//! Booted VMs, and one run in them from settings to record.

mod migration;
mod reloads;
mod shape;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_scenario::format::{Kernel, Mode, Network, Scenario, VmGroup, Vsnoop, Workload};
use evenkeel_scenario::result::RunRecord;
use evenkeel_scenario::sweep::{self, Cell};

pub use self::migration::Moved;
use self::reloads::finish_reloads;
pub use self::shape::needs_own_hosts;
use self::shape::{hosts, specs, wants_agent};
use super::Batch;
use super::guest_agent::{self, GuestAgent};
use super::metrics::{self, Counters, Measured};
use super::settings::{self, Neighbour};
use super::trace::{self, Trace, Traced, Wire};
use super::transfers::{self, Clock, clock_offset_ns};
use super::workload::{Roles, Running};
use crate::error::LabError;
use crate::host::agent::{Agent, Port};
use crate::host::cores::{self, Placement, ToPlace};
use crate::host::marking::MarkingPorts;
use crate::host::net::{self, Host, Place, Shaping};
use crate::host::qdisc::{Backlog, BacklogSampler};
use crate::host::schedule::{Schedule, ScheduledVcpu};
use crate::host::seat::{Here, InDomain};
use crate::host::vm::Vm;
use crate::host::{agent, domain};
use crate::proto::{Answer, Op, Recorded};

/// How long a VM may take to boot; on a busy machine, TCG needs a while for nine at once.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);

/// The name of a guest's channel to the host agent.
const CHANNEL: &str = "org.evenkeel.0";

/// VMs at a switch, or on hosts at it.
pub struct BootedLab {
    vms: Vec<Vm>,
    /// Where each of them is.
    places: Vec<Place>,
    /// Where those will be that move.
    destinations: BTreeMap<usize, Place>,
    hosts: Vec<BootedHost>,
    /// Ticks per second of the guests' kernels: all of Debian's have the same.
    hz: u32,
    /// Sockets and consoles; removed when dropped, after the VMs.
    directory: tempfile::TempDir,
}

/// A host.
struct BootedHost {
    host: Host,
    /// Positions of its VMs.
    vms: Vec<usize>,
    /// Of one that will move here.
    awaits: Option<usize>,
    /// The VM that it is, if it is one, and where its VMs' channels are in it.
    domain: Option<(Vm, BTreeMap<String, PathBuf>)>,
}

impl BootedHost {
    fn domain(&self) -> Option<&Vm> {
        self.domain.as_ref().map(|(vm, _)| vm)
    }
}

impl BootedLab {
    /// Boots the VMs of a scenario in the calling thread's network namespace.
    pub fn boot(scenario: &Scenario, batch: &Batch) -> Result<Self, LabError> {
        let directory = tempfile::Builder::new()
            .prefix("evenkeel-lab-")
            .tempdir()
            .map_err(|e| LabError::io("making a temporary directory", e))?;
        let hosts = hosts(scenario, batch.own_hosts);
        let specs = specs(scenario, batch, directory.path());
        let domains = hosts.iter().filter(|h| h.host.in_vm).count();
        batch.progress.boot(specs.len() + domains);
        let mut lab = Self {
            vms: Vec::new(),
            places: Vec::new(),
            destinations: BTreeMap::new(),
            hosts: Vec::new(),
            hz: 0,
            directory,
        };
        for host in hosts {
            host.host.make()?;
            lab.hosts.push(host);
        }
        for (index, spec) in specs.into_iter().enumerate() {
            let place = lab.place_of(index);
            place.make()?;
            lab.places.push(place);
            lab.vms.push(Vm::spawn(spec, lab.directory.path(), batch.interrupt.clone())?);
        }
        let awaiting: Vec<_> = lab.hosts.iter().filter_map(|h| Some((h.awaits?, h.host.clone()))).collect();
        for (number, (vm, host)) in (lab.vms.len() + 1..).zip(awaiting) {
            let place = Place::new(u8::try_from(number).unwrap_or(u8::MAX), Some(&host));
            place.make()?;
            lab.destinations.insert(vm, place);
        }
        for index in 0..lab.hosts.len() {
            if lab.hosts[index].host.in_vm {
                let spec = domain::spec(&lab.domain_shape(index, scenario, batch));
                let vm = Vm::spawn(spec, lab.directory.path(), batch.interrupt.clone())?;
                lab.hosts[index].domain = Some((vm, BTreeMap::new()));
            }
        }
        for vm in &lab.vms {
            let (release, hz) = vm.wait_ready(BOOT_TIMEOUT)?;
            tracing::debug!(vm = vm.spec.name, release, hz, "up");
            lab.hz = hz;
        }
        lab.set_up_domains(&scenario.network)?;
        lab.set_up_network()?;
        Ok(lab)
    }

    /// Where the VM at this position is to be.
    fn place_of(&self, index: usize) -> Place {
        let host = self.hosts.iter().find(|host| host.vms.contains(&index));
        // `too_many` of support.rs: no more VMs than that.
        Place::new(u8::try_from(index + 1).unwrap_or(u8::MAX), host.map(|host| &host.host))
    }

    fn domain_shape<'a>(&'a self, index: usize, scenario: &Scenario, batch: &Batch) -> domain::Shape<'a> {
        let host = &self.hosts[index];
        let ports = self.ports_of(host).into_iter();
        domain::Shape {
            host: &host.host,
            vms: ports.map(|(vm, place)| (place, self.channel_at(vm, place))).collect(),
            image: batch.images[&Kernel::Newest].clone(),
            segmentation_offload: scenario.network.segmentation_offload,
            accelerator: batch.options.accelerator,
        }
    }

    /// A host's VMs and the one that will move there, with their places on it.
    fn ports_of(&self, host: &BootedHost) -> Vec<(usize, &Place)> {
        ports_of(host, &self.places, &self.destinations)
    }

    /// Where QEMU has a VM's channel while the VM is in this place.
    fn channel_at(&self, vm: usize, place: &Place) -> PathBuf {
        let (name, directory) = (&self.vms[vm].spec.name, self.directory.path());
        if self.places[vm] == *place {
            channel_of(name, directory)
        } else {
            channel_of(&format!("{name}-moved"), directory)
        }
    }

    fn set_up_domains(&mut self, network: &Network) -> Result<(), LabError> {
        for host in &mut self.hosts {
            let ports = ports_of(host, &self.places, &self.destinations);
            let places: Vec<&Place> = ports.into_iter().map(|(_, place)| place).collect();
            if let Some((vm, channels)) = &mut host.domain {
                let (release, _) = vm.wait_ready(BOOT_TIMEOUT)?;
                tracing::debug!(vm = vm.spec.name, release, "up");
                domain::set_up(vm, &host.host, &places, network)?;
                *channels = domain::channels(vm)?;
            }
        }
        Ok(())
    }

    fn domains(&self) -> impl Iterator<Item = &Vm> {
        self.hosts.iter().filter_map(BootedHost::domain)
    }

    fn group<'a>(&self, scenario: &'a Scenario, vm: usize) -> &'a VmGroup {
        &scenario.vms[&self.vms[vm].spec.group]
    }

    fn first(&self, group: &str) -> Result<&Vm, LabError> {
        let missing = || LabError::Vm { name: group.to_owned(), why: "the group has no VM".into() };
        self.vms.iter().find(|vm| vm.spec.group == group).ok_or_else(missing)
    }

    /// The switch's port towards the first VM of a group.
    fn first_place(&self, group: &str) -> Result<&str, LabError> {
        let first = self.first(group)?.spec.port();
        let place = self.places.iter().find(|place| place.tap == first);
        Ok(place.map_or(first, |place| &place.switch_port))
    }

    fn check_alive(&self) -> Result<(), LabError> {
        self.vms.iter().chain(self.domains()).try_for_each(Vm::check_alive)
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
        let marking = self.set_up_ports(scenario, &roles, &bottlenecks)?;
        let placement = self.place(scenario, &roles, batch)?;
        let seed = sweep::run_seed(scenario.seed, repetition);
        let schedule = Schedule::start(&self.scheduled(scenario, &placement)?, placement.driver_domain, seed)?;
        let transfers = matches!(scenario.workload, Workload::Transfers { .. });
        let wire = match scenario.record.capture && transfers {
            true => Some(Wire::start(self.first_place(roles.from)?, self.directory.path())?),
            false => None,
        };
        let capture = match scenario.record.capture && !transfers {
            true => Some(Trace::start(self.first(roles.from)?, receiver_port, self.directory.path())?),
            false => None,
        };
        let mut agents = self.start_agents(scenario, batch)?;
        let guests = self.start_guest_agents(scenario, batch)?;
        let bottleneck = bottlenecks.first().map(String::as_str);
        let mut control = Control { placement: &placement, agents: &mut agents, guests: &guests, batch };
        let outcome = self.measure(scenario, &roles, bottleneck, seed, marking.as_ref(), &mut control);
        let off = schedule.stop();
        // Whatever failed, the next run must not meet this one's tasks.
        let stopped = self.in_all(|vm| vm.call(Op::Stop));
        let guests_stopped = guests.into_iter().try_for_each(GuestAgent::stop);
        let agents_stopped = agents.into_iter().try_for_each(Agent::stop);
        let captured = capture.map(|capture| capture.finish(self.directory.path())).transpose();
        let mut measured = outcome?;
        stopped?;
        guests_stopped?;
        agents_stopped?;
        measured.complaints = self.kernel_complaints()?;
        if let Some(wire) = wire {
            let (bursts, remarks, file) =
                wire.finish(self.first(roles.from)?.spec.address, scenario.network.mtu_bytes)?;
            measured.trace = Traced { bursts: Some(bursts), remarks, ..Traced::default() };
            if batch.options.keep_capture {
                trace::keep(&[(&file, "wire")], batch.directory, &cell.labels, repetition)?;
            }
        }
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
        let vms: Vec<&Vm> = self.vms.iter().chain(self.domains()).collect();
        let logs = vms.iter().map(|vm| vm.shell("dmesg -c")).collect::<Result<Vec<_>, _>>()?;
        Ok(vms
            .into_iter()
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

    /// The devices of the lab's namespace that are shaped: network cards of the hosts that send, if those are the bottleneck; else the switch's
    /// port towards the receiver, or those towards all that receive in an open loop.
    fn bottlenecks(&self, scenario: &Scenario, roles: &Roles) -> Vec<String> {
        if scenario.record.sender_nic {
            let native = self.sending_hosts(roles).filter(|host| host.domain.is_none());
            return native.map(|host| host.host.uplink.clone()).collect();
        }
        let receivers = self.vms.iter().zip(&self.places).filter(|(vm, _)| vm.spec.group == roles.to);
        let ports = receivers.map(|(_, place)| place.switch_port.clone());
        match scenario.workload {
            Workload::Poisson { .. } => ports.collect(),
            _ => ports.take(1).collect(),
        }
    }

    fn sending_hosts(&self, roles: &Roles) -> impl Iterator<Item = &BootedHost> {
        self.hosts.iter().filter(|host| host.vms.iter().any(|vm| self.vms[*vm].spec.group == roles.from))
    }

    /// Sets queues, MTU, rates; what marks at the bottlenecks, if they mark.
    fn set_up_ports(
        &self,
        scenario: &Scenario,
        roles: &Roles,
        bottlenecks: &[String],
    ) -> Result<Option<MarkingPorts>, LabError> {
        let network = &scenario.network;
        let queue_segments = |vm: usize| self.group(scenario, vm).port_queue_segments;
        let destinations = self.destinations.iter().map(|(vm, place)| (*vm, place));
        for (index, place) in self.places.iter().enumerate().chain(destinations) {
            place.configure(queue_segments(index), network.mtu_bytes)?;
        }
        for host in &self.hosts {
            host.host.configure(network.mtu_bytes)?;
            if let Some(domain) = host.domain() {
                let ports = self.ports_of(host).into_iter();
                let queues: Vec<_> = ports.map(|(vm, place)| (place, queue_segments(vm))).collect();
                // At a network card with a queue packets are counted, and are segments.
                domain::configure(domain, &host.host, &queues, network, !scenario.record.sender_nic)?;
            }
        }
        let shaping = shaping(scenario, roles);
        for device in bottlenecks {
            net::shape(device, shaping)?;
        }
        if scenario.record.sender_nic {
            for host in self.sending_hosts(roles) {
                if let Some(domain) = host.domain() {
                    domain::shape(domain, &host.host.uplink, shaping)?;
                }
            }
        }
        let threshold = network.queue.ecn_threshold_segments;
        threshold.map(|segments| MarkingPorts::start(bottlenecks, segments)).transpose()
    }

    /// Starts the host agents: one for all hosts that are this machine's, one in each driver domain. Those that no group wants are not started.
    fn start_agents(&self, scenario: &Scenario, batch: &Batch) -> Result<Vec<Agent<'_>>, LabError> {
        let wanted =
            |host: &&BootedHost| self.ports_of(host).iter().any(|(vm, _)| wants_agent(self.group(scenario, *vm)));
        let (domains, native): (Vec<_>, Vec<_>) = self.hosts.iter().partition(|host| host.domain.is_some());
        let mut agents = Vec::new();
        let mut ports = if native.iter().any(wanted) { self.agent_ports(scenario, &native)? } else { Vec::new() };
        // vSnoop needs the VM's own port, which is a tap of this machine: it stands between the VM and its driver domain.
        for (vm, place) in domains.iter().flat_map(|host| self.ports_of(host)) {
            let (group, spec) = (self.group(scenario, vm), &self.vms[vm].spec);
            if group.vsnoop.mode != Mode::Off {
                ports.push(Port::of(&place.tap, "", group, spec.number)?.with_only("vsnoop"));
            }
        }
        if !ports.is_empty() {
            let seat = Here::new(&batch.options.evenkeel, &self.directory.path().join("agent"))?;
            agents.push(Agent::start(Box::new(seat), &ports, batch.interrupt)?);
        }
        let only_vsnoop = |vm: usize| {
            let group = self.group(scenario, vm);
            !wants_agent(&VmGroup { vsnoop: Vsnoop::default(), ..group.clone() })
        };
        let wanted = |host: &&BootedHost| wanted(host) && !self.ports_of(host).iter().all(|(vm, _)| only_vsnoop(*vm));
        for host in domains.into_iter().filter(wanted) {
            if let Some(domain) = host.domain() {
                let ports = self.agent_ports(scenario, &[host])?;
                agents.push(Agent::start(Box::new(InDomain::new(domain)?), &ports, batch.interrupt)?);
            }
        }
        Ok(agents)
    }

    fn start_guest_agents(&self, scenario: &Scenario, batch: &Batch) -> Result<Vec<GuestAgent<'_>>, LabError> {
        let wanted = |vm: &&Vm| guest_agent::is_wanted(&scenario.vms[&vm.spec.group], vm.spec.number);
        let vms = self.vms.iter().filter(wanted);
        vms.map(|vm| GuestAgent::start(vm, &scenario.vms[&vm.spec.group], batch.interrupt)).collect()
    }

    fn agent_ports(&self, scenario: &Scenario, hosts: &[&BootedHost]) -> Result<Vec<agent::Port>, LabError> {
        let on_host = |host: &&BootedHost| {
            let port = |(vm, place): (usize, &Place)| {
                let (spec, group) = (&self.vms[vm].spec, self.group(scenario, vm));
                let port = Port::of(&place.tap, &host.host.uplink, group, spec.number)?;
                let port = if host.domain.is_some() { port.without("vsnoop") } else { port };
                if !guest_agent::is_wanted(group, spec.number) {
                    return Ok(port);
                }
                let channel = match &host.domain {
                    None => self.channel_at(vm, place),
                    Some((_, channels)) => channels.get(&place.tap).cloned().unwrap_or_default(),
                };
                Ok(port.with_channel(channel))
            };
            self.ports_of(host).into_iter().map(port).collect::<Vec<_>>()
        };
        hosts.iter().flat_map(on_host).collect()
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
        self.domains().try_for_each(|domain| domain.pin_domain(placement.driver_domain))?;
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
        bottleneck: Option<&str>,
        seed: u64,
        marking: Option<&MarkingPorts>,
        control: &mut Control<'_, '_>,
    ) -> Result<Measured, LabError> {
        let batch = control.batch;
        let mut clocks = match scenario.workload {
            Workload::Transfers { .. } => self.in_all(Clock::of)?,
            _ => Vec::new(),
        };
        let running = Running::start(scenario, roles, seed, &self.vms)?;
        batch.interrupt.sleep(Duration::from_millis(scenario.warmup_ms), || self.check_alive())?;
        let period_ms = scenario.record.tcp_info_period_ms;
        let before = self.in_all(counters)?;
        let domains_before = self.domains().map(counters).collect::<Result<Vec<_>, _>>()?;
        let drops_before = self.drops()?;
        let marks_before = marking.map(MarkingPorts::read).transpose()?;
        let counted_before = read(control.agents)?;
        let watched = self.watch_queue(scenario, roles, bottleneck)?;
        let before_mark = Instant::now();
        self.in_all(|vm| {
            vm.call(Op::Mark { tcp_info_period_ms: if vm.spec.group == roles.from { period_ms } else { 0 } })
        })?;
        let (mark_monotonic_ns, mark_realtime_ns) = (cores::monotonic_ns(), cores::realtime_ns());
        let began = Instant::now();
        let reloads = self.start_reloads(scenario)?;
        let moved = self.migrate(scenario, began, control)?;
        self.wait_for_end(scenario, roles, began, batch)?;
        let reloaded = finish_reloads(scenario, reloads)?;
        let duration = began.elapsed();
        let mut recorded: Vec<Recorded> = self.in_all(|vm| match vm.call(Op::Collect)? {
            Answer::Recorded(recorded) => Ok(recorded),
            other => Err(LabError::Vm {
                name: vm.spec.name.clone(),
                why: format!("unexpected answer to collect: {other:?}"),
            }),
        })?;
        for (index, (vm, recorded)) in self.vms.iter().zip(&recorded).enumerate() {
            let stood_still = moved.iter().filter(|moved| moved.vm == index).map(Moved::downtime).sum();
            check_clock(vm, recorded, duration, before_mark.elapsed(), stood_still)?;
        }
        for moved in &moved {
            if let Some(clock) = clocks.get_mut(moved.vm) {
                clock.later = Some((moved.stopped_ns(), clock_offset_ns(&self.vms[moved.vm])?));
            }
        }
        if let Workload::Transfers { transfers, .. } = scenario.workload {
            let addresses: Vec<Ipv4Addr> = self.vms.iter().map(|vm| vm.spec.address).collect();
            transfers::complete(&mut recorded, &addresses, &clocks, transfers);
        }
        let after = self.in_all(counters)?;
        let domains_after = self.domains().map(counters).collect::<Result<Vec<_>, _>>()?;
        let drops_after = self.drops()?;
        let marks_after = marking.map(MarkingPorts::read).transpose()?;
        let counted_after = read(control.agents)?;
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
        let domains = self.domains().zip(domains_before.iter().zip(domains_after));
        Ok(Measured {
            domains: domains.map(|(vm, (before, after))| (vm.spec.name.clone(), after.since(before))).collect(),
            duration,
            mark_monotonic_ns,
            mark_realtime_ns,
            vms,
            dropped: drops_after.saturating_sub(drops_before),
            marks: marks_after.zip(marks_before).map(|(after, before)| after.since(before)),
            agent: counted_after.zip(counted_before).map(|(after, before)| after.since(&before)),
            backlog: watched.map(Watched::stop).transpose()?.unwrap_or_default(),
            iperf3,
            reloaded,
            complaints: Vec::new(),
            trace: Traced::default(),
            moved,
        })
    }

    /// Watches the bottleneck's queue, if that is wanted: here, or in the driver domain that it is in.
    fn watch_queue(
        &self,
        scenario: &Scenario,
        roles: &Roles,
        bottleneck: Option<&str>,
    ) -> Result<Option<Watched<'_>>, LabError> {
        let period_ms = scenario.record.queue_period_ms;
        if period_ms == 0 {
            return Ok(None);
        }
        let kind = shaping(scenario, roles).kind();
        if let Some(device) = bottleneck {
            return BacklogSampler::start(device, kind, period_ms).map(|sampler| Some(Watched::Here(sampler)));
        }
        let Some((host, domain)) = self.sending_hosts(roles).find_map(|host| Some((host, host.domain()?))) else {
            return Ok(None);
        };
        let (device, kind) = (host.host.uplink.clone(), kind.to_owned());
        domain.call(Op::WatchQueue { device, kind, period_ms })?;
        Ok(Some(Watched::In(domain)))
    }

    fn wait_for_end(&self, scenario: &Scenario, roles: &Roles, began: Instant, batch: &Batch) -> Result<(), LabError> {
        let end = began + Duration::from_millis(scenario.duration_ms);
        let limit = end.saturating_duration_since(Instant::now());
        // Who can be done before the time is up, and with how much.
        let (clients, enough) = match scenario.workload {
            Workload::Strobe { requests: 1.., .. } => (vec![self.first(roles.to)?], u32::MAX),
            Workload::Transfers { transfers: enough @ 1.., .. } => {
                (self.vms.iter().filter(|vm| vm.spec.group == roles.from).collect(), enough)
            }
            _ => return batch.interrupt.sleep(limit, || self.check_alive()),
        };
        while Instant::now() < end {
            batch.interrupt.sleep(Duration::from_millis(200), || self.check_alive())?;
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

    fn drops(&self) -> Result<u64, LabError> {
        let at_places =
            self.places.iter().chain(self.destinations.values()).map(Place::drops).sum::<Result<u64, _>>()?;
        let at_hosts = self.hosts.iter().map(|host| host.host.drops()).sum::<Result<u64, _>>()?;
        Ok(at_places + at_hosts)
    }
}

/// The queue at the bottleneck.
fn shaping<'s>(scenario: &'s Scenario, roles: &Roles) -> Shaping<'s> {
    let (network, sender) = (&scenario.network, &scenario.vms[roles.from]);
    let (rate_mbit, mtu_bytes) = (network.rate_mbit, network.mtu_bytes);
    match scenario.record.sender_nic {
        true => Shaping { rate_mbit, segments: sender.nic_queue_segments, queue: &sender.nic_queue, mtu_bytes },
        false => Shaping { rate_mbit, segments: network.buffer_segments, queue: &network.queue, mtu_bytes },
    }
}

/// A queue that is watched.
enum Watched<'a> {
    /// In a namespace of this machine.
    Here(BacklogSampler),
    /// In a driver domain.
    In(&'a Vm),
}

impl Watched<'_> {
    fn stop(self) -> Result<Backlog, LabError> {
        let domain = match self {
            Self::Here(sampler) => return Ok(sampler.stop()),
            Self::In(domain) => domain,
        };
        let offset_ns = clock_offset_ns(domain)?;
        match domain.call(Op::Queue)? {
            Answer::Queue(mut backlog) => {
                backlog.samples.iter_mut().for_each(|(at, _)| *at = at.saturating_add_signed(-offset_ns));
                Ok(backlog)
            }
            other => Err(LabError::Vm {
                name: domain.spec.name.clone(),
                why: format!("unexpected answer to queue: {other:?}"),
            }),
        }
    }
}

impl Drop for BootedLab {
    fn drop(&mut self) {
        self.vms.clear();
        for host in &mut self.hosts {
            host.domain = None;
        }
        let destinations = std::mem::take(&mut self.destinations);
        for place in self.places.drain(..).chain(destinations.into_values()) {
            if let Err(error) = place.remove() {
                tracing::debug!(?place, %error, "the namespace takes it along");
            }
        }
        for host in self.hosts.drain(..) {
            if let Err(error) = host.host.remove() {
                tracing::debug!(host = ?host.host, %error, "the namespace takes it along");
            }
        }
        tracing::debug!(directory = %self.directory.path().display(), "torn down");
    }
}

/// What is started for a run, beside its workload.
struct Control<'a, 'b> {
    placement: &'a Placement,
    agents: &'a mut [Agent<'b>],
    guests: &'a [GuestAgent<'b>],
    batch: &'a Batch<'a>,
}

/// A host's VMs and the one that will move there, with their places on it.
fn ports_of<'a>(
    host: &BootedHost,
    places: &'a [Place],
    destinations: &'a BTreeMap<usize, Place>,
) -> Vec<(usize, &'a Place)> {
    let coming = host.awaits.and_then(|vm| Some((vm, destinations.get(&vm)?)));
    host.vms.iter().map(|vm| (*vm, &places[*vm])).chain(coming).collect()
}

/// Where QEMU has a VM's channel.
fn channel_of(vm: &str, directory: &Path) -> PathBuf {
    directory.join(format!("{vm}.channel"))
}

/// What all agents have counted; None without any.
fn read(agents: &mut [Agent<'_>]) -> Result<Option<agent::Counted>, LabError> {
    let counted = agents.iter_mut().map(Agent::read).collect::<Result<Vec<_>, _>>()?;
    Ok(counted.into_iter().reduce(agent::Counted::and))
}

/// An error if a guest's clock does not keep time with ours: every time it measured would be wrong. It must have counted at least the
/// time between the calls that began and ended the measurement, but for the time that the VM stood still, and at most the time with them.
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
