//! What was measured in a run, and the part of it from which metrics are computed.

use std::collections::BTreeMap;

use evenkeel_scenario::format::{Scenario, VmGroup};
use evenkeel_scenario::metric::{
    self, CpuTime, Ended, LongLived, Measurements, Read, SocketSample, Trace, Unfinished, Uplink, Vm, Waits,
};
use evenkeel_settings::Mode;

use super::recorder::Recorder;
use crate::packet::GuestId;
use crate::time::{Duration, Instant};
use crate::workload::{FlowDone, Recording, Timed};

/// What a VM counted in the measured time.
#[derive(Clone, Debug)]
pub struct VmMeasured {
    /// As in `sender-0`.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its counters' increase.
    pub counters: BTreeMap<String, i64>,
}

/// What a workload has transferred and recorded.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Long-lived flows: sender, receiver, and the bytes that the receiver read.
    pub long_lived: Vec<(GuestId, GuestId, u64)>,
    /// Bytes that the receivers of background flows read.
    pub background_bytes: u64,
    /// Bytes that its receivers read in all.
    pub read_bytes: u64,
    /// What its processes recorded.
    pub recording: Recording,
}

impl Traffic {
    /// Takes the input of metrics: what happened in `during_ps` after the mark. `is_alone`: all that VMs read belongs
    /// to this workload.
    fn take(&mut self, mark: Instant, during_ps: u64, is_alone: bool) -> metric::Traffic {
        let read = (!is_alone).then_some(Read { bytes: self.read_bytes, during_ps });
        let recording = &mut self.recording;
        metric::Traffic {
            background_bytes: Some(self.background_bytes),
            long_lived: self.long_lived.iter().map(long_lived).collect(),
            // Moved instead of copied, because there can be millions.
            ended: std::mem::take(&mut recording.flows).into_iter().map(|flow| ended(&flow, mark)).collect(),
            unfinished: recording
                .unfinished
                .iter()
                .map(|flow| Unfinished { bytes: flow.bytes, waited_ps: flow.waited.ps() })
                .collect(),
            blocks_ps: times(&recording.blocks),
            rtts_ps: times(&recording.pings),
            read: read.into_iter().collect(),
            ..metric::Traffic::default()
        }
    }
}

/// All that was measured in a run.
#[derive(Debug)]
pub struct Measured {
    /// When the measured time began.
    pub mark: Instant,
    /// Measured time.
    pub duration: Duration,
    /// By number of the guest.
    pub vms: Vec<VmMeasured>,
    /// Packets dropped at ports: of the network, of network cards, of VMs.
    pub dropped: u64,
    /// Packets marked at ports.
    pub marked: u64,
    /// Epochs at whose end CERA cut windows.
    pub cuts: u64,
    /// Bytes on the wire that the first sender's network card sent.
    pub uplink_bytes: u64,
    /// By workload.
    pub traffic: Vec<Traffic>,
    /// Series and packets.
    pub recorder: Recorder,
    /// The times in which the VM whose wake-up is shown was off its core.
    pub off: Vec<(Instant, Instant)>,
}

impl Measured {
    /// Takes the input of metrics. It is moved, except for data that series need as well.
    pub(super) fn take_measurements(&mut self, scenario: &Scenario) -> Measurements {
        let (mark, duration_ps) = (self.mark, self.duration.ps());
        let rto_runs = self.recorder.rto_runs();
        let (from, _) = scenario.workload().roles();
        let first = self.vms.iter().find(|vm| vm.group == from);
        let duplicate_acks = first.and_then(|vm| vm.counters.get("SimDupAcksReceived")).map(|acks| *acks as u64);
        let samples = self.recorder.sockets.iter().flat_map(|socket| &socket.samples);
        let sockets = samples.map(|(_, info)| SocketSample { rto_ps: info.rto.ps(), srtt_us: info.srtt_us }).collect();
        let has_cera = scenario.vms.values().any(|group| group.cera.mode() != Mode::Off);
        // Known to be 0 even if no VM has a client or a port that counts.
        let of_cera = ["CeraWindowsSet", "CeraWindowsLimited"].map(|counter| (counter.to_owned(), 0));
        let uplink = scenario.record.sender_nic.then(|| Uplink {
            sent_bytes: self.uplink_bytes,
            watched_ps: duration_ps,
            waits: Waits::Packets {
                all_ps: picoseconds(std::mem::take(&mut self.recorder.waits)),
                first_ps: picoseconds(std::mem::take(&mut self.recorder.first_waits)),
            },
        });
        let is_alone = self.traffic.len() == 1;
        Measurements {
            duration_ps,
            vms: std::mem::take(&mut self.vms).into_iter().map(|vm| vm.measured(scenario, duration_ps)).collect(),
            vcpu_waits_ps: picoseconds(std::mem::take(&mut self.recorder.vcpu_waits)),
            hosts: if has_cera { of_cera.into() } else { BTreeMap::new() },
            traffic: self.traffic.iter_mut().map(|traffic| traffic.take(mark, duration_ps, is_alone)).collect(),
            sockets,
            trace: Trace { duplicate_acks: duplicate_acks.filter(|_| rto_runs.is_some()), rto_runs, bursts: None },
            dropped: self.dropped,
            marked: Some(self.marked),
            backlog_segments: self.recorder.queue.iter().map(|(_, segments)| *segments).collect(),
            uplink,
            cera_cuts: has_cera.then_some(self.cuts),
            ..Measurements::default()
        }
    }
}

impl VmMeasured {
    fn measured(self, scenario: &Scenario, duration_ps: u64) -> Vm {
        let count = |name: &str| self.counters.get(name).copied().unwrap_or(0);
        // A virtual CPU whose packets cost nothing and which computes nothing else is always idle.
        let works = |group: &VmGroup| group.packet_cost_ns > 0 || group.own_load.is_some();
        let costs = scenario.vms.get(&self.group).is_some_and(works);
        let cpu = costs.then(|| CpuTime { busy_us: count("CpuBusyUs"), idle_us: count("CpuIdleUs") });
        let read = Read { bytes: count("SimDeliveredBytes").unsigned_abs(), during_ps: duration_ps };
        Vm { name: self.name, group: self.group, counters: self.counters, cpu, read: Some(read) }
    }
}

fn picoseconds(times: Vec<Duration>) -> Vec<u64> {
    times.into_iter().map(Duration::ps).collect()
}

fn times(timed: &[Timed]) -> Vec<u64> {
    timed.iter().map(|timed| timed.took.ps()).collect()
}

fn long_lived((from, to, bytes): &(GuestId, GuestId, u64)) -> LongLived {
    LongLived { from: Some(from.0), to: to.0, bytes: *bytes }
}

fn ended(flow: &FlowDone, mark: Instant) -> Ended {
    Ended {
        from: flow.from.0,
        to: flow.to.0,
        bytes: flow.bytes,
        start_ps: flow.start.since(mark).ps(),
        took_ps: flow.took.ps(),
        connected_took_ps: flow.connected_took.map(Duration::ps),
    }
}
