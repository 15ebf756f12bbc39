//! What a mechanism is to the agent: a wing of its own, behind one trait. The core keeps ports and their queues, and
//! asks the wings in turn; no wing knows another.

use std::fmt;
use std::time::Duration;

use evenkeel_settings::Mode;
use evenkeel_settings::host::{Config, PortSettings};

use super::control::proto::{self, ExplainedFlow, Status};
use super::error::HostError;
use super::port::{Port, Ports};
use crate::channel::Channels;
use crate::datapath::{Datapath, DatapathError, intf};

/// How often a wing looks through its connections for silent ones.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// What wings work with.
pub(super) struct Tools<'a> {
    /// The programs and their maps.
    pub datapath: &'a mut Datapath,
    /// The channels to guests' agents.
    pub channels: &'a Channels,
    /// The configuration that holds.
    pub config: &'a Config,
}

/// A connection that is asked about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Its key.
    pub key: &'a intf::ek_flow_key,
    /// What the programs know of it.
    pub entry: &'a intf::ek_flow,
    /// Whether it is to be explained in words, too.
    pub in_words: bool,
}

/// Whether the datapath must know that an agent is here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Presence {
    /// It need not.
    #[default]
    None,
    /// It must; it holds nothing for the agent's timers.
    Leisure,
    /// It must, and is to notice soon when nobody is here any more.
    Close,
}

/// A mechanism on this host.
pub(super) trait Mechanism: fmt::Debug {
    /// A port is new: what was known of another device with its index is not about it.
    fn begin(&mut self, _ifindex: u32) {}

    /// Writes its part of a port's settings.
    ///
    /// # Errors
    /// What cannot be read of the port.
    fn configure(&mut self, port: &Port, tools: &mut Tools<'_>, own: &mut intf::ek_port) -> Result<(), DatapathError>;

    /// The programs are on a port with these settings.
    ///
    /// # Errors
    /// What cannot be read of the port.
    fn served(&mut self, _port: &Port, _tools: &mut Tools<'_>) -> Result<(), DatapathError> {
        Ok(())
    }

    /// A port is served, with settings that have changed or not, and its guest's channel is open.
    ///
    /// # Errors
    /// What cannot be read of the port.
    fn attend(&mut self, _port: &Port, _tools: &mut Tools<'_>) -> Result<(), DatapathError> {
        Ok(())
    }

    /// Ports have come, gone or changed.
    fn changed(&mut self) {}

    /// A port is gone, or is no port any more.
    fn gone(&mut self, _ifindex: u32) {}

    /// The programs were taken off a port; `stays` if they remain until what is held is out.
    fn detached(&mut self, _stays: bool) {}

    /// Another configuration holds from now on.
    fn reconfigured(&mut self, _before: &Config, _now: &Config) {}

    /// Whether the datapath must know that an agent is here, for a port with these settings.
    fn presence(&self, settings: &PortSettings) -> Presence;

    /// The same, whatever ports there are.
    fn lasting_presence(&self) -> Presence {
        Presence::None
    }

    /// Does what is due, at every heartbeat.
    fn tick(&mut self, ports: &mut Ports, tools: &mut Tools<'_>);

    /// All devices that there was news of have been looked at.
    fn arrange(&mut self, _ports: &Ports, _tools: &mut Tools<'_>) {}

    /// Status or connections are about to be asked for: looks once at what is costly to see.
    fn look(&mut self) {}

    /// Its part of what `status` says of a port.
    ///
    /// # Errors
    /// [`HostError::Datapath`] if its maps cannot be read.
    fn port_status(&self, port: &Port, tools: &mut Tools<'_>, shown: &mut proto::Port) -> Result<(), HostError>;

    /// Its part of what `status` says of the host, whose ports are there already.
    fn status(&self, _status: &mut Status) {}

    /// Its part of what `flows` says of a connection.
    ///
    /// # Errors
    /// [`HostError::Datapath`] if its maps cannot be read.
    fn explain(
        &self,
        port: &Port,
        asked: Asked<'_>,
        tools: &Tools<'_>,
        shown: &mut ExplainedFlow,
    ) -> Result<(), HostError>;

    /// Everything is undone.
    fn stop(&mut self) {}
}

/// A mode as the datapath has it.
pub(super) fn mode_to_intf(mode: Mode) -> u32 {
    match mode {
        Mode::Off => intf::EK_MODE_OFF,
        Mode::Observe => intf::EK_MODE_OBSERVE,
        Mode::Enforce => intf::EK_MODE_ENFORCE,
    }
}
