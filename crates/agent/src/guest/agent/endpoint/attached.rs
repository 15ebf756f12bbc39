//! What is attached to a network device, by rtnetlink and bpf(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::libbpf_sys;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_MULTIPART, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp, XdpAttached};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::tc::{TcHandle, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::{TimeVal, TimeValLike};

use super::readings::Attached;

/// An answer takes microseconds, unless somebody changes devices meanwhile.
const PATIENCE: Duration = Duration::from_millis(100);
/// Messages of one answer; a network card takes packets for less addresses than that.
const MOST_MESSAGES: usize = 4096;

/// Asks for a device by its index.
pub(in super::super) fn look(ifindex: u32) -> Attached {
    let attached = |answer: io::Result<bool>| match answer {
        Ok(is_there) => Ok(Some(is_there)),
        // Kernels that do not have it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(None),
        Err(error) => Err(error.to_string()),
    };
    Attached {
        xdp: attached(has_xdp(ifindex)),
        filter: attached(has_filter(ifindex)),
        tcx: attached(has_tcx(ifindex)),
        addresses: attached(has_addresses(ifindex)),
    }
}

fn has_xdp(ifindex: u32) -> io::Result<bool> {
    let mut request = LinkMessage::default();
    request.header.index = ifindex;
    let is_program = |xdp: &LinkXdp| matches!(xdp, LinkXdp::Attached(attached) if *attached != XdpAttached::None);
    any(RouteNetlinkMessage::GetLink(request), 0, |answer| match answer {
        RouteNetlinkMessage::NewLink(link) => link
            .attributes
            .iter()
            .any(|attribute| matches!(attribute, LinkAttribute::Xdp(xdp) if xdp.iter().any(is_program))),
        _ => false,
    })
}

/// Of the qdiscs `ingress` and `clsact`.
fn has_filter(ifindex: u32) -> io::Result<bool> {
    let mut request = TcMessage::with_index(index(ifindex)?);
    request.header.parent = TcHandle { minor: TcHandle::MIN_INGRESS, ..TcHandle::CLSACT };
    any(RouteNetlinkMessage::GetTrafficFilter(request), NLM_F_DUMP, |answer| {
        matches!(answer, RouteNetlinkMessage::NewTrafficFilter(_))
    })
}

/// Whether there is a unicast address beside the device's own.
fn has_addresses(ifindex: u32) -> io::Result<bool> {
    let mut request = NeighbourMessage::default();
    request.header.family = AddressFamily::Bridge;
    request.header.ifindex = ifindex;
    let is_unicast = |attribute: &NeighbourAttribute| match attribute {
        NeighbourAttribute::LinkLocalAddress(address) => address.first().is_some_and(|first| first & 1 == 0),
        _ => false,
    };
    any(RouteNetlinkMessage::GetNeighbour(request), NLM_F_DUMP, |answer| match answer {
        RouteNetlinkMessage::NewNeighbour(entry) => {
            entry.header.ifindex == ifindex && entry.attributes.iter().any(is_unicast)
        }
        _ => false,
    })
}

fn has_tcx(ifindex: u32) -> io::Result<bool> {
    let mut query = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the structure is of the size that it says, and asks for no arrays.
    let answer =
        unsafe { libbpf_sys::bpf_prog_query_opts(index(ifindex)?, libbpf_sys::BPF_TCX_INGRESS, &raw mut query) };
    match -answer {
        // SAFETY: the kernel has written the count.
        0 => Ok(unsafe { query.__bindgen_anon_1.prog_cnt } > 0),
        // An attach type that the kernel does not know.
        libc::EINVAL => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// As some of the kernel's interfaces have it.
fn index(ifindex: u32) -> io::Result<i32> {
    i32::try_from(ifindex).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Whether any message of the answer is such a one.
fn any(
    request: RouteNetlinkMessage,
    flags: u16,
    mut is_wanted: impl FnMut(RouteNetlinkMessage) -> bool,
) -> io::Result<bool> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // Without it the kernel tells the addresses of all devices.
    socket.set_netlink_get_strict_chk(true)?;
    // SAFETY: the socket is open for as long as this borrow.
    let fd = unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) };
    setsockopt(&fd, ReceiveTimeout, &TimeVal::milliseconds(PATIENCE.as_millis() as i64))?;
    let mut message = NetlinkMessage::from(request);
    message.header.flags = NLM_F_REQUEST | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let (mut found, mut messages) = (false, 0);
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = &answer[..];
        while !rest.is_empty() {
            let message = parse(rest)?;
            match message.payload {
                NetlinkPayload::Done(done) if done.code < 0 => return Err(io::Error::from_raw_os_error(-done.code)),
                NetlinkPayload::Done(_) => return Ok(found),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(inner) => found |= is_wanted(inner),
                _ => {}
            }
            if message.header.flags & NLM_F_MULTIPART == 0 {
                return Ok(found);
            }
            messages += 1;
            if messages == MOST_MESSAGES {
                return Err(io::Error::other(format!("an answer of more than {MOST_MESSAGES} messages")));
            }
            rest = rest.get((message.header.length as usize).next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn parse<T: NetlinkDeserializable>(bytes: &[u8]) -> io::Result<NetlinkMessage<T>> {
    NetlinkMessage::deserialize(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
