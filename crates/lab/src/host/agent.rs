//! The host agent in the lab: the real `evenkeel host` on the VMs' ports, started for a run and stopped after it, on
//! this machine or in a driver domain.
//!
//! On this machine, the namespace's mounts are the lab's own, with a bpf file system for the agent's pins: they are
//! gone with the last process in it, as ports and programs are, whatever ends the lab.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_scenario::format::{Cera, Mode, Vflood, VmGroup};
use serde::Serialize;
use serde_json::Value;
use toml::Table;

use super::seat::{Ended, Seat};
use crate::error::LabError;
use crate::interrupt::Interrupt;

/// How long the agent may take to have its programs on all ports, and to end.
const LIMIT: Duration = Duration::from_secs(60);
/// Any key will do: all hosts of the lab are this one agent's.
const PROBE_KEY: &str = "65766e6b65656c2d6c61622d70726f62\n";

/// What an agent is asked for its counters, at its control socket: what `evenkeel status --json` asks, without a
/// program more on a domain's processor. An agent that speaks another version says so in its answer, which is then an
/// error here.
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
    /// With what another agent has counted.
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
    device: String,
    /// Its host's.
    uplink: String,
    channel: Option<PathBuf>,
    /// A table for each mechanism, by its name.
    mechanisms: Table,
    /// CERA's settings of the port's whole host, if it is on there.
    cera: Option<Table>,
}

impl Port {
    /// The port of a group's VM with this number, counted from 0, on a host with this uplink.
    pub fn of(device: &str, uplink: &str, group: &VmGroup, number: u32) -> Result<Self, LabError> {
        // The agent observes with ProBoSCIS unless told otherwise; all else is off in it, too.
        let mut mechanisms = Table::from_iter([("proboscis".to_owned(), settings(&group.proboscis)?)]);
        let congestion_control = Some(group.host_congestion_control());
        let vflood = Vflood { clients: None, congestion_control, ..group.vflood.clone() };
        for (name, mode, table) in [
            ("vsnoop", group.vsnoop.mode, settings(&group.vsnoop)?),
            ("vflood", group.vflood.mode_of(number), settings(&vflood)?),
            ("cera", group.cera.mode, cera_of_port(&group.cera, number)),
        ] {
            if mode != Mode::Off {
                mechanisms.insert(name.to_owned(), table);
            }
        }
        let cera = if group.cera.mode == Mode::Off { None } else { Some(cera_of_host(&group.cera)?) };
        Ok(Self { device: device.to_owned(), uplink: uplink.to_owned(), channel: None, mechanisms, cera })
    }

    /// With one of the mechanisms only.
    pub fn with_only(mut self, mechanism: &str) -> Self {
        self.mechanisms.retain(|name, _| name == mechanism);
        let off = Table::from_iter([("mode".to_owned(), "off".into())]);
        self.mechanisms.insert("proboscis".to_owned(), off.into());
        self.cera = None;
        self
    }

    /// Without one of the mechanisms.
    pub fn without(mut self, mechanism: &str) -> Self {
        self.mechanisms.remove(mechanism);
        self
    }

    /// With the guest's channel: a socket or a character device.
    pub fn with_channel(self, channel: PathBuf) -> Self {
        Self { channel: Some(channel), ..self }
    }

    /// Its part of the agent's configuration.
    fn table(&self) -> Table {
        let channel = self.channel.as_ref().map(|path| ("channel".to_owned(), path_value(path)));
        let head = std::iter::once(("match".to_owned(), self.device.as_str().into())).chain(channel);
        let mut mechanisms = self.mechanisms.clone();
        // No agent in the VM vouches for it.
        if let (None, Some(vsnoop)) = (&self.channel, mechanisms.get_mut("vsnoop").and_then(toml::Value::as_table_mut))
        {
            vsnoop.insert("endpoint".to_owned(), "observed".into());
        }
        head.chain(mechanisms).collect()
    }
}

/// Settings as the agent reads them: a scenario's keys are the agent's.
fn settings(table: &impl Serialize) -> Result<toml::Value, LabError> {
    toml::Value::try_from(table).map_err(not_written)
}

/// What holds on one port. A group has weights by number, and a port its own.
fn cera_of_port(group: &Cera, number: u32) -> toml::Value {
    let mode = match group.mode {
        Mode::Off => "off",
        Mode::Observe => "observe",
        Mode::Enforce => "enforce",
    };
    let mut table = Table::from_iter([("mode".to_owned(), mode.into())]);
    if let Some(weight) = group.weights.iter().cycle().nth(number as usize) {
        table.insert("weight".to_owned(), i64::from(*weight).into());
    }
    table.into()
}

/// What holds on a whole host. Which guests have a client is not its to know.
fn cera_of_host(group: &Cera) -> Result<Table, LabError> {
    let alike = Cera { weights: Vec::new(), clients: None, client_delay_us: None, ..group.clone() };
    let mut table = Table::try_from(&alike).map_err(not_written)?;
    table.remove("mode");
    Ok(table)
}

fn not_written(error: toml::ser::Error) -> LabError {
    LabError::io("writing the agent's configuration", std::io::Error::other(error))
}

fn path_value(path: &Path) -> toml::Value {
    path.to_string_lossy().into_owned().into()
}

/// A running agent. Dropped, it is stopped as well as can be.
#[derive(Debug)]
pub struct Agent<'a> {
    seat: Box<dyn Seat + 'a>,
    ports: Vec<String>,
    runs: bool,
}

impl<'a> Agent<'a> {
    /// Starts the agent on these ports, each with its settings; comes back when the datapath is on all of them.
    pub fn start(seat: Box<dyn Seat + 'a>, ports: &[Port], interrupt: &Interrupt) -> Result<Self, LabError> {
        let names = ports.iter().map(|port| port.device.clone()).collect();
        let mut agent = Self { seat, ports: names, runs: false };
        agent.seat.write("probe.key", PROBE_KEY)?;
        agent.seat.write("host.toml", &config(agent.seat.directory(), ports)?)?;
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

    /// Takes a port offline, because its VM is about to leave; comes back when nothing is held for it.
    pub fn take_offline(&mut self, port: &str) -> Result<(), LabError> {
        self.check_alive()?;
        let ended = self.seat.run(&["port", "offline", port, "--json", "--socket", CONTROL_SOCKET])?;
        answer(&ended).map(drop).map_err(|why| self.failure(why))
    }

    /// What it has counted so far.
    pub fn read(&mut self) -> Result<Counted, LabError> {
        self.check_alive()?;
        let status = self.status()?;
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
fn config(directory: &Path, ports: &[Port]) -> Result<String, LabError> {
    let table = |pairs: Vec<(&str, toml::Value)>| -> Table {
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    };
    let mut config = table(vec![
        ("ports", ports.iter().map(|port| port.device.as_str()).collect::<Vec<_>>().into()),
        // The scenario sets queues: `port_queue_segments` of the groups.
        ("port_queue_segments", 0.into()),
        ("probe_key_file", path_value(&directory.join("probe.key"))),
        ("control", table(vec![("socket", path_value(&directory.join(CONTROL_SOCKET)))]).into()),
        ("metrics", table(vec![("enabled", false.into())]).into()),
        ("port", ports.iter().map(Port::table).collect::<Vec<_>>().into()),
    ]);
    let mut uplinks: Vec<&str> =
        ports.iter().filter(|port| port.mechanisms.contains_key("cera")).map(|port| port.uplink.as_str()).collect();
    uplinks.dedup();
    // One agent plays all hosts, and has one controller.
    if let Some(mut cera) = ports.iter().find_map(|port| port.cera.clone()) {
        cera.insert("uplinks".to_owned(), uplinks.into());
        config.insert("cera".to_owned(), cera.into());
    }
    toml::to_string(&config).map_err(not_written)
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
    use evenkeel_scenario::format::{BufferPolicy, Proboscis, Vflood, Vsnoop};
    use serde_json::json;

    use super::*;

    fn config_of(groups: &[VmGroup]) -> Table {
        let ports: Vec<_> = (0..)
            .zip(groups)
            .map(|(n, group)| Port::of(&format!("vm{}", n + 1), "nic1", group, n).expect("a port"))
            .collect();
        config(Path::new("/lab"), &ports).expect("written").parse().expect("TOML")
    }

    #[test]
    fn each_port_has_its_groups_settings() {
        let enforce = Proboscis { mode: Mode::Enforce, g_probes: Some(5), ..Proboscis::default() };
        let config = config_of(&[VmGroup { proboscis: enforce, ..VmGroup::default() }, VmGroup::default()]);
        assert_eq!(config["ports"], toml::Value::from(vec!["vm1", "vm2"]));
        assert_eq!(config["control"]["socket"].as_str(), Some("/lab/host.sock"));
        assert_eq!(config["port"][0]["proboscis"]["mode"].as_str(), Some("enforce"));
        assert_eq!(config["port"][0]["proboscis"]["g_probes"].as_integer(), Some(5));
        assert_eq!(config["port"][1]["match"].as_str(), Some("vm2"));
        assert_eq!(config["port"][1]["proboscis"].as_table().map(Table::len), Some(1), "only the mode");
        let tables = config["port"][1].as_table().expect("a table");
        assert!(["vsnoop", "vflood", "cera", "channel"].iter().all(|key| !tables.contains_key(*key)), "{tables}");
    }

    #[test]
    fn mechanisms_that_act_have_tables_and_a_port_its_own_weight() {
        let group = VmGroup {
            vsnoop: Vsnoop { mode: Mode::Observe, budget_segments: Some(9) },
            vflood: Vflood { mode: Mode::Enforce, policy: BufferPolicy::Priority, ..Vflood::default() },
            cera: Cera {
                mode: Mode::Enforce,
                weights: vec![1, 3],
                clients: Some(1),
                high_segments: Some(25),
                ..Cera::default()
            },
            ..VmGroup::default()
        };
        let heard = Port::of("vm1", "nic1", &group, 0).expect("a port").with_channel("/lab/channel".into());
        assert!(heard.table()["vsnoop"].get("endpoint").is_none(), "its agent's word is what counts");
        let config = config_of(&[group.clone(), group.clone(), group]);
        let port = &config["port"][1];
        assert_eq!(port["vsnoop"]["budget_segments"].as_integer(), Some(9));
        assert_eq!(port["vsnoop"]["endpoint"].as_str(), Some("observed"), "nobody in the VM vouches for it");
        assert_eq!(port["vflood"]["policy"].as_str(), Some("priority"));
        assert_eq!(port["cera"]["weight"].as_integer(), Some(3));
        assert_eq!(config["cera"]["uplinks"], toml::Value::from(vec!["nic1"]));
        assert_eq!(config["cera"]["high_segments"].as_integer(), Some(25));
        assert!(config["cera"].get("mode").is_none() && config["cera"].get("weights").is_none(), "{config}");
        assert!(port["cera"].get("high_segments").is_none(), "{port}");
        assert_eq!(config["port"][2]["cera"]["weight"].as_integer(), Some(1), "they begin anew");
        assert!(port["cera"].get("weights").or(port["cera"].get("clients")).is_none(), "{port}");
    }

    #[test]
    fn a_channel_is_named() {
        let port =
            Port::of("vm1", "nic1", &VmGroup::default(), 0).expect("a port").with_channel("/lab/a.channel".into());
        assert_eq!(port.table()["channel"].as_str(), Some("/lab/a.channel"));
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
