//! The host agent in the lab: the real `evenkeel host` on the VMs' ports, started for a run and stopped after it, on
//! this machine or in a driver domain.
//!
//! On this machine, the namespace has mounts of its own, with a bpf file system for the agent's pins. Whatever ends the
//! lab, these are gone with the last process in the namespace, as ports and programs are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_quote::quoted;
use evenkeel_scenario::format::VmGroup;
use evenkeel_settings::address::ChannelAddress;
use evenkeel_settings::cera::{Cera, CeraOverride};
use evenkeel_settings::host::{Config, Control, Metrics, PortOverride};
use evenkeel_settings::proboscis::ProboscisOverride;
use evenkeel_settings::vflood::VfloodOverride;
use evenkeel_settings::vsnoop::{Proof, VsnoopOverride};
use evenkeel_settings::{Bounded, Mode, Pattern};
use serde_json::Value;

use super::seat::{Ended, Seat};
use crate::error::LabError;
use crate::interrupt::Interrupt;

/// How long the agent may take to have its programs on all ports, and to end.
const LIMIT: Duration = Duration::from_secs(60);
/// Any key will do: all hosts of the lab are this one agent's.
const PROBE_KEY: &str = "65766e6b65656c2d6c61622d70726f62\n";

/// Asks an agent for its counters, at its control socket, as `evenkeel status --json` does, but without another program
/// on a domain's processor. An agent that speaks another version says so in its answer, which is an error here.
const STATUS_REQUEST: &str = r#"{"version":1,"ask":{"what":"status"}}"#;
const CONTROL_SOCKET: &str = "host.sock";

/// Counters by name.
pub type Counts = BTreeMap<String, i64>;

/// What an agent has counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// The datapath's, by port.
    pub ports: BTreeMap<String, Counts>,
    /// The agent's own.
    pub agent: Counts,
}

impl Counted {
    /// Adds what another agent has counted.
    pub fn and(mut self, other: Self) -> Self {
        let add = |to: &mut Counts, counts: Counts| {
            for (name, count) in counts {
                *to.entry(name).or_default() += count;
            }
        };
        // A VM's port has the same name on this machine and in its driver domain.
        for (port, counts) in other.ports {
            add(self.ports.entry(port).or_default(), counts);
        }
        add(&mut self.agent, other.agent);
        self
    }

    /// The increase since an earlier reading.
    pub fn since(&self, before: &Self) -> Self {
        let increase = |now: &Counts, before: Option<&Counts>| -> Counts {
            let start = |name: &String| before.and_then(|b| b.get(name)).copied().unwrap_or(0);
            now.iter().map(|(name, value)| (name.clone(), value - start(name))).collect()
        };
        let ports =
            self.ports.iter().map(|(port, now)| (port.clone(), increase(now, before.ports.get(port)))).collect();
        Self { ports, agent: increase(&self.agent, Some(&before.agent)) }
    }
}

/// A VM's port, and what the agent is to do there.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// Its host's uplink.
    uplink: String,
    settings: PortOverride,
    /// CERA's settings of the port's whole host, if it is on there.
    cera: Option<CeraOverride>,
}

impl Port {
    /// The port of a group's VM with this number, counted from 0, on a host with this uplink.
    pub fn of(device: &str, uplink: &str, group: &VmGroup, number: u32) -> Result<Self, LabError> {
        let pattern = Pattern::new(device)
            .map_err(|why| LabError::Agent { why: format!("{} is no name of a port: {why}", quoted(device)) })?;
        let settings = PortOverride {
            // The agent observes with ProBoSCIS unless told otherwise.
            proboscis: ProboscisOverride { mode: Some(group.proboscis.mode()), ..group.proboscis.clone() },
            vsnoop: VsnoopOverride {
                mode: Some(group.vsnoop.mode()),
                // No agent in the VM vouches for it, until it has a channel.
                endpoint: Some(Proof::Observed),
                ..group.vsnoop.clone()
            },
            vflood: VfloodOverride {
                mode: Some(group.vflood.mode_of(number)),
                congestion_control: Some(group.vflood().congestion_control),
                ..group.vflood.set.clone()
            },
            cera: CeraOverride {
                mode: Some(group.cera.mode()),
                weight: Some(group.cera.weight_of(number)),
                ..CeraOverride::default()
            },
            ..PortOverride::of(pattern)
        };
        let cera = (group.cera.mode() != Mode::Off).then(|| CeraOverride { mode: None, ..group.cera.set.clone() });
        Ok(Self { uplink: uplink.to_owned(), settings, cera })
    }

    /// Its name.
    fn device(&self) -> &str {
        self.settings.pattern.as_str()
    }

    /// With one of the mechanisms only.
    pub fn with_only(self, mechanism: Mechanism) -> Self {
        let others = Mechanism::ALL.into_iter().filter(|other| *other != mechanism);
        let cera = if mechanism == Mechanism::Cera { self.cera.clone() } else { None };
        Self { cera, ..others.fold(self, Self::without) }
    }

    /// Without one of the mechanisms.
    #[must_use]
    pub fn without(mut self, mechanism: Mechanism) -> Self {
        let mode = match mechanism {
            Mechanism::Proboscis => &mut self.settings.proboscis.mode,
            Mechanism::Vsnoop => &mut self.settings.vsnoop.mode,
            Mechanism::Vflood => &mut self.settings.vflood.mode,
            Mechanism::Cera => &mut self.settings.cera.mode,
        };
        *mode = Some(Mode::Off);
        self
    }

    /// With the guest's channel: a socket or a character device.
    pub fn with_channel(mut self, channel: &Path) -> Self {
        self.settings.channel = Some(ChannelAddress::from(channel));
        self.settings.vsnoop.endpoint = None;
        self
    }
}

/// A mechanism of the host's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// ProBoSCIS.
    Proboscis,
    /// vSnoop.
    Vsnoop,
    /// vFlood.
    Vflood,
    /// CERA.
    Cera,
}

impl Mechanism {
    const ALL: [Self; 4] = [Self::Proboscis, Self::Vsnoop, Self::Vflood, Self::Cera];
}

/// A running agent. A drop stops it as well as can be.
#[derive(Debug)]
pub struct Agent<'a> {
    seat: Box<dyn Seat + 'a>,
    ports: Vec<String>,
    runs: bool,
}

impl<'a> Agent<'a> {
    /// Starts the agent on these ports, each with its settings; returns when the datapath is on all of them.
    pub fn start(seat: Box<dyn Seat + 'a>, ports: &[Port], interrupt: &Interrupt) -> Result<Self, LabError> {
        let names = ports.iter().map(|port| port.device().to_owned()).collect();
        let mut agent = Self { seat, ports: names, runs: false };
        agent.seat.write("probe.key", PROBE_KEY)?;
        let config = config(agent.seat.directory(), ports)?;
        agent.seat.write("host.toml", &toml::to_string(&config).map_err(not_written)?)?;
        let state = agent.state();
        agent.seat.start(&with(&["host", "--config", "host.toml"], &state))?;
        agent.runs = true;
        let end = Instant::now() + LIMIT;
        while !agent.is_on_all_ports() {
            agent.check_alive()?;
            if Instant::now() > end {
                return Err(agent.failure(format!("its programs were not on all ports in time; {}", agent.said())));
            }
            interrupt.sleep(Duration::from_millis(50), || Ok(()))?;
        }
        Ok(agent)
    }

    fn failure(&self, why: impl Into<String>) -> LabError {
        LabError::Agent { why: why.into() }
    }

    /// The arguments that say where its state is.
    fn state(&self) -> [String; 4] {
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        let run = path(self.seat.directory().join("run"));
        ["--run-dir".to_owned(), run, "--pin-dir".to_owned(), path(self.seat.pins())]
    }

    fn said(&self) -> String {
        match self.seat.log().trim() {
            "" => "it said nothing".to_owned(),
            words => format!("it said: {words}"),
        }
    }

    /// An error if the agent has ended.
    pub fn check_alive(&mut self) -> Result<(), LabError> {
        match self.seat.ended()? {
            Some((_, how)) => Err(self.failure(format!("it ended ({how}); {}", self.said()))),
            None => Ok(()),
        }
    }

    fn status(&self) -> Result<Value, LabError> {
        let text = self.seat.ask(CONTROL_SOCKET, STATUS_REQUEST)?;
        serde_json::from_str(&text).map_err(|e| self.failure(format!("cannot read its answer: {e}")))
    }

    fn is_on_all_ports(&self) -> bool {
        self.status().is_ok_and(|status| {
            let ports = status["ports"].as_array();
            ports.is_some_and(|ports| {
                ports.len() == self.ports.len() && ports.iter().all(|port| port["error"].is_null())
            })
        })
    }

    /// Whether it is on this port.
    pub fn has(&self, port: &str) -> bool {
        self.ports.iter().any(|own| own == port)
    }

    /// Takes a port offline, because its VM is about to leave; returns when nothing is held for it.
    pub fn take_offline(&mut self, port: &str) -> Result<(), LabError> {
        self.check_alive()?;
        let ended = self.seat.run(&["port", "offline", port, "--json", "--socket", CONTROL_SOCKET])?;
        answer(&ended).map(drop).map_err(|why| self.failure(why))
    }

    /// What it has counted so far.
    pub fn read(&mut self) -> Result<Counted, LabError> {
        // Whether it is alive is asked only if it does not answer: that starts a program in a domain.
        let status = self.status().or_else(|error| self.check_alive().and(Err(error)))?;
        counted(&status).ok_or_else(|| self.failure(format!("cannot read its status: {status}")))
    }

    /// Ends the agent and takes its programs off; an error if it leaves anything.
    pub fn stop(mut self) -> Result<(), LabError> {
        self.check_alive()?;
        let said = self.stop_command()?;
        let removed = said["ports"].as_array().map_or(0, Vec::len);
        if removed != self.ports.len() {
            let ports = self.ports.join(", ");
            return Err(
                self.failure(format!("it was on {ports}, but `--stop` removed it from {removed} ports: {said}"))
            );
        }
        self.reap()?;
        if self.seat.has_pins()? {
            return Err(self.failure("`--stop` left pins behind"));
        }
        Ok(())
    }

    fn stop_command(&self) -> Result<Value, LabError> {
        let ended = self.seat.run(&with(&["host", "--stop", "--json"], &self.state()))?;
        answer(&ended).map_err(|why| self.failure(why))
    }

    fn reap(&mut self) -> Result<(), LabError> {
        let end = Instant::now() + LIMIT;
        loop {
            match self.seat.ended()? {
                Some((true, _)) => break,
                Some((false, how)) => return Err(self.failure(format!("it ended ({how}); {}", self.said()))),
                None if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
                None => return Err(self.failure("it was stopped, but does not end")),
            }
        }
        self.runs = false;
        Ok(())
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        if !self.runs {
            return;
        }
        if let Err(error) = self.stop_command() {
            tracing::debug!(%error, "the namespaces take the datapath along");
        }
        self.seat.kill();
    }
}

fn with<'a>(first: &[&'a str], rest: &'a [String]) -> Vec<&'a str> {
    first.iter().copied().chain(rest.iter().map(String::as_str)).collect()
}

/// The agent's configuration.
fn config(directory: &Path, ports: &[Port]) -> Result<Config, LabError> {
    let pattern = |name: &str| {
        Pattern::new(name).map_err(|why| LabError::Agent { why: format!("{} is no device: {why}", quoted(name)) })
    };
    let mut uplinks: Vec<&str> =
        ports.iter().filter(|port| port.cera.is_some()).map(|port| port.uplink.as_str()).collect();
    uplinks.dedup();
    // One agent plays all hosts, and has one controller.
    let cera = ports.iter().find_map(|port| port.cera.as_ref());
    Ok(Config {
        ports: ports.iter().map(|port| port.settings.pattern.clone()).collect(),
        // The scenario sets queues: `port_queue_segments` of the groups.
        port_queue_segments: Bounded::new(0),
        probe_key_file: directory.join("probe.key"),
        control: Control { socket: directory.join(CONTROL_SOCKET), ..Control::default() },
        metrics: Metrics { enabled: false, ..Metrics::default() },
        cera: Cera {
            uplinks: uplinks.into_iter().map(pattern).collect::<Result<_, _>>()?,
            ..cera.map_or_else(Cera::default, CeraOverride::in_scenario)
        },
        overrides: ports.iter().map(|port| port.settings.clone()).collect(),
        ..Config::default()
    })
}

fn not_written(error: toml::ser::Error) -> LabError {
    LabError::io("writing the agent's configuration", std::io::Error::other(error))
}

fn answer(ended: &Ended) -> Result<Value, String> {
    if !ended.success {
        return Err(ended.stderr.trim().to_owned());
    }
    serde_json::from_str(&ended.stdout).map_err(|e| format!("cannot read its answer: {e}"))
}

fn counted(status: &Value) -> Option<Counted> {
    let counts = |value: &Value| -> Option<Counts> {
        value.as_object()?.iter().map(|(name, count)| Some((name.clone(), count.as_i64()?))).collect()
    };
    let port = |port: &Value| Some((port["name"].as_str()?.to_owned(), counts(&port["counters"])?));
    let ports = status["ports"].as_array()?.iter().map(port).collect::<Option<_>>()?;
    let mut agent = counts(&status["agent"])?;
    for name in ["cuts", "epochs", "epochs_missed", "cpu_us"] {
        if let Some(count) = status["cera"][name].as_i64() {
            agent.insert(format!("cera_{name}"), count);
        }
    }
    Some(Counted { ports, agent })
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::format::{self, Proboscis, Vflood, Vsnoop};
    use evenkeel_settings::vflood::BufferPolicy;
    use serde_json::json;

    use super::*;

    /// As the agent reads it.
    fn config_of(groups: &[VmGroup]) -> Config {
        let ports: Vec<_> = (0..)
            .zip(groups)
            .map(|(n, group)| Port::of(&format!("vm{}", n + 1), "nic1", group, n).expect("a port"))
            .collect();
        let written = toml::to_string(&config(Path::new("/lab"), &ports).expect("made")).expect("written");
        Config::parse(&written, Path::new("host.toml")).expect("valid")
    }

    #[test]
    fn each_port_has_its_groups_settings() {
        let enforce = Proboscis { mode: Some(Mode::Enforce), g_probes: Some(Bounded::new(5)), ..Proboscis::default() };
        let config = config_of(&[VmGroup { proboscis: enforce, ..VmGroup::default() }, VmGroup::default()]);
        assert!(config.is_port("vm1") && config.is_port("vm2") && !config.is_port("vm3"));
        assert_eq!(config.control.socket, Path::new("/lab/host.sock"));
        let [one, two] = ["vm1", "vm2"].map(|name| config.settings(name));
        assert_eq!((one.proboscis.mode, one.proboscis.g_probes.get()), (Mode::Enforce, 5));
        assert_eq!(two.proboscis, Proboscis::default().in_scenario(), "off, and all else is the agent's");
        assert_eq!([two.vsnoop.mode, two.vflood.mode, two.cera.mode], [Mode::Off; 3]);
        assert_eq!(two.channel, None);
    }

    #[test]
    fn mechanisms_that_act_have_settings_and_a_port_its_own_weight() {
        let high_segments = Some(Bounded::new(25));
        let group = VmGroup {
            vsnoop: Vsnoop { mode: Some(Mode::Observe), budget_segments: Some(Bounded::new(9)), ..Vsnoop::default() },
            vflood: Vflood {
                set: VfloodOverride {
                    mode: Some(Mode::Enforce),
                    policy: Some(BufferPolicy::Priority),
                    ..VfloodOverride::default()
                },
                clients: Some(2),
            },
            cera: format::Cera {
                set: CeraOverride { mode: Some(Mode::Enforce), high_segments, ..CeraOverride::default() },
                weights: [1, 3].map(Bounded::new).into(),
                clients: Some(1),
                client_delay_us: None,
            },
            ..VmGroup::default()
        };
        let heard = Port::of("vm1", "nic1", &group, 0).expect("a port").with_channel(Path::new("/lab/channel"));
        assert_eq!(heard.settings.vsnoop.endpoint, None, "its agent's word is what counts");
        let config = config_of(&[group.clone(), group.clone(), group]);
        let port = config.settings("vm2");
        assert_eq!(port.vsnoop.budget_segments(1000), 9);
        assert_eq!(port.vsnoop.endpoint, Proof::Observed, "nobody in the VM vouches for it");
        assert_eq!(port.vflood.policy, BufferPolicy::Priority);
        assert_eq!(config.settings("vm3").vflood.mode, Mode::Off, "it is for two");
        assert_eq!((port.cera.mode, port.cera.weight.get()), (Mode::Enforce, 3));
        assert_eq!(config.settings("vm3").cera.weight.get(), 1, "they begin anew");
        assert_eq!(config.cera.uplinks, [Pattern::new("nic1").expect("a name")]);
        assert_eq!((config.cera.mode, config.cera.high_segments.get()), (Mode::Off, 25));
    }

    #[test]
    fn one_mechanism_can_be_alone_on_a_port() {
        let enforce = Proboscis { mode: Some(Mode::Enforce), ..Proboscis::default() };
        let vsnoop = Vsnoop { mode: Some(Mode::Enforce), ..Vsnoop::default() };
        let group = VmGroup { proboscis: enforce, vsnoop, ..VmGroup::default() };
        let port = || Port::of("vm1", "nic1", &group, 0).expect("a port");
        let modes = |port: &Port| (port.settings.proboscis.mode(), port.settings.vsnoop.mode());
        assert_eq!(modes(&port().with_only(Mechanism::Vsnoop)), (Mode::Off, Mode::Enforce));
        assert_eq!(modes(&port().without(Mechanism::Vsnoop)), (Mode::Enforce, Mode::Off));
    }

    #[test]
    fn a_channel_is_named() {
        let port =
            Port::of("vm1", "nic1", &VmGroup::default(), 0).expect("a port").with_channel(Path::new("/lab/a.channel"));
        let written = toml::to_string(&port.settings).expect("written");
        assert!(written.contains("channel = \"/lab/a.channel\""), "{written}");
    }

    #[test]
    fn counters_are_read_and_increase() {
        let status = |sent: i64| {
            let port = json!({ "name": "vm1", "error": null, "counters": { "probes_sent": sent } });
            counted(&json!({ "ports": [port], "agent": { "syns_resent": 2 * sent } })).expect("read")
        };
        let increase = status(30).since(&status(10));
        assert_eq!((increase.ports["vm1"]["probes_sent"], increase.agent["syns_resent"]), (20, 40));
        assert_eq!(counted(&json!({ "ports": [] })), None);
    }
}
