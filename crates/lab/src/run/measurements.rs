//! What metrics are made of, out of what was measured.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use evenkeel_scenario::format::{Scenario, VmGroup, Workload};
use evenkeel_scenario::metric::{
    Arrival, Bursts, CpuTime, Ended, LongLived, Measurements, Migration, PS_PER_US, Read, SocketSample, Trace, Traffic,
    Unfinished, Uplink, Vm, Waits,
};
use evenkeel_settings::Mode;

use super::counters::{camel, of_port};
use super::measured::{Counters, Measured, Moved, VmMeasured};
use crate::host::agent::Counted;
use crate::proto::{Recorded, RequestTime};

/// How counters' names begin, for the mechanisms that are on at any host.
fn mechanisms(scenario: &Scenario) -> Vec<String> {
    let all = scenario.vms.values().flat_map(VmGroup::mechanisms);
    let acting = all.filter(|mechanism| mechanism.is_on_hosts && mechanism.mode != Mode::Off);
    acting.map(|mechanism| camel("", mechanism.name)).collect()
}

/// What metrics are made of.
pub fn of(scenario: &Scenario, measured: &Measured) -> Measurements {
    let (from, _) = scenario.workload().roles();
    let senders: Vec<&VmMeasured> = measured.vms.iter().filter(|vm| vm.group == from).collect();
    let numbers = Numbers::of(&measured.vms);
    let (mut traffic, mut read) = (Vec::new(), vec![None; measured.vms.len()]);
    for (place, (_, one)) in scenario.alone().enumerate() {
        let own = Own { scenario: &one, place, measured, numbers: &numbers };
        let brought = own.traffic();
        let by_vm = own.read(&brought.ended);
        if scenario.workloads.len() == 1 {
            read = by_vm;
            traffic.push(brought);
        } else {
            traffic.push(Traffic { read: by_vm.into_iter().flatten().collect(), ..brought });
        }
    }
    let samples = senders.iter().filter_map(|vm| vm.recorded.first()).flat_map(|recorded| &recorded.sockets);
    let samples = samples.flat_map(|socket| &socket.samples);
    let backlog = &measured.backlog;
    let watched = scenario.record.sender_nic && !backlog.samples.is_empty();
    let cera_cuts = measured.agent.as_ref().and_then(|counted| counted.agent.get("cera_cuts"));
    let (marks, mechanisms) = (measured.marks, mechanisms(scenario));
    Measurements {
        duration_ps: ps(measured.duration),
        vms: measured.vms.iter().zip(read).map(of_vm).collect(),
        hosts: measured.agent.as_ref().map(|counted| of_hosts(&mechanisms, counted)).unwrap_or_default(),
        domains: measured.domains.iter().filter_map(|(_, counters)| cpu_time(counters)).collect(),
        vcpu_waits_ps: senders.iter().flat_map(|vm| &vm.waits).map(|wait| wait.waited_ns * PS_PER_NS).collect(),
        traffic,
        sockets: samples
            .map(|sample| SocketSample { rto_ps: u64::from(sample.rto_us) * PS_PER_US, srtt_us: sample.srtt_us })
            .collect(),
        trace: Trace {
            duplicate_acks: measured.trace.duplicate_acks,
            rto_runs: measured.trace.rto_runs,
            bursts: measured.trace.bursts.map(|bursts| Bursts {
                first_segments: bursts.first_segments,
                longest_segments: bursts.longest_segments,
                beyond_segments: bursts.beyond_segments,
            }),
        },
        dropped: measured.dropped + marks.map_or(0, |marks| marks.dropped),
        marked: marks.map(|marks| marks.marked),
        backlog_segments: backlog.samples.iter().map(|(_, segments)| *segments).collect(),
        uplink: watched.then(|| Uplink {
            sent_bytes: backlog.sent_bytes,
            watched_ps: ps(backlog.duration()),
            waits: Waits::Backlog { mean_bytes: backlog.waiting_bytes as f64 / backlog.samples.len() as f64 },
        }),
        cera_cuts: cera_cuts.filter(|_| mechanisms.iter().any(|name| name == "Cera")).map(|cuts| cuts.unsigned_abs()),
        migrations: measured.moved.iter().map(migration).collect(),
        pvtcp_reloads: (measured.reloaded > 0).then_some(measured.reloaded),
        kernel_complaints: Some(measured.complaints.len() as u64),
    }
}

const PS_PER_NS: u64 = 1000;

fn ps(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() * 1000).unwrap_or(u64::MAX)
}

/// Guests count microseconds: a shorter time counts as one.
fn at_least_one_us(us: u64) -> u64 {
    us.max(1) * PS_PER_US
}

fn of_vm((vm, read): (&VmMeasured, Option<Read>)) -> Vm {
    let (name, group, counters) = (vm.name.clone(), vm.group.clone(), vm.counters.0.clone());
    Vm { name, group, counters, cpu: cpu_time(&vm.counters), read }
}

/// None where nobody has read the processors' clocks.
fn cpu_time(counters: &Counters) -> Option<CpuTime> {
    let count = |name: &str| counters.0.get(name).copied();
    Some(CpuTime { busy_us: count("CpuBusyUs")?, idle_us: count("CpuIdleUs")? })
}

/// The counters of mechanisms that are on, summed over all ports, and the agents' own. An agent counts for the others,
/// too.
fn of_hosts(mechanisms: &[String], counted: &Counted) -> BTreeMap<String, i64> {
    let mut hosts: BTreeMap<String, i64> = BTreeMap::new();
    for (name, count) in counted.ports.values().flatten() {
        *hosts.entry(of_port(name)).or_default() += count;
    }
    if let Some(repeated) = counted.agent.get("syns_resent") {
        hosts.insert("ProboscisSynsRepeated".to_owned(), *repeated);
    }
    hosts.retain(|name, _| mechanisms.iter().any(|mechanism| name.starts_with(mechanism.as_str())));
    hosts
}

/// The VMs' numbers.
struct Numbers(HashMap<Ipv4Addr, u32>);

impl Numbers {
    fn of(vms: &[VmMeasured]) -> Self {
        Self(vms.iter().map(|vm| vm.address).zip(0..).collect())
    }

    fn get(&self, address: Ipv4Addr) -> Option<u32> {
        self.0.get(&address).copied()
    }
}

/// What was measured of one workload.
struct Own<'a> {
    /// The scenario with this workload alone.
    scenario: &'a Scenario,
    place: usize,
    measured: &'a Measured,
    numbers: &'a Numbers,
}

impl Own<'_> {
    /// What each VM recorded.
    fn recorded(&self) -> impl Iterator<Item = (&VmMeasured, &Recorded)> {
        self.measured.vms.iter().filter_map(|vm| Some((vm, vm.recorded.get(self.place)?)))
    }

    /// What the VMs of a group recorded.
    fn recorded_in<'s>(&'s self, group: &'s str) -> impl Iterator<Item = (&'s VmMeasured, &'s Recorded)> {
        self.recorded().filter(move |(vm, _)| vm.group == group)
    }

    /// What it brought, but for what was read.
    fn traffic(&self) -> Traffic {
        let (from, to) = self.scenario.workload().roles();
        let arrived = self.recorded().flat_map(|(_, recorded)| &recorded.arrived);
        let blocks = self.recorded_in(to).flat_map(|(_, recorded)| &recorded.blocks);
        let pings = self.recorded_in(from).flat_map(|(_, recorded)| &recorded.pings);
        Traffic {
            iperf3_bits_per_s: self.measured.iperf3.get(self.place).copied().flatten(),
            background_bytes: None,
            long_lived: self.recorded_in(to).flat_map(|(vm, recorded)| self.long_lived(vm, recorded)).collect(),
            ended: self.recorded().flat_map(|(vm, recorded)| self.ended(vm, recorded)).collect(),
            unfinished: self.recorded().flat_map(|(_, recorded)| unfinished(recorded)).collect(),
            blocks_ps: blocks.map(|(_, us)| us * PS_PER_US).collect(),
            rtts_ps: pings.map(|(_, us)| us * PS_PER_US).collect(),
            arrived: arrived
                .map(|transfer| Arrival {
                    longest_stall_ps: transfer.longest_stall_ns * PS_PER_NS,
                    is_damaged: transfer.is_damaged,
                })
                .collect(),
            read: Vec::new(),
        }
    }

    fn long_lived(&self, receiver: &VmMeasured, recorded: &Recorded) -> Vec<LongLived> {
        let Some(to) = self.numbers.get(receiver.address) else { return Vec::new() };
        let flow = |(peer, bytes): &(String, u64)| {
            let from = peer.parse::<SocketAddrV4>().ok().and_then(|peer| self.numbers.get(*peer.ip()));
            LongLived { from, to, bytes: *bytes }
        };
        recorded.received.iter().map(flow).collect()
    }

    fn ended(&self, vm: &VmMeasured, recorded: &Recorded) -> Vec<Ended> {
        // With a request and a response, the VM that asks receives the payload.
        let sends =
            matches!(self.scenario.workload(), Workload::Poisson { request_bytes: 0, .. } | Workload::Transfers { .. });
        let ended = |request: &RequestTime| {
            let (own, other) = (self.numbers.get(vm.address)?, self.numbers.get(request.to.parse().ok()?)?);
            let (from, to) = if sends { (own, other) } else { (other, own) };
            Some(Ended {
                from,
                to,
                bytes: request.bytes,
                start_ps: request.start_us * PS_PER_US,
                took_ps: at_least_one_us(request.took_us?),
                connected_took_ps: request.connected_took_us.map(at_least_one_us),
            })
        };
        recorded.requests.iter().filter_map(ended).collect()
    }

    /// What each VM read: its sinks, or the client of a strobe. Servers that answer requests count nothing, so ended
    /// requests count instead, with their responses. Transfers, uploads and pages are not counted as they come in.
    fn read(&self, ended: &[Ended]) -> Vec<Option<Read>> {
        let measured = self.measured;
        match self.scenario.workload() {
            Workload::RequestResponse { request_bytes, .. } => {
                let mut bytes = vec![0; measured.vms.len()];
                for flow in ended {
                    bytes[flow.to as usize] += flow.bytes;
                    bytes[flow.from as usize] += u64::from(*request_bytes);
                }
                bytes.into_iter().map(|bytes| Some(Read { bytes, during_ps: ps(measured.duration) })).collect()
            }
            Workload::Ping { .. }
            | Workload::Iperf3 { .. }
            | Workload::Poisson { .. }
            | Workload::Transfers { .. }
            | Workload::ThreeTier { .. } => vec![None; measured.vms.len()],
            Workload::Bulk { .. } | Workload::Strobe { .. } | Workload::Memcached { .. } => {
                let read = |(_, recorded): (&VmMeasured, &Recorded)| {
                    let received = &recorded.received;
                    let bytes = received.iter().map(|(_, bytes)| bytes).sum();
                    let read = Read { bytes, during_ps: at_least_one_us(recorded.measured_us) };
                    (!received.is_empty()).then_some(read)
                };
                self.recorded().map(read).collect()
            }
        }
    }
}

fn unfinished(recorded: &Recorded) -> Vec<Unfinished> {
    let under_way = recorded.requests.iter().filter(|request| request.took_us.is_none());
    let waited_us = |request: &RequestTime| recorded.measured_us.saturating_sub(request.start_us);
    under_way.map(|r| Unfinished { bytes: r.bytes, waited_ps: waited_us(r) * PS_PER_US }).collect()
}

fn migration(moved: &Moved) -> Migration {
    Migration {
        offline_ps: moved.offline.map(ps),
        total_ms: moved.migrated.total_ms,
        downtime_ms: moved.migrated.downtime_ms,
        online_ps: moved.online.map(ps),
    }
}

#[cfg(test)]
mod tests;
