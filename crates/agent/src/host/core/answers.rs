//! What the agent says when it is asked: its ports, its counters, its connections.

use std::collections::{BTreeMap, HashMap};

use super::{Core, Port, Waiting};
use crate::channel::Reasons;
use crate::common::clock::now_ns;
use crate::datapath::{COUNTERS, Datapath, intf};
use crate::host::cera;
use crate::host::config::Mode;
use crate::host::control::proto::{self, ExplainedFlow, Response, Status, Tuple};
use crate::host::doubt::Doubt;
use crate::host::endpoint::Endpoint;
use crate::host::error::HostError;
use crate::host::flow::Flow;
use crate::host::links::Kind;
use crate::host::metrics::AGENT_COUNTERS;
use crate::host::vflood::{VfloodFlow, VfloodPort};
use crate::host::vsnoop::{Place, VsnoopFlow, VsnoopPort};

impl Port {
    fn vflood(&self, ifindex: u32, datapath: &Datapath) -> Result<Option<VfloodPort>, HostError> {
        let settings = &self.settings.vflood;
        let held = datapath.held(ifindex)?;
        // Off, and nothing waits to be let out.
        if settings.mode == Mode::Off && held.is_none() {
            return Ok(None);
        }
        let vm = held.unwrap_or_default().vm;
        Ok(Some(VfloodPort {
            mode: settings.mode,
            trouble: datapath.cannot_hold(ifindex).map(ToString::to_string),
            rests: self.rest.passes_over(),
            connections: datapath.managed_of(ifindex)?.unwrap_or_default(),
            held_segments: vm.held_segments,
            promised_segments: vm.promised_segments,
            buffer_segments: settings.buffer_segments.get(),
        }))
    }

    fn vsnoop(&self, datapath: &mut Datapath, said: Option<Reasons>) -> Result<VsnoopPort, HostError> {
        let own = self.settings.vsnoop_to_intf(&self.link, self.endpoint);
        let ifindex = self.link.ifindex;
        let place = match self.link.kind {
            Kind::Tap => Place::of(datapath.place(ifindex, own.reserve_segments.saturating_add(1))?),
            Kind::Macvtap | Kind::Other => Place::NoTap,
        };
        let vm = datapath.snoop_port(ifindex)?.vm;
        Ok(VsnoopPort {
            mode: self.settings.vsnoop.mode,
            budget_segments: own.settings.budget_segments,
            outstanding_segments: vm.outstanding,
            place,
            endpoint: datapath.endpoint(ifindex)?.map_or(Endpoint::Unknown, Endpoint::from_intf),
            objections: said.map(Reasons::words).unwrap_or_default(),
            doubt: Doubt::from_intf(vm.doubt),
        })
    }
}

impl Core {
    /// What the agent does.
    ///
    /// # Errors
    /// [`HostError::Datapath`] if its maps cannot be read.
    pub fn status(&mut self) -> Result<Status, HostError> {
        let mut counters: BTreeMap<String, u64> = COUNTERS.iter().map(|(name, _)| ((*name).to_owned(), 0)).collect();
        let view = self.cera.as_ref().map(cera::Controller::view);
        let mut ports: Vec<_> = self.waiting_ports().collect();
        let shown: Vec<u32> = self.ports.keys().copied().collect();
        for ifindex in shown {
            let port = self.port(ifindex, view.as_ref());
            for (name, value) in &port.counters {
                *counters.entry(name.clone()).or_default() += value;
            }
            ports.push(port);
        }
        ports.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let managed = || ports.iter().filter_map(|port| port.vflood.as_ref());
        let vflood_connections =
            managed().next().is_some().then(|| managed().map(|vflood| u64::from(vflood.connections)).sum());
        let (syns_pending, synacks_held) = self.resend.waiting();
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            took_over: self.datapath.took_over(),
            config: self.loaded.file.clone(),
            config_is_default: self.loaded.is_default,
            config_refused: self.config_refused.clone(),
            notes_error: self.notes_error.clone(),
            probe_keys: self.loaded.keys.len() as u32,
            flows: self.datapath.flows()?.iter().filter(|(key, _)| self.ports.contains_key(&key.ifindex)).count()
                as u64,
            flows_room: u64::from(intf::EK_DEFAULT_FLOWS),
            vflood_connections,
            vflood_connections_room: u64::from(intf::EK_VFLOOD_FLOWS),
            syns_pending,
            synacks_held,
            cera: cera::report(view.as_ref(), self.cera_error.as_deref()),
            ports,
            counters,
            agent: self.agent_counters(),
        })
    }

    /// Devices that are to be ports and that nobody has come to yet.
    fn waiting_ports(&self) -> impl Iterator<Item = proto::Port> {
        let is_new = |(ifindex, waiting): &(&u32, &Waiting)| {
            !self.ports.contains_key(ifindex) && self.loaded.config.is_port(&waiting.name)
        };
        self.waiting.iter().filter(is_new).map(|(ifindex, waiting)| {
            let settings = self.loaded.config.settings(&waiting.name);
            let why = waiting.error.as_ref().map_or("its turn comes".to_owned(), |why| format!("tried again: {why}"));
            proto::Port {
                name: waiting.name.clone(),
                ifindex: *ifindex,
                mode: settings.proboscis.mode,
                error: Some(format!("not served yet; {why}")),
                ..proto::Port::default()
            }
        })
    }

    /// A port as it is now. What cannot be read of it is its own trouble.
    fn port(&mut self, ifindex: u32, view: Option<&cera::View>) -> proto::Port {
        let Some(port) = self.ports.get(&ifindex) else { return proto::Port::default() };
        let mut shown = proto::Port {
            name: port.link.name.clone(),
            ifindex,
            mode: port.settings.proboscis.mode,
            cera: cera::report_port(&port.settings.cera, view, ifindex),
            error: port.error.clone(),
            channel: self.channels.status(ifindex).map(proto::Channel::from),
            others: self.datapath.others(ifindex),
            queue_segments: port.link.queue_segments,
            queue_before_segments: self.state.queues.get(&ifindex).map(|change| change.before_segments),
            ..proto::Port::default()
        };
        if shown.error.is_none() && !self.datapath.is_on(ifindex) {
            shown.error = Some("its programs are gone; they are put on again within ten seconds".to_owned());
        }
        if let Err(error) = self.read(ifindex, &mut shown) {
            shown.error.get_or_insert_with(|| error.to_string());
        }
        shown
    }

    /// What the datapath says of a port.
    fn read(&mut self, ifindex: u32, shown: &mut proto::Port) -> Result<(), HostError> {
        let Some(port) = self.ports.get(&ifindex) else { return Ok(()) };
        if port.error.is_none() {
            shown.counters = named(&self.datapath.counters(ifindex)?);
        }
        if port.is_offline {
            shown.offline = Some(self.left(ifindex)?);
        }
        shown.vflood = port.vflood(ifindex, &self.datapath)?;
        if port.settings.vsnoop.mode != Mode::Off {
            shown.vsnoop = Some(port.vsnoop(&mut self.datapath, self.channels.endpoint(ifindex))?);
        }
        Ok(())
    }

    fn agent_counters(&self) -> BTreeMap<String, u64> {
        let resend = self.resend.counts();
        let own = |name: &'static str| self.counts.get(name).copied().unwrap_or(0);
        let value = |name: &'static str| match name {
            "probes_resent" => resend.probes_resent,
            "syns_resent" => resend.syns_resent,
            "syns_given_up" => resend.syns_given_up,
            "synacks_in_time" => resend.synacks_in_time,
            "synacks_late" => resend.synacks_late,
            "timers_refused" => resend.overflows,
            other => own(other),
        };
        AGENT_COUNTERS.iter().map(|(name, _)| ((*name).to_owned(), value(name))).collect()
    }

    /// Lines that answer what was asked about connections.
    ///
    /// # Errors
    /// [`HostError::Datapath`] if its maps cannot be read.
    pub fn flows(&self, tuple: Option<Tuple>, limit: Option<usize>) -> Result<Vec<Response>, HostError> {
        let now_ns = now_ns();
        let view = self.cera.as_ref().map(cera::Controller::view);
        let snoops: HashMap<_, _> =
            self.datapath.snoops()?.iter().map(|(key, entry)| (*key, VsnoopFlow::of(entry))).collect();
        let mut flows = Vec::new();
        for (key, entry) in self.datapath.flows()? {
            if tuple.is_some_and(|wanted| !wanted.is_same(&Tuple::of(&key))) {
                continue;
            }
            // Of a port that is gone: nobody acts on it any more.
            let Some(port) = self.ports.get(&key.ifindex) else { continue };
            let proboscis = port.settings.proboscis.clone();
            let cera = cera::report_port(&port.settings.cera, view.as_ref(), key.ifindex);
            let flow = Flow::of(&key, &entry, &port.link.name, &proboscis, now_ns);
            let vflood = self.datapath.vflood(&entry)?.map(|entry| VfloodFlow::of(&entry));
            flows.push((flow, proboscis, cera, snoops.get(&key).copied(), vflood));
        }
        let total = flows.len() as u64;
        flows.sort_unstable_by_key(|(flow, ..)| std::cmp::Reverse(flow.bytes()));
        flows.truncate(limit.unwrap_or(usize::MAX));
        let lines = flows.into_iter().map(|(flow, proboscis, cera, vsnoop, vflood)| {
            let mut words = if tuple.is_some() { flow.explain(&proboscis, Some(&cera)) } else { Vec::new() };
            words.extend(vsnoop.filter(|_| tuple.is_some()).map(|vsnoop| vsnoop.explain()));
            words.extend(vflood.filter(|_| tuple.is_some()).map(|vflood| vflood.explain()));
            Response::Flow(Box::new(ExplainedFlow { flow, vsnoop, vflood, words }))
        });
        Ok(lines.chain([Response::End { total }]).collect())
    }

    /// What is left to wait for on a port that is offline.
    fn left(&self, ifindex: u32) -> Result<proto::Left, HostError> {
        let held = self.datapath.held(ifindex)?.map_or(0, |held| held.vm.held_segments);
        let is_promised = |(key, entry): &(intf::ek_flow_key, intf::ek_vsnoop_flow)| {
            key.ifindex == ifindex && (entry.flow.told.wrapping_sub(entry.flow.vm_ack) as i32) > 0
        };
        let promised = self.datapath.snoops()?.iter().filter(|entry| is_promised(entry)).count();
        // A guest whose agent is silent is plain after three heartbeats, and counts as gone then.
        let is_plain = self.channels.guest(ifindex).is_none() || self.channels.is_obeyed(ifindex);
        Ok(proto::Left { held_segments: held, promised_connections: promised as u64, guest_floods: !is_plain })
    }
}

/// Counters by name.
fn named(counters: &intf::ek_counters) -> BTreeMap<String, u64> {
    COUNTERS.iter().zip(counters.value).map(|((name, _), value)| ((*name).to_owned(), value)).collect()
}
