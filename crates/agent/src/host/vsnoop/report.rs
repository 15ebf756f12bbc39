//! vSnoop as users see it: why a port has early ACKs or none, and what of a connection was acknowledged.

use evenkeel_settings::Mode;
use serde::{Deserialize, Serialize};

use super::doubt::Doubt;
use super::endpoint::Endpoint;
use super::vcpus::Vcpus;
use crate::datapath::intf;

/// vSnoop on a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VsnoopPort {
    /// What it may do.
    pub mode: Mode,
    /// What may be acknowledged early and wait at the port.
    pub budget_segments: u32,
    /// What was, or may be, acknowledged early and waits there now.
    pub outstanding_segments: u32,
    /// What senders may still send on the early ACKs that they got.
    #[serde(default)]
    pub coming_segments: u32,
    /// Whether the port's queue would take a packet now.
    pub queue: QueueState,
    /// Whether the VM's own TCP is known to take what its windows have offered.
    #[serde(default)]
    pub endpoint: Endpoint,
    /// What its agent says against that, in words.
    #[serde(default)]
    pub objections: Vec<String>,
    /// A doubt that the VM itself has raised: nothing is acknowledged for it until its port is made anew, or vSnoop is
    /// off there.
    #[serde(default)]
    pub doubt: Option<Doubt>,
    /// The VM's virtual CPUs, which show whether it has its core.
    #[serde(default)]
    pub vcpus: Vcpus,
}

impl VsnoopPort {
    /// All reasons why nothing is acknowledged early; empty if data is.
    pub fn obstacles(&self) -> Vec<String> {
        let of_vm = match self.endpoint {
            Endpoint::Unknown => Some(
                "no agent in the VM vouches for its TCP (start `evenkeel guest` there, or set vsnoop.endpoint = \
                 \"observed\")"
                    .to_owned(),
            ),
            Endpoint::Unfit => {
                let objections = self.objections.join("; ");
                Some(format!("its agent says that the VM may drop what it has offered room for: {objections}"))
            }
            Endpoint::Observed | Endpoint::Attested => None,
        };
        let shown = self.doubt.map(|doubt| doubt.words().to_owned());
        self.queue
            .obstacle()
            .map(str::to_owned)
            .into_iter()
            .chain(of_vm)
            .chain(shown)
            .chain(self.vcpus.obstacle())
            .collect()
    }
}

/// What is known of a port's queue. Only with [`QueueState::Free`] is data acknowledged early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueState {
    /// It has room.
    Free,
    /// Too little is free just now.
    Full,
    /// Packets wait before the queue just now.
    Waiting,
    /// The root qdisc may drop what it likes.
    Qdisc,
    /// The tap has a filter, which may drop.
    Filtered,
    /// Nobody has the tap open: the VM does not run.
    Detached,
    /// The device has more queues than are looked at.
    Queues,
    /// This kernel does not say.
    Unreadable,
    /// The port is no tap.
    NoTap,
}

impl QueueState {
    pub(super) fn of(queue: intf::ek_vsnoop_ring) -> Self {
        match queue {
            intf::EK_VSNOOP_RING_FREE => Self::Free,
            intf::EK_VSNOOP_RING_FULL => Self::Full,
            intf::EK_VSNOOP_RING_WAITING => Self::Waiting,
            intf::EK_VSNOOP_RING_QDISC => Self::Qdisc,
            intf::EK_VSNOOP_RING_FILTERED => Self::Filtered,
            intf::EK_VSNOOP_RING_DETACHED => Self::Detached,
            intf::EK_VSNOOP_RING_QUEUES => Self::Queues,
            _ => Self::Unreadable,
        }
    }

    /// Why nothing is acknowledged early; `None` if it is.
    pub fn obstacle(self) -> Option<&'static str> {
        match self {
            Self::Free => None,
            Self::Full => Some("the queue is nearly full just now"),
            Self::Waiting => Some("packets wait before the queue just now"),
            Self::Qdisc => Some(
                "its root qdisc may drop packets; noqueue, pfifo, pfifo_fast and fq_codel do not while they are empty",
            ),
            Self::Filtered => Some("the tap has a filter, which may drop packets"),
            Self::Detached => Some("nobody has the tap open"),
            Self::Queues => Some("it has more than 8 queues"),
            Self::Unreadable => Some("this kernel has no types (BTF) of its tun driver, or others than are known"),
            Self::NoTap => Some("it is no tap, and nobody can know what its queue takes"),
        }
    }
}

/// vSnoop on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VsnoopFlow {
    /// Where it stands.
    pub state: VsnoopState,
    /// Why the last data was left to the VM; nothing if it was acknowledged early, but for its last segment.
    #[serde(default)]
    pub doubt: Option<Doubt>,
    /// Times that data was acknowledged early (observe: would have been).
    pub early_acks: u32,
    /// Data packets of the VM on which an early ACK rode.
    pub on_data: u32,
    /// ACKs of the VM that said nothing new.
    pub dropped_acks: u32,
    /// Bytes that were acknowledged and that the VM has not acknowledged itself.
    pub ahead_bytes: u32,
    /// What the VM's last window leaves beyond that.
    pub window_bytes: u32,
    /// Segments at the port that were, or may be, acknowledged early.
    pub outstanding_segments: u32,
}

/// A connection's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VsnoopState {
    /// In-order data is acknowledged early.
    Active,
    /// Not now: the VM's window or the port's budget is used up, or the VM has its core.
    NoBuffer,
    /// Not before the VM has caught up: data is missing, or its place was not certain.
    UnexpectedSequence,
    /// Not before the VM has acknowledged something itself.
    Unconfirmed,
    /// Not any more: the other end has closed.
    Closing,
}

impl VsnoopFlow {
    pub(super) fn of(entry: &intf::ek_vsnoop_flow) -> Self {
        let flow = &entry.flow;
        let has = |flag: u32| flow.flags & flag != 0;
        let state = if has(intf::VSNOOP_CLOSING) {
            VsnoopState::Closing
        } else if flow.flags & intf::VSNOOP_SEEN_BOTH != intf::VSNOOP_SEEN_BOTH || !has(intf::VSNOOP_SCALED) {
            VsnoopState::Unconfirmed
        } else {
            match u32::from(flow.state) {
                intf::VSNOOP_NO_BUFFER => VsnoopState::NoBuffer,
                intf::VSNOOP_UNEXPECTED_SEQUENCE => VsnoopState::UnexpectedSequence,
                _ => VsnoopState::Active,
            }
        };
        // Sequence numbers wrap; nothing is further ahead than a window.
        let ahead = |end: u32, start: u32| {
            let bytes = end.wrapping_sub(start);
            if bytes < 1 << 31 { bytes } else { 0 }
        };
        Self {
            state,
            doubt: Doubt::from_intf(flow.doubt.into()),
            early_acks: entry.early_acks,
            on_data: entry.rode,
            dropped_acks: entry.dropped,
            ahead_bytes: ahead(flow.acked, flow.vm_ack),
            window_bytes: ahead(flow.vm_edge, flow.acked),
            outstanding_segments: flow.outstanding,
        }
    }

    /// In words.
    pub(super) fn explain(&self) -> String {
        let Self { early_acks, on_data, dropped_acks, ahead_bytes, window_bytes, .. } = self;
        let state = match (self.state, self.doubt) {
            (VsnoopState::Closing, _) => {
                "the other end has closed, and what is left is the VM's to acknowledge".to_owned()
            }
            (VsnoopState::Unconfirmed, _) => {
                "data is the VM's to acknowledge until it has done so once: a handshake alone is no promise".to_owned()
            }
            (_, None) => "data in order is acknowledged early, but for the last segment".to_owned(),
            (VsnoopState::UnexpectedSequence, Some(doubt)) => {
                format!("data is the VM's to acknowledge until it has caught up, because {}", doubt.words())
            }
            (_, Some(doubt)) => format!("data is the VM's to acknowledge now, because {}", doubt.words()),
        };
        format!(
            "vSnoop: {state}. {early_acks} early ACKs so far, {on_data} on the VM's own data; {dropped_acks} ACKs of \
             the VM said nothing new; \
             {ahead_bytes} bytes are promised that the VM has not acknowledged, and its window leaves {window_bytes} \
             more."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(flags: u32, state: u32) -> intf::ek_vsnoop_flow {
        intf::ek_vsnoop_flow {
            early_acks: 4,
            rode: 1,
            dropped: 3,
            flow: intf::vsnoop_flow {
                acked: 1000,
                vm_ack: u32::MAX - 499,
                vm_edge: 6000,
                flags,
                state: state as u8,
                ..Default::default()
            },
            ..Default::default()
        }
    }

    #[test]
    fn states_follow_from_what_was_seen() {
        let known = intf::VSNOOP_SEEN_BOTH | intf::VSNOOP_SCALED;
        for (flags, state, expected) in [
            (known, intf::VSNOOP_ACTIVE, VsnoopState::Active),
            (known, intf::VSNOOP_NO_BUFFER, VsnoopState::NoBuffer),
            (known, intf::VSNOOP_UNEXPECTED_SEQUENCE, VsnoopState::UnexpectedSequence),
            (known | intf::VSNOOP_CLOSING, intf::VSNOOP_ACTIVE, VsnoopState::Closing),
            (intf::VSNOOP_SEEN_PEER | intf::VSNOOP_SCALED, intf::VSNOOP_ACTIVE, VsnoopState::Unconfirmed),
        ] {
            assert_eq!(VsnoopFlow::of(&entry(flags, state)).state, expected);
        }
    }

    #[test]
    fn bytes_are_counted_across_the_wrap() {
        let flow = VsnoopFlow::of(&entry(intf::VSNOOP_SEEN_BOTH | intf::VSNOOP_SCALED, intf::VSNOOP_ACTIVE));
        assert_eq!((flow.ahead_bytes, flow.window_bytes), (1500, 5000));
        assert!(flow.explain().contains("1500 bytes are promised"));
        let idle = intf::ek_vsnoop_flow {
            flow: intf::vsnoop_flow { vm_ack: 7, acked: 5, ..Default::default() },
            ..Default::default()
        };
        assert_eq!(VsnoopFlow::of(&idle).ahead_bytes, 0);
    }
}
