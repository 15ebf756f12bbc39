//! CERA on this host. Its controller, a thread that runs while some port needs it, looks at the uplink's queue every
//! epoch and divides one window among the host's VMs (`algo/cera/cera.h`). The programs are those of
//! `kernel/host/cera`.
//!
//! A VM with a client is told its window over its channel. Every VM's window is also a limit in memory that the
//! datapath reads, and that expires soon after the controller has died.

mod epoch;
pub mod metrics;
mod rate;
pub mod report;
mod setup;
mod thread;
mod uplink;

use evenkeel_settings::Mode;
use evenkeel_settings::host::{Config, PortSettings};

use self::report::{PortReport, report, report_port};
use self::setup::{Member, Setup};
use self::thread::{Controller, View};
use self::uplink::Uplinks;
use super::control::proto::{self, ExplainedFlow, Status};
use super::error::HostError;
use super::mechanism::{Asked, Mechanism, Presence, Tools, mode_to_intf};
use super::port::{Port, Ports, is_port};
use crate::datapath::{DatapathError, intf};

/// CERA's wing.
#[derive(Debug)]
pub(super) struct Wing {
    controller: Option<Controller>,
    /// Ports have changed since the controller heard of them.
    is_old: bool,
    error: Option<String>,
    /// What the controller saw when it was last asked.
    view: Option<View>,
}

impl Default for Wing {
    fn default() -> Self {
        Self { controller: None, is_old: true, error: None, view: None }
    }
}

fn members(ports: &Ports, tools: &Tools<'_>) -> Vec<Member> {
    let is_on = |port: &&Port| port.settings.cera.mode != Mode::Off && port.error.is_none();
    let member = |(ifindex, port): (&u32, &Port)| {
        let slot = tools.datapath.slot_of(*ifindex).ok().flatten()?;
        let (mode, weight) = (port.settings.cera.mode, port.settings.cera.weight.get());
        Some(Member { ifindex: *ifindex, slot, mode, weight })
    };
    ports.iter().filter(|(_, port)| is_on(port)).filter_map(member).collect()
}

/// Why CERA can do nothing on this host, whatever its ports: what the controller will find by itself, a moment later.
pub(super) fn lacks(config: &Config) -> Option<String> {
    if config.cera.uplinks.is_empty() {
        return Some("cera.uplinks names no network card that leads out of this host".to_owned());
    }
    let uplinks = Uplinks::new().map_err(|error| format!("the uplinks cannot be asked: {error}"));
    uplinks.and_then(|mut uplinks| uplinks.find(&config.cera, |name| is_port(config, name)).map(drop)).err()
}

fn start(setup: Setup, tools: &Tools<'_>) -> Result<Controller, HostError> {
    let config = tools.config.clone();
    let is_port = move |name: &str| is_port(&config, name);
    Controller::start(setup, tools.datapath.shares()?, tools.channels.clone(), is_port)
}

impl Mechanism for Wing {
    fn configure(&mut self, port: &Port, _: &mut Tools<'_>, own: &mut intf::ek_port) -> Result<(), DatapathError> {
        own.cera = intf::ek_cera_settings { mode: mode_to_intf(port.settings.cera.mode), ..Default::default() };
        Ok(())
    }

    fn changed(&mut self) {
        self.is_old = true;
    }

    fn reconfigured(&mut self, before: &Config, now: &Config) {
        // A running controller tells ports by the names in the old configuration.
        if before.ports != now.ports {
            self.controller = None;
        }
        self.is_old = true;
    }

    fn presence(&self, _settings: &PortSettings) -> Presence {
        Presence::None
    }

    fn tick(&mut self, _ports: &mut Ports, _tools: &mut Tools<'_>) {}

    /// Runs the controller if some port needs it, and tells it which ports do: once for many that come or go together.
    fn arrange(&mut self, ports: &Ports, tools: &mut Tools<'_>) {
        if !std::mem::take(&mut self.is_old) {
            return;
        }
        let setup = Setup { config: tools.config.cera.clone(), members: members(ports, tools) };
        self.error = None;
        match &self.controller {
            _ if setup.members.is_empty() => self.controller = None,
            Some(controller) => controller.set(setup),
            None => match start(setup, tools) {
                Ok(controller) => self.controller = Some(controller),
                Err(error) => {
                    tracing::error!(%error, "CERA does nothing");
                    self.error = Some(error.to_string());
                }
            },
        }
    }

    fn look(&mut self) {
        self.view = self.controller.as_ref().map(Controller::view);
    }

    fn port_status(&self, port: &Port, _: &mut Tools<'_>, shown: &mut proto::Port) -> Result<(), HostError> {
        shown.cera = self.port_report(port);
        Ok(())
    }

    fn status(&self, status: &mut Status) {
        status.cera = report(self.view.as_ref(), self.error.as_deref());
    }

    fn explain(
        &self,
        port: &Port,
        asked: Asked<'_>,
        _tools: &Tools<'_>,
        shown: &mut ExplainedFlow,
    ) -> Result<(), HostError> {
        let report = self.port_report(port);
        if asked.in_words && report.mode != Mode::Off {
            let failure = self.error.as_deref().or_else(|| self.view.as_ref()?.error.as_deref());
            shown.words.push(report.explain(shown.flow.is_local, failure));
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.controller = None;
    }
}

impl Wing {
    fn port_report(&self, port: &Port) -> PortReport {
        report_port(&port.settings.cera, self.view.as_ref(), port.link.ifindex)
    }
}
