//! VLAN tags as users see them: a trunk's networks may have the same addresses, so only tags tell their connections
//! apart.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::datapath::intf;

/// A tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Vlan {
    /// Whose tag it is.
    pub protocol: VlanProtocol,
    /// Number of the network (VID), 1 to 4095.
    pub id: u16,
}

/// `TPID` of IEEE 802.1Q.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VlanProtocol {
    /// A customer's (0x8100).
    #[serde(rename = "802.1q")]
    Customer,
    /// A provider's (0x88a8), around a customer's.
    #[serde(rename = "802.1ad")]
    Service,
}

impl Vlan {
    /// Those of a connection, the outermost first; empty without any.
    pub(super) fn of(key: &intf::ek_flow_key) -> Vec<Self> {
        let present = key.vlan.iter().filter(|word| **word != 0);
        present.map(|word| Self { protocol: VlanProtocol::of(word >> 16), id: (word & 0xfff) as u16 }).collect()
    }
}

impl VlanProtocol {
    /// The datapath reads these two, and takes nothing else for a tag.
    fn of(tpid: u32) -> Self {
        if tpid == 0x88a8 { Self::Service } else { Self::Customer }
    }
}

/// `100`, and `s100` for a provider's.
impl fmt::Display for Vlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.protocol {
            VlanProtocol::Customer => "",
            VlanProtocol::Service => "s",
        };
        f.pad(&format!("{prefix}{}", self.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_written_by_their_protocol() {
        let key = |vlan| intf::ek_flow_key { vlan, ..Default::default() };
        let words = |vlan| Vlan::of(&key(vlan)).iter().map(Vlan::to_string).collect::<Vec<_>>().join(".");
        assert_eq!(words([0, 0]), "");
        assert_eq!(words([0x8100_0064, 0]), "100");
        assert_eq!(words([0x88a8_000a, 0x8100_0fff]), "s10.4095");
        let json = serde_json::to_value(Vlan::of(&key([0x88a8_000a, 0]))).unwrap();
        assert_eq!(json, serde_json::json!([{ "protocol": "802.1ad", "id": 10 }]));
    }
}
