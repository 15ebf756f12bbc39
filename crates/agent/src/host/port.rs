//! A port's settings as the datapath and the logic have them.

use evenkeel_algo::ack_filter;
use evenkeel_algo::proboscis::Settings;

use super::config::{Mode, PortSettings};
use super::endpoint::Endpoint;
use super::links::{Kind, Link};
use crate::datapath::intf;

impl PortSettings {
    /// With what has to rest on a port whose VM is about to leave.
    pub(super) fn while_offline(mut self, is_offline: bool) -> Self {
        if is_offline {
            self.vflood.mode = Mode::Off;
            self.cera.mode = Mode::Off;
        }
        self
    }

    /// As the datapath has them.
    pub(super) fn to_intf(&self, link: &Link, endpoint: Endpoint) -> intf::ek_port {
        let p = &self.proboscis;
        intf::ek_port {
            proboscis: intf::ek_proboscis_settings {
                mode: p.mode.to_intf(),
                ecn_for_guests: u32::from(p.ecn_for_guests),
                settings: intf::proboscis_settings {
                    probes: p.g_probes.get(),
                    k1_permille: p.k1_permille.get(),
                    k2_permille: p.k2_permille.get(),
                    k_percent: p.k_percent.get(),
                    b1_us: p.b1_us.get(),
                    b2_us: p.b2_us.get(),
                    b3_us: p.b3_us.get(),
                    max_time_us: p.max_time_us.get(),
                    icwnd_segments: p.icwnd_segments.get(),
                    budget_probes_per_s: p.budget_probes_per_s.get(),
                    budget_burst_probes: p.budget_burst_probes.get(),
                    elephant_bytes: u64::from(p.elephant_bytes.get()),
                    ..Default::default()
                },
            },
            vsnoop: self.vsnoop_to_intf(link, endpoint),
            cera: intf::ek_cera_settings { mode: self.cera.mode.to_intf(), ..Default::default() },
            vflood: self.vflood_to_intf(link),
            // Where its state is, and since when it is read, is the datapath's affair.
            ..Default::default()
        }
    }

    fn vflood_to_intf(&self, link: &Link) -> intf::ek_vflood_settings {
        let queue_segments = self.queue_segments(link);
        let unread_acks = ack_filter::limit(queue_segments);
        let free_places = if link.kind == Kind::Tap { queue_segments.saturating_sub(unread_acks).max(1) } else { 0 };
        intf::ek_vflood_settings { unread_acks, free_places, ..self.vflood.to_intf() }
    }

    /// What the port's queue takes.
    fn queue_segments(&self, link: &Link) -> u32 {
        self.port_queue_segments.get().max(link.queue_segments)
    }

    /// Off on what is no tap: nobody knows what room there is in its queue.
    pub(super) fn vsnoop_to_intf(&self, link: &Link, endpoint: Endpoint) -> intf::ek_vsnoop_settings {
        let queue_segments = self.queue_segments(link);
        let cpus = libbpf_rs::num_possible_cpus().map_or(1, |cpus| u32::try_from(cpus).unwrap_or(u32::MAX));
        intf::ek_vsnoop_settings {
            mode: if link.kind == Kind::Tap { self.vsnoop.mode.to_intf() } else { intf::EK_MODE_OFF },
            settings: intf::vsnoop_settings { budget_segments: self.vsnoop.budget_segments(queue_segments) },
            // Each CPU may put one packet in meanwhile, of 64 segments if the tap does not take them whole.
            reserve_segments: cpus.saturating_mul(64).clamp(queue_segments / 4, (queue_segments / 2).max(1)),
            endpoint: endpoint.to_intf(),
        }
    }

    /// As the logic has them.
    pub(super) fn to_algo(&self) -> Settings {
        let p = &self.proboscis;
        Settings {
            probes: p.g_probes.get(),
            b1_us: p.b1_us.get(),
            b2_us: p.b2_us.get(),
            b3_us: p.b3_us.get(),
            max_time_us: p.max_time_us.get(),
        }
    }
}
