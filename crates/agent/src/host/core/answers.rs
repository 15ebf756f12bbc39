//! What the agent says when it is asked: its ports, its counters, its connections.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Core, Waiting};
use crate::common::clock::now_ns;
use crate::datapath::{COUNTERS, intf};
use crate::features::Part;
use crate::host::control::proto::{self, ExplainedFlow, Response, Status, Tuple};
use crate::host::error::HostError;
use crate::host::flow::Flow;
use crate::host::mechanism::{Asked, Tools};
use crate::host::metrics::AGENT_COUNTERS;
use crate::host::port::is_port;
use crate::netns;

impl Core {
    /// What the agent does.
    ///
    /// # Errors
    /// [`HostError::Datapath`] if its maps cannot be read.
    pub fn status(&mut self) -> Result<Status, HostError> {
        let mut counters: BTreeMap<String, u64> = COUNTERS.iter().map(|(name, _)| ((*name).to_owned(), 0)).collect();
        self.wings.all_mut().into_iter().for_each(|wing| wing.look());
        let mut ports: Vec<_> = self.waiting_ports().collect();
        let shown: Vec<u32> = self.ports.keys().copied().collect();
        for ifindex in shown {
            let port = self.port(ifindex);
            for (name, value) in &port.counters {
                *counters.entry(name.clone()).or_default() += value;
            }
            ports.push(port);
        }
        ports.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            took_over: self.datapath.took_over(),
            config: self.loaded.file.clone(),
            config_is_default: self.loaded.is_default,
            config_refused: self.config_refused.clone(),
            notes_error: self.notes_error.clone(),
            attach: Some(self.datapath.hook()),
            lacking: self.lacking(),
            probe_keys: self.loaded.keys.len() as u32,
            flows: self.datapath.flows()?.iter().filter(|(key, _)| self.ports.contains_key(&key.ifindex)).count()
                as u64,
            flows_room: u64::from(intf::EK_DEFAULT_FLOWS),
            ports,
            counters,
            agent: self.agent_counters(),
            ..Status::default()
        };
        self.wings.all().into_iter().for_each(|wing| wing.status(&mut status));
        Ok(status)
    }

    /// Mechanisms of the host that cannot work on this kernel.
    fn lacking(&self) -> Vec<proto::Lacking> {
        let lacks = |part| self.datapath.features().lacking(part).map(|why| proto::Lacking { part, why });
        [Part::Vsnoop, Part::HostVflood].into_iter().filter_map(lacks).collect()
    }

    /// Devices that are to be ports, but were not looked at yet.
    fn waiting_ports(&self) -> impl Iterator<Item = proto::Port> {
        let is_new = |(ifindex, waiting): &(&u32, &Waiting)| {
            !self.ports.contains_key(ifindex) && is_port(&self.loaded.config, &waiting.name)
        };
        self.waiting.iter().filter(is_new).map(|(ifindex, waiting)| {
            let settings = self.loaded.config.settings(&waiting.name);
            let why = waiting.error.as_ref().map_or("its turn comes".to_owned(), |why| format!("tried again: {why}"));
            proto::Port {
                name: waiting.name.clone(),
                ifindex: netns::index(*ifindex),
                mode: settings.proboscis.mode,
                error: Some(format!("not served yet; {why}")),
                ..proto::Port::default()
            }
        })
    }

    /// A port as it is now. If something of it cannot be read, its own error says so.
    fn port(&mut self, ifindex: u32) -> proto::Port {
        let Some(port) = self.ports.get(&ifindex) else { return proto::Port::default() };
        let mut shown = proto::Port {
            name: port.link.name.clone(),
            ifindex: netns::index(ifindex),
            error: port.error.clone(),
            offline: port.is_offline.then(proto::Left::default),
            trial: self.leases.shown(ifindex, Instant::now()),
            channel: self.channels.status(ifindex).map(proto::Channel::from).or_else(|| self.missing_channel(ifindex)),
            vm: self.vms.of(ifindex).cloned(),
            tap: port.link.tap,
            others: self.datapath.others(ifindex),
            queue_segments: port.link.queue_segments,
            queue_before_segments: self.state.raised_from(ifindex),
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

    /// What the datapath and the wings say of a port.
    fn read(&mut self, ifindex: u32, shown: &mut proto::Port) -> Result<(), HostError> {
        let Some(port) = self.ports.get(&ifindex) else { return Ok(()) };
        if port.error.is_none() {
            shown.counters = named(&self.datapath.counters(ifindex)?);
        }
        let mut tools = tools!(self);
        self.wings.all().into_iter().try_for_each(|wing| wing.port_status(port, &mut tools, shown))
    }

    fn agent_counters(&self) -> BTreeMap<String, u64> {
        let own = |name: &'static str| self.counts.get(name).copied().unwrap_or(0);
        AGENT_COUNTERS.iter().map(|(name, _)| ((*name).to_owned(), own(name))).collect()
    }

    /// Lines that answer what was asked about connections.
    ///
    /// # Errors
    /// [`HostError::Datapath`] if its maps cannot be read.
    pub fn flows(&mut self, tuple: Option<Tuple>, limit: Option<usize>) -> Result<Vec<Response>, HostError> {
        let now_ns = now_ns();
        let mut flows = Vec::new();
        for (key, entry) in self.datapath.flows()? {
            if tuple.is_some_and(|wanted| !wanted.is_same(&Tuple::of(&key))) {
                continue;
            }
            // Of a port that is gone: nobody acts on it any more.
            let Some(port) = self.ports.get(&key.ifindex) else { continue };
            let flow = Flow::of(&key, &entry, &port.link.name, &port.settings.proboscis, now_ns);
            let flow = Flow { domain: port.domain.clone(), ..flow };
            flows.push((flow, key, entry, port));
        }
        let total = flows.len() as u64;
        flows.sort_unstable_by_key(|(flow, ..)| std::cmp::Reverse(flow.bytes()));
        flows.truncate(limit.unwrap_or(usize::MAX));
        self.wings.all_mut().into_iter().for_each(|wing| wing.look());
        let tools = tools!(self);
        let mut lines = Vec::new();
        for (flow, key, entry, port) in flows {
            let mut shown = ExplainedFlow { flow, vsnoop: None, vflood: None, words: Vec::new() };
            let asked = Asked { key: &key, entry: &entry, in_words: tuple.is_some() };
            if asked.in_words {
                shown.words.push(shown.flow.explain_window(&port.settings.proboscis, port.settings.cera.mode));
                let vm = self.vms.of(key.ifindex).map(|vm| format!("The VM is {vm}."));
                let tap = port.link.tap.map(|tap| {
                    format!("Its port is a {tap}; the port's queue has {} packets.", port.link.queue_segments)
                });
                shown.words.extend(vm.into_iter().chain(tap));
            }
            self.wings.all().into_iter().try_for_each(|wing| wing.explain(port, asked, &tools, &mut shown))?;
            lines.push(Response::Flow(Box::new(shown)));
        }
        lines.push(Response::End { total });
        Ok(lines)
    }
}

/// Counters by name.
fn named(counters: &intf::ek_counters) -> BTreeMap<String, u64> {
    COUNTERS.iter().zip(counters.value).map(|((name, _), value)| ((*name).to_owned(), value)).collect()
}
