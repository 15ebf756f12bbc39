//! What is attached to a network device, by rtnetlink and bpf(2).

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::libbpf_sys;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::tc::{TcHandle, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::{TimeVal, TimeValLike};

use super::readings::Attached;

/// linux/if_link.h
const XDP_ATTACHED_NONE: u8 = 0;
const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
const NLMSG_DONE: u16 = libc::NLMSG_DONE as u16;
/// An answer takes microseconds, unless somebody changes devices meanwhile.
const TIMEOUT: Duration = Duration::from_millis(100);
/// The most messages of one answer; a network card takes packets for fewer addresses.
const MOST_MESSAGES: usize = 4096;

/// Asks what is attached to a device, by its index.
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

/// Whether there is an XDP program, by libbpf, which skips all else that the kernel says of a device.
fn has_xdp(ifindex: u32) -> io::Result<bool> {
    let mut query = libbpf_sys::bpf_xdp_query_opts {
        // Only up to how it is attached: for what comes behind, libbpf would ask the kernel a second time.
        sz: offset_of!(libbpf_sys::bpf_xdp_query_opts, feature_flags) as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the structure is at least of the size that it says.
    let answer = unsafe { libbpf_sys::bpf_xdp_query(index(ifindex)?, 0, &raw mut query) };
    if answer == 0 { Ok(query.attach_mode != XDP_ATTACHED_NONE) } else { Err(io::Error::from_raw_os_error(-answer)) }
}

/// Whether there is a filter at the ingress of the qdisc `ingress` or `clsact`.
fn has_filter(ifindex: u32) -> io::Result<bool> {
    let mut request = TcMessage::with_index(index(ifindex)?);
    request.header.parent = TcHandle { minor: TcHandle::MIN_INGRESS, ..TcHandle::CLSACT };
    any(RouteNetlinkMessage::GetTrafficFilter(request), |answer| {
        Ok(NetlinkBuffer::new_checked(answer).map_err(io::Error::other)?.message_type() == libc::RTM_NEWTFILTER)
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
    any(RouteNetlinkMessage::GetNeighbour(request), |answer| match parse(answer)?.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(entry)) => {
            Ok(entry.header.ifindex == ifindex && entry.attributes.iter().any(is_unicast))
        }
        _ => Ok(false),
    })
}

fn has_tcx(ifindex: u32) -> io::Result<bool> {
    let mut query = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the structure states its own size, and asks for no arrays.
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

/// The index as some of the kernel's interfaces take it.
fn index(ifindex: u32) -> io::Result<i32> {
    i32::try_from(ifindex).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Whether any message of the kernel's answer to a request is a wanted one.
fn any(request: RouteNetlinkMessage, is_wanted: impl Fn(&[u8]) -> io::Result<bool>) -> io::Result<bool> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // Without strict checks, the kernel lists the addresses of all devices.
    socket.set_netlink_get_strict_chk(true)?;
    // SAFETY: the socket is open for as long as this borrow.
    let fd = unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) };
    setsockopt(&fd, ReceiveTimeout, &TimeVal::milliseconds(TIMEOUT.as_millis() as i64))?;
    let mut message = NetlinkMessage::from(request);
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let (mut found, mut messages) = (false, 0);
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = &answer[..];
        while !rest.is_empty() {
            let header = NetlinkBuffer::new_checked(rest).map_err(io::Error::other)?;
            let (kind, length) = (header.message_type(), header.length() as usize);
            if [NLMSG_DONE, NLMSG_ERROR].contains(&kind) {
                return match parse(rest)?.payload {
                    NetlinkPayload::Done(done) if done.code < 0 => Err(io::Error::from_raw_os_error(-done.code)),
                    NetlinkPayload::Error(error) => Err(error.to_io()),
                    _ => Ok(found),
                };
            }
            found |= is_wanted(&rest[..length])?;
            messages += 1;
            if messages == MOST_MESSAGES {
                return Err(io::Error::other(format!("an answer of more than {MOST_MESSAGES} messages")));
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn parse(bytes: &[u8]) -> io::Result<NetlinkMessage<RouteNetlinkMessage>> {
    NetlinkMessage::deserialize(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
