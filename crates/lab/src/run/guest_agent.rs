//! The real `evenkeel guest` in those VMs whose group gives it something to do.

use std::time::{Duration, Instant};

use evenkeel_scenario::format::{Cera, VmGroup};
use evenkeel_settings::Mode;
use evenkeel_settings::cera::CeraGuest;
use evenkeel_settings::guest::Config;
use evenkeel_settings::vflood::{Shadow, VfloodGuest};
use serde_json::Value;

use crate::error::LabError;
use crate::host::vm::Vm;
use crate::interrupt::Interrupt;
use crate::proto::{Answer, Op};
use crate::workload::task::started;

/// How long the agent may take to be ready: its programs are verified in a slow VM that is off its core most of the
/// time.
const LIMIT: Duration = Duration::from_secs(60);
const CONFIG: &str = "/run/evenkeel-guest.toml";
const LOG: &str = "/run/evenkeel-guest.log";

/// Whether a group's VM with this number has the agent: vFlood has a part in guests, and CERA in those that it has
/// clients in.
pub fn is_wanted(group: &VmGroup, number: u32) -> bool {
    group.vflood.mode_of(number) != Mode::Off || has_client(&group.cera, number)
}

fn has_client(cera: &Cera, number: u32) -> bool {
    cera.mode() != Mode::Off && cera.clients.is_none_or(|clients| number < clients)
}

/// A running agent.
#[derive(Debug)]
pub struct GuestAgent<'a> {
    vm: &'a Vm,
    task: u64,
    /// The host is to attest that it holds the VM's packets.
    is_attested: bool,
    /// It may rest, once it knows how much of the time the VM's core is missing.
    may_rest: bool,
}

impl<'a> GuestAgent<'a> {
    /// Starts it; returns when the host's agent is there and, with vFlood, has attested that it holds the VM's packets,
    /// or can tell whether to rest.
    pub fn start(vm: &'a Vm, group: &VmGroup, interrupt: &Interrupt) -> Result<Self, LabError> {
        let text = toml::to_string(&config(group, vm.spec.number))
            .map_err(|error| LabError::Vm { name: vm.spec.name.clone(), why: error.to_string() })?;
        vm.call(Op::WriteFile { path: CONFIG.to_owned(), text })?;
        let line = format!("exec evenkeel guest --config {CONFIG} 2>{LOG}");
        let argv = ["/bin/sh", "-c", &line].map(str::to_owned).to_vec();
        let floods = group.vflood.mode_of(vm.spec.number) == Mode::Enforce;
        let may_rest = group.vflood().off_core_percent.get() != 0;
        let agent = Self {
            vm,
            task: started(vm, Op::Spawn { argv })?,
            is_attested: floods && !may_rest,
            may_rest: floods && may_rest,
        };
        agent.wait_ready(interrupt)?;
        Ok(agent)
    }

    /// The VM that it is in.
    pub fn vm(&self) -> &Vm {
        self.vm
    }

    /// Waits until the host's agent is there and, with vFlood, has attested that it holds the VM's packets, or can tell
    /// whether to rest.
    pub fn wait_ready(&self, interrupt: &Interrupt) -> Result<(), LabError> {
        let end = Instant::now() + LIMIT;
        while !self.is_ready()? {
            if Instant::now() > end {
                let said = self.vm.shell(&format!("cat {LOG}"))?;
                return Err(self.failure(format!("`evenkeel guest` was not ready in time; it said: {}", said.trim())));
            }
            interrupt.sleep(Duration::from_millis(100), || self.vm.check_alive())?;
        }
        Ok(())
    }

    fn failure(&self, why: String) -> LabError {
        LabError::Vm { name: self.vm.spec.name.clone(), why }
    }

    fn evenkeel(&self, argument: &str) -> Result<Value, LabError> {
        let argv = ["evenkeel", "guest", argument, "--json"].map(str::to_owned).to_vec();
        match self.vm.call(Op::Exec { argv })? {
            Answer::Exec { status: 0, stdout, .. } => serde_json::from_str(&stdout)
                .map_err(|e| self.failure(format!("cannot read the answer of `evenkeel guest {argument}`: {e}"))),
            other => Err(self.failure(format!("`evenkeel guest {argument}` failed: {other:?}"))),
        }
    }

    fn is_ready(&self) -> Result<bool, LabError> {
        let status = self.evenkeel("--status")?;
        let attested = status["attested_ms"].as_u64().is_some_and(|left| left > 0);
        let is_known = status["off_core_permille"].is_u64();
        Ok(status["has_host"] == true && (attested || !self.is_attested) && (is_known || !self.may_rest))
    }

    /// Ends it, with all that it changed put back.
    pub fn stop(self) -> Result<(), LabError> {
        self.evenkeel("--stop")?;
        self.vm.call(Op::Kill { task: self.task }).map(drop)
    }
}

/// The agent's configuration.
fn config(group: &VmGroup, number: u32) -> Config {
    let vflood = group.vflood.mode_of(number);
    let floods = vflood != Mode::Off;
    let shadow = match group.tcp.congestion_control() {
        "reno" if floods => Shadow::Reno,
        _ => Shadow::Cubic,
    };
    let cera = if has_client(&group.cera, number) { group.cera.mode() } else { Mode::Off };
    Config {
        vflood: VfloodGuest { mode: vflood, default: floods, congestion_control: shadow, ..VfloodGuest::default() },
        cera: CeraGuest { mode: cera, ..CeraGuest::default() },
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::format::{Era, GuestTcp, Vflood};
    use evenkeel_settings::cera::CeraOverride;
    use evenkeel_settings::vflood::VfloodOverride;

    use std::path::Path;

    use super::*;

    fn vflood(clients: Option<u32>) -> Vflood {
        Vflood { set: VfloodOverride { mode: Some(Mode::Enforce), ..VfloodOverride::default() }, clients }
    }

    #[test]
    fn a_guest_has_what_its_group_asks_for() {
        let tcp = GuestTcp { era: Era::Paper, ..GuestTcp::default() };
        let group = VmGroup { vflood: vflood(None), tcp, ..VmGroup::default() };
        assert!(is_wanted(&group, 0));
        let config = config(&group, 0);
        assert_eq!((config.vflood.mode, config.vflood.default), (Mode::Enforce, true));
        assert_eq!((config.vflood.congestion_control, config.cera.mode), (Shadow::Reno, Mode::Off));
        let written = toml::to_string(&config).expect("written");
        assert_eq!(Config::parse(&written, Path::new("guest.toml")).expect("valid"), config);
    }

    #[test]
    fn so_many_of_a_group_have_ceras_client() {
        let set = CeraOverride { mode: Some(Mode::Enforce), ..CeraOverride::default() };
        let group = VmGroup { cera: Cera { set, clients: Some(1), ..Cera::default() }, ..VmGroup::default() };
        assert_eq!([0, 1].map(|number| is_wanted(&group, number)), [true, false]);
        assert_eq!((config(&group, 0).cera.mode, config(&group, 0).vflood.mode), (Mode::Enforce, Mode::Off));
    }

    #[test]
    fn so_many_of_a_group_have_vflood() {
        let group = VmGroup { vflood: vflood(Some(1)), count: 2, ..VmGroup::default() };
        assert_eq!([0, 1].map(|number| is_wanted(&group, number)), [true, false]);
    }
}
