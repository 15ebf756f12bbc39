//! vFlood on this host: where it acts and where it rests, what guests are told of it, and what it says of ports and
//! connections. The programs are those of `kernel/host/vflood`.

pub mod metrics;
pub mod report;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use evenkeel_algo::ack_filter;
use evenkeel_algo::congestion;
use evenkeel_algo::rest::{Rest, Word};
use evenkeel_algo::vflood::{self, DEFAULTS, Policy};
use evenkeel_settings::Mode;
use evenkeel_settings::host::PortSettings;
use evenkeel_settings::vflood::Vflood;

use self::report::{VfloodFlow, VfloodPort};
use super::control::proto::{self, ExplainedFlow, Status};
use super::error::HostError;
use super::links::Kind;
use super::mechanism::{Asked, Mechanism, Presence, SWEEP_EVERY, Tools, mode_to_intf};
use super::port::{Port, Ports};
use crate::channel::wire::Capabilities;
use crate::common::clock;
use crate::datapath::{DatapathError, intf};

/// What is known of a port.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// Whether vFlood has something to do for its VM.
    rest: Rest,
    /// Whether its connections were managed before it was configured.
    was_managed: Option<bool>,
}

/// vFlood's wing.
#[derive(Debug)]
pub(super) struct Wing {
    ports: BTreeMap<u32, State>,
    /// A port had vFlood, and may still hold packets.
    lets_go: bool,
    swept: Instant,
}

impl Default for Wing {
    fn default() -> Self {
        Self { ports: BTreeMap::new(), lets_go: true, swept: Instant::now() }
    }
}

/// Settings as the datapath has them; it fills in its devices itself.
fn to_intf(vflood: &Vflood) -> intf::ek_vflood_settings {
    let settings = vflood.settings(DEFAULTS.initial_window);
    intf::ek_vflood_settings {
        mode: mode_to_intf(vflood.mode),
        settings: intf::vflood_settings {
            buffer_segments: settings.buffer_segments,
            initial_window: settings.initial_window,
            low_rtt_us: settings.low_rtt_us,
            alpha: settings.alpha,
            alpha_low_rtt: settings.alpha_low_rtt,
            policy: match settings.policy {
                Policy::None => intf::VFLOOD_POLICY_NONE,
                Policy::Fair => intf::VFLOOD_POLICY_FAIR,
                Policy::Priority => intf::VFLOOD_POLICY_PRIORITY,
            },
            congestion: match settings.congestion {
                congestion::Kind::Reno => intf::CONGESTION_RENO,
                congestion::Kind::Cubic => intf::CONGESTION_CUBIC,
                congestion::Kind::Vegas => intf::CONGESTION_VEGAS,
            },
        },
        ..Default::default()
    }
}

/// What tells a port's VM that a connection is held; 0 where no guest looks for it.
fn token(ifindex: u32, tools: &Tools<'_>) -> u16 {
    let guest = tools.channels.guest(ifindex).filter(|guest| guest.capabilities.has(Capabilities::VFLOOD));
    guest.and_then(|_| tools.channels.session(ifindex)).map_or(0, vflood::token)
}

impl Wing {
    fn rest(&self, ifindex: u32) -> Rest {
        self.ports.get(&ifindex).map(|state| state.rest).unwrap_or_default()
    }

    /// Tells a port's guest whether it may flood: only where its packets are held.
    fn attest(&self, ifindex: u32, tools: &mut Tools<'_>) -> Result<(), DatapathError> {
        let holds = tools.datapath.holds(ifindex)? && self.rest(ifindex).attests();
        tools.channels.attest(ifindex, holds.then_some(intf::VFLOOD_FLOOD_SEGMENTS));
        Ok(())
    }

    /// Lets vFlood rest on ports whose VMs have their core, and act on those whose VMs wait for it.
    fn judge(&mut self, ports: &mut Ports, tools: &mut Tools<'_>) {
        let now = Instant::now();
        for (ifindex, port) in ports {
            if port.settings.vflood.mode == Mode::Off || port.error.is_some() {
                continue;
            }
            // A guest has come, or gone, or the channel is another.
            let token = token(*ifindex, tools);
            if let Err(error) = tools.datapath.set_token(*ifindex, token) {
                tracing::warn!(port = port.link.name, %error, "this VM is not told what is held, and stays plain");
            }
            let word = tools.channels.guest(*ifindex).map(|guest| Word {
                off_core_permille: guest.off_core_permille,
                is_obedient: !guest.capabilities.has(Capabilities::VFLOOD) || tools.channels.is_obeyed(*ifindex),
            });
            let acts_permille = 10 * port.settings.vflood.off_core_percent.get() as u16;
            let before = self.rest(*ifindex);
            let rest = before.heard(word, acts_permille, clock::now_ns() / 1000);
            if rest.passes_over() != before.passes_over() {
                if let Err(error) = tools.datapath.pass_over(*ifindex, rest.passes_over()) {
                    tracing::warn!(port = port.link.name, %error, "vFlood goes on as it did");
                    continue;
                }
                let what = if rest.passes_over() { "vFlood rests: the VM has its core" } else { "vFlood acts again" };
                port.words.say(now, |left_out| {
                    tracing::info!(port = port.link.name, domain = port.domain, left_out, "{what}")
                });
            }
            if rest.attests() != before.attests() {
                let holds = tools.datapath.holds(*ifindex).unwrap_or_default() && rest.attests();
                tools.channels.attest(*ifindex, holds.then_some(intf::VFLOOD_FLOOD_SEGMENTS));
            }
            self.ports.entry(*ifindex).or_default().rest = rest;
        }
    }

    /// Ends silent connections. That takes reading the whole table, so it is done only if some port has any.
    fn sweep(&mut self, ports: &Ports, tools: &mut Tools<'_>) -> Result<(), DatapathError> {
        if self.swept.elapsed() < SWEEP_EVERY {
            return Ok(());
        }
        self.swept = Instant::now();
        for ifindex in ports.keys() {
            if tools.datapath.managed_of(*ifindex)?.is_some_and(|managed| managed > 0) {
                tools.datapath.end_silent(Duration::from_nanos(intf::EK_VFLOOD_IDLE_NS))?;
                break;
            }
        }
        Ok(())
    }

    /// Removes the devices of ports that hold packets no more, once what they held is out.
    fn let_go(&mut self, tools: &mut Tools<'_>) {
        if !self.lets_go {
            return;
        }
        match tools.datapath.let_go() {
            Ok(waits) => self.lets_go = waits,
            Err(error) => tracing::warn!(%error, "cannot remove the devices that held packets"),
        }
    }
}

impl Mechanism for Wing {
    fn begin(&mut self, ifindex: u32) {
        self.ports.remove(&ifindex);
    }

    fn configure(&mut self, port: &Port, tools: &mut Tools<'_>, own: &mut intf::ek_port) -> Result<(), DatapathError> {
        let ifindex = port.link.ifindex;
        let queue_segments = port.queue_segments();
        let unread_acks = ack_filter::limit(queue_segments);
        let is_tap = port.link.kind == Kind::Tap;
        own.vflood = intf::ek_vflood_settings {
            unread_acks,
            free_slots: if is_tap { queue_segments.saturating_sub(unread_acks).max(1) } else { 0 },
            passes_over: u32::from(self.rest(ifindex).passes_over()),
            token: u32::from(token(ifindex, tools)),
            ..to_intf(&port.settings.vflood)
        };
        self.ports.entry(ifindex).or_default().was_managed = Some(tools.datapath.manages(ifindex)?);
        self.lets_go = true;
        Ok(())
    }

    fn served(&mut self, port: &Port, tools: &mut Tools<'_>) -> Result<(), DatapathError> {
        let ifindex = port.link.ifindex;
        if let Some(why) = tools.datapath.cannot_hold(ifindex) {
            let help = why.help().unwrap_or_default();
            tracing::error!(port = port.link.name, domain = port.domain, "vFlood is off on this port: {why}; {help}");
        }
        let state = self.ports.entry(ifindex).or_default();
        // Handshakes that passed before were not seen.
        if state.was_managed.take() == Some(false) && tools.datapath.manages(ifindex)? {
            state.rest = Rest::waking(clock::now_ns() / 1000);
        }
        Ok(())
    }

    fn attend(&mut self, port: &Port, tools: &mut Tools<'_>) -> Result<(), DatapathError> {
        self.attest(port.link.ifindex, tools)
    }

    fn gone(&mut self, ifindex: u32) {
        self.ports.remove(&ifindex);
    }

    fn detached(&mut self, stays: bool) {
        self.lets_go |= stays;
    }

    fn presence(&self, settings: &PortSettings) -> Presence {
        if settings.vflood.mode == Mode::Off { Presence::None } else { Presence::Leisure }
    }

    fn lasting_presence(&self) -> Presence {
        if self.lets_go { Presence::Close } else { Presence::None }
    }

    fn tick(&mut self, ports: &mut Ports, tools: &mut Tools<'_>) {
        if let Err(error) = self.sweep(ports, tools) {
            tracing::warn!(%error, "vFlood's table is not kept");
        }
        self.judge(ports, tools);
        self.let_go(tools);
    }

    fn port_status(&self, port: &Port, tools: &mut Tools<'_>, shown: &mut proto::Port) -> Result<(), HostError> {
        let (ifindex, settings) = (port.link.ifindex, &port.settings.vflood);
        let held = tools.datapath.held(ifindex)?;
        if let Some(left) = &mut shown.offline {
            left.held_segments = held.map_or(0, |held| held.vm.held_segments);
            // A guest whose agent is silent is plain after three heartbeats, and counts as gone then.
            left.guest_floods = tools.channels.guest(ifindex).is_some() && !tools.channels.is_obeyed(ifindex);
        }
        // Off, and nothing waits to be let out.
        if settings.mode == Mode::Off && held.is_none() {
            return Ok(());
        }
        let vm = held.unwrap_or_default().vm;
        shown.vflood = Some(VfloodPort {
            mode: settings.mode,
            trouble: tools.datapath.cannot_hold(ifindex).map(ToString::to_string),
            rests: self.rest(ifindex).passes_over(),
            connections: tools.datapath.managed_of(ifindex)?.unwrap_or_default(),
            held_segments: vm.held_segments,
            promised_segments: vm.promised_segments,
            buffer_segments: settings.buffer_segments.get(),
        });
        Ok(())
    }

    fn status(&self, status: &mut Status) {
        let mut managed = status.ports.iter().filter_map(|port| port.vflood.as_ref()).peekable();
        let is_there = managed.peek().is_some();
        status.vflood_connections = is_there.then(|| managed.map(|vflood| u64::from(vflood.connections)).sum());
        status.vflood_connections_room = u64::from(intf::EK_VFLOOD_FLOWS);
    }

    fn explain(
        &self,
        port: &Port,
        asked: Asked<'_>,
        tools: &Tools<'_>,
        shown: &mut ExplainedFlow,
    ) -> Result<(), HostError> {
        shown.vflood = tools.datapath.vflood(asked.entry)?.map(|entry| VfloodFlow::of(&entry));
        if !asked.in_words {
            return Ok(());
        }
        shown.words.extend(shown.vflood.map(|vflood| vflood.explain()));
        if port.settings.vflood.mode != Mode::Off && asked.entry.flags & intf::EK_FLOW_NATIVE_ECN != 0 {
            shown.words.push(report::NATIVE_ECN.to_owned());
        }
        Ok(())
    }
}
