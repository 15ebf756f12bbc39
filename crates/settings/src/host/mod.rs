//! The host agent's configuration.

mod load;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::address::ChannelAddress;
use crate::pattern::Pattern;
use crate::table::{comment, example as table, settings};
use crate::value::{Bounded, words};
use crate::{HeartbeatMs, Key, Mode, Table};

/// Default path of the configuration.
pub const DEFAULT_FILE: &str = "/etc/evenkeel/host.toml";
/// Where the agent keeps its lock, its state and its socket.
pub const DEFAULT_RUN_DIR: &str = "/run/evenkeel";
/// Where programs and maps are pinned.
pub const DEFAULT_PIN_DIR: &str = "/sys/fs/bpf/evenkeel";
/// Default path of the control socket.
pub const DEFAULT_SOCKET: &str = "/run/evenkeel/host.sock";

/// Queue lengths; 0 leaves ports as they are.
pub type QueueSegments = Bounded<0, 1_000_000>;

words! {
    /// How the host's programs are attached to ports.
    pub enum Attach {
        /// Tcx where the kernel has it, else clsact.
        Auto = "auto",
        /// BPF links on the device.
        Tcx = "tcx",
        /// Filters of tc; other programs' filters come before or after them by priority.
        Clsact = "clsact",
    }
}

settings! {
    /// The control socket, which `evenkeel status`, `flows` and `top` use.
    pub struct Control;
    /// Path of the socket.
    socket: PathBuf = DEFAULT_SOCKET.into();
    /// Group that may use it besides root: a name or a number.
    group: String = "root".to_owned();
}

settings! {
    /// Metrics for Prometheus, in OpenMetrics form, at http://ADDRESS/metrics.
    pub struct Metrics;
    /// Serve them.
    enabled: bool = true;
    /// Address and port to listen on.
    listen: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
    /// An address that other machines can reach is refused unless this is true.
    allow_remote: bool = false;
}

settings! {
    /// Channels to guest agents (`evenkeel guest`). The [[port]] tables say where each channel is.
    pub struct Channel;
    /// Time between two heartbeats; after three missed ones a guest goes back to plain TCP.
    heartbeat_ms: HeartbeatMs = Bounded::new(200);
}

/// What all mechanisms have: a table of the whole host, one of single ports, and what holds on a port.
macro_rules! mechanisms {
    ($($name:ident: $table:ident, $override:ident, $on_port:ident;)+) => {
        /// The mechanisms' tables, in the order of the file, and their keys.
        pub const MECHANISMS: &[(&str, fn() -> Vec<Key>)] =
            &[$((stringify!($name), <crate::$name::$table as Table>::keys)),+];

        settings! {
            /// The whole configuration.
            pub struct Config;
            /// Names of the ports that lead to VMs: * matches any text, ? one character, [abc] one of these, {a,b}
            /// either. libvirt names them vnet*, Proxmox and OpenStack tap*.
            ports: Vec<Pattern> = ["vnet*", "tap*"].map(Pattern::literal).into();
            /// Network namespaces, by their names in /run/netns, whose devices are ports too if `ports` matches them.
            /// ["*"] takes all namespaces, among them those of pods. Such a port is called NAMESPACE/DEVICE, and a
            /// [[port]] table must match that name. The agent needs CAP_SYS_ADMIN for it.
            netns: Vec<Pattern> = Vec::new();
            /// Packets that a port's queue holds (a GSO packet is one): the agent raises shorter queues to this length,
            /// leaves longer ones, and `evenkeel host --stop` puts them back. The default is Linux's own for a tap: a
            /// shorter queue drops what comes while the VM is off its core, in a longer one everything waits behind
            /// bulk data.
            port_queue_segments: QueueSegments = Bounded::new(1000), note "0 leaves all as they are";
            /// How programs are attached to ports:
            attach: Attach = Attach::Auto;
            /// The key that signs probes, the same on all hosts: one line of 32 hexadecimal digits
            /// (`openssl rand -hex 16`), readable by root only. A second line may hold an older key, which is still
            /// accepted while hosts change to a new one. Without the file no probes are sent or accepted; everything
            /// else works.
            probe_key_file: PathBuf = "/etc/evenkeel/probe.key".into();
            $(table $name: crate::$name::$table;)+
            table control: Control;
            table metrics: Metrics;
            table channel: Channel;
            list overrides = "port": PortOverride;
        }

        /// A mechanism of hosts.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Mechanism {
            $(
                /// The mechanism with the table of the same name.
                $table,
            )+
        }

        impl Mechanism {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$table),+];

            /// The name of its table.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$table => stringify!($name),)+
                }
            }
        }

        impl PortSettings {
            /// What a mechanism may do on the port.
            pub const fn mode(&self, mechanism: Mechanism) -> Mode {
                match mechanism {
                    $(Mechanism::$table => self.$name.mode,)+
                }
            }

            /// Sets what a mechanism may do on the port.
            pub const fn set_mode(&mut self, mechanism: Mechanism, mode: Mode) {
                match mechanism {
                    $(Mechanism::$table => self.$name.mode = mode,)+
                }
            }
        }

        /// Settings that differ on some ports.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct PortOverride {
            /// Which ports.
            #[serde(rename = "match")]
            pub pattern: Pattern,
            /// Like the key of the same name for all ports.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub port_queue_segments: Option<QueueSegments>,
            /// Address of the channel to the guest's agent; `{port}` stands for the device's name. With `libvirt` and
            /// `auto` the agent looks for it.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub channel: Option<ChannelAddress>,
            $(
                /// Like the table of the same name for all ports; a key that is left out keeps that table's value.
                #[serde(default)]
                pub $name: crate::$name::$override,
            )+
        }

        impl PortOverride {
            /// An override for these ports that sets nothing yet.
            pub fn of(pattern: Pattern) -> Self {
                Self { pattern, port_queue_segments: None, channel: None, $($name: Default::default(),)+ }
            }
        }

        /// Settings of one port, with defaults and overrides resolved.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        pub struct PortSettings {
            /// Length that the agent raises its queue to.
            pub port_queue_segments: QueueSegments,
            /// Address of the channel to its guest's agent.
            pub channel: Option<ChannelAddress>,
            $(
                /// The mechanism on it.
                pub $name: crate::$name::$on_port,
            )+
        }

        impl Config {
            /// Settings of the port of this name.
            pub fn settings(&self, name: &str) -> PortSettings {
                let over = || self.overrides.iter().filter(|over| over.pattern.matches(name));
                let queue_segments = over().filter_map(|over| over.port_queue_segments).next_back();
                PortSettings {
                    port_queue_segments: queue_segments.unwrap_or(self.port_queue_segments),
                    channel: over().filter_map(|over| over.channel.as_ref()).next_back().map(|of_all| of_all.of(name)),
                    $($name: over().fold(self.$name.clone(), |all, over| over.$name.over(all)).into(),)+
                }
            }
        }

        /// The mechanisms' tables, commented.
        fn mechanisms() -> String {
            [$(table::<crate::$name::$table>(stringify!($name))),+].concat()
        }
    };
}

mechanisms! {
    proboscis: Proboscis, ProboscisOverride, Proboscis;
    vsnoop: Vsnoop, VsnoopOverride, Vsnoop;
    cera: Cera, CeraOverride, CeraPort;
    vflood: Vflood, VfloodOverride, Vflood;
}

impl Config {
    /// Whether a device of this name is a port. In another network namespace it is called `NAMESPACE/DEVICE`.
    pub fn is_port(&self, name: &str) -> bool {
        let is_among = |patterns: &[Pattern], name| patterns.iter().any(|pattern| pattern.matches(name));
        match name.split_once('/') {
            Some((namespace, device)) => is_among(&self.netns, namespace) && is_among(&self.ports, device),
            None => is_among(&self.ports, name),
        }
    }
}

/// A commented configuration with all keys at their defaults.
pub fn example() -> String {
    const HEAD: &str = "Configuration of `evenkeel host`: every key, at its default. Leave out what you do not change.";
    const RELOAD: &str = "The agent reads it again on SIGHUP (systemctl reload evenkeel-host); a file with an error is \
                          refused and the old settings stay.";
    const PORTS: &str = r#"# Settings of single ports. If several tables match a port, the last one decides, key by key.
#
# [[port]]
# match = "vnet7"
# port_queue_segments = 0
# # Address of the channel to the guest's agent: a Unix socket that QEMU listens on, a character device, vsock:CID:PORT
# # or tcp:ADDRESS:PORT; {port} stands for the device's name. "libvirt" takes the socket of the virtio port
# # org.evenkeel.0 of the domain with this port; "auto" does that, or else asks the QEMU that has the tap open.
# channel = "/run/evenkeel/vms/{port}.channel"
# [port.proboscis]
# mode = "enforce"
# [port.cera]
# weight = 3
"#;
    let tables = [
        comment(HEAD) + &comment(RELOAD) + "\n",
        table::<Config>(""),
        mechanisms(),
        table::<Control>("control"),
        table::<Metrics>("metrics"),
        table::<Channel>("channel"),
    ];
    tables.concat() + PORTS
}

#[cfg(test)]
mod tests;
