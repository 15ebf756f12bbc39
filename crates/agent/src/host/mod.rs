//! The host agent: it keeps the datapath on the ports of VMs, sends again what was lost, and tells what happens.
//!
//! [`run`] is the agent, [`stop`] undoes all it did, [`Client`] asks one that runs.

mod cera;
mod control;
mod core;
mod crowd;
mod devices;
mod error;
mod flow;
mod fresh;
mod http;
mod lease;
mod limits;
mod links;
mod lock;
mod mechanism;
mod metrics;
mod namespaces;
mod port;
mod proboscis;
mod settle;
mod state;
mod stop;
mod supervisor;
mod tap;
mod vflood;
mod vlan;
mod vms;
mod vsnoop;
mod watch;
mod wings;

pub use cera::report::{PortReport as CeraPortReport, Report as CeraReport, UplinkReport};
pub use control::client::Client;
pub use control::lease::{Completion, Leased, Trial, Wanted};
pub use control::proto::{Ask, Channel, ExplainedFlow, Guest, Lacking, Left, Port, RestoredQueue, Status, Stopped};
pub use error::HostError;
pub use flow::{Answer, Ecn, Flow, Probes, SetBy, Tuple, Window};
pub use metrics::AGENT_COUNTERS;
pub use stop::stop;
pub use supervisor::{Checked, Options, check, check_pins, run};
pub use tap::TapFlags;
pub use vflood::report::{VfloodFlow, VfloodPort, VfloodState};
pub use vlan::{Vlan, VlanProtocol};
pub use vms::{FoundBy, Vm};
pub use vsnoop::Endpoint;
pub use vsnoop::report::{QueueState, VsnoopFlow, VsnoopPort, VsnoopState};
