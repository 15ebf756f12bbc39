//! The lab's network: a namespace of its own, a bridge, a tap per VM, the shaped port.
//!
//! Where ports mark or the host agent runs, each VM is on a host of its own: a bridge with the VM's tap (`vm1`) and an uplink (`nic1`), whose
//! other end is the switch's port (`up1`). What the switch marks and drops is then between two hosts, as in a network, and the agent's
//! programs at the tap come after it.
//!
//! The namespace has no name and lives as long as the lab and its VMs, so nothing of it can be left behind. Qdiscs and links are set by
//! iproute2, because rtnetlink's qdisc attributes do not cover HTB and TBF.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use evenkeel_scenario::format::Network;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;

use crate::error::LabError;

const BRIDGE: &str = "br0";
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;

/// Runs a host command; its standard output.
pub fn command(argv: &[&str]) -> Result<String, LabError> {
    let line = argv.join(" ");
    let output =
        Command::new(argv[0]).args(&argv[1..]).output().map_err(|e| LabError::io(format!("running `{line}`"), e))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(LabError::Command { command: line, why: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
    }
}

fn ip(line: &str) -> Result<(), LabError> {
    command(&std::iter::once("ip").chain(line.split_whitespace()).collect::<Vec<_>>()).map(drop)
}

fn tc(line: &str) -> Result<(), LabError> {
    command(&std::iter::once("tc").chain(line.split_whitespace()).collect::<Vec<_>>()).map(drop)
}

/// Moves the calling thread, and what it starts from now on, into a new network namespace with a bridge. Its mounts are its own from then on.
pub fn enter_namespace() -> Result<(), LabError> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .map_err(|e| LabError::io("making a network namespace", e))?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(|e| LabError::io("making mounts private", e))?;
    ip("link set lo up")?;
    ip(&format!("link add {BRIDGE} type bridge forward_delay 0 stp_state 0 mcast_snooping 0"))?;
    // No IPv6 on the host's side: its neighbour discovery would be a guest of every queue.
    for name in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        if std::path::Path::new(&path).exists() {
            std::fs::write(&path, "1").map_err(|e| LabError::io(format!("writing {path}"), e))?;
        }
    }
    ip(&format!("link set {BRIDGE} up"))
}

/// Where a VM is in the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The VM's port.
    pub tap: String,
    /// The switch's port towards it: the tap itself if the VM is at the switch.
    pub switch_port: String,
    /// The uplink of the VM's host, if it has one.
    uplink: Option<String>,
    /// The bridge that the tap is in.
    bridge: String,
}

impl Place {
    /// Of the VM with this number, at the switch or on a host of its own.
    pub fn new(number: u8, own_host: bool) -> Self {
        let tap = format!("vm{number}");
        match own_host {
            false => Self { switch_port: tap.clone(), tap, uplink: None, bridge: BRIDGE.to_owned() },
            true => Self {
                tap,
                switch_port: format!("up{number}"),
                uplink: Some(format!("nic{number}")),
                bridge: format!("host{number}"),
            },
        }
    }

    /// Makes its devices.
    pub fn make(&self) -> Result<(), LabError> {
        if let Some(uplink) = &self.uplink {
            let (bridge, switch_port) = (&self.bridge, &self.switch_port);
            ip(&format!("link add {bridge} type bridge forward_delay 0 stp_state 0 mcast_snooping 0"))?;
            ip(&format!("link set {bridge} up"))?;
            ip(&format!("link add {switch_port} type veth peer name {uplink}"))?;
            ip(&format!("link set {uplink} master {bridge} up"))?;
            ip(&format!("link set {switch_port} master {BRIDGE} up"))?;
        }
        add_tap(&self.tap, &self.bridge)
    }

    /// Removes its devices.
    pub fn remove(&self) -> Result<(), LabError> {
        ip(&format!("link del {}", self.tap))?;
        if self.uplink.is_some() {
            // One end of a pair takes the other along.
            ip(&format!("link del {}", self.switch_port))?;
            ip(&format!("link del {}", self.bridge))?;
        }
        Ok(())
    }

    /// Sets the queue of the VM's port and the MTU of all that leads there.
    pub fn configure(&self, queue_segments: u32, mtu_bytes: u32) -> Result<(), LabError> {
        for device in self.uplink.iter().chain(self.uplink.is_some().then_some(&self.switch_port)) {
            ip(&format!("link set {device} mtu {mtu_bytes}"))?;
        }
        ip(&format!("link set {} txqueuelen {queue_segments} mtu {mtu_bytes}", self.tap))
    }

    /// Packets dropped so far on the way to the VM: at the switch's port and at its own.
    pub fn drops(&self) -> Result<u64, LabError> {
        let mut devices = vec![&self.tap];
        devices.extend(self.uplink.is_some().then_some(&self.switch_port));
        devices.into_iter().map(|device| drops(device).map(|d| d.buffer + d.port_queue)).sum()
    }
}

/// Makes a tap and puts it into a bridge.
fn add_tap(name: &str, bridge: &str) -> Result<(), LabError> {
    let context = || format!("making tap {name}");
    let fd: OwnedFd = open_tun().map_err(|e| LabError::io(context(), e))?;
    let mut request = [0u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as u16;
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: request is an ifreq (40 bytes on every 64-bit Linux) that outlives the call.
    let made = unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) };
    // SAFETY: TUNSETPERSIST takes its argument by value.
    if made < 0 || unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETPERSIST, 1) } < 0 {
        return Err(LabError::io(context(), std::io::Error::last_os_error()));
    }
    ip(&format!("link set {name} master {bridge} up"))
}

fn open_tun() -> nix::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    let fd = open("/dev/net/tun", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    // SAFETY: open returned it just now and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Shapes the port towards a receiver: rate and drop-tail buffer. A rate of 0 leaves the port as the kernel makes it.
pub fn shape_port(device: &str, network: &Network) -> Result<(), LabError> {
    // Nothing to remove on a fresh tap: tc says so, and that is fine.
    let _ = tc(&format!("qdisc del dev {device} root"));
    if network.rate_mbit == 0 {
        return Ok(());
    }
    let rate = network.rate_mbit;
    // A burst as long as the HTB timer may be late (100 us), at least two frames.
    let burst_bytes = (u64::from(rate) * 100 / 8).max(2 * (u64::from(network.mtu_bytes) + 14));
    tc(&format!("qdisc add dev {device} root handle 1: htb default 1 r2q 1000"))?;
    tc(&format!(
        "class add dev {device} parent 1: classid 1:1 htb rate {rate}mbit ceil {rate}mbit burst {burst_bytes} cburst {burst_bytes} quantum 60000"
    ))?;
    tc(&format!("qdisc add dev {device} parent 1:1 handle 10: pfifo limit {}", network.buffer_segments))
}

/// Packets dropped so far at a port: by its shaper's buffer and by its queue towards the VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PortDrops {
    /// Dropped by the drop-tail buffer.
    buffer: u64,
    /// Dropped because the VM's port queue was full.
    port_queue: u64,
}

/// Reads a port's drops.
fn drops(tap: &str) -> Result<PortDrops, LabError> {
    let json = command(&["tc", "-s", "-j", "qdisc", "show", "dev", tap])?;
    let buffer = parse_qdisc_drops(&json).ok_or_else(|| LabError::Command {
        command: format!("tc -s -j qdisc show dev {tap}"),
        why: format!("cannot read its answer: {json}"),
    })?;
    let json = command(&["ip", "-s", "-j", "link", "show", "dev", tap])?;
    let port_queue = parse_link_drops(&json).ok_or_else(|| LabError::Command {
        command: format!("ip -s -j link show dev {tap}"),
        why: format!("cannot read its answer: {json}"),
    })?;
    Ok(PortDrops { buffer, port_queue })
}

fn parse_qdisc_drops(json: &str) -> Option<u64> {
    let qdiscs: serde_json::Value = serde_json::from_str(json).ok()?;
    let leaf = |q: &&serde_json::Value| q["kind"] == "pfifo";
    Some(qdiscs.as_array()?.iter().filter(leaf).filter_map(|q| q["drops"].as_u64()).sum())
}

fn parse_link_drops(json: &str) -> Option<u64> {
    let links: serde_json::Value = serde_json::from_str(json).ok()?;
    links[0]["stats64"]["tx"]["dropped"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_leaf_of_a_shaped_port() {
        let json = r#"[{"kind":"htb","handle":"1:","root":true,"drops":7},{"kind":"pfifo","handle":"10:","parent":"1:1","options":{"limit":16},"drops":7,"qlen":3}]"#;
        assert_eq!(parse_qdisc_drops(json), Some(7));
    }

    #[test]
    fn an_unshaped_port_drops_nothing_in_its_buffer() {
        assert_eq!(parse_qdisc_drops(r#"[{"kind":"noqueue","drops":0}]"#), Some(0));
    }

    #[test]
    fn reads_link_drops() {
        assert_eq!(
            parse_link_drops(r#"[{"ifname":"t","stats64":{"rx":{"dropped":1},"tx":{"bytes":5,"dropped":42}}}]"#),
            Some(42)
        );
        assert_eq!(parse_link_drops("[]"), None);
    }
}
