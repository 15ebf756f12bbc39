//! A driver domain: a host that is a VM, with the newest kernel, a network card for each of its VMs and one to the
//! switch.
//!
//! The link between a VM and its port in the domain is a bridge of two taps: a queue of the VM's own (`vm1`, towards
//! the VM) and the domain's (`in1`). QEMU's sockets would save both, but they carry no segments above the MTU. In the
//! domain, devices have the names that they have on a host without one: `vm1` for the port, `nic1` for the uplink.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use evenkeel_scenario::format::Network;

use super::net::{HostBridge, Shaping, VmPort};
use super::vm::{Accelerator, Channel, Nic, System, Vm, VmSpec};
use crate::error::LabError;
use crate::prepare::GuestImage;

/// Enough to verify the datapath's programs, beside a ramfs with the binary.
pub const MEMORY_MIB: u32 = 512;

const BRIDGE: &str = "br0";

/// What a domain is made of.
#[derive(Debug)]
pub struct Shape<'a> {
    /// Its host.
    pub host: &'a HostBridge,
    /// The ports of its VMs, and where QEMU has their channels.
    pub vms: Vec<(&'a VmPort, PathBuf)>,
    /// Kernel and initramfs.
    pub image: GuestImage,
    /// Whether its uplink takes and gives segments larger than the MTU.
    pub segmentation_offload: bool,
    /// Whether its VMs leave segmentation to it.
    pub segments_for_vms: bool,
    /// How its code is run.
    pub accelerator: Accelerator,
}

/// The VM of a domain.
pub fn spec(shape: &Shape) -> VmSpec {
    let number = shape.host.number;
    let nic = |tap: &str, mac, segmentation_offload| Nic { tap: tap.to_owned(), mac, segmentation_offload };
    let uplink = nic(&shape.host.switch_port, uplink_mac(number), shape.segmentation_offload);
    let ports = shape.vms.iter().map(|(port, _)| nic(&port.inner, port_mac(port), shape.segments_for_vms));
    let channels = shape.vms.iter().map(|(port, socket)| Channel {
        name: channel_name(&port.tap),
        socket: socket.clone(),
        listens: false,
    });
    VmSpec {
        name: format!("domain-{number}"),
        group: String::new(),
        number: 0,
        system: System::Booted(shape.image.clone()),
        vcpus: 1,
        vcpu_threads: 1,
        memory_mib: MEMORY_MIB,
        nics: std::iter::once(uplink).chain(ports).collect(),
        address: Ipv4Addr::UNSPECIFIED,
        channels: channels.collect(),
        accelerator: shape.accelerator,
    }
}

fn uplink_mac(host: u8) -> String {
    format!("52:54:00:00:02:{host:02x}")
}

fn port_mac(port: &VmPort) -> String {
    format!("52:54:00:00:01:{:02x}", port.number)
}

/// The name of a VM's channel in its domain.
fn channel_name(port: &str) -> String {
    format!("channel.{port}")
}

/// Makes the domain's bridge of its network cards.
pub fn set_up(domain: &Vm, host: &HostBridge, vm_ports: &[&VmPort], network: &Network) -> Result<(), LabError> {
    let mut script = String::from(
        "for name in all default; do echo 1 > /proc/sys/net/ipv6/conf/$name/disable_ipv6; done\n\
         take() { for d in /sys/class/net/*; do if [ \"$(cat $d/address)\" = $1 ]; then /bin/ip link set ${d##*/} name \
         $2; fi; done; }\n",
    );
    let devices = std::iter::once((uplink_mac(host.number), host.uplink.as_str()))
        .chain(vm_ports.iter().map(|port| (port_mac(port), port.tap.as_str())));
    let mut batch =
        format!("link add {BRIDGE} type bridge forward_delay 0 stp_state 0 mcast_snooping 0\nlink set {BRIDGE} up\n");
    let mut offloads = String::new();
    for (mac, name) in devices {
        // Writing to a String cannot fail.
        let _ = writeln!(script, "take {mac} {name}");
        let _ = writeln!(batch, "link set {name} master {BRIDGE} up");
        if !network.segmentation_offload {
            let _ = writeln!(offloads, "ethtool -K {name} gro off");
        }
    }
    domain.shell(&format!("{script}/bin/ip -batch - <<END\n{batch}END\n{offloads}")).map(drop)
}

/// Sets the queues of the domain's ports, the MTU, and whether segments that come from a VM are joined (GRO), as a host
/// gets them from a VM that leaves segmentation to it.
pub fn configure(
    domain: &Vm,
    host: &HostBridge,
    queues: &[(&VmPort, u32)],
    network: &Network,
    joins: bool,
) -> Result<(), LabError> {
    let mtu_bytes = network.mtu_bytes;
    let gro = if joins { "on" } else { "off" };
    let mut batch = format!("link set {} mtu {mtu_bytes}\n", host.uplink);
    let mut offloads = String::new();
    for (port, queue_segments) in queues {
        // Writing to a String cannot fail.
        let _ = writeln!(batch, "link set {} txqueuelen {queue_segments} mtu {mtu_bytes}", port.tap);
        let _ = writeln!(offloads, "ethtool -K {} gro {gro}", port.tap);
    }
    domain.shell(&format!("/bin/ip -batch - <<END\n{batch}END\n{offloads}")).map(drop)
}

/// Gives a device of the domain its queue.
pub fn shape(domain: &Vm, device: &str, shaping: Shaping<'_>) -> Result<(), LabError> {
    let lines = shaping.lines(device);
    // Nothing to remove on a fresh device: tc says so, and that is fine.
    let script = format!("/bin/tc {} 2>/dev/null || true\n", lines[0]);
    let script = lines[1..].iter().fold(script, |script, line| script + "/bin/tc " + line + "\n");
    domain.shell(&script).map(drop)
}

/// The devices of the VMs' channels in their domain, by port.
pub fn channels(domain: &Vm) -> Result<BTreeMap<String, PathBuf>, LabError> {
    let listed = domain.shell(
        "for name in /sys/class/virtio-ports/*/name; do d=${name%/name}; echo \"$(cat $name) /dev/${d##*/}\"; done",
    )?;
    Ok(parse_channels(&listed))
}

fn parse_channels(listed: &str) -> BTreeMap<String, PathBuf> {
    let channel = |line: &str| {
        let (name, device) = line.split_once(' ')?;
        Some((name.strip_prefix("channel.")?.to_owned(), Path::new(device).to_owned()))
    };
    listed.lines().filter_map(channel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_found_by_their_ports() {
        let listed = "evenkeel.control /dev/vport1p1\nchannel.vm3 /dev/vport1p2\nchannel.vm4 /dev/vport1p3\n";
        let found = parse_channels(listed);
        assert_eq!(found["vm3"], Path::new("/dev/vport1p2"));
        assert_eq!(found.len(), 2);
    }
}
