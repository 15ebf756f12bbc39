//! The devices that hold packets: a pair of netkit devices for each port, with the qdisc on the first of them, and a
//! pair of veths that joins segments that leave together.
//!
//! The kernel answers requests at once, so the socket may block: the agent's event loop waits for nobody else.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::netdevice::{NetDevices, Offload};

/// linux/if_link.h
const IFLA_NETKIT_PEER_INFO: u16 = 1;
const IFLA_NETKIT_POLICY: u16 = 3;
const IFLA_NETKIT_PEER_POLICY: u16 = 4;
const IFLA_NETKIT_MODE: u16 = 5;
const IFLA_IFNAME: u16 = 3;
const NETKIT_L2: u32 = 0;
const NETKIT_DROP: u32 = 2;
const SIZE_OF_IFINFOMSG: usize = 16;
/// linux/in6.h: none
const ADDR_GEN_MODE_NONE: u8 = 1;
/// The qdisc's handle; any would do.
const HANDLE: TcHandle = TcHandle { major: 1, minor: 0 };
/// The veths' MTU: they would drop larger packets (linux/if_ether.h, ETH_MAX_MTU).
const LARGEST_MTU: u32 = 65535;
/// How many packets may wait to be joined.
const JOIN_QUEUE_PACKETS: u32 = 8192;

/// Devices of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Devices {
    /// Its qdisc holds packets.
    pub(super) hold: u32,
    /// The other end of `hold`: it splits GSO packets, and what was held comes back there.
    pub(super) split: u32,
    /// `None`: the kernel has no veths, and segments leave as they are.
    pub(super) joining: Option<Joining>,
}

/// The devices that join segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Joining {
    /// Segments go in here.
    pub(super) entry: u32,
    /// They come out here, joined (GRO) where they follow one another.
    pub(super) exit: u32,
}

/// What the devices' names begin with, as in [`Devices`]; the port's index follows.
pub(super) const PREFIXES: [&str; 4] = ["ekh", "eks", "ekj", "ekg"];

/// Names of a port's devices.
fn names(port: u32) -> [String; 4] {
    PREFIXES.map(|prefix| format!("{prefix}{port}"))
}

/// The port of a device with this name, if it is one of these.
pub(super) fn port_of(name: &str) -> Option<u32> {
    let number = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
}

/// Index of a device, if it is there.
fn index(name: &str) -> Option<u32> {
    nix::net::if_::if_nametoindex(name).ok()
}

/// A port's devices, if they are there.
pub(super) fn find(port: u32) -> Option<Devices> {
    let [hold, split, entry, exit] = names(port);
    let joining = index(&entry).zip(index(&exit)).map(|(entry, exit)| Joining { entry, exit });
    Some(Devices { hold: index(&hold)?, split: index(&split)?, joining })
}

/// An attribute with its header, padded.
fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = 4 + payload.len();
    let mut bytes = Vec::with_capacity(length.next_multiple_of(4));
    bytes.extend((length as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

/// Asks the kernel to change something.
fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut message = NetlinkMessage::from(message);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let answer: NetlinkMessage<RouteNetlinkMessage> = NetlinkMessage::deserialize(&answer).map_err(io::Error::other)?;
    match answer.payload {
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        NetlinkPayload::Error(_) => Ok(()),
        _ => Err(io::Error::other("the kernel did not say whether it was done")),
    }
}

/// Makes a port's devices and their qdiscs, or finds them; all are up then.
pub(super) fn make(port: u32, port_name: &str, qdisc: &str) -> io::Result<Devices> {
    let mut devices = match find(port) {
        Some(devices) => devices,
        None => {
            add_holding(port, port_name)?;
            find(port).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?
        }
    };
    let [_, split, ..] = names(port);
    NetDevices::new()?.set_offload(&split, Offload::Tso, false)?;
    choose_cpu_by_flow(&split, port_name);
    put_qdisc(devices.hold, qdisc)?;
    set_up(devices.split)?;
    set_up(devices.hold)?;
    devices.joining = make_joining(port, port_name, devices.joining)
        .inspect_err(|error| {
            tracing::warn!(%error, port = port_name, "without veth devices what is held leaves segment by segment, \
                which takes more of the CPU");
        })
        .ok();
    Ok(devices)
}

fn make_joining(port: u32, port_name: &str, found: Option<Joining>) -> io::Result<Joining> {
    let [_, _, entry, exit] = names(port);
    let joining = match found {
        Some(joining) => joining,
        None => {
            add_joining(port, port_name)?;
            let made = find(port).and_then(|devices| devices.joining);
            made.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?
        }
    };
    // A veth joins only what comes from a peer without TSO, which sends segments.
    let settings = NetDevices::new()?;
    settings.set_offload(&entry, Offload::Tso, false)?;
    settings.set_offload(&exit, Offload::Gro, true)?;
    choose_cpu_by_flow(&exit, port_name);
    // With a queue before it, packets wait while the veth is full; without, it drops them.
    put_qdisc(joining.entry, "pfifo")?;
    set_up(joining.exit)?;
    set_up(joining.entry)?;
    Ok(joining)
}

fn set_up(device: u32) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = device;
    let no_address = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(ADDR_GEN_MODE_NONE)]);
    message.attributes = vec![LinkAttribute::AfSpecUnspec(vec![no_address])];
    // For tidiness only: what the host itself sends there by IPv6 is dropped. Without IPv6 it sends nothing.
    let _ = request(RouteNetlinkMessage::SetLink(message), 0);
    let mut message = LinkMessage::default();
    message.header.index = device;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    request(RouteNetlinkMessage::SetLink(message), 0)
}

fn put_qdisc(device: u32, kind: &str) -> io::Result<()> {
    let mut message = TcMessage::with_index(device as i32);
    message.header.parent = TcHandle::ROOT;
    message.header.handle = HANDLE;
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    match request(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn add_holding(port: u32, port_name: &str) -> io::Result<()> {
    let [hold, split, ..] = names(port);
    let name = |text: &str| [text.as_bytes(), &[0]].concat();
    let peer = [vec![0; SIZE_OF_IFINFOMSG], attribute(IFLA_IFNAME, &name(&split))].concat();
    // Packets that no program sends on are dropped.
    let netkit = [
        attribute(IFLA_NETKIT_MODE, &NETKIT_L2.to_ne_bytes()),
        attribute(IFLA_NETKIT_POLICY, &NETKIT_DROP.to_ne_bytes()),
        attribute(IFLA_NETKIT_PEER_POLICY, &NETKIT_DROP.to_ne_bytes()),
        attribute(IFLA_NETKIT_PEER_INFO, &peer),
    ];
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(hold),
        LinkAttribute::IfAlias(format!("evenkeel: holds packets of {port_name} (vFlood)")),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Other("netkit".to_owned())),
            LinkInfo::Data(InfoData::Other(netkit.concat())),
        ]),
    ];
    request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
}

fn add_joining(port: u32, port_name: &str) -> io::Result<()> {
    let [_, _, entry, exit] = names(port);
    let mut peer = LinkMessage::default();
    peer.attributes = vec![LinkAttribute::IfName(exit), LinkAttribute::Mtu(LARGEST_MTU)];
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(entry),
        LinkAttribute::Mtu(LARGEST_MTU),
        LinkAttribute::TxQueueLen(JOIN_QUEUE_PACKETS),
        LinkAttribute::IfAlias(format!("evenkeel: joins segments of {port_name} (vFlood)")),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
}

/// Removes a port's devices with what they hold; devices that are gone already are no error.
pub(super) fn remove(port: u32) -> io::Result<()> {
    let [hold, _, entry, _] = names(port);
    // Once the first pair is gone, nothing comes to the second any more.
    for device in [hold, entry].iter().filter_map(|name| index(name)) {
        let mut message = LinkMessage::default();
        message.header.index = device;
        request(RouteNetlinkMessage::DelLink(message), 0)?;
    }
    Ok(())
}

/// Removes the devices of all ports; one that cannot be removed keeps none of the others.
pub(super) fn remove_all() -> io::Result<()> {
    let mut outcome = Ok(());
    for device in &nix::net::if_::if_nameindex()? {
        if let Some(port) = device.name().to_str().ok().and_then(port_of) {
            outcome = outcome.and(remove(port));
        }
    }
    outcome
}

/// Has a CPU chosen by the flow handle what comes in at this device (RPS): packets are let out on several CPUs, and
/// must stay in order.
fn choose_cpu_by_flow(device: &str, port_name: &str) {
    let path = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    if let Err(error) = online.and_then(|online| std::fs::write(path, cpu_mask(online.trim()))) {
        tracing::warn!(%error, port = port_name, "what is held may leave in another order where several CPUs let it \
            out");
    }
}

/// The mask of a list of CPUs, as in `0-3,8`: groups of 32 bits, the highest first.
fn cpu_mask(list: &str) -> String {
    let mut words: Vec<u32> = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else { continue };
        for cpu in first..=last.min(first + 8191) {
            if words.len() <= cpu / 32 {
                words.resize(cpu / 32 + 1, 0);
            }
            words[cpu / 32] |= 1 << (cpu % 32);
        }
    }
    words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::{cpu_mask, port_of};

    #[test]
    fn names_of_own_devices_have_a_port() {
        assert_eq!(
            ["ekh7", "eks12", "ekj0", "ekg4294967295"].map(port_of),
            [Some(7), Some(12), Some(0), Some(u32::MAX)]
        );
        assert_eq!(["ekh", "ekx7", "ekh7a", "vnet7", "ekh-7"].map(port_of), [None; 5]);
    }

    #[test]
    fn masks_of_cpus() {
        assert_eq!(cpu_mask("0"), "00000001");
        assert_eq!(cpu_mask("0-1,4"), "00000013");
        assert_eq!(cpu_mask("0-32"), "00000001,ffffffff");
    }
}
