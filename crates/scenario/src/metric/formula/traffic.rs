//! What the workload brought: payload, blocks, round trips.

use std::collections::BTreeMap;

use evenkeel_settings::Mode;

use super::statistics::Statistic;
use super::{Run, mbit, milliseconds};
use crate::format::Workload;
use crate::metric::Read;

impl Run<'_> {
    /// Mbit/s, from what the receivers' applications read; of iperf3 from its own figure.
    pub(super) fn goodput_mbit(&self) -> Option<f64> {
        match self.scenario.workload() {
            Workload::Ping { .. } => return None,
            Workload::Iperf3 { .. } => return self.iperf3_mbit(),
            _ => {}
        }
        let of_vms = self.receivers.iter().filter_map(|vm| vm.read.as_ref());
        let own = &self.traffic.read;
        let reads: Vec<&Read> = if own.is_empty() { of_vms.collect() } else { own.iter().collect() };
        // Bytes that were counted over the same time are added up before they are divided.
        let mut bytes: BTreeMap<u64, u64> = BTreeMap::new();
        for read in reads {
            *bytes.entry(read.during_ps).or_default() += read.bytes;
        }
        let goodput = bytes.iter().map(|(during_ps, bytes)| mbit(*bytes, *during_ps));
        goodput.reduce(|sum, mbit| sum + mbit)
    }

    /// Mbit/s, from what applications read of a Poisson process's long-lived flows, or from iperf3's own figure.
    pub(super) fn background_goodput_mbit(&self) -> Option<f64> {
        let has_background = matches!(
            self.scenario.workload(),
            Workload::Poisson { background_flows: 1.., .. } | Workload::Poisson { background_mesh_flows: 1.., .. }
        );
        let counted = || self.traffic.background_bytes.map(|bytes| mbit(bytes, self.measured.duration_ps));
        self.iperf3_mbit().or_else(counted).filter(|_| has_background)
    }

    fn iperf3_mbit(&self) -> Option<f64> {
        self.traffic.iperf3_bits_per_s.map(|bits| bits / 1e6)
    }

    /// A number, from strobe requests that began in the measured time.
    pub(super) fn blocks(&self) -> Option<f64> {
        let blocks = self.traffic.blocks_ps.len();
        (blocks > 0).then_some(blocks as f64)
    }

    /// Milliseconds, from the same.
    pub(super) fn block_ms(&self, statistic: Statistic) -> Option<f64> {
        let blocks: Vec<f64> = self.traffic.blocks_ps.iter().copied().map(milliseconds).collect();
        statistic.of(&blocks)
    }

    /// Milliseconds, from echo requests and their replies.
    pub(super) fn rtt_ms(&self, statistic: Statistic) -> Option<f64> {
        let rtts: Vec<f64> = self.traffic.rtts_ps.iter().copied().map(milliseconds).collect();
        statistic.of(&rtts)
    }

    /// Percent, from the bytes of long-lived flows: the largest deviation of a VM's share from its weight's
    /// (`cera.weights`).
    pub(super) fn weight_error(&self) -> Option<f64> {
        if self.scenario.vms.values().all(|group| group.cera.mode() == Mode::Off) {
            return None;
        }
        let (name, _) = self.scenario.workload().roles();
        let cera = &self.scenario.vms.get(name)?.cera;
        let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
        for (from, sent) in self.traffic.long_lived.iter().filter_map(|flow| Some((flow.from?, flow.bytes))) {
            *bytes.entry(from).or_default() += sent;
        }
        let first = (0..).zip(&self.measured.vms).find(|(_, vm)| vm.group == name)?.0;
        let weight = |vm: u32| f64::from(cera.weight_of(vm.saturating_sub(first)).get());
        let all_bytes = bytes.values().sum::<u64>() as f64;
        let all_weights: f64 = bytes.keys().map(|vm| weight(*vm)).sum();
        let error = |(vm, sent): (&u32, &u64)| {
            let share = weight(*vm) / all_weights;
            100.0 * (*sent as f64 / all_bytes - share).abs() / share
        };
        bytes.iter().map(error).reduce(f64::max)
    }

    /// Percent of an equal share, from the bytes of long-lived flows: what the senders with vFlood (`vflood.clients`)
    /// have.
    pub(super) fn vflood_share(&self) -> Option<f64> {
        let (name, _) = self.scenario.workload().roles();
        let group = self.scenario.vms.get(name)?;
        let clients = group.vflood.clients?;
        let senders: Vec<u32> =
            (0..).zip(&self.measured.vms).filter(|(_, vm)| vm.group == name).map(|(number, _)| number).collect();
        let bytes = |of: &[u32]| -> u64 {
            let own = self.traffic.long_lived.iter().filter(|flow| flow.from.is_some_and(|from| of.contains(&from)));
            own.map(|flow| flow.bytes).sum()
        };
        let (own, all) = (bytes(&senders[..senders.len().min(clients as usize)]), bytes(&senders));
        (all > 0).then(|| 100.0 * own as f64 / all as f64 * f64::from(group.count) / f64::from(clients))
    }
}
