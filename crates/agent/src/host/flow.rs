//! A connection as users see it: what the datapath knows of it, and in words which mechanism set its window and why.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use evenkeel_algo::dctcp;
use evenkeel_quote::quoted;
use evenkeel_settings::Mode;
use evenkeel_settings::proboscis::Proboscis;
use serde::{Deserialize, Serialize};

use super::vlan::Vlan;
use crate::datapath::intf;

/// The two ends of a connection, the VM's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tuple {
    /// The VM.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

impl Tuple {
    /// From a key of the datapath.
    pub fn of(key: &intf::ek_flow_key) -> Self {
        let end = |address: &intf::ek_addr, port| {
            let address = Ipv6Addr::from(address.bytes);
            let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
            SocketAddr::new(address, port)
        };
        Self { local: end(&key.local, key.local_port), remote: end(&key.remote, key.remote_port) }
    }

    /// Whether these are the same two ends, whichever is named first.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other || (self.local == other.remote && self.remote == other.local)
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}", self.local, self.remote))
    }
}

impl FromStr for Tuple {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ends = text.split_once('-').and_then(|(local, remote)| {
            Some(Self { local: local.trim().parse().ok()?, remote: remote.trim().parse().ok()? })
        });
        ends.ok_or_else(|| {
            format!(
                "{} is no connection; write it as `evenkeel flows` does: 10.0.0.1:4000-10.0.0.2:80 or \
                 [fd00::1]:4000-[fd00::2]:80",
                quoted(text)
            )
        })
    }
}

impl TryFrom<String> for Tuple {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Tuple> for String {
    fn from(tuple: Tuple) -> Self {
        tuple.to_string()
    }
}

/// A connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Its ends.
    pub tuple: Tuple,
    /// VLAN tags of its packets, the outermost first: only they tell connections with the same ends apart.
    #[serde(default)]
    pub vlans: Vec<Vlan>,
    /// Name of the VM's port.
    pub port: String,
    /// What the VM is called, if that is known.
    #[serde(default)]
    pub domain: Option<String>,
    /// What ProBoSCIS may do on that port.
    pub mode: Mode,
    /// Whether the VM opened it.
    pub opened_by_vm: bool,
    /// Whether both ends have sent a FIN.
    pub is_closed: bool,
    /// Since its handshake, in milliseconds.
    pub age_ms: u64,
    /// Since its last packet, in milliseconds.
    pub idle_ms: u64,
    /// Bytes that the VM sent; what was sent again does not count.
    pub bytes_from_vm: u64,
    /// Bytes that the VM was sent.
    pub bytes_to_vm: u64,
    /// Who handles ECN.
    pub ecn: Ecn,
    /// Whether the guests use accurate ECN (RFC 9768), or asked for it.
    #[serde(default)]
    pub has_accurate_ecn: bool,
    /// Whether the other host has evenkeel.
    pub peer_has_evenkeel: bool,
    /// Whether the other host answered probes, but its packets showed that it does not handle ECN, or no longer does.
    #[serde(default)]
    pub peer_is_gone: bool,
    /// Whether the VM sent so much that ProBoSCIS leaves the connection alone.
    pub is_elephant: bool,
    /// Whether the other end is a VM of this host, or the host itself.
    pub is_local: bool,
    /// Whether this host routes it, and so may translate its addresses: then there are no probes.
    #[serde(default)]
    pub is_routed: bool,
    /// Probes before its SYN.
    pub probes: Probes,
    /// Those before its SYN-ACK, and what followed from them.
    #[serde(default)]
    pub answer: Answer,
    /// The window that the VM may use.
    pub window: Window,
    /// DCTCP's estimate of the share of marked bytes, in permille; nothing before a window of data was acknowledged.
    pub alpha_permille: Option<u32>,
    /// DCTCP's limit; 0 is none.
    pub dctcp_limit_bytes: u32,
    /// Marked bytes that came for the VM and are still to be echoed.
    pub echo_owed_bytes: u32,
}

/// Who handles ECN on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ecn {
    /// The guests: they agreed on it.
    Guests,
    /// The hosts, on the guests' behalf.
    Hosts,
    /// Nobody.
    None,
}

/// Probes of one SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probes {
    /// Sent before the VM's SYN.
    pub sent: u16,
    /// Came before the remote end's SYN.
    pub seen: u16,
    /// Of those that came, with a mark.
    pub marked: u16,
}

/// Probes of one SYN-ACK, and the window of the opener's first ACK.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Sent before the VM's latest SYN-ACK.
    pub sent: u8,
    /// Came before the remote end's SYN-ACK.
    pub seen: u8,
    /// Of those that came, with a mark.
    pub marked: u8,
    /// Window that was set in the VM's first ACK (observe: would have been); 0: it was left.
    pub window_bytes: u32,
}

/// What a VM was told of the receiver's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Who set the last one.
    pub set_by: SetBy,
    /// The receiver's own, in the last ACK.
    pub offered_bytes: u32,
    /// What the VM was told (observe: would have been).
    pub set_bytes: u32,
    /// ACKs whose window was lowered (observe: would have been).
    pub limited_acks: u32,
    /// Window that was set in this connection's SYN-ACK; 0: it was left.
    pub synack_bytes: u32,
}

/// Whose limit a window follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SetBy {
    /// The receiver's own: nothing was lowered.
    Receiver,
    /// ProBoSCIS.
    Proboscis,
    /// CERA.
    Cera,
    /// vFlood: what the host takes from the VM.
    Vflood,
    /// A mechanism that this evenkeel does not know: the datapath is newer.
    Unknown,
}

impl fmt::Display for SetBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Receiver => "receiver",
            Self::Proboscis => "proboscis",
            Self::Cera => "cera",
            Self::Vflood => "vflood",
            Self::Unknown => "unknown",
        })
    }
}

impl Flow {
    /// From the datapath's entry, which does not know what the VM is called.
    /// `now_ns` is of the same clock (CLOCK_MONOTONIC).
    pub fn of(key: &intf::ek_flow_key, flow: &intf::ek_flow, port: &str, proboscis: &Proboscis, now_ns: u64) -> Self {
        let has = |flag: intf::ek_flow_flag| flow.flags & flag != 0;
        let since_ms = |then_ns: u64| now_ns.saturating_sub(then_ns) / 1_000_000;
        let ecn = if has(intf::EK_FLOW_NATIVE_ECN) {
            Ecn::Guests
        } else if has(intf::EK_FLOW_PEER) && proboscis.ecn_for_guests && proboscis.mode != Mode::Off {
            Ecn::Hosts
        } else {
            Ecn::None
        };
        Self {
            tuple: Tuple::of(key),
            vlans: Vlan::of(key),
            port: port.to_owned(),
            domain: None,
            mode: proboscis.mode,
            opened_by_vm: has(intf::EK_FLOW_VM_OPENED),
            is_closed: has(intf::EK_FLOW_VM_FIN) && has(intf::EK_FLOW_REMOTE_FIN),
            age_ms: since_ms(flow.first_ns),
            idle_ms: since_ms(flow.last_ns),
            bytes_from_vm: flow.bytes_from_vm,
            bytes_to_vm: flow.bytes_to_vm,
            ecn,
            has_accurate_ecn: has(intf::EK_FLOW_ACCURATE_ECN),
            peer_has_evenkeel: has(intf::EK_FLOW_PEER),
            peer_is_gone: has(intf::EK_FLOW_PEER_GONE),
            is_elephant: has(intf::EK_FLOW_ELEPHANT),
            is_local: has(intf::EK_FLOW_LOCAL),
            is_routed: has(intf::EK_FLOW_ROUTED),
            probes: Probes { sent: flow.probes_sent, seen: flow.probes_seen, marked: flow.probes_marked },
            answer: Answer {
                sent: flow.answer_sent,
                seen: flow.answer_seen,
                marked: flow.answer_marked,
                window_bytes: flow.answer_window_bytes,
            },
            window: Window {
                set_by: match u32::from(flow.window_by) {
                    intf::WINDOW_BY_RECEIVER => SetBy::Receiver,
                    intf::WINDOW_BY_PROBOSCIS => SetBy::Proboscis,
                    intf::WINDOW_BY_CERA => SetBy::Cera,
                    intf::WINDOW_BY_VFLOOD => SetBy::Vflood,
                    _ => SetBy::Unknown,
                },
                offered_bytes: flow.window_offered_bytes,
                set_bytes: flow.window_set_bytes,
                limited_acks: flow.windows_limited,
                synack_bytes: flow.synack_window_bytes,
            },
            alpha_permille: alpha_permille(&flow.sender),
            dctcp_limit_bytes: flow.sender.limit_bytes,
            echo_owed_bytes: u32::try_from(flow.echo.owed_bytes).unwrap_or(0),
        }
    }

    fn alpha(&self) -> String {
        self.alpha_permille.map_or_else(|| "not known yet".to_owned(), |alpha| format!("{alpha} permille"))
    }

    /// Its VLANs in words, the outermost first; `-` without any.
    pub fn network(&self) -> String {
        if self.vlans.is_empty() {
            return "-".to_owned();
        }
        self.vlans.iter().map(Vlan::to_string).collect::<Vec<_>>().join(".")
    }

    /// All bytes, both ways.
    pub fn bytes(&self) -> u64 {
        self.bytes_from_vm.saturating_add(self.bytes_to_vm)
    }

    /// In words: which mechanism set the window, and why.
    pub fn explain_window(&self, proboscis: &Proboscis, cera: Mode) -> String {
        let Window { set_by, offered_bytes, set_bytes, limited_acks, .. } = self.window;
        let acks = if limited_acks == 1 { "1 ACK was".to_owned() } else { format!("{limited_acks} ACKs were") };
        match set_by {
            SetBy::Receiver if self.mode == Mode::Off && cera == Mode::Off => {
                "The window is the receiver's own: every mechanism is off on this port.".to_owned()
            }
            SetBy::Vflood => format!(
                "vFlood told the VM {set_bytes} bytes, the receiver offered {offered_bytes}: the host holds what the \
                 VM hands over, and keeps to the receiver's window itself."
            ),
            SetBy::Cera => format!(
                "CERA set the window to {set_bytes} bytes, the receiver offered {offered_bytes}: it is this \
                 connection's part of its VM's share of the uplink. {acks} limited."
            ),
            SetBy::Receiver if limited_acks > 0 && self.mode == Mode::Off => {
                format!("The window is the receiver's own, {offered_bytes} bytes; {acks} limited earlier.")
            }
            SetBy::Receiver if limited_acks > 0 => format!(
                "The window is the receiver's own, {offered_bytes} bytes; {acks} limited earlier. alpha is {} now, \
                 k1_permille is {}.",
                self.alpha(),
                proboscis.k1_permille
            ),
            SetBy::Receiver => {
                format!("The window is the receiver's own, {offered_bytes} bytes: no mechanism had reason to lower it.")
            }
            SetBy::Proboscis => format!(
                "ProBoSCIS set the window to {set_bytes} bytes, the receiver offered {offered_bytes}: the share of \
                 bytes that came back marked (alpha, smoothed) is {}, and k1_permille = {} is where DCTCP begins. \
                 {acks} limited.",
                self.alpha(),
                proboscis.k1_permille
            ),
            SetBy::Unknown => {
                format!("A mechanism that this evenkeel does not know set the window to {set_bytes} bytes.")
            }
        }
    }
}

/// Alpha begins at 1 (RFC 8257): with that and no limit, nothing has been measured.
fn alpha_permille(sender: &intf::proboscis_sender) -> Option<u32> {
    let alpha = u64::from(sender.dctcp.alpha);
    let is_measured = alpha < u64::from(dctcp::ONE) || sender.limit_bytes > 0;
    is_measured.then_some((alpha * 1000 / u64::from(dctcp::ONE)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> intf::ek_flow_key {
        let address = |last| intf::ek_addr { bytes: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last] };
        intf::ek_flow_key {
            local: address(1),
            remote: address(2),
            local_port: 4000,
            remote_port: 80,
            ifindex: 7,
            vlan: [0; 2],
        }
    }

    fn flow(entry: intf::ek_flow) -> (Flow, String) {
        let proboscis = Proboscis { mode: Mode::Enforce, ..Proboscis::default() };
        let flow = Flow::of(&key(), &entry, "vnet0", &proboscis, 5_000_000_000);
        let words = flow.explain_window(&proboscis, Mode::Off);
        (flow, words)
    }

    #[test]
    fn connections_are_written_as_they_are_read() {
        let tuple = Tuple::of(&key());
        assert_eq!(tuple.to_string(), "10.0.0.1:4000-10.0.0.2:80");
        assert_eq!("10.0.0.1:4000-10.0.0.2:80".parse(), Ok(tuple));
        assert!(tuple.is_same(&"10.0.0.2:80-10.0.0.1:4000".parse().unwrap()));
        assert_eq!("[fd00::1]:1-[fd00::2]:2".parse::<Tuple>().unwrap().to_string(), "[fd00::1]:1-[fd00::2]:2");
        for bad in ["", "10.0.0.1:4000", "10.0.0.1-10.0.0.2:80", "a:1-b:2"] {
            assert!(bad.parse::<Tuple>().unwrap_err().contains("10.0.0.1:4000-10.0.0.2:80"));
        }
    }

    #[test]
    fn an_untouched_window_is_the_receivers() {
        let entry = intf::ek_flow { window_offered_bytes: 65_535, first_ns: 1_000_000_000, ..Default::default() };
        let (flow, words) = flow(entry);
        assert_eq!((flow.window.set_by, flow.age_ms), (SetBy::Receiver, 4000));
        assert!(words.contains("receiver's own, 65535 bytes"), "{words}");
        let entry = intf::ek_flow {
            sender: intf::proboscis_sender {
                dctcp: intf::dctcp { alpha: dctcp::ONE, ..Default::default() },
                ..Default::default()
            },
            ..Default::default()
        };
        assert_eq!(Flow::of(&key(), &entry, "vnet0", &Proboscis::default(), 0).alpha_permille, None);
    }

    #[test]
    fn a_limited_window_is_explained_by_alpha() {
        let entry = intf::ek_flow {
            window_by: intf::WINDOW_BY_PROBOSCIS as u16,
            window_offered_bytes: 65_535,
            window_set_bytes: 29_200,
            windows_limited: 3,
            flags: intf::EK_FLOW_VM_OPENED | intf::EK_FLOW_PEER,
            probes_sent: 10,
            sender: intf::proboscis_sender {
                dctcp: intf::dctcp { alpha: dctcp::ONE / 4, ..Default::default() },
                limit_bytes: 29_300,
                ..Default::default()
            },
            ..Default::default()
        };
        let (flow, words) = flow(entry);
        assert_eq!((flow.alpha_permille, flow.ecn), (Some(250), Ecn::Hosts));
        assert!(words.contains("set the window to 29200 bytes, the receiver offered 65535: the share"), "{words}");
        assert!(
            words.contains("is 250 permille, and k1_permille = 62") && words.contains("3 ACKs were limited"),
            "{words}"
        );
    }
}
