//! Why vSnoop leaves data to the VM: doubts that only the VM's own TCP can settle.

use serde::{Deserialize, Serialize};

use crate::datapath::intf;

/// `enum vsnoop_doubt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// The VM has sent no ACK of its own yet.
    Handshake,
    /// A FIN was seen.
    Closing,
    /// Data before it is missing, or the VM has not yet shown that it took it.
    Order,
    /// It lies beyond what the VM has offered.
    Window,
    /// The VM may not have as much memory as its window says.
    Memory,
    /// The queue's share is used up.
    Budget,
    /// The VM has its core.
    Runs,
    /// Nobody knows whether the VM has its core.
    Core,
    /// The VM has not reacted for a second.
    Silence,
    /// The port's queue may not take it.
    Queue,
    /// It is damaged.
    Checksum,
    /// It is for another MAC than the VM's.
    Address,
    /// Its TTL is lower than any that the VM has taken.
    Ttl,
    /// Its timestamp is behind one that went before.
    Clock,
    /// It has options, flags or an ACK number that the VM may not take.
    Headers,
    /// Nobody has vouched for the VM.
    Unknown,
    /// The VM's own agent says no.
    Unfit,
    /// Another machine, behind the VM, is the end of the connection.
    Forwarded,
    /// More than one MAC sends at the port.
    Macs,
    /// The VM has taken back a part of its window.
    TookBack,
    /// The VM has lost what was acknowledged for it.
    Broken,
}

impl Doubt {
    /// From the datapath; `None` if there is none.
    pub(super) fn from_intf(doubt: u32) -> Option<Self> {
        Some(match doubt {
            intf::VSNOOP_DOUBT_HANDSHAKE => Self::Handshake,
            intf::VSNOOP_DOUBT_CLOSING => Self::Closing,
            intf::VSNOOP_DOUBT_ORDER => Self::Order,
            intf::VSNOOP_DOUBT_WINDOW => Self::Window,
            intf::VSNOOP_DOUBT_MEMORY => Self::Memory,
            intf::VSNOOP_DOUBT_BUDGET => Self::Budget,
            intf::VSNOOP_DOUBT_RUNS => Self::Runs,
            intf::VSNOOP_DOUBT_CORE => Self::Core,
            intf::VSNOOP_DOUBT_SILENCE => Self::Silence,
            intf::VSNOOP_DOUBT_QUEUE => Self::Queue,
            intf::VSNOOP_DOUBT_CHECKSUM => Self::Checksum,
            intf::VSNOOP_DOUBT_ADDRESS => Self::Address,
            intf::VSNOOP_DOUBT_TTL => Self::Ttl,
            intf::VSNOOP_DOUBT_CLOCK => Self::Clock,
            intf::VSNOOP_DOUBT_HEADERS => Self::Headers,
            intf::VSNOOP_DOUBT_UNKNOWN => Self::Unknown,
            intf::VSNOOP_DOUBT_UNFIT => Self::Unfit,
            intf::VSNOOP_DOUBT_FORWARDED => Self::Forwarded,
            intf::VSNOOP_DOUBT_MACS => Self::Macs,
            intf::VSNOOP_DOUBT_TOOK_BACK => Self::TookBack,
            intf::VSNOOP_DOUBT_BROKEN => Self::Broken,
            _ => return None,
        })
    }

    /// In words, to go on after "because".
    pub fn words(self) -> &'static str {
        match self {
            Self::Handshake => "the VM has acknowledged nothing yet: a handshake alone is no promise",
            Self::Closing => "the other end has closed",
            Self::Order => "data before it is missing, or the VM has not shown yet that it took it",
            Self::Window => "it lies beyond the window that the VM has offered",
            Self::Memory => "the VM may not have as much memory as its window says, until it moves that window",
            Self::Budget => "the port's budget is used up",
            Self::Runs => "the VM has its core, and acknowledges by itself",
            Self::Core => "nobody knows whether the VM has its core",
            Self::Silence => "the VM has not reacted to data for a second, and may be dead",
            Self::Queue => "the port's queue might not take it",
            Self::Checksum => "its checksum is wrong, and the VM drops it",
            Self::Address => "it is for another MAC than the VM sends with",
            Self::Ttl => "its TTL is lower than any that the VM has taken",
            Self::Clock => "its timestamp is behind one that went before (PAWS)",
            Self::Headers => "it has options, flags or an ACK number that the VM may not take",
            Self::Unknown => "nobody has vouched for the VM",
            Self::Unfit => "the VM's own agent says that it may drop what it has offered room for",
            Self::Forwarded => "another machine behind the VM is its end, as the TTL of its packets says",
            Self::Macs => "more than one MAC sends at the port, so that the VM may be a bridge",
            Self::TookBack => "the VM has taken back a part of its window",
            Self::Broken => "the VM has lost data that was acknowledged for it",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_the_datapath_has_words_of_its_own() {
        let all: Vec<_> = (1..=intf::VSNOOP_DOUBT_BROKEN).map(|number| Doubt::from_intf(number).unwrap()).collect();
        for (i, doubt) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other.words() != doubt.words()), "{doubt:?}");
        }
        assert_eq!(Doubt::from_intf(intf::VSNOOP_CERTAIN), None);
        assert_eq!(Doubt::from_intf(intf::VSNOOP_DOUBT_BROKEN + 1), None);
    }
}
