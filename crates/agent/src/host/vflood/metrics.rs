//! vFlood's metrics.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use crate::host::control::proto::{Port, Status};
use crate::host::metrics::encode::{gauge, port_gauge};

/// Where it rests, and what it manages.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> Result<(), Error> {
    let help = "For how much of the last seconds the VM had no core, as the agent in it says";
    let off_core = |port: &Port| port.channel.as_ref()?.guest.as_ref()?.off_core_permille.map(u64::from);
    port_gauge(encoder, status, "port_off_core_permille", help, off_core)?;
    let help = "Whether vFlood rests, because the VM has its core (1)";
    let rests = |port: &Port| port.vflood.as_ref().map(|vflood| u64::from(vflood.rests));
    port_gauge(encoder, status, "port_vflood_rests", help, rests)?;
    let Some(managed) = status.vflood_connections else { return Ok(()) };
    gauge(encoder, "vflood_connections", "Connections that vFlood manages", managed)?;
    let help = "Connections that vFlood can manage at a time";
    gauge(encoder, "vflood_connections_max", help, status.vflood_connections_room)
}
