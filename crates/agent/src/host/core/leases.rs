//! Ports that a trial has for a while: begun, renewed, ended.

use std::time::Instant;

use evenkeel_quote::shown;
use evenkeel_settings::Mode;
use evenkeel_settings::host::{Mechanism, PortSettings};

use super::Core;
use crate::common::clock::now_ns;
use crate::datapath::DatapathError;
use crate::features::Part;
use crate::host::cera;
use crate::host::control::lease::{AT_ONCE, Completion, Leased, Wanted};
use crate::host::control::proto::Response;
use crate::host::lease::Changed;
use crate::host::links::Link;
use crate::host::port;

impl Core {
    /// Lends ports to a trial, or says why not, in words that go on from "the agent".
    pub fn lease(&mut self, wanted: &Wanted) -> Vec<Response> {
        let granted = self.free_ports(wanted).and_then(|ports| {
            self.forget_exchanges(&ports).map_err(|error| format!("could not do it: {error}"))?;
            let before_ns = now_ns();
            let changed: Vec<Changed> = ports.iter().map(|(changed, _)| changed.clone()).collect();
            let id = self.leases.begin(wanted, ports, Instant::now(), before_ns);
            self.apply(&changed);
            let refused = changed.iter().find_map(|(ifindex, name)| Some((name, self.cannot(*ifindex, wanted)?)));
            if let Some((name, why)) = refused {
                let why = format!("cannot try it on {}: {why}", shown(name));
                self.end_lease(id, None);
                return Err(why);
            }
            tracing::info!(ports = wanted.ports.join(" "), mechanism = wanted.mechanism.word(), "a trial begins");
            Ok(Leased { id, changed_ns: (before_ns, now_ns()), lost: 0 })
        });
        vec![granted.map_or_else(|why| Response::Refused { why }, Response::Leased)]
    }

    /// Renews a lease, with a mode; answers with the exchanges that ended meanwhile.
    pub fn renew_lease(&mut self, id: u64, mode: Mode, for_ms: u32) -> Vec<Response> {
        let before_ns = now_ns();
        match self.leases.renew(id, mode, for_ms, Instant::now()) {
            Ok(changed) => {
                self.apply(&changed);
                let changed_ns = (before_ns, now_ns());
                self.fetch_completions();
                let (completions, lost) = self.leases.take(id);
                answer(completions, Leased { id, changed_ns, lost })
            }
            Err(why) => vec![Response::Refused { why }],
        }
    }

    /// Takes a lease back; answers with the exchanges that ended meanwhile, and with those that end now.
    pub fn return_lease(&mut self, id: u64) -> Vec<Response> {
        let before_ns = now_ns();
        self.fetch_completions();
        let (mut completions, lost) = self.leases.take(id);
        let ports = self.leases.end(id, None);
        if ports.is_empty() {
            return vec![Response::Refused { why: self.leases.why_ended(id) }];
        }
        self.apply(&ports);
        let changed_ns = (before_ns, now_ns());
        completions.extend(self.last_completions(&ports));
        tracing::info!("a trial is over");
        answer(completions, Leased { id, changed_ns, lost })
    }

    /// When [`tend_leases`](Self::tend_leases) is to be called, if there are any.
    pub fn tends_at(&self) -> Option<Instant> {
        self.leases.due()
    }

    /// Ends leases whose time is over, and fetches the exchanges that ended.
    pub fn tend_leases(&mut self) {
        self.fetch_completions();
        for id in self.leases.expired(Instant::now()) {
            tracing::warn!("a trial was not gone on with: what is configured holds again");
            self.end_lease(id, Some("it was not renewed in time"));
        }
    }

    /// Ends all leases.
    pub(super) fn end_leases(&mut self) {
        for id in self.leases.all() {
            self.end_lease(id, Some("the agent ends"));
        }
    }

    fn end_lease(&mut self, id: u64, why: Option<&str>) {
        let ports = self.leases.end(id, why);
        self.apply(&ports);
        self.last_completions(&ports);
    }

    /// A lease has ended because of one of its ports: the others are to be looked at.
    pub(super) fn leave_ports(&mut self, ports: Vec<Changed>) {
        if let Some((_, name)) = ports.first() {
            tracing::warn!(port = name, "a trial has ended before its time");
        }
        for (ifindex, name) in ports {
            if let Err(error) = self.datapath.exchanges().last(ifindex) {
                tracing::warn!(%error, "what a trial has timed is not forgotten");
            }
            self.heard(ifindex, name);
        }
    }

    /// Settings of ports have changed.
    fn apply(&mut self, changed: &[Changed]) {
        let link = |(ifindex, _): &Changed| self.ports.get(ifindex).map(|port| port.link.clone());
        let links: Vec<Link> = changed.iter().filter_map(link).collect();
        if links.is_empty() {
            return;
        }
        // Their queues need no change, so the returned actions are ignored.
        for link in links {
            self.seen(&link);
        }
        self.arrange();
    }

    /// Drops what was timed on these ports before, which is not about this trial.
    fn forget_exchanges(&mut self, ports: &[(Changed, PortSettings)]) -> Result<(), DatapathError> {
        self.fetch_completions();
        ports.iter().try_for_each(|((ifindex, _), _)| self.datapath.exchanges().last(*ifindex).map(|_| ()))
    }

    fn fetch_completions(&mut self) {
        match self.datapath.exchanges().completions() {
            Ok(told) => {
                let completions: Vec<Completion> = told.iter().map(Completion::from).collect();
                self.leases.keep(&completions, Instant::now());
            }
            Err(error) => tracing::warn!(%error, "a trial is not told of exchanges"),
        }
    }

    /// The last exchanges of ports that are timed no more.
    fn last_completions(&mut self, ports: &[Changed]) -> Vec<Completion> {
        let is_one = |ifindex: u32| ports.iter().any(|(one, _)| *one == ifindex);
        let mut last = self.datapath.exchanges().completions().unwrap_or_default();
        last.retain(|completion| is_one(completion.ifindex));
        for (ifindex, _) in ports {
            match self.datapath.exchanges().last(*ifindex) {
                Ok(more) => last.extend(more),
                Err(error) => tracing::warn!(%error, "a trial is not told of the last exchanges"),
            }
        }
        last.iter().map(Completion::from).collect()
    }

    /// The ports that are wanted, each with what is configured there.
    fn free_ports(&self, wanted: &Wanted) -> Result<Vec<(Changed, PortSettings)>, String> {
        let mut free = Vec::new();
        for name in &wanted.ports {
            let named = shown(name);
            let Some((ifindex, port)) = self.ports.iter().find(|(_, port)| port.link.name == *name) else {
                return Err(format!("has no port {named}; `evenkeel status` lists those it has"));
            };
            if let Some(why) = &port.error {
                return Err(format!("does not serve {named}: {why}"));
            }
            if port.is_offline {
                return Err(format!("has {named} offline, because its VM is about to leave"));
            }
            if let Some(who) = self.leases.holder(*ifindex) {
                return Err(format!("has a trial on {named} already: {}; one at a time", shown(who)));
            }
            if free.iter().any(|((other, _), _): &(Changed, PortSettings)| other == ifindex) {
                return Err(format!("was asked for {named} twice; name each port once"));
            }
            let configured = port::settings(&self.loaded.config, name, false);
            free.push(((*ifindex, name.clone()), configured));
        }
        if free.is_empty() {
            return Err("was asked for no port; name one".to_owned());
        }
        Ok(free)
    }

    /// Why a mechanism can do nothing on a port, whose settings say that it is on.
    fn cannot(&self, ifindex: u32, wanted: &Wanted) -> Option<String> {
        let lacks = |part| self.datapath.features().lacking(part);
        let lack = match wanted.mechanism {
            Mechanism::Vsnoop => lacks(Part::Vsnoop),
            Mechanism::Vflood => {
                lacks(Part::HostVflood).or_else(|| self.datapath.cannot_hold(ifindex).map(ToString::to_string))
            }
            Mechanism::Proboscis if self.loaded.keys.is_empty() => {
                Some("there is no probe key (probe_key_file), so no probes are sent".to_owned())
            }
            Mechanism::Proboscis => None,
            Mechanism::Cera => cera::lacks(&self.loaded.config),
        };
        lack.or_else(|| self.ports.get(&ifindex).map_or(Some("it went away".to_owned()), |port| port.error.clone()))
    }
}

/// Lines that answer.
fn answer(completions: Vec<Completion>, leased: Leased) -> Vec<Response> {
    let lines = completions.chunks(AT_ONCE).map(|some| Response::Completions { list: some.to_vec() });
    lines.chain([Response::Leased(leased)]).collect()
}
