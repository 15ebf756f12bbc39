//! The devices that hold packets: a pair of netkit devices for each port, and the qdisc on the first of them.
//!
//! Requests are answered at once, so the socket blocks: the agent's event loop waits for the kernel, and for nobody else.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, InfoData, InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// linux/if_link.h
const IFLA_NETKIT_PEER_INFO: u16 = 1;
const IFLA_NETKIT_POLICY: u16 = 3;
const IFLA_NETKIT_PEER_POLICY: u16 = 4;
const IFLA_NETKIT_MODE: u16 = 5;
const IFLA_IFNAME: u16 = 3;
const NETKIT_L2: u32 = 0;
const NETKIT_DROP: u32 = 2;
const SIZE_OF_IFINFOMSG: usize = 16;
/// linux/ethtool.h
const ETHTOOL_STSO: u32 = 0x1f;
const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// linux/in6.h: none
const ADDR_GEN_MODE_NONE: u8 = 1;
/// Of the qdisc; any would do.
const HANDLE: TcHandle = TcHandle { major: 1, minor: 0 };

/// Devices of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Devices {
    /// Its qdisc holds packets.
    pub(super) hold: u32,
    /// The other end of that one splits GSO packets, and is where what was held comes back.
    pub(super) split: u32,
}

/// Names of a port's devices, as in [`Devices`].
fn names(port: u32) -> [String; 2] {
    ["ekh", "eks"].map(|prefix| format!("{prefix}{port}"))
}

/// Index of a device, if it is there.
fn index(name: &str) -> Option<u32> {
    nix::net::if_::if_nametoindex(name).ok()
}

/// A port's devices, if they are there.
pub(super) fn find(port: u32) -> Option<Devices> {
    let [hold, split] = names(port);
    Some(Devices { hold: index(&hold)?, split: index(&split)? })
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

/// Makes a port's devices and the qdisc, or finds them; all are up then.
pub(super) fn make(port: u32, port_name: &str, qdisc: &str) -> io::Result<Devices> {
    let devices = match find(port) {
        Some(devices) => devices,
        None => {
            add(port, port_name)?;
            find(port).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?
        }
    };
    no_segmentation_offload(&names(port)[1])?;
    if let Err(error) = one_cpu_for_a_flow(&names(port)[1]) {
        tracing::warn!(%error, port = port_name, "what is held may leave in another order where several CPUs let it out");
    }
    let mut message = TcMessage::with_index(devices.hold as i32);
    message.header.parent = TcHandle::ROOT;
    message.header.handle = HANDLE;
    message.attributes.push(TcAttribute::Kind(qdisc.to_owned()));
    match request(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    for device in [devices.split, devices.hold] {
        let mut message = LinkMessage::default();
        message.header.index = device;
        let no_address = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(ADDR_GEN_MODE_NONE)]);
        message.attributes = vec![LinkAttribute::AfSpecUnspec(vec![no_address])];
        // For tidiness only: what the host says of itself there is dropped. Without IPv6 there is nothing to say.
        let _ = request(RouteNetlinkMessage::SetLink(message), 0);
        let mut message = LinkMessage::default();
        message.header.index = device;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        request(RouteNetlinkMessage::SetLink(message), 0)?;
    }
    Ok(devices)
}

fn add(port: u32, port_name: &str) -> io::Result<()> {
    let [hold, split] = names(port);
    let name = |text: &str| [text.as_bytes(), &[0]].concat();
    let peer = [vec![0; SIZE_OF_IFINFOMSG], attribute(IFLA_IFNAME, &name(&split))].concat();
    // What no program sends on is nobody's.
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

/// Removes a port's devices with what they hold; those that are gone are as good.
pub(super) fn remove(port: u32) -> io::Result<()> {
    let Some(hold) = index(&names(port)[0]) else { return Ok(()) };
    let mut message = LinkMessage::default();
    message.header.index = hold;
    request(RouteNetlinkMessage::DelLink(message), 0)
}

/// What comes in at this device is worked on by a CPU that the flow decides (RPS): it is let out on several, and is to stay in order.
fn one_cpu_for_a_flow(device: &str) -> io::Result<()> {
    let path = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    std::fs::write(path, cpu_mask(online.trim()))
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

/// GSO packets are split before they get to this device.
fn no_segmentation_offload(device: &str) -> io::Result<()> {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let mut value = Value { command: ETHTOOL_STSO, data: 0 };
    // SAFETY: all zeros are a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut value).cast();
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: the request and what it points to outlive the call, and are of the form that the kernel reads.
    let outcome = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), SIOCETHTOOL as _, &request) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::cpu_mask;

    #[test]
    fn masks_of_cpus() {
        assert_eq!(cpu_mask("0"), "00000001");
        assert_eq!(cpu_mask("0-1,4"), "00000013");
        assert_eq!(cpu_mask("0-32"), "00000001,ffffffff");
    }
}
