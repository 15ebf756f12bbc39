//! Where a channel is, as configurations write it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use evenkeel_quote::quoted;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::value::always;

/// The name of the virtio-serial port, unless something else is said.
pub const PORT_NAME: &str = "org.evenkeel.0";
/// What stands for the name of a port's device in a host's configuration.
pub const PORT_WORD: &str = "{port}";

/// Where a host finds a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostAddress {
    /// A Unix socket that QEMU listens on, or a character device.
    Path(PathBuf),
    /// A guest's vsock.
    Vsock {
        /// The guest's context identifier.
        cid: u32,
        /// The port that its agent listens on.
        port: u32,
    },
    /// A guest's address, where there is nothing but the network.
    Tcp(SocketAddr),
}

impl FromStr for HostAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const ALLOWED: &str = "allowed are libvirt, auto, the absolute path of a Unix socket or character device, \
                               vsock:CID:PORT and tcp:ADDRESS:PORT";
        let refused = |why: &str| format!("{} is no channel ({why}); {ALLOWED}", quoted(text));
        if text.starts_with('/') {
            return Ok(Self::Path(text.into()));
        }
        if let Some(rest) = text.strip_prefix("vsock:") {
            let (cid, port) = rest.split_once(':').ok_or_else(|| refused("a CID and a port are wanted"))?;
            let number = |text: &str| text.parse::<u32>().map_err(|_| refused("CID and port are whole numbers"));
            return match (number(cid)?, number(port)?) {
                // 0 to 2 are the hypervisor, the loopback and the host itself.
                (0..=2 | u32::MAX, _) => Err(refused("guests have CIDs from 3 on")),
                (cid, port) => Ok(Self::Vsock { cid, port }),
            };
        }
        if let Some(rest) = text.strip_prefix("tcp:") {
            let address =
                rest.parse().map_err(|_| refused("an address and a port are wanted, as in tcp:10.0.0.5:9465"))?;
            return Ok(Self::Tcp(address));
        }
        Err(refused("it begins with none of them"))
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Vsock { cid, port } => write!(f, "vsock:{cid}:{port}"),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// How a host finds the channel to a port's guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelSource {
    /// In libvirt's state of the domain that has the port.
    Libvirt,
    /// There, or else by the process that has the port's tap open.
    Auto,
    /// At an address that the configuration names.
    At(HostAddress),
}

impl FromStr for ChannelSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "libvirt" => Ok(Self::Libvirt),
            "auto" => Ok(Self::Auto),
            address => address.parse().map(Self::At),
        }
    }
}

impl fmt::Display for ChannelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Libvirt => f.write_str("libvirt"),
            Self::Auto => f.write_str("auto"),
            Self::At(address) => address.fmt(f),
        }
    }
}

/// Where a guest waits for its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestAddress {
    /// A virtio-serial port of this name.
    VirtioSerial(String),
    /// Its vsock; only the host may connect.
    Vsock {
        /// The port to listen on.
        port: u32,
    },
    /// An address of its own, where there is nothing but the network.
    Tcp {
        /// Where to listen.
        listen: SocketAddr,
        /// The only one who may connect.
        from: IpAddr,
    },
}

impl FromStr for GuestAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const ALLOWED: &str = "allowed are virtio-serial:NAME, vsock:PORT and tcp:ADDRESS:PORT,from=ADDRESS";
        let refused = |why: &str| format!("{} is no channel ({why}); {ALLOWED}", quoted(text));
        if let Some(name) = text.strip_prefix("virtio-serial:") {
            return if name.is_empty() {
                Err(refused("the name is empty"))
            } else {
                Ok(Self::VirtioSerial(name.to_owned()))
            };
        }
        if let Some(port) = text.strip_prefix("vsock:") {
            let port = port.parse().map_err(|_| refused("the port is a whole number"))?;
            return Ok(Self::Vsock { port });
        }
        if let Some(rest) = text.strip_prefix("tcp:") {
            let (listen, from) =
                rest.split_once(",from=").ok_or_else(|| refused("`,from=` and the host's address are missing"))?;
            let listen = listen.parse().map_err(|_| refused("an address and a port to listen on are wanted"))?;
            let from = from.parse().map_err(|_| refused("the host's address is wanted after `from=`"))?;
            return Ok(Self::Tcp { listen, from });
        }
        Err(refused("it begins with none of them"))
    }
}

impl fmt::Display for GuestAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VirtioSerial(name) => write!(f, "virtio-serial:{name}"),
            Self::Vsock { port } => write!(f, "vsock:{port}"),
            Self::Tcp { listen, from } => write!(f, "tcp:{listen},from={from}"),
        }
    }
}

/// Where a port's channel to its guest's agent is, as it is written: `{port}` stands for the name of the device. With
/// `libvirt` and `auto` the agent looks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ChannelAddress(String);

impl ChannelAddress {
    /// That of the port of this name.
    #[must_use]
    pub fn of(&self, port: &str) -> Self {
        Self(self.0.replace(PORT_WORD, port))
    }

    /// Whether each port has its own.
    pub fn differs_by_port(&self) -> bool {
        self.0.contains(PORT_WORD) || matches!(self.parse(), Ok(ChannelSource::Libvirt | ChannelSource::Auto))
    }

    /// Where that is.
    ///
    /// # Errors
    /// What is wrong with it, and what is allowed.
    pub fn parse(&self) -> Result<ChannelSource, String> {
        self.0.parse()
    }
}

impl From<&Path> for ChannelAddress {
    /// A Unix socket that QEMU listens on, or a character device.
    fn from(path: &Path) -> Self {
        Self(path.to_string_lossy().into_owned())
    }
}

impl<'de> Deserialize<'de> for ChannelAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // With any name of a device it must be one.
        text.replace(PORT_WORD, "0").parse::<ChannelSource>().map_err(D::Error::custom)?;
        Ok(Self(text))
    }
}

/// A [`GuestAddress`] as configurations have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(pub GuestAddress);

always!(Address, String::new());

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["libvirt", "auto", "/run/vm.sock", "vsock:7:9465", "tcp:10.0.0.5:9465", "tcp:[fd00::5]:9465"] {
            assert_eq!(text.parse::<ChannelSource>().unwrap().to_string(), text);
        }
        for text in ["virtio-serial:org.evenkeel.0", "vsock:9465", "tcp:10.0.0.5:9465,from=10.0.0.1"] {
            assert_eq!(text.parse::<GuestAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_say_what_is_allowed() {
        for text in ["", "run/vm.sock", "Libvirt", "vsock:2:9465", "vsock:7", "vsock:x:1", "tcp:10.0.0.5"] {
            assert!(text.parse::<ChannelSource>().unwrap_err().contains("allowed are"), "{text}");
        }
        for text in ["", "virtio-serial:", "vsock:7:1", "tcp:10.0.0.5:9465", "tcp:10.0.0.5:9465,from=host"] {
            assert!(text.parse::<GuestAddress>().unwrap_err().contains("allowed are"), "{text}");
        }
    }
}
