//! vSnoop on this host: which VMs data may be acknowledged for, and what it says of ports and connections. The programs
//! are those of `kernel/host/vsnoop`.

mod doubt;
mod endpoint;
pub mod report;
mod vcpus;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub use endpoint::Endpoint;
use evenkeel_algo::vsnoop;

use self::doubt::Doubt;
use self::report::{QueueState, VsnoopFlow, VsnoopPort};
use super::control::proto::{self, ExplainedFlow};
use super::error::HostError;
use super::links::Kind;
use super::mechanism::{Asked, Mechanism, Presence, SWEEP_EVERY, Tools, mode_to_intf};
use super::port::{Port, Ports};
use crate::channel::Reasons;
use crate::datapath::{DatapathError, Processes, intf};
use evenkeel_settings::Mode;
use evenkeel_settings::host::PortSettings;

/// How long a connection may be idle before it is forgotten.
const SWEEP_IDLE: Duration = Duration::from_secs(3600);
/// The same while the table is more than half full.
const SWEEP_IDLE_CROWDED: Duration = Duration::from_secs(30);

/// vSnoop's wing.
#[derive(Debug)]
pub(super) struct Wing {
    /// Whether data may be acknowledged early for a port's VM, as the datapath has it.
    endpoints: BTreeMap<u32, Endpoint>,
    /// The threads of the host that are ports' VMs' virtual CPUs.
    vcpus: vcpus::Register,
    /// Ports whose guests said no to an agent before this one, and have said nothing to this one yet.
    refused: BTreeSet<u32>,
    /// Finds these threads; opened when first needed.
    processes: Option<Processes>,
    swept: Instant,
    /// Entries after the last sweep.
    entries: u32,
}

impl Default for Wing {
    fn default() -> Self {
        Self {
            endpoints: BTreeMap::new(),
            vcpus: vcpus::Register::new(Instant::now()),
            refused: BTreeSet::new(),
            processes: None,
            swept: Instant::now(),
            entries: 0,
        }
    }
}

impl Wing {
    fn endpoint(&self, ifindex: u32) -> Endpoint {
        self.endpoints.get(&ifindex).copied().unwrap_or_default()
    }

    /// What follows from what the guest has said to this agent, or to the one before.
    fn judge(&mut self, port: &Port, said: Option<Reasons>) -> Endpoint {
        let ifindex = port.link.ifindex;
        if said.is_some() || port.settings.channel.is_none() {
            self.refused.remove(&ifindex);
        }
        match self.refused.contains(&ifindex) {
            true => Endpoint::Unfit,
            false => Endpoint::of(port.settings.vsnoop.endpoint, said),
        }
    }

    /// Settings of a port. vSnoop is off unless it is a tap: of other devices nobody knows how much room their queues
    /// have.
    fn settings(&self, port: &Port) -> intf::ek_vsnoop_settings {
        let (settings, queue_segments) = (&port.settings.vsnoop, port.queue_segments());
        let cpus = libbpf_rs::num_possible_cpus().map_or(1, |cpus| u32::try_from(cpus).unwrap_or(u32::MAX));
        intf::ek_vsnoop_settings {
            mode: if port.link.kind == Kind::Tap { mode_to_intf(settings.mode) } else { intf::EK_MODE_OFF },
            settings: intf::vsnoop_settings { budget_segments: settings.budget_segments(queue_segments) },
            reserve_segments: vsnoop::reserve(queue_segments, cpus),
            endpoint: self.endpoint(port.link.ifindex).to_intf(),
            vcpus: self.vcpus.of(port.link.ifindex).to_intf(),
        }
    }

    /// Tells the datapath what the VMs' agents now say about their TCP.
    fn hear(&mut self, ports: &mut Ports, tools: &mut Tools<'_>) {
        let now = Instant::now();
        let settled = |port: &&mut Port| port.settings.vsnoop.mode != Mode::Off && port.error.is_none();
        for port in ports.values_mut().filter(settled) {
            let ifindex = port.link.ifindex;
            let said = tools.channels.endpoint(ifindex);
            let endpoint = self.judge(port, said);
            if endpoint == self.endpoint(ifindex) {
                continue;
            }
            if let Err(error) = tools.datapath.set_endpoint(ifindex, endpoint.to_intf()) {
                tracing::warn!(port = port.link.name, %error, "vSnoop goes on as it did");
                continue;
            }
            self.endpoints.insert(ifindex, endpoint);
            let why = said.filter(|reasons| !reasons.is_empty()).map(|reasons| reasons.words().join("; "));
            port.words.say(now, |left_out| {
                let (port, domain) = (&port.link.name, &port.domain);
                tracing::info!(port, domain, %endpoint, why, left_out, "vSnoop knows another thing of the VM");
            });
        }
    }

    /// Looks for the virtual CPUs behind these taps now; returns the taps of which something else is known than before.
    fn look(&mut self, taps: &[u32]) -> Vec<u32> {
        let processes = match self.processes.take() {
            Some(processes) => Ok(processes),
            None => Processes::open(),
        };
        let seen = processes.and_then(|processes| self.processes.insert(processes).look());
        self.vcpus.learn(taps, seen.map_err(|error| error.to_string()), Instant::now())
    }

    /// Looks for VMs' virtual CPUs where data may be acknowledged for them.
    fn find_vcpus(&mut self, ports: &Ports, tools: &mut Tools<'_>) {
        let acts = |port: &&Port| {
            port.link.kind == Kind::Tap && port.settings.vsnoop.mode != Mode::Off && port.error.is_none()
        };
        let taps: BTreeMap<_, _> =
            ports.values().filter(acts).map(|port| (port.link.ifindex, port.link.name.as_str())).collect();
        if taps.is_empty() || !self.vcpus.is_due(Instant::now()) {
            return;
        }
        let indices: Vec<_> = taps.keys().copied().collect();
        for ifindex in self.look(&indices) {
            let (vcpus, port) = (self.vcpus.of(ifindex), taps[&ifindex]);
            if let Err(error) = tools.datapath.set_vcpus(ifindex, vcpus.to_intf()) {
                tracing::warn!(port, %error, "vSnoop goes on as it did");
                // The programs still have the old ones, and get the new ones with the next look.
                self.vcpus.forget(ifindex);
                continue;
            }
            tracing::info!(port, %vcpus, "the VM's virtual CPUs");
        }
    }

    /// Forgets connections that ended unseen, as a full table evicts none for a new one.
    fn sweep(&mut self, ports: &Ports, tools: &mut Tools<'_>) {
        if self.swept.elapsed() < SWEEP_EVERY {
            return;
        }
        self.swept = Instant::now();
        if ports.values().all(|port| port.settings.vsnoop.mode == Mode::Off) {
            return;
        }
        let idle = if self.entries > intf::EK_VSNOOP_FLOWS / 2 { SWEEP_IDLE_CROWDED } else { SWEEP_IDLE };
        match tools.datapath.sweep_snoops(idle) {
            Ok(left) => self.entries = left,
            Err(error) => tracing::warn!(%error, "vSnoop's table is not kept"),
        }
    }
}

impl Mechanism for Wing {
    fn begin(&mut self, ifindex: u32) {
        self.endpoints.remove(&ifindex);
        self.refused.remove(&ifindex);
        self.vcpus.forget(ifindex);
    }

    fn configure(&mut self, port: &Port, tools: &mut Tools<'_>, own: &mut intf::ek_port) -> Result<(), DatapathError> {
        let ifindex = port.link.ifindex;
        // The programs are there already: another agent's. Its guest may only wait for its core.
        if !self.endpoints.contains_key(&ifindex) && tools.datapath.is_on(ifindex) {
            let before = tools.datapath.endpoint(ifindex)?.map(Endpoint::from_intf);
            if before == Some(Endpoint::Unfit) {
                self.refused.insert(ifindex);
            }
        }
        let endpoint = self.judge(port, tools.channels.endpoint(ifindex));
        self.endpoints.insert(ifindex, endpoint);
        if port.link.kind == Kind::Tap
            && port.settings.vsnoop.mode != Mode::Off
            && !self.vcpus.has(ifindex)
            && !self.vcpus.knew(ifindex, Instant::now())
        {
            self.look(&[ifindex]);
        }
        own.vsnoop = self.settings(port);
        if port.is_offline {
            // What was promised is still followed to its end.
            own.vsnoop.settings.budget_segments = 0;
        }
        Ok(())
    }

    fn changed(&mut self) {
        self.vcpus.look_soon(Instant::now());
    }

    fn gone(&mut self, ifindex: u32) {
        self.endpoints.remove(&ifindex);
        self.refused.remove(&ifindex);
        self.vcpus.forget(ifindex);
    }

    fn presence(&self, settings: &PortSettings) -> Presence {
        if settings.vsnoop.mode == Mode::Off { Presence::None } else { Presence::Leisure }
    }

    fn tick(&mut self, ports: &mut Ports, tools: &mut Tools<'_>) {
        self.sweep(ports, tools);
        self.hear(ports, tools);
        self.find_vcpus(ports, tools);
    }

    fn port_status(&self, port: &Port, tools: &mut Tools<'_>, shown: &mut proto::Port) -> Result<(), HostError> {
        let ifindex = port.link.ifindex;
        if let Some(left) = &mut shown.offline {
            let is_promised = |(key, entry): &(intf::ek_flow_key, intf::ek_vsnoop_flow)| {
                key.ifindex == ifindex && (entry.flow.acked.wrapping_sub(entry.flow.vm_ack) as i32) > 0
            };
            left.promised_connections =
                tools.datapath.snoops()?.iter().filter(|entry| is_promised(entry)).count() as u64;
        }
        if port.settings.vsnoop.mode == Mode::Off {
            return Ok(());
        }
        let own = self.settings(port);
        let queue = match port.link.kind {
            Kind::Tap => {
                QueueState::of(tools.datapath.queue_state(ifindex, vsnoop::wanted_slots(1, own.reserve_segments))?)
            }
            Kind::Macvtap | Kind::Other => QueueState::NoTap,
        };
        let vm = tools.datapath.snoop_port(ifindex)?.vm;
        shown.vsnoop = Some(VsnoopPort {
            mode: port.settings.vsnoop.mode,
            budget_segments: own.settings.budget_segments,
            outstanding_segments: vm.outstanding,
            coming_segments: vm.coming,
            queue,
            endpoint: tools.datapath.endpoint(ifindex)?.map_or(Endpoint::Unknown, Endpoint::from_intf),
            objections: tools.channels.endpoint(ifindex).map(Reasons::words).unwrap_or_default(),
            doubt: Doubt::from_intf(vm.doubt),
            vcpus: self.vcpus.of(ifindex),
        });
        Ok(())
    }

    fn explain(
        &self,
        _port: &Port,
        asked: Asked<'_>,
        tools: &Tools<'_>,
        shown: &mut ExplainedFlow,
    ) -> Result<(), HostError> {
        shown.vsnoop = tools.datapath.snoop(asked.key)?.map(|entry| VsnoopFlow::of(&entry));
        shown.words.extend(shown.vsnoop.filter(|_| asked.in_words).map(|vsnoop| vsnoop.explain()));
        Ok(())
    }
}
