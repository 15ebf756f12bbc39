//! Netlink's messages and attributes as bytes (linux/netlink.h): reads only what is asked for and skips all else.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::{TimeVal, TimeValLike};

/// Size of `struct nlmsghdr`.
pub(crate) const HEADER_BYTES: usize = 16;

/// Size of `struct tcmsg`, with which messages about queues and filters begin.
pub(crate) const TCMSG_BYTES: usize = 20;
// linux/rtnetlink.h, of such messages
pub(crate) const TCA_KIND: u16 = 1;
pub(crate) const TCA_OPTIONS: u16 = 2;
pub(crate) const TCA_STATS2: u16 = 7;
/// linux/gen_stats.h: `struct gnet_stats_queue`, with length, backlog and drops first.
pub(crate) const TCA_STATS_QUEUE: u16 = 3;
/// linux/pkt_sched.h
pub(crate) const TC_H_ROOT: u32 = 0xffff_ffff;

/// A socket for questions about devices, queues and filters. Waiting longer than `timeout` for an answer is an error.
pub(crate) fn route(timeout: Duration) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // SAFETY: the socket is open for as long as this borrow.
    let fd = unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) };
    setsockopt(&fd, ReceiveTimeout, &TimeVal::milliseconds(timeout.as_millis() as i64))?;
    Ok(socket)
}

/// A `struct tcmsg` about a device and a place at it (`parent`); 0: all devices, or no place.
pub(crate) fn tcmsg(ifindex: u32, parent: u32) -> [u8; TCMSG_BYTES] {
    let mut body = [0; TCMSG_BYTES];
    body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    body[12..16].copy_from_slice(&parent.to_ne_bytes());
    body
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    /// `nlmsg_type`.
    pub(crate) kind: u16,
    /// `nlmsg_flags`.
    pub(crate) flags: u16,
    /// `nlmsg_seq`.
    pub(crate) seq: u32,
    /// What follows the header.
    pub(crate) body: &'a [u8],
}

/// The messages of one read; `None`, and then the end, where the bytes are no message.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Option<Message<'_>>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let message = message(bytes);
        let length = message.map_or(bytes.len(), |message| HEADER_BYTES + message.body.len());
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

fn message(bytes: &[u8]) -> Option<Message<'_>> {
    let length = u32_at(bytes, 0)? as usize;
    let body = bytes.get(HEADER_BYTES..length)?;
    Some(Message { kind: u16_at(bytes, 4)?, flags: u16_at(bytes, 6)?, seq: u32_at(bytes, 8)?, body })
}

/// A message with this body.
pub(crate) fn request(kind: u16, flags: u16, seq: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(seq.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// An attribute of one word.
pub(crate) fn word(kind: u16, value: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..2].copy_from_slice(&8u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[4..].copy_from_slice(&value.to_ne_bytes());
    bytes
}

/// Attributes with their types.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)?;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        // The uppermost bits say whether it nests.
        Some((kind & 0x3fff, value))
    })
}

/// The value of the first attribute of a type.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// A half word.
pub(crate) fn u16_at(value: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(value.get(at..at + 2)?.try_into().ok()?))
}

/// A word.
pub(crate) fn u32_at(value: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?))
}

/// An attribute, as the kernel writes it.
#[cfg(test)]
pub(crate) fn nla(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
