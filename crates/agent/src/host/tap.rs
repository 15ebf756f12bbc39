//! What the kernel says of a tap beside what it says of any device.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::netlink::{attribute, u32_at};

/// linux/if_link.h: `IFLA_TUN_VNET_HDR` and those after it.
const VNET_HDR: u16 = 5;
const PERSIST: u16 = 6;
const MULTI_QUEUE: u16 = 7;
const QUEUES: u16 = 8;

/// How a tap was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapFlags {
    /// Whether packets come with offload headers, without which none is larger than the MTU.
    pub vnet_hdr: bool,
    /// Whether it stays when nobody has it open.
    pub is_persistent: bool,
    /// Queues that are open; 1 where it can have no more.
    pub queues: u32,
}

impl TapFlags {
    /// From the attributes of `IFLA_INFO_DATA`.
    pub(super) fn of(attributes: &[u8]) -> Option<Self> {
        let flag = |kind| attribute(attributes, kind).and_then(|value| value.first()).map(|flag| *flag != 0);
        let has_queues = flag(MULTI_QUEUE)?;
        let queues = attribute(attributes, QUEUES).and_then(|value| u32_at(value, 0)).filter(|_| has_queues);
        Some(Self { vnet_hdr: flag(VNET_HDR)?, is_persistent: flag(PERSIST)?, queues: queues.unwrap_or(1) })
    }
}

impl fmt::Display for TapFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offloads = if self.vnet_hdr { "with" } else { "WITHOUT" };
        let s = if self.queues == 1 { "" } else { "s" };
        let stays = if self.is_persistent { ", persistent" } else { "" };
        write!(f, "tap {offloads} offload headers, {} queue{s}{stays}", self.queues)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(values: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, value) in values {
            bytes.extend((value.len() as u16 + 4).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn flags_are_read_as_the_kernel_writes_them() {
        let one = attributes(&[(VNET_HDR, &[1]), (PERSIST, &[0]), (MULTI_QUEUE, &[0])]);
        assert_eq!(TapFlags::of(&one), Some(TapFlags { vnet_hdr: true, is_persistent: false, queues: 1 }));
        let four = [(VNET_HDR, &[0][..]), (PERSIST, &[1]), (MULTI_QUEUE, &[1]), (QUEUES, &4u32.to_ne_bytes())];
        let four = TapFlags::of(&attributes(&four)).unwrap();
        assert_eq!(four, TapFlags { vnet_hdr: false, is_persistent: true, queues: 4 });
        assert_eq!(four.to_string(), "tap WITHOUT offload headers, 4 queues, persistent");
        assert_eq!(TapFlags::of(&attributes(&[(VNET_HDR, &[1])])), None);
        assert_eq!(TapFlags::of(&[9]), None);
    }
}
