//! The lab's network: a namespace of its own, a bridge, a tap per VM, a veth per machine that is a namespace, the
//! shaped port.
//!
//! Where ports mark or the host agent runs, VMs are on hosts: a bridge with the VM's tap (`vm1`) and an uplink
//! (`nic1`), whose other end is the switch's port (`up1`). What the switch marks and drops is then between two hosts,
//! as in a network, and the agent's programs at the tap come after it. A host can be a VM itself: see
//! [`super::domain`].
//!
//! The namespace has no name and lives as long as the lab and its VMs, so nothing of it can be left behind. Qdiscs and
//! links are set by iproute2, because rtnetlink's qdisc attributes do not cover HTB and TBF.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use evenkeel_scenario::format::{Discipline, Queue};
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;

use super::qdisc;
use crate::error::LabError;

const BRIDGE: &str = "br0";
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;

/// Runs a host command and returns its standard output.
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

/// Moves the calling thread, and what it starts from now on, into a new network namespace with a bridge. Its mounts are
/// its own from then on.
pub fn enter_namespace() -> Result<(), LabError> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .map_err(|e| LabError::io("making a network namespace", e))?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(|e| LabError::io("making mounts private", e))?;
    ip("link set lo up")?;
    // No IPv6 on the host's side: its neighbour discovery would take room in every queue.
    for name in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        if std::path::Path::new(&path).exists() {
            std::fs::write(&path, "1").map_err(|e| LabError::io(format!("writing {path}"), e))?;
        }
    }
    add_bridge(BRIDGE)
}

/// A host of VMs: a bridge, an uplink, and the switch's port at the uplink's other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostBridge {
    /// Its number, from 1.
    pub number: u8,
    /// The switch's port towards it.
    pub switch_port: String,
    /// Its uplink, inside the driver domain if there is one.
    pub uplink: String,
    /// Whether it is a VM of its own: the switch's port is then a tap.
    pub in_vm: bool,
}

impl HostBridge {
    /// With this number.
    pub fn new(number: u8, in_vm: bool) -> Self {
        Self { number, switch_port: format!("up{number}"), uplink: format!("nic{number}"), in_vm }
    }

    fn bridge(&self) -> String {
        format!("host{}", self.number)
    }

    /// Makes its devices.
    pub fn make(&self) -> Result<(), LabError> {
        if self.in_vm {
            return add_tap(&self.switch_port, BRIDGE);
        }
        let (bridge, uplink, switch_port) = (self.bridge(), &self.uplink, &self.switch_port);
        add_bridge(&bridge)?;
        ip(&format!("link add {switch_port} type veth peer name {uplink}"))?;
        ip(&format!("link set {uplink} master {bridge} up"))?;
        ip(&format!("link set {switch_port} master {BRIDGE} up"))
    }

    /// Removes its devices.
    pub fn remove(&self) -> Result<(), LabError> {
        // One end of a pair takes the other along.
        ip(&format!("link del {}", self.switch_port))?;
        if self.in_vm { Ok(()) } else { ip(&format!("link del {}", self.bridge())) }
    }

    /// Sets the MTU of its devices in the lab's namespace.
    pub fn configure(&self, mtu_bytes: u32) -> Result<(), LabError> {
        self.devices().try_for_each(|device| ip(&format!("link set {device} mtu {mtu_bytes}")))
    }

    /// Its ends of the uplink that are in the lab's namespace.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.switch_port.as_str()).chain((!self.in_vm).then_some(self.uplink.as_str()))
    }
}

/// Where a VM is in the network: at the switch, or on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmPort {
    /// The VM's number, from 1.
    pub number: u8,
    /// The VM's port: a tap, or the end of a veth.
    pub tap: String,
    /// If its host is a VM: the tap of that host's network card for this VM.
    pub inner: String,
    /// The switch's port towards it: the tap itself if the VM is at the switch.
    pub switch_port: String,
    /// The bridge that the tap is in.
    bridge: String,
    /// Whether that is a bridge between the VM and its driver domain only.
    is_link: bool,
}

impl VmPort {
    /// Of the VM with this number.
    pub fn new(number: u8, host: Option<&HostBridge>) -> Self {
        let (tap, inner) = (format!("vm{number}"), format!("in{number}"));
        let is_link = host.is_some_and(|host| host.in_vm);
        let bridge = match host {
            None => BRIDGE.to_owned(),
            Some(_) if is_link => format!("link{number}"),
            Some(host) => host.bridge(),
        };
        let switch_port = host.map_or_else(|| tap.clone(), |host| host.switch_port.clone());
        Self { number, tap, inner, switch_port, bridge, is_link }
    }

    /// Makes its device as a veth whose other end is `eth0` in the network namespace of this process.
    pub fn make_towards(&self, pid: u32, mac: &str) -> Result<(), LabError> {
        let (port, bridge) = (&self.tap, &self.bridge);
        ip(&format!("link add {port} type veth peer name eth0 address {mac} netns {pid}"))?;
        ip(&format!("link set {port} master {bridge} up"))
    }

    /// Makes its devices.
    pub fn make(&self) -> Result<(), LabError> {
        if self.is_link {
            add_bridge(&self.bridge)?;
            add_tap(&self.inner, &self.bridge)?;
        }
        add_tap(&self.tap, &self.bridge)
    }

    /// Removes its devices.
    pub fn remove(&self) -> Result<(), LabError> {
        ip(&format!("link del {}", self.tap))?;
        if self.is_link {
            ip(&format!("link del {}", self.inner))?;
            ip(&format!("link del {}", self.bridge))?;
        }
        Ok(())
    }

    /// Sets the queue of the VM's port, and the MTU of the VM's devices.
    pub fn configure(&self, queue_segments: u32, mtu_bytes: u32) -> Result<(), LabError> {
        if self.is_link {
            ip(&format!("link set {} mtu {mtu_bytes}", self.inner))?;
        }
        ip(&format!("link set {} txqueuelen {queue_segments} mtu {mtu_bytes}", self.tap))
    }

    /// Its port, and the one on the way to its driver domain.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.tap.as_str()).chain(self.is_link.then_some(self.inner.as_str()))
    }
}

fn add_bridge(name: &str) -> Result<(), LabError> {
    ip(&format!("link add {name} type bridge forward_delay 0 stp_state 0 mcast_snooping 0"))?;
    ip(&format!("link set {name} up"))
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

/// How a device's queue is shaped: a rate, and what waits for it. A rate of 0 leaves it as the kernel makes it.
#[derive(Debug, Clone, Copy)]
pub struct Shaping<'a> {
    /// Megabits per second.
    pub rate_mbit: u32,
    /// Length of the queue.
    pub segments: u32,
    /// What is sent, marked and dropped.
    pub queue: &'a Queue,
    /// Largest frame payload.
    pub mtu_bytes: u32,
}

impl Shaping<'_> {
    /// The lines for `tc`. The first may fail, because there may be nothing to remove.
    pub fn lines(&self, device: &str) -> Vec<String> {
        let mut lines = vec![format!("qdisc del dev {device} root")];
        let rate = self.rate_mbit;
        if rate == 0 {
            return lines;
        }
        // A burst as long as the HTB timer may be late (100 us), at least two frames.
        let burst_bytes = (u64::from(rate) * 100 / 8).max(2 * (u64::from(self.mtu_bytes) + 14));
        lines.push(format!("qdisc add dev {device} root handle 1: htb default 1 r2q 1000"));
        lines.push(format!(
            "class add dev {device} parent 1: classid 1:1 htb rate {rate}mbit ceil {rate}mbit burst {burst_bytes} \
             cburst {burst_bytes} quantum 60000"
        ));
        lines.push(format!("qdisc add dev {device} parent 1:1 handle 10: {}", self.leaf()));
        lines
    }

    /// What `tc` calls the queue.
    pub fn kind(&self) -> &'static str {
        match self.queue.discipline {
            Discipline::Codel => "codel",
            Discipline::FqCodel => "fq_codel",
            Discipline::DropTail | Discipline::Red | Discipline::Priority | Discipline::Pfabric => "pfifo",
        }
    }

    /// The queue itself. Ports that mark have a program of the lab's before a drop-tail queue.
    fn leaf(&self) -> String {
        let limit = self.segments;
        let time = |name: &str, us: Option<u32>| us.map_or_else(String::new, |us| format!(" {name} {us}us"));
        let times = || time("target", self.queue.codel_target_us) + &time("interval", self.queue.codel_interval_us);
        match self.kind() {
            kind @ ("codel" | "fq_codel") => format!("{kind} limit {limit} ecn{}", times()),
            kind => format!("{kind} limit {limit}"),
        }
    }
}

/// Gives a device of the lab's namespace its queue.
pub fn shape(device: &str, shaping: Shaping<'_>) -> Result<(), LabError> {
    let lines = shaping.lines(device);
    // Nothing to remove on a fresh device: tc says so, and that is fine.
    let _ = tc(&lines[0]);
    lines[1..].iter().try_for_each(|line| tc(line))
}

/// Packets dropped so far at these devices: by shapers' queues, and by the queue towards a VM.
pub fn drops<'a>(mut devices: impl Iterator<Item = &'a str>) -> Result<u64, LabError> {
    let (shaped, json) = (qdisc::drops()?, command(&["ip", "-s", "-j", "link", "show"])?);
    let links = parse_links(&json).ok_or_else(|| LabError::Command {
        command: "ip -s -j link show".to_owned(),
        why: format!("cannot read its answer: {json}"),
    })?;
    devices.try_fold(0, |sum, device| {
        let gone = || LabError::io(format!("reading what {device} has dropped"), std::io::ErrorKind::NotFound);
        let (index, dropped) = links.get(device).ok_or_else(gone)?;
        Ok(sum + dropped + shaped.get(index).copied().unwrap_or(0))
    })
}

/// Each device's index, and what it has dropped of what it was to send.
fn parse_links(json: &str) -> Option<BTreeMap<String, (u32, u64)>> {
    let links: serde_json::Value = serde_json::from_str(json).ok()?;
    let link = |link: &serde_json::Value| {
        let index = u32::try_from(link["ifindex"].as_u64()?).ok()?;
        Some((link["ifname"].as_str()?.to_owned(), (index, link["stats64"]["tx"]["dropped"].as_u64()?)))
    };
    links.as_array()?.iter().map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_in_a_vm_has_links_to_its_vms_only() {
        let native = VmPort::new(3, Some(&HostBridge::new(2, false)));
        assert_eq!((native.switch_port.as_str(), native.bridge.as_str()), ("up2", "host2"));
        let domain = VmPort::new(3, Some(&HostBridge::new(2, true)));
        assert_eq!((domain.switch_port.as_str(), domain.bridge.as_str(), domain.is_link), ("up2", "link3", true));
        let switch = VmPort::new(3, None);
        assert_eq!((switch.switch_port.as_str(), switch.bridge.as_str()), ("vm3", "br0"));
    }

    #[test]
    fn a_queue_is_tcs() {
        let queue = Queue { discipline: Discipline::FqCodel, codel_target_us: Some(500), ..Queue::default() };
        let shaping = Shaping { rate_mbit: 100, segments: 50, queue: &queue, mtu_bytes: 1500 };
        let lines = shaping.lines("nic1");
        assert_eq!(
            lines.last().map(String::as_str),
            Some("qdisc add dev nic1 parent 1:1 handle 10: fq_codel limit 50 ecn target 500us")
        );
        assert_eq!(Shaping { rate_mbit: 0, ..shaping }.lines("nic1").len(), 1);
    }

    #[test]
    fn links_are_read_by_their_names() {
        let json = r#"[
            {"ifindex":1,"ifname":"lo","stats64":{"rx":{"dropped":0},"tx":{"dropped":0}}},
            {"ifindex":7,"ifname":"t","stats64":{"rx":{"dropped":1},"tx":{"bytes":5,"dropped":42}}}
        ]"#;
        assert_eq!(parse_links(json).map(|links| links["t"]), Some((7, 42)));
        assert_eq!(parse_links(r#"[{"ifname":"t"}]"#), None);
    }
}
