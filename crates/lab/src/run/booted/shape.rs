//! The hosts and VMs that a scenario asks for.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use evenkeel_scenario::format::{HostKind, MachineKind, Scenario, Store, VmGroup};

use super::{BootedHost, CHANNEL, channel_of};
use crate::host::net::{HostBridge, VmPort};
use crate::host::vm::{Channel, Nic, System, VmSpec};
use crate::run::Shared;
use crate::run::hosts::named_hosts;
use crate::run::needs::{groups_with_database, segments_for_vms};

/// The hosts of a scenario, none of them booted.
pub(super) fn hosts(scenario: &Scenario, own_hosts: bool) -> Vec<BootedHost> {
    let mut hosts: Vec<BootedHost> = Vec::new();
    let named = named_hosts(scenario);
    // Positions in `hosts`, by the host's number in the scenario's placement.
    let mut positions: BTreeMap<u32, usize> = BTreeMap::new();
    let mut first = 0;
    for (name, group) in &scenario.vms {
        let vms: Vec<usize> = (first..first + group.count as usize).collect();
        first += vms.len();
        if !own_hosts || !group.hypervisor {
            continue;
        }
        if let Some(named) = named.get(name.as_str()) {
            for (vm, place) in vms.into_iter().zip(named) {
                let position = *positions.entry(*place).or_insert_with(|| {
                    let number = u8::try_from(hosts.len() + 1).unwrap_or(u8::MAX);
                    let host = HostBridge::new(number, group.host == HostKind::Vm);
                    hosts.push(BootedHost { host, vms: Vec::new(), awaits: None, domain: None });
                    hosts.len() - 1
                });
                hosts[position].vms.push(vm);
            }
            continue;
        }
        let one_to_move_to = group.migrate_at_ms.and(vms.first()).map(|vm| (Vec::new(), Some(*vm)));
        let own = vms.chunks(group.per_host as usize).map(|vms| (vms.to_vec(), None));
        for (vms, awaits) in own.chain(one_to_move_to) {
            let number = u8::try_from(hosts.len() + 1).unwrap_or(u8::MAX);
            let host = HostBridge::new(number, group.host == HostKind::Vm);
            hosts.push(BootedHost { host, vms, awaits, domain: None });
        }
    }
    hosts
}

/// The VMs of a scenario, none of them booted.
pub(super) fn specs(scenario: &Scenario, shared: &Shared, directory: &Path) -> Vec<VmSpec> {
    let mut number: u8 = 0;
    let mut specs = Vec::new();
    let with_database = groups_with_database(scenario);
    for (group, VmGroup { count, kernel, vcpus, memory_mib, machine, hypervisor, host, .. }) in &scenario.vms {
        for index in 0..*count {
            number += 1;
            let name = format!("{group}-{index}");
            let channel = Channel { name: CHANNEL.to_owned(), socket: channel_of(&name, directory), listens: true };
            let is_database = with_database.contains(group.as_str()) && index == Store::Database as u32;
            let images = if is_database { &shared.database_images } else { &shared.images };
            let (system, vcpu_threads) = match machine {
                MachineKind::Vm => (System::Booted(images[kernel].clone()), shared.vcpu_threads(*vcpus)),
                MachineKind::Namespace => (System::Namespace(shared.userland()), 0),
            };
            specs.push(VmSpec {
                name,
                group: group.clone(),
                number: index,
                system,
                vcpus: *vcpus,
                vcpu_threads,
                memory_mib: *memory_mib,
                nics: vec![Nic {
                    tap: VmPort::new(number, None).tap,
                    mac: format!("52:54:00:00:00:{number:02x}"),
                    segmentation_offload: match *hypervisor && *host == HostKind::Vm {
                        true => segments_for_vms(scenario),
                        false => scenario.network.segmentation_offload,
                    },
                }],
                address: Ipv4Addr::new(10, 0, 0, number),
                channels: vec![channel],
                accelerator: shared.lab.accelerator,
            });
        }
    }
    specs
}
