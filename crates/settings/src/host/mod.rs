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

/// Where the configuration is unless something else is said.
pub const DEFAULT_FILE: &str = "/etc/evenkeel/host.toml";
/// Where the agent keeps its lock, its state and its socket.
pub const DEFAULT_RUN_DIR: &str = "/run/evenkeel";
/// Where programs and maps are pinned.
pub const DEFAULT_PIN_DIR: &str = "/sys/fs/bpf/evenkeel";
/// Where the control socket is unless something else is said.
pub const DEFAULT_SOCKET: &str = "/run/evenkeel/host.sock";

/// Queue lengths; 0 leaves ports as they are.
pub type QueueSegments = Bounded<0, 1_000_000>;

words! {
    /// By what the host's programs are on ports.
    pub enum Attach {
        /// Tcx where the kernel has it, clsact where not.
        Auto = "auto",
        /// Links in the device's list of programs.
        Tcx = "tcx",
        /// Filters of tc's, among which others can be put before and behind them by their priorities.
        Clsact = "clsact",
    }
}

settings! {
    /// Where `evenkeel status`, `flows` and `top` ask.
    pub struct Control;
    /// The control socket.
    socket: PathBuf = DEFAULT_SOCKET.into();
    /// Who may ask beside root: a group's name or number.
    group: String = "root".to_owned();
}

settings! {
    /// Metrics for Prometheus, in OpenMetrics form, at http://ADDRESS/metrics.
    pub struct Metrics;
    /// Whether they are served.
    enabled: bool = true;
    /// Address and port.
    listen: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
    /// An address that other machines can reach is refused unless this is true.
    allow_remote: bool = false;
}

settings! {
    /// Channels to the agents in guests (`evenkeel guest`). Where each of them is, its [[port]] says.
    pub struct Channel;
    /// Time between two heartbeats; a guest that has missed three is plain TCP again.
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
            /// Names of the ports that lead to VMs: * stands for any text, ? for one character, [abc] for one of them,
            /// {a,b} for either. vnet* is libvirt's, tap* that of Proxmox and OpenStack.
            ports: Vec<Pattern> = ["vnet*", "tap*"].map(Pattern::literal).into();
            /// Network namespaces whose devices are ports as well, by their names in /run/netns and with the names of
            /// `ports`: ["*"] has all of them, pods' for one. Such a port is called NAMESPACE/DEVICE, and is meant by
            /// that name alone where single ports are. The agent needs CAP_SYS_ADMIN for it.
            netns: Vec<Pattern> = Vec::new();
            /// Queues of ports are raised to this many packets (a GSO packet is one) as long as the agent has them, and
            /// put back by `evenkeel host --stop`. Queues that are longer stay. The default is Linux's own for a tap:
            /// short ones drop what comes while the VM is off its core, longer ones let bulk data stand in the way of
            /// all else.
            port_queue_segments: QueueSegments = Bounded::new(1000), note "0 leaves all as they are";
            /// By what the programs are on ports:
            attach: Attach = Attach::Auto;
            /// The key that signs probes, the same on all hosts: one line of 32 hexadecimal digits
            /// (`openssl rand -hex 16`), readable for root alone. A second line is an older key that is still believed,
            /// while a new one goes round. Without the file no probes are sent or believed; everything else works.
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
                /// That of the table of the same name.
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

            /// Lets a mechanism do something else.
            pub const fn set_mode(&mut self, mechanism: Mechanism, mode: Mode) {
                match mechanism {
                    $(Mechanism::$table => self.$name.mode = mode,)+
                }
            }
        }

        /// What is otherwise on some ports.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct PortOverride {
            /// Which ports.
            #[serde(rename = "match")]
            pub pattern: Pattern,
            /// As the key of the same name for all ports.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub port_queue_segments: Option<QueueSegments>,
            /// Where the guest's agent is found; `{port}` stands for the name of the device. `libvirt` and `auto` look
            /// for it.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub channel: Option<ChannelAddress>,
            $(
                /// As the table of the same name for all ports; what is not named stays.
                #[serde(default)]
                pub $name: crate::$name::$override,
            )+
        }

        impl PortOverride {
            /// One that says nothing of these ports.
            pub fn of(pattern: Pattern) -> Self {
                Self { pattern, port_queue_segments: None, channel: None, $($name: Default::default(),)+ }
            }
        }

        /// What holds on one port, defaults and overrides resolved.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        pub struct PortSettings {
            /// Its queue is raised to this.
            pub port_queue_segments: QueueSegments,
            /// Where its guest's agent is found.
            pub channel: Option<ChannelAddress>,
            $(
                /// The mechanism on it.
                pub $name: crate::$name::$on_port,
            )+
        }

        impl Config {
            /// What holds on the port of this name.
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
    const PORTS: &str = r#"# What is otherwise on some ports. Of several that match, the last one decides, key by key.
#
# [[port]]
# match = "vnet7"
# port_queue_segments = 0
# # Where the guest's agent is found: a Unix socket that QEMU listens on, a character device, vsock:CID:PORT or
# # tcp:ADDRESS:PORT. {port} in it stands for the name of the device. With "libvirt" it is the socket of the virtio port
# # org.evenkeel.0 of the domain that has this port; with "auto" that, or the one of the QEMU that has the tap open.
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
