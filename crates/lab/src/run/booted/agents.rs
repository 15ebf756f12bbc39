//! The agents of a run: of hosts, and of guests.

use evenkeel_scenario::format::{Scenario, VmGroup, Vsnoop};
use evenkeel_settings::Mode;

use super::{BootedHost, BootedLab};
use crate::error::LabError;
use crate::host::agent::{self, Agent, Mechanism, Port};
use crate::host::net::VmPort;
use crate::host::seat::{Here, InDomain};
use crate::host::vm::Vm;
use crate::run::Shared;
use crate::run::guest_agent::{self, GuestAgent};
use crate::run::needs::wants_agent;

impl BootedLab {
    /// Starts the host agents: one for all hosts that are this machine's, one in each driver domain. Those that no
    /// group wants are not started.
    pub(super) fn start_agents(&self, scenario: &Scenario, shared: &Shared) -> Result<Vec<Agent<'_>>, LabError> {
        let wanted =
            |host: &&BootedHost| self.ports_of(host).iter().any(|(vm, _)| wants_agent(self.group(scenario, *vm)));
        let (domains, native): (Vec<_>, Vec<_>) = self.hosts.iter().partition(|host| host.domain.is_some());
        let mut agents = Vec::new();
        let mut ports = if native.iter().any(wanted) { self.agent_ports(scenario, &native)? } else { Vec::new() };
        // vSnoop needs the VM's own port, which is a tap of this machine: it stands between the VM and its driver
        // domain.
        for (vm, vm_port) in domains.iter().flat_map(|host| self.ports_of(host)) {
            let (group, spec) = (self.group(scenario, vm), &self.vms[vm].spec);
            if group.vsnoop.mode() != Mode::Off {
                ports.push(Port::of(&vm_port.tap, "", group, spec.number)?.with_only(Mechanism::Vsnoop));
            }
        }
        if !ports.is_empty() {
            let seat = Here::new(&shared.lab.evenkeel, &self.directory.path().join("agent"))?;
            agents.push(Agent::start(Box::new(seat), &ports, &shared.interrupt)?);
        }
        let only_vsnoop = |vm: usize| {
            let group = self.group(scenario, vm);
            !wants_agent(&VmGroup { vsnoop: Vsnoop::default(), ..group.clone() })
        };
        let wanted = |host: &&BootedHost| wanted(host) && !self.ports_of(host).iter().all(|(vm, _)| only_vsnoop(*vm));
        for host in domains.into_iter().filter(wanted) {
            if let Some(domain) = host.domain() {
                let ports = self.agent_ports(scenario, &[host])?;
                agents.push(Agent::start(Box::new(InDomain::new(domain)?), &ports, &shared.interrupt)?);
            }
        }
        Ok(agents)
    }

    pub(super) fn start_guest_agents(
        &self,
        scenario: &Scenario,
        shared: &Shared,
    ) -> Result<Vec<GuestAgent<'_>>, LabError> {
        let wanted = |vm: &&Vm| guest_agent::is_wanted(&scenario.vms[&vm.spec.group], vm.spec.number);
        let vms = self.vms.iter().filter(wanted);
        vms.map(|vm| GuestAgent::start(vm, &scenario.vms[&vm.spec.group], &shared.interrupt)).collect()
    }

    fn agent_ports(&self, scenario: &Scenario, hosts: &[&BootedHost]) -> Result<Vec<agent::Port>, LabError> {
        let on_host = |host: &&BootedHost| {
            let port = |(vm, vm_port): (usize, &VmPort)| {
                let (spec, group) = (&self.vms[vm].spec, self.group(scenario, vm));
                let port = Port::of(&vm_port.tap, &host.host.uplink, group, spec.number)?;
                let port = if host.domain.is_some() { port.without(Mechanism::Vsnoop) } else { port };
                if !guest_agent::is_wanted(group, spec.number) {
                    return Ok(port);
                }
                let channel = match &host.domain {
                    None => self.channel_at(vm, vm_port),
                    Some((_, channels)) => channels.get(&vm_port.tap).cloned().unwrap_or_default(),
                };
                Ok(port.with_channel(&channel))
            };
            self.ports_of(host).into_iter().map(port).collect::<Vec<_>>()
        };
        hosts.iter().flat_map(on_host).collect()
    }
}

/// What all agents have counted; None without any.
pub(super) fn read(agents: &mut [Agent<'_>]) -> Result<Option<agent::Counted>, LabError> {
    let counted = agents.iter_mut().map(Agent::read).collect::<Result<Vec<_>, _>>()?;
    Ok(counted.into_iter().reduce(agent::Counted::and))
}
