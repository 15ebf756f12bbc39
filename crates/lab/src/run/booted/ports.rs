//! The ports of a run: which are shaped, what they drop, and the queue that is watched.

use evenkeel_scenario::format::{Scenario, Workload};

use super::{BootedHost, BootedLab};
use crate::backlog::Backlog;
use crate::error::LabError;
use crate::host::clock::clock_offset_ns;
use crate::host::domain;
use crate::host::marking::MarkingPorts;
use crate::host::net::{self, Shaping, VmPort};
use crate::host::qdisc::BacklogSampler;
use crate::host::vm::Vm;
use crate::proto::{Answer, Op};
use crate::run::needs::segments_for_vms;
use crate::workload::Roles;

impl BootedLab {
    /// The devices of the lab's namespace that are shaped, with how.
    pub(super) fn bottlenecks<'s>(&self, scenario: &'s Scenario) -> Vec<(String, Shaping<'s>)> {
        let mut all: Vec<(String, Shaping)> = Vec::new();
        for workload in scenario.workloads.values() {
            for device in self.bottlenecks_of(workload, scenario) {
                if all.iter().all(|(other, _)| *other != device) {
                    all.push((device, shaping(scenario, &Roles::of(workload))));
                }
            }
        }
        all
    }

    /// Those of one workload: network cards of the hosts that send, if those are the bottleneck; else the switch's
    /// ports towards those that receive.
    fn bottlenecks_of(&self, workload: &Workload, scenario: &Scenario) -> Vec<String> {
        let roles = Roles::of(workload);
        if scenario.record.sender_nic { self.native_uplinks(&roles) } else { self.ports_towards(workload, &roles) }
    }

    /// Network cards of the hosts that send and are this machine's.
    fn native_uplinks(&self, roles: &Roles) -> Vec<String> {
        let native = self.sending_hosts(roles).filter(|host| host.domain.is_none());
        native.map(|host| host.host.uplink.clone()).collect()
    }

    /// The switch's port towards the receiver, or those towards all that receive in an open loop.
    fn ports_towards(&self, workload: &Workload, roles: &Roles) -> Vec<String> {
        let receivers = self.vms.iter().zip(&self.vm_ports).filter(|(vm, _)| vm.spec.group == roles.to);
        let ports = receivers.map(|(_, port)| port.switch_port.clone());
        match workload {
            Workload::Poisson { .. } => ports.collect(),
            _ => ports.take(1).collect(),
        }
    }

    fn sending_hosts(&self, roles: &Roles) -> impl Iterator<Item = &BootedHost> {
        self.hosts.iter().filter(|host| self.sends(host, roles))
    }

    fn sends(&self, host: &BootedHost, roles: &Roles) -> bool {
        host.vms.iter().any(|vm| self.vms[*vm].spec.group == roles.from)
    }

    /// Sets queues, MTU and rates; returns the program that marks at the bottlenecks, if they mark.
    pub(super) fn set_up_ports(
        &self,
        scenario: &Scenario,
        bottlenecks: &[(String, Shaping<'_>)],
    ) -> Result<Option<MarkingPorts>, LabError> {
        let network = &scenario.network;
        let queue_segments = |vm: usize| self.group(scenario, vm).port_queue_segments;
        let destinations = self.destinations.iter().map(|(vm, port)| (*vm, port));
        for (index, port) in self.vm_ports.iter().enumerate().chain(destinations) {
            port.configure(queue_segments(index), network.mtu_bytes)?;
        }
        for host in &self.hosts {
            host.host.configure(network.mtu_bytes)?;
            if let Some(domain) = host.domain() {
                let ports = self.ports_of(host).into_iter();
                let queues: Vec<_> = ports.map(|(vm, port)| (port, queue_segments(vm))).collect();
                domain::configure(domain, &host.host, &queues, network, segments_for_vms(scenario))?;
            }
        }
        for (device, shaping) in bottlenecks {
            net::shape(device, *shaping)?;
        }
        if scenario.record.sender_nic {
            self.shape_domains(scenario)?;
        }
        let threshold = network.queue.ecn_threshold_segments;
        let devices: Vec<String> = bottlenecks.iter().map(|(device, _)| device.clone()).collect();
        threshold.map(|segments| MarkingPorts::start(&devices, segments)).transpose()
    }

    /// Shapes the network cards of driver domains that send, each for the first workload in which it sends.
    fn shape_domains(&self, scenario: &Scenario) -> Result<(), LabError> {
        let all = Roles::of_all(scenario);
        for host in &self.hosts {
            let roles = all.iter().find(|roles| self.sends(host, roles));
            if let Some((domain, roles)) = host.domain().zip(roles) {
                domain::shape(domain, &host.host.uplink, shaping(scenario, roles))?;
            }
        }
        Ok(())
    }

    /// Watches the queue of the first workload's first bottleneck, if that is wanted: here, or in the driver domain
    /// that it is in.
    pub(super) fn watch_queue(&self, scenario: &Scenario, roles: &Roles) -> Result<Option<Watched<'_>>, LabError> {
        let period_ms = scenario.record.queue_period_ms;
        if period_ms == 0 {
            return Ok(None);
        }
        let kind = shaping(scenario, roles).kind();
        if let Some(device) = self.bottlenecks_of(scenario.workload(), scenario).first() {
            return BacklogSampler::start(device, kind, period_ms).map(|sampler| Some(Watched::Here(sampler)));
        }
        let Some((host, domain)) = self.sending_hosts(roles).find_map(|host| Some((host, host.domain()?))) else {
            return Ok(None);
        };
        let (device, kind) = (host.host.uplink.clone(), kind.to_owned());
        domain.call(Op::WatchQueue { device, kind, period_ms })?;
        Ok(Some(Watched::In(domain)))
    }

    /// What ports in the lab's namespace have dropped so far.
    pub(super) fn drops(&self) -> Result<u64, LabError> {
        let of_vms = self.vm_ports.iter().chain(self.destinations.values()).flat_map(VmPort::devices);
        net::drops(of_vms.chain(self.hosts.iter().flat_map(|host| host.host.devices())))
    }
}

/// The queue at the bottleneck.
pub(super) fn shaping<'s>(scenario: &'s Scenario, roles: &Roles) -> Shaping<'s> {
    let (network, sender) = (&scenario.network, &scenario.vms[roles.from]);
    let (rate_mbit, mtu_bytes) = (network.rate_mbit, network.mtu_bytes);
    match scenario.record.sender_nic {
        true => Shaping { rate_mbit, segments: sender.nic_queue_segments, queue: &sender.nic_queue, mtu_bytes },
        false => Shaping { rate_mbit, segments: network.buffer_segments, queue: &network.queue, mtu_bytes },
    }
}

/// A queue that is watched.
pub(super) enum Watched<'a> {
    /// In a namespace of this machine.
    Here(BacklogSampler),
    /// In a driver domain.
    In(&'a Vm),
}

impl Watched<'_> {
    pub(super) fn stop(self) -> Result<Backlog, LabError> {
        let domain = match self {
            Self::Here(sampler) => return Ok(sampler.stop()),
            Self::In(domain) => domain,
        };
        match domain.call(Op::Queue)? {
            Answer::Queue(mut backlog) => {
                let offset_ns = clock_offset_ns(domain)?;
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
