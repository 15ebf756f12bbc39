//! What is read from /proc, /sys and the kernel about the way from the network cards to TCP. Conclusions are drawn
//! elsewhere.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;

/// A value; nothing where this kernel does not have it; or why it cannot be read.
pub(super) type Reading<T> = Result<Option<T>, String>;

/// What these devices call themselves in `uevent`.
pub(super) const VLAN: &str = "vlan";
pub(super) const VXLAN: &str = "vxlan";
/// How many devices are looked at: network cards and their VLANs.
const MOST_DEVICES: usize = 64;
/// `IFF_UP` (linux/if.h).
const UP: u32 = libc::IFF_UP as u32;

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Readings {
    /// `net.ipv4.tcp_shrink_window`, since Linux 6.1.53 and 6.6.
    pub shrink_window: Reading<String>,
    /// IPVS's table.
    pub ip_vs: Reading<String>,
    /// Network cards that are up, and VLANs on them.
    pub devices: Result<Vec<Device>, String>,
}

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    /// Its name.
    pub name: String,
    /// Whether it is a network card.
    pub is_card: bool,
    /// The device that it belongs to.
    pub master: Reading<String>,
    /// Devices on top of it in this network namespace, its master among them.
    pub uppers: Vec<Upper>,
    /// For each of its queues, a mask of the processors that packets are handed to.
    pub rps: Reading<Vec<String>>,
    /// What only the kernel's interfaces tell.
    pub attached: Attached,
}

/// A device on top of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Upper {
    /// Its name.
    pub name: String,
    /// What it calls itself; most say nothing.
    pub kind: Reading<String>,
}

/// What is attached to a device; whether there is any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attached {
    /// An XDP program.
    pub xdp: Reading<bool>,
    /// A filter of tc's at its ingress.
    pub filter: Reading<bool>,
    /// A program of tcx's there, since Linux 6.6.
    pub tcx: Reading<bool>,
    /// A unicast address beside its own, which shows devices in other network namespaces: they are not in `uppers`.
    pub addresses: Reading<bool>,
}

impl Readings {
    /// Reads the files below `root`, and calls `attached` with the index of each device.
    pub fn take(root: &Path, attached: impl Fn(u32) -> Attached) -> Self {
        Self {
            shrink_window: file(&root.join("proc/sys/net/ipv4/tcp_shrink_window")),
            ip_vs: file(&root.join("proc/net/ip_vs")),
            devices: devices(&root.join("sys/class/net"), &attached),
        }
    }
}

/// Cards first, and then the VLANs on them.
fn devices(net: &Path, attached: &impl Fn(u32) -> Attached) -> Result<Vec<Device>, String> {
    let mut waiting: VecDeque<String> = names(net)?.into_iter().filter(|name| is_card(&net.join(name))).collect();
    let mut devices: Vec<Device> = Vec::new();
    while let Some(name) = waiting.pop_front() {
        let path = net.join(&name);
        if !is_up(&path)? || devices.iter().any(|device| device.name == name) {
            continue;
        }
        if devices.len() == MOST_DEVICES {
            return Err(format!("more than {MOST_DEVICES}"));
        }
        let index = number(&path.join("ifindex"), 10)?;
        let uppers: Vec<Upper> = names(&path)?
            .iter()
            .filter_map(|entry| entry.strip_prefix("upper_"))
            .map(|upper| Upper { name: upper.to_owned(), kind: kind(&net.join(upper)) })
            .collect();
        waiting.extend(uppers.iter().filter(|upper| is_vlan(upper)).map(|upper| upper.name.clone()));
        let (is_card, master, rps) = (is_card(&path), master(&path), rps(&path.join("queues")));
        devices.push(Device { name, is_card, master, uppers, rps, attached: attached(index) });
    }
    Ok(devices)
}

fn is_vlan(upper: &Upper) -> bool {
    matches!(&upper.kind, Ok(Some(kind)) if kind == VLAN)
}

/// Whether there is hardware behind a device, be it a hypervisor's.
fn is_card(path: &Path) -> bool {
    path.join("device").symlink_metadata().is_ok()
}

fn is_up(path: &Path) -> Result<bool, String> {
    Ok(number(&path.join("flags"), 16)? & UP != 0)
}

fn master(path: &Path) -> Reading<String> {
    let link = path.join("master");
    match fs::read_link(&link) {
        Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
        Err(error) => absent(&link, &error),
    }
}

fn kind(path: &Path) -> Reading<String> {
    let text = file(&path.join("uevent"))?;
    let text = text.ok_or_else(|| format!("{} is gone", path.display()))?;
    let kind = text.lines().find_map(|line| line.strip_prefix("DEVTYPE="));
    Ok(Some(kind.unwrap_or_default().to_owned()))
}

fn rps(queues: &Path) -> Reading<Vec<String>> {
    let mut masks = Vec::new();
    for queue in names(queues)?.iter().filter(|name| name.starts_with("rx-")) {
        masks.extend(file(&queues.join(queue).join("rps_cpus"))?);
    }
    Ok((!masks.is_empty()).then_some(masks))
}

/// Names in a directory, in order.
fn names(directory: &Path) -> Result<Vec<String>, String> {
    let failed = |error: io::Error| format!("cannot read {}: {error}", directory.display());
    let entries = fs::read_dir(directory).map_err(failed)?;
    let name = |entry: io::Result<fs::DirEntry>| {
        let name = entry.map_err(failed)?.file_name();
        name.into_string().map_err(|name| format!("a name that is no text: {name:?}"))
    };
    let mut names = entries.map(name).collect::<Result<Vec<_>, _>>()?;
    names.sort_unstable();
    Ok(names)
}

fn number(path: &Path, radix: u32) -> Result<u32, String> {
    let text = file(path)?.ok_or_else(|| format!("there is no {}", path.display()))?;
    let digits = text.trim().trim_start_matches("0x");
    u32::from_str_radix(digits, radix).map_err(|_| format!("no number in {}: {text:?}", path.display()))
}

/// What is in a file, if it is there.
fn file(path: &Path) -> Reading<String> {
    fs::read_to_string(path).map(Some).or_else(|error| absent(path, &error))
}

fn absent<T>(path: &Path, error: &io::Error) -> Reading<T> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(None),
        _ => Err(format!("cannot read {}: {error}", path.display())),
    }
}
