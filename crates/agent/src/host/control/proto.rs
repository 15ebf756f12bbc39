//! What is said on the control socket: one JSON object a line, each way.
//!
//! The client sends a [`Request`]; the agent answers with [`Response`]s. An agent that was asked in another version
//! refuses and says which it speaks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::channel::LineStatus;
use crate::channel::wire::Capabilities;
use crate::datapath::Others;
use crate::features::{Hook, Part};
use crate::host::cera::report as cera;
use crate::host::control::lease::{Completion, Leased, Trial, Wanted};
pub use crate::host::flow::{Flow, Tuple};
use crate::host::tap::TapFlags;
pub use crate::host::vflood::report::{VfloodFlow, VfloodPort};
use crate::host::vms::Vm;
pub use crate::host::vsnoop::report::{VsnoopFlow, VsnoopPort};
use evenkeel_settings::Mode;

/// Version of the protocol.
pub const VERSION: u32 = 1;

/// A line from the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// What is asked.
    pub ask: Ask,
}

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// What the agent does: one [`Response::Status`].
    Status,
    /// Connections: a [`Response::Flow`] each, then [`Response::End`].
    Flows {
        /// Only this one, in words as well.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tuple: Option<Tuple>,
        /// At most this many, those with the most bytes first; all if not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    },
    /// To take a port offline before its VM leaves, or online again: one [`Response::Done`], at once; [`Port::offline`]
    /// says what is left to wait for.
    Switch {
        /// The port's name.
        port: String,
        /// Whether it is to be online.
        online: bool,
    },
    /// A lease: [`Response::Leased`].
    Lease(Wanted),
    /// To renew a lease: [`Response::Completions`], as many as there are, then [`Response::Leased`].
    Renew {
        /// Its number.
        id: u64,
        /// The mode from now on.
        mode: Mode,
        /// How long it holds from now on, in milliseconds.
        for_ms: u32,
    },
    /// To take a lease back: what is configured holds again, and the answer is that of a renewal.
    Return {
        /// Its number.
        id: u64,
    },
    /// To remove everything and end: one [`Response::Stopped`].
    Stop,
}

/// A line from the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Response {
    /// Answer to [`Ask::Status`].
    Status(Box<Status>),
    /// A connection.
    Flow(Box<ExplainedFlow>),
    /// No more connections.
    End {
        /// How many there are in all.
        total: u64,
    },
    /// Answer to [`Ask::Switch`].
    Done,
    /// Exchanges that are over, on ports of a lease.
    Completions {
        /// In no order.
        list: Vec<Completion>,
    },
    /// A lease holds, or was taken back.
    Leased(Leased),
    /// Answer to [`Ask::Stop`].
    Stopped(Stopped),
    /// The other answer to it: the agent ends, but not everything could be put back.
    Stays {
        /// What is not, and why.
        why: String,
    },
    /// It was not understood, or could not be done.
    Refused {
        /// What was wrong; goes on from "the agent at SOCKET".
        why: String,
    },
}

/// A connection, in words if that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedFlow {
    /// The connection.
    #[serde(flatten)]
    pub flow: Flow,
    /// vSnoop on it, if it knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vsnoop: Option<VsnoopFlow>,
    /// vFlood on it, if it manages it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vflood: Option<VfloodFlow>,
    /// Which mechanism set its window, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
}

/// What the agent does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Since it started, in seconds.
    pub uptime_s: u64,
    /// Whether it took a running datapath over.
    pub took_over: bool,
    /// Its configuration file.
    pub config: PathBuf,
    /// Whether there was no such file, and the defaults hold.
    #[serde(default)]
    pub config_is_default: bool,
    /// Why the file was refused when it was last read again; the settings before it hold.
    pub config_refused: Option<String>,
    /// Why what was changed on this host could not be noted; no more queues are changed before it can.
    #[serde(default)]
    pub notes_error: Option<String>,
    /// How the programs are attached to ports.
    #[serde(default)]
    pub attach: Option<Hook>,
    /// Mechanisms that cannot work on this kernel.
    #[serde(default)]
    pub lacking: Vec<Lacking>,
    /// Keys that sign and verify probes; 0: no probes.
    pub probe_keys: u32,
    /// Connections in the table.
    pub flows: u64,
    /// How many connections fit into the table.
    pub flows_room: u64,
    /// Connections that vFlood manages; nothing where it is off on all ports.
    #[serde(default)]
    pub vflood_connections: Option<u64>,
    /// How many of these there can be.
    #[serde(default)]
    pub vflood_connections_room: u64,
    /// SYNs without an answer that are cared for.
    pub syns_pending: u64,
    /// SYN-ACKs that wait for late probes.
    pub synacks_held: u64,
    /// CERA's controller; nothing if it is off on all ports.
    #[serde(default)]
    pub cera: Option<cera::Report>,
    /// Ports, by name.
    pub ports: Vec<Port>,
    /// Sums over all ports since the datapath was loaded.
    pub counters: BTreeMap<String, u64>,
    /// What the agent itself has counted since it started.
    pub agent: BTreeMap<String, u64>,
}

/// A mechanism that cannot work on this kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacking {
    /// Which.
    pub part: Part,
    /// What it lacks, in words.
    pub why: String,
}

/// A port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Name; in another network namespace than the agent's `NAMESPACE/DEVICE`.
    pub name: String,
    /// Index of the device in its namespace.
    pub ifindex: u32,
    /// What ProBoSCIS may do there.
    pub mode: Mode,
    /// CERA there.
    pub cera: cera::PortReport,
    /// Why the datapath is not on it, or something of it cannot be read.
    pub error: Option<String>,
    /// What is left to wait for, if it is offline.
    #[serde(default)]
    pub offline: Option<Left>,
    /// A trial on it.
    #[serde(default)]
    pub trial: Option<Trial>,
    /// vSnoop there, if it is not off.
    pub vsnoop: Option<VsnoopPort>,
    /// vFlood there, if it is not off.
    pub vflood: Option<VfloodPort>,
    /// The channel to its guest's agent, if the configuration names one.
    pub channel: Option<Channel>,
    /// The VM that it leads to, if that is known.
    #[serde(default)]
    pub vm: Option<Vm>,
    /// How it was made, if it is a tap.
    #[serde(default)]
    pub tap: Option<TapFlags>,
    /// Programs of others on it.
    #[serde(default)]
    pub others: Others,
    /// Length of its queue, in packets.
    pub queue_segments: u32,
    /// Length that it had, if it was raised.
    pub queue_before_segments: Option<u32>,
    /// Its counters since the datapath was put on it.
    pub counters: BTreeMap<String, u64>,
}

impl Port {
    /// What its VM is called.
    pub fn domain(&self) -> Option<&str> {
        self.vm.as_ref()?.name.as_deref()
    }
}

/// What a VM must not leave behind when it moves to another host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Segments that vFlood still holds.
    pub held_segments: u32,
    /// Connections with data that vSnoop has acknowledged and the VM has not.
    pub promised_connections: u64,
    /// Whether the guest has not yet said that it floods no more.
    pub guest_floods: bool,
}

impl Left {
    /// Whether the VM can go.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The channel to a guest's agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// Where it is; `libvirt` or `auto` if it is to be found and is not.
    pub address: String,
    /// Whether there is a connection; a guest need not be at the other end.
    pub is_connected: bool,
    /// Why there is none.
    pub trouble: Option<String>,
    /// The guest's agent, if its heartbeats come.
    pub guest: Option<Guest>,
    /// Messages that came.
    pub messages: u64,
    /// Bytes that were no message.
    pub garbage_bytes: u64,
    /// Times that the guest was not listened to for a second, because it sent more than it may.
    pub rests: u64,
}

/// A guest's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Whether it has vFlood's congestion control.
    pub has_vflood: bool,
    /// Whether its sockets flood.
    pub is_flooding: bool,
    /// Whether it shares out CERA's window.
    pub has_cera: bool,
    /// The last epoch whose window it has shared out; 0: none.
    pub epoch: u64,
    /// For how much of the last seconds it had no core; nothing where it does not know.
    #[serde(default)]
    pub off_core_permille: Option<u16>,
}

impl From<LineStatus> for Channel {
    fn from(line: LineStatus) -> Self {
        Self {
            address: line.address.to_string(),
            is_connected: line.is_connected,
            trouble: line.trouble,
            guest: line.guest.map(|guest| Guest {
                has_vflood: guest.capabilities.has(Capabilities::VFLOOD),
                is_flooding: guest.is_flooding,
                has_cera: guest.capabilities.has(Capabilities::CERA),
                epoch: guest.epoch,
                off_core_permille: guest.off_core_permille,
            }),
            messages: line.counts.messages,
            garbage_bytes: line.counts.garbage_bytes,
            rests: line.counts.rests,
        }
    }
}

/// What was removed and put back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Ports that the datapath was taken off.
    pub ports: Vec<String>,
    /// Queues that were put back.
    pub queues: Vec<RestoredQueue>,
    /// Queues that somebody else has set since: they stay.
    pub left: Vec<String>,
}

/// A queue that was put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredQueue {
    /// The port.
    pub port: String,
    /// Its length before evenkeel, in packets.
    pub segments: u32,
}
