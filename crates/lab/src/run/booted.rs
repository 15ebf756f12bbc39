//! Booted VMs, and one run in them from settings to record.

mod agents;
mod measure;
mod migration;
mod passage;
mod placing;
mod ports;
mod readings;
mod reloads;
mod shape;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_scenario::batch::Meter;
use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::format::{Kernel, Network, Scenario, VmGroup, Workload};
use evenkeel_scenario::placement::core_sharing;
use evenkeel_scenario::result::RunRecord;
use evenkeel_scenario::sweep;

pub use self::passage::remove_counts;
use self::shape::{hosts, specs};
use super::Shared;
use super::guest_agent::GuestAgent;
use super::kernel_log;
use super::needs::segments_for_vms;
use super::results;
use super::settings::{self, Neighbour};
use super::trace::{self, Trace, Traced, Wire};
use crate::capture::analyze::flow::Span;
use crate::error::LabError;
use crate::host::agent::Agent;
use crate::host::cores::Placement;
use crate::host::domain;
use crate::host::linux::Linux;
use crate::host::net::{HostBridge, VmPort};
use crate::host::schedule::Schedule;
use crate::host::scratch::Scratch;
use crate::host::vm::Vm;
use crate::proto::Op;
use crate::workload::Roles;

/// How long a VM may take to boot; on a busy machine, TCG needs a while for nine at once.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);

/// The name of a guest's channel to the host agent.
const CHANNEL: &str = "org.evenkeel.0";

/// VMs at a switch, or on hosts at it.
pub struct BootedLab {
    vms: Vec<Vm>,
    /// Where each of them is.
    vm_ports: Vec<VmPort>,
    /// Where the VMs that move will be.
    destinations: BTreeMap<usize, VmPort>,
    hosts: Vec<BootedHost>,
    /// Ticks per second of the guests' kernels: all of Debian's have the same.
    hz: u32,
    /// Sockets and consoles; removed when dropped, after the VMs.
    directory: Scratch,
}

/// A host.
struct BootedHost {
    host: HostBridge,
    /// Positions of its VMs.
    vms: Vec<usize>,
    /// Position of the VM that will move here.
    awaits: Option<usize>,
    /// The VM that plays the host, if one does, and where its VMs' channels are in it.
    domain: Option<(Vm, BTreeMap<String, PathBuf>)>,
}

impl BootedHost {
    fn domain(&self) -> Option<&Vm> {
        self.domain.as_ref().map(|(vm, _)| vm)
    }
}

impl BootedLab {
    /// Boots the VMs of a scenario in the calling thread's network namespace.
    pub fn boot(scenario: &Scenario, shared: &Shared, meter: &Meter) -> Result<Self, LabError> {
        let directory = Scratch::make()?;
        let hosts = hosts(scenario, shared.own_hosts);
        let specs = specs(scenario, shared, directory.path());
        let domains = hosts.iter().filter(|h| h.host.in_vm).count();
        tracing::info!(vms = specs.len() + domains, "booting");
        meter.step(&format!("booting {} VMs", specs.len() + domains));
        let mut lab = Self {
            vms: Vec::new(),
            vm_ports: Vec::new(),
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
            let port = lab.port_of(index);
            if !spec.is_namespace() {
                port.make()?;
            }
            let vm = Vm::spawn(spec, lab.directory.path(), shared.interrupt.clone())?;
            if vm.spec.is_namespace() {
                port.make_towards(vm.pid(), vm.spec.mac())?;
            }
            lab.vm_ports.push(port);
            lab.vms.push(vm);
        }
        let awaiting: Vec<_> = lab.hosts.iter().filter_map(|h| Some((h.awaits?, h.host.clone()))).collect();
        for (number, (vm, host)) in (lab.vms.len() + 1..).zip(awaiting) {
            let port = VmPort::new(u8::try_from(number).unwrap_or(u8::MAX), Some(&host));
            port.make()?;
            lab.destinations.insert(vm, port);
        }
        for index in 0..lab.hosts.len() {
            if lab.hosts[index].host.in_vm {
                let spec = domain::spec(&lab.domain_shape(index, scenario, shared));
                let vm = Vm::spawn(spec, lab.directory.path(), shared.interrupt.clone())?;
                lab.hosts[index].domain = Some((vm, BTreeMap::new()));
            }
        }
        for vm in &lab.vms {
            let (release, hz) = vm.wait_ready(BOOT_TIMEOUT)?;
            tracing::debug!(vm = vm.spec.name, release, hz, "up");
            if !vm.spec.is_namespace() {
                lab.hz = hz;
            }
        }
        lab.set_up_domains(&scenario.network)?;
        lab.set_up_network()?;
        Ok(lab)
    }

    /// Where the VM at this position is to be.
    fn port_of(&self, index: usize) -> VmPort {
        let host = self.hosts.iter().find(|host| host.vms.contains(&index));
        // `too_many` of support.rs refuses more VMs than fit.
        VmPort::new(u8::try_from(index + 1).unwrap_or(u8::MAX), host.map(|host| &host.host))
    }

    fn domain_shape<'a>(&'a self, index: usize, scenario: &Scenario, shared: &Shared) -> domain::Shape<'a> {
        let host = &self.hosts[index];
        let ports = self.ports_of(host).into_iter();
        domain::Shape {
            host: &host.host,
            vms: ports.map(|(vm, port)| (port, self.channel_at(vm, port))).collect(),
            image: shared.images[&Kernel::Newest].clone(),
            segmentation_offload: scenario.network.segmentation_offload,
            segments_for_vms: segments_for_vms(scenario),
            accelerator: shared.lab.accelerator,
        }
    }

    /// A host's VMs and the one that will move there, with their ports on it.
    fn ports_of(&self, host: &BootedHost) -> Vec<(usize, &VmPort)> {
        ports_of(host, &self.vm_ports, &self.destinations)
    }

    /// Where QEMU has a VM's channel while the VM is at this port.
    fn channel_at(&self, vm: usize, port: &VmPort) -> PathBuf {
        let (name, directory) = (&self.vms[vm].spec.name, self.directory.path());
        if self.vm_ports[vm] == *port {
            channel_of(name, directory)
        } else {
            channel_of(&format!("{name}-moved"), directory)
        }
    }

    fn set_up_domains(&mut self, network: &Network) -> Result<(), LabError> {
        for host in &mut self.hosts {
            let ports = ports_of(host, &self.vm_ports, &self.destinations);
            let vm_ports: Vec<&VmPort> = ports.into_iter().map(|(_, port)| port).collect();
            if let Some((vm, channels)) = &mut host.domain {
                let (release, _) = vm.wait_ready(BOOT_TIMEOUT)?;
                tracing::debug!(vm = vm.spec.name, release, "up");
                domain::set_up(vm, &host.host, &vm_ports, network)?;
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
        let port = self.vm_ports.iter().find(|port| port.tap == first);
        Ok(port.map_or(first, |port| &port.switch_port))
    }

    fn check_alive(&self) -> Result<(), LabError> {
        self.vms.iter().chain(self.domains()).try_for_each(Vm::check_alive)
    }

    /// Does something in all VMs at once; returns the results in their order.
    fn in_all<T: Send>(&self, work: impl Fn(&Vm) -> Result<T, LabError> + Sync) -> Result<Vec<T>, LabError> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = self.vms.iter().map(|vm| scope.spawn(|| work(vm))).collect();
            threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }

    /// One repetition of one cell.
    pub fn run_cell(&self, cell: &Cell, repetition: u32, shared: &Shared) -> Result<RunRecord, LabError> {
        let scenario = &cell.scenario;
        let roles = Roles::of(scenario.workload());
        let receiver_port = self.first(roles.to)?.spec.port();
        let bottlenecks = self.bottlenecks(scenario);
        self.set_up_guests(scenario)?;
        let marking = self.set_up_ports(scenario, &bottlenecks)?;
        self.check_passage(scenario, &shared.directory)?;
        let placement = self.place(scenario, shared)?;
        let seed = sweep::run_seed(scenario.seed, repetition);
        // Agents find VMs that share their cores, as on a host: what they learn of that takes seconds.
        let linux = self.put_on_hosts(scenario, &placement, seed, shared)?;
        self.start_own_loads(scenario, seed)?;
        let turns = || Schedule::start(self.scheduled(scenario, &placement)?, placement.driver_domain, seed);
        let before = turns()?;
        let mut agents = self.start_agents(scenario, shared)?;
        let guests = self.start_guest_agents(scenario, shared)?;
        let transfers = matches!(scenario.workload(), Workload::Transfers { .. });
        let wire = match scenario.record.capture && transfers {
            true => Some(Wire::start(self.first_place(roles.from)?, self.directory.path())?),
            false => None,
        };
        let capture = match scenario.record.capture && !transfers {
            true => Some(Trace::start(self.first(roles.from)?, receiver_port, self.directory.path())?),
            false => None,
        };
        // With and without agents, the workload meets the same slices: their timeline begins again with it.
        drop(before);
        let schedule = turns()?;
        let mut control =
            Control { placement: &placement, linux: linux.as_ref(), agents: &mut agents, guests: &guests, shared };
        let outcome = self.measure(scenario, &roles, seed, marking.as_ref(), &mut control);
        let off = schedule.stop();
        drop(linux);
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
            if shared.lab.keep_capture {
                trace::keep(&[(&file, "wire")], &shared.directory, &cell.labels, repetition)?;
            }
        }
        if let Some(captured) = captured? {
            let shown = [roles.from, roles.to]
                .into_iter()
                .find(|g| core_sharing(scenario, &scenario.vms[*g]).is_some())
                .unwrap_or(roles.from);
            let off = off.get(&self.first(shown)?.spec.name).map_or(&[][..], Vec::as_slice);
            let from_ns = measured.mark_realtime_ns as i64;
            let span = Span { from_ns, to_ns: from_ns + measured.duration.as_nanos() as i64 };
            measured.trace = captured.analyse(&scenario.vms[roles.from].tcp, self.hz, span, off)?;
            if shared.lab.keep_capture {
                captured.keep(&shared.directory, &cell.labels, repetition)?;
            }
        }
        Ok(results::record(cell, repetition, seed, measured))
    }

    /// Lines in the guests' kernel logs that no healthy kernel writes, each log read once.
    fn kernel_complaints(&self) -> Result<Vec<String>, LabError> {
        let booted = self.vms.iter().filter(|vm| !vm.spec.is_namespace());
        let vms: Vec<&Vm> = booted.chain(self.domains()).collect();
        let logs = vms.iter().map(|vm| vm.shell("dmesg -c")).collect::<Result<Vec<_>, _>>()?;
        Ok(vms
            .into_iter()
            .zip(logs)
            .flat_map(|(vm, log)| {
                kernel_log::complaints(&log).map(|line| format!("{}: {line}", vm.spec.name)).collect::<Vec<_>>()
            })
            .collect())
    }

    fn set_up_network(&self) -> Result<(), LabError> {
        let neighbours: Vec<Neighbour> =
            self.vms.iter().map(|vm| Neighbour { address: vm.spec.address, mac: vm.spec.mac().to_owned() }).collect();
        self.in_all(|vm| {
            let others: Vec<Neighbour> = neighbours.iter().filter(|n| n.address != vm.spec.address).cloned().collect();
            vm.shell(&settings::boot_script(vm.spec.address, &others))?;
            if vm.spec.is_namespace() && !vm.spec.nics[0].segmentation_offload {
                vm.shell(settings::NO_OFFLOAD_SCRIPT)?;
            }
            Ok(())
        })
        .map(drop)
    }

    fn set_up_guests(&self, scenario: &Scenario) -> Result<(), LabError> {
        self.in_all(|vm| {
            let group = &scenario.vms[&vm.spec.group];
            let tcp = settings::tcp_script(vm.spec.address, &group.tcp, &scenario.network);
            let kernel = if vm.spec.is_namespace() {
                String::new()
            } else {
                format!("{}\n{}", settings::hystart_script(&group.tcp), settings::pvtcp_script(&group.pvtcp))
            };
            vm.shell(&format!("{tcp}{kernel}"))
        })
        .map(drop)
    }
}

impl Drop for BootedLab {
    fn drop(&mut self) {
        self.vms.clear();
        for host in &mut self.hosts {
            host.domain = None;
        }
        let destinations = std::mem::take(&mut self.destinations);
        for port in self.vm_ports.drain(..).chain(destinations.into_values()) {
            if let Err(error) = port.remove() {
                tracing::debug!(?port, %error, "the namespace takes it along");
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
    linux: Option<&'a Linux>,
    agents: &'a mut [Agent<'b>],
    guests: &'a [GuestAgent<'b>],
    shared: &'a Shared,
}

/// A host's VMs and the one that will move there, with their ports on it.
fn ports_of<'a>(
    host: &BootedHost,
    vm_ports: &'a [VmPort],
    destinations: &'a BTreeMap<usize, VmPort>,
) -> Vec<(usize, &'a VmPort)> {
    let coming = host.awaits.and_then(|vm| Some((vm, destinations.get(&vm)?)));
    host.vms.iter().map(|vm| (*vm, &vm_ports[*vm])).chain(coming).collect()
}

/// Where QEMU has a VM's channel.
fn channel_of(vm: &str, directory: &Path) -> PathBuf {
    directory.join(format!("{vm}.channel"))
}
