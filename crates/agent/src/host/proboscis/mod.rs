//! ProBoSCIS on this host: the parts that need timers. Probes and SYNs that nobody answers are sent again, and SYN-ACKs
//! wait for late probes. The programs are those of `kernel/host/proboscis`.

mod explain;
pub mod keys;
pub mod metrics;
mod resend;

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_algo::proboscis::Settings;
use evenkeel_settings::Mode;
use evenkeel_settings::host::PortSettings;
use evenkeel_settings::proboscis::Proboscis;

use self::resend::{Facts, Resend, Send};
use super::control::proto::{self, ExplainedFlow, Status};
use super::error::HostError;
use super::mechanism::{Asked, Mechanism, Presence, Tools, mode_to_intf};
use super::port::{Port, Ports};
use crate::common::clock::now_ns;
use crate::datapath::{Datapath, DatapathError, Events, intf};

/// ProBoSCIS's wing.
#[derive(Debug, Default)]
pub(super) struct Wing {
    resend: Resend,
    sends_failed: u64,
    events_unread: u64,
    events_found_waiting: u64,
}

/// What was read of the datapath's events.
struct Read {
    events: usize,
    are_all: bool,
}

/// What the timers ask about.
struct View<'a> {
    datapath: &'a Datapath,
    ports: &'a Ports,
}

impl Facts for View<'_> {
    fn settings(&self, ifindex: u32) -> Option<Settings> {
        let proboscis = &self.ports.get(&ifindex)?.settings.proboscis;
        (proboscis.mode == Mode::Enforce).then(|| proboscis.timers())
    }

    fn trains_sent(&self, flow: &intf::ek_flow_key, iss: u32) -> Option<u8> {
        let handshake = self.datapath.handshake(flow).ok().flatten()?;
        (handshake.iss == iss && handshake.from_vm == 1).then_some(handshake.trains)
    }

    fn is_train_complete(&self, flow: &intf::ek_flow_key, iss: u32) -> bool {
        let key = intf::ek_train_key { flow: *flow, iss };
        // What cannot be read is not worth waiting for.
        let train = self.datapath.train(&key).ok().flatten();
        train.is_none_or(|train| train.count.seen >= train.count.total)
    }
}

/// Settings as the datapath has them.
fn to_intf(proboscis: &Proboscis) -> intf::ek_proboscis_settings {
    intf::ek_proboscis_settings {
        mode: mode_to_intf(proboscis.mode),
        ecn_for_guests: u32::from(proboscis.ecn_for_guests),
        settings: intf::proboscis_settings {
            probes: proboscis.g_probes.get(),
            k1_permille: proboscis.k1_permille.get(),
            k2_permille: proboscis.k2_permille.get(),
            k_percent: proboscis.k_percent.get(),
            b1_us: proboscis.b1_us.get(),
            b2_us: proboscis.b2_us.get(),
            b3_us: proboscis.b3_us.get(),
            max_time_us: proboscis.max_time_us.get(),
            icwnd_segments: proboscis.icwnd_segments.get(),
            answers: u32::from(proboscis.answers),
            budget_probes_per_s: proboscis.budget_probes_per_s.get(),
            budget_burst_probes: proboscis.budget_burst_probes.get(),
            elephant_bytes: u64::from(proboscis.elephant_bytes.get()),
        },
    }
}

impl Wing {
    /// Reads the datapath's events and acts on them. Returns whether all were read: only then does a new one wake the
    /// agent.
    pub fn events(&mut self, ports: &Ports, datapath: &mut Datapath) -> bool {
        self.read(ports, datapath).are_all
    }

    fn read(&mut self, ports: &Ports, datapath: &mut Datapath) -> Read {
        let Events { events, are_all } = match datapath.events() {
            Ok(events) => events,
            Err(error) => {
                tracing::warn!(%error, "cannot read the datapath's events");
                self.events_unread += 1;
                return Read { events: 0, are_all: true };
            }
        };
        let read = Read { events: events.len(), are_all };
        let now_us = now_ns() / 1000;
        let view = View { datapath, ports };
        let sends: Vec<Send> =
            events.into_iter().filter_map(|event| self.resend.event(Box::new(event), now_us, &view)).collect();
        self.send(sends, datapath);
        read
    }

    /// Reads the events that nobody was woken up for.
    fn watch(&mut self, ports: &Ports, datapath: &mut Datapath) {
        if !datapath.events_wait() {
            return;
        }
        let Read { events, .. } = self.read(ports, datapath);
        // If there are none, a program is still writing the first one.
        if events > 0 {
            self.events_found_waiting += 1;
            tracing::error!(events, "events of the datapath were waiting, and nobody was woken up for them");
        }
    }

    /// Everything whose time has come.
    pub fn expire(&mut self, ports: &Ports, datapath: &mut Datapath) {
        let sends = self.resend.expire(now_ns() / 1000, &View { datapath, ports });
        self.send(sends, datapath);
    }

    /// How long until [`expire`](Self::expire) is to be called.
    pub fn due_in(&self) -> Option<Duration> {
        let due_us = self.resend.due_us()?;
        Some(Duration::from_nanos(due_us.saturating_mul(1000).saturating_sub(now_ns())))
    }

    /// The agent is going: what it holds goes out.
    pub fn drain(&mut self, ports: &Ports, datapath: &mut Datapath) {
        self.events(ports, datapath);
        let sends = self.resend.drain();
        self.send(sends, datapath);
    }

    fn send(&mut self, sends: Vec<Send>, datapath: &mut Datapath) {
        for send in sends {
            let outcome = match &send {
                Send::Syn { event, probes, train, with_syn } => datapath.inject(event, *probes, *train, *with_syn),
                Send::SynAck { event } => datapath.inject(event, 0, 0, true),
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "cannot send");
                self.sends_failed += 1;
            }
        }
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let resend = self.resend.counts();
        BTreeMap::from([
            ("probes_resent", resend.probes_resent),
            ("syns_resent", resend.syns_resent),
            ("syns_given_up", resend.syns_given_up),
            ("synacks_in_time", resend.synacks_in_time),
            ("synacks_late", resend.synacks_late),
            ("timers_refused", resend.overflows),
            ("sends_failed", self.sends_failed),
            ("events_unread", self.events_unread),
            ("events_found_waiting", self.events_found_waiting),
        ])
    }
}

impl Mechanism for Wing {
    fn configure(&mut self, port: &Port, _: &mut Tools<'_>, own: &mut intf::ek_port) -> Result<(), DatapathError> {
        own.proboscis = to_intf(&port.settings.proboscis);
        Ok(())
    }

    /// Drops what waits for the port, so that a new device with its index is not sent it.
    fn gone(&mut self, ifindex: u32) {
        self.resend.gone(ifindex);
    }

    /// SYN-ACKs are held for the agent.
    fn presence(&self, settings: &PortSettings) -> Presence {
        if settings.proboscis.mode == Mode::Enforce { Presence::Close } else { Presence::None }
    }

    fn tick(&mut self, ports: &mut Ports, tools: &mut Tools<'_>) {
        self.watch(ports, tools.datapath);
    }

    fn port_status(&self, port: &Port, _: &mut Tools<'_>, shown: &mut proto::Port) -> Result<(), HostError> {
        shown.mode = port.settings.proboscis.mode;
        Ok(())
    }

    fn status(&self, status: &mut Status) {
        (status.syns_pending, status.synacks_held) = self.resend.waiting();
        status.agent.extend(self.counts().into_iter().map(|(name, count)| (name.to_owned(), count)));
    }

    fn explain(
        &self,
        port: &Port,
        asked: Asked<'_>,
        _tools: &Tools<'_>,
        shown: &mut ExplainedFlow,
    ) -> Result<(), HostError> {
        if asked.in_words {
            shown.words.extend(explain::explain(&shown.flow, &port.settings.proboscis));
        }
        Ok(())
    }
}
