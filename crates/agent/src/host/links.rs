//! Network devices of this host: which there are, which appear and go, and how long their queues are.

use std::io;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use rtnetlink::{Handle, LinkUnspec};
use tokio::task::JoinHandle;

use super::error::HostError;

/// `RTNLGRP_LINK` as a bit of the address that the socket is bound to.
const LINK_GROUP: u32 = 1 << (libc::RTNLGRP_LINK - 1);

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Index in its network namespace.
    pub ifindex: u32,
    /// Name.
    pub name: String,
    /// `txqueuelen`, in packets; a GSO packet is one.
    pub queue_segments: u32,
    /// What it is to its VM.
    pub kind: Kind,
}

/// Kinds of devices that differ as ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A tap: packets wait in its ring for QEMU or vhost.
    Tap,
    /// A macvtap (or ipvtap): packets for the VM come in, and those of the VM go out.
    Macvtap,
    /// A veth, or anything else.
    #[default]
    Other,
}

/// News of devices. It only says where to look: what it tells of a device may be older than what the device is by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// A device is new, changed or gone.
    Changed {
        /// Its index.
        ifindex: u32,
    },
    /// Events were lost: only a new list tells the truth.
    Lost,
}

/// Hears of devices that appear, change and go.
///
/// Not rtnetlink's own connection: that one panics when the kernel says that events were lost.
pub struct LinkWatch {
    socket: TokioSocket,
}

impl LinkWatch {
    /// Begins to listen; a list taken after this misses nothing.
    ///
    /// # Errors
    /// [`HostError::Netlink`] if the kernel gives no socket.
    pub fn new() -> Result<Self, HostError> {
        let open = || -> io::Result<TokioSocket> {
            let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
            socket.socket_mut().bind(&SocketAddr::new(0, LINK_GROUP))?;
            Ok(socket)
        };
        let socket = open().map_err(|source| HostError::netlink("cannot listen for network devices", source))?;
        Ok(Self { socket })
    }

    /// The events of the next message. Can be dropped while it waits.
    ///
    /// # Errors
    /// [`HostError::Netlink`] if the socket fails otherwise than by overrun.
    pub async fn next(&self) -> Result<Vec<LinkEvent>, HostError> {
        match self.socket.recv_from_full().await {
            Ok((bytes, _)) => Ok(events(&bytes)),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(vec![LinkEvent::Lost]),
            Err(source) => Err(HostError::netlink("cannot hear of network devices", source)),
        }
    }
}

/// All events in what one read gave; what cannot be parsed is as good as lost.
fn events(mut bytes: &[u8]) -> Vec<LinkEvent> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) else {
            found.push(LinkEvent::Lost);
            break;
        };
        // Messages are padded to four bytes; a length of zero would never end.
        let length = (message.header.length as usize).next_multiple_of(4).max(4);
        bytes = bytes.get(length..).unwrap_or_default();
        found.extend(event(message.payload));
    }
    found
}

fn event(payload: NetlinkPayload<RouteNetlinkMessage>) -> Option<LinkEvent> {
    let message = match payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(message) | RouteNetlinkMessage::DelLink(message)) => {
            message
        }
        _ => return None,
    };
    // A bridge tells of its members in the same group: a port that joins or leaves it has not changed.
    (message.header.interface_family == AddressFamily::Unspec)
        .then_some(LinkEvent::Changed { ifindex: message.header.index })
}

fn link(message: &LinkMessage) -> Option<Link> {
    let mut name = None;
    let mut queue_segments = 0;
    let mut kind = Kind::Other;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::TxQueueLen(packets) => queue_segments = *packets,
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    match info {
                        LinkInfo::Kind(InfoKind::Tun) => kind = Kind::Tap,
                        LinkInfo::Kind(InfoKind::MacVtap | InfoKind::IpVtap) => kind = Kind::Macvtap,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some(Link { ifindex: message.header.index, name: name?, queue_segments, kind })
}

/// Asks for devices and changes them.
#[derive(Debug)]
pub struct Links {
    handle: Handle,
    connection: JoinHandle<()>,
}

impl Drop for Links {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Links {
    /// Opens a connection; needs a runtime.
    ///
    /// # Errors
    /// [`HostError::Netlink`] if the kernel gives no socket.
    pub fn new() -> Result<Self, HostError> {
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|source| HostError::netlink("cannot open a netlink socket", source))?;
        Ok(Self { handle, connection: tokio::spawn(connection) })
    }

    /// All devices there are.
    ///
    /// # Errors
    /// [`HostError::Netlink`] if the kernel refuses.
    pub async fn list(&self) -> Result<Vec<Link>, HostError> {
        use futures_util::TryStreamExt;
        let messages: Result<Vec<LinkMessage>, _> = self.handle.link().get().execute().try_collect().await;
        let messages = messages.map_err(|error| HostError::netlink("cannot list network devices", source(error)))?;
        Ok(messages.iter().filter_map(link).collect())
    }

    /// A device as it is now; `None` if it is gone.
    ///
    /// # Errors
    /// [`HostError::Netlink`] if the kernel refuses.
    pub async fn get(&self, ifindex: u32) -> Result<Option<Link>, HostError> {
        use futures_util::TryStreamExt;
        let mut messages = self.handle.link().get().match_index(ifindex).execute();
        match messages.try_next().await {
            Ok(message) => Ok(message.as_ref().and_then(link)),
            Err(error) => {
                let error = HostError::netlink(format!("cannot ask for device {ifindex}"), source(error));
                if error.is_gone() { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Sets the length of a device's queue.
    ///
    /// # Errors
    /// [`HostError::Netlink`], with [`is_gone`](HostError::is_gone) if the device went meanwhile.
    pub async fn set_queue(&self, ifindex: u32, segments: u32) -> Result<(), HostError> {
        let message =
            LinkUnspec::new_with_index(ifindex).append_extra_attribute(LinkAttribute::TxQueueLen(segments)).build();
        let done = self.handle.link().set(message).execute().await;
        done.map_err(|error| {
            HostError::netlink(format!("cannot set the queue length of device {ifindex}"), source(error))
        })
    }
}

/// The system's answer in a library's error.
fn source(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NetlinkHeader;
    use netlink_packet_route::link::LinkHeader;

    use super::*;

    fn message(family: AddressFamily, index: u32, is_gone: bool) -> Vec<u8> {
        let mut link = LinkMessage::default();
        link.header = LinkHeader { interface_family: family, index, ..LinkHeader::default() };
        link.attributes = vec![LinkAttribute::IfName("vnet0".into()), LinkAttribute::TxQueueLen(500)];
        let inner = if is_gone { RouteNetlinkMessage::DelLink(link) } else { RouteNetlinkMessage::NewLink(link) };
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(inner));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    #[test]
    fn several_messages_in_one_read_are_all_heard() {
        let bytes = [message(AddressFamily::Unspec, 7, false), message(AddressFamily::Unspec, 8, true)].concat();
        assert_eq!(events(&bytes), [LinkEvent::Changed { ifindex: 7 }, LinkEvent::Changed { ifindex: 8 }]);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_run_on(
            noise in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
            at in 0usize..100,
            byte in proptest::num::u8::ANY,
        ) {
            events(&noise);
            let mut bytes = [message(AddressFamily::Unspec, 7, false), message(AddressFamily::Unspec, 8, true)].concat();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            // Each event takes four bytes at least.
            proptest::prop_assert!(events(&bytes).len() <= bytes.len() / 4);
        }
    }

    #[test]
    fn leaving_a_bridge_is_not_going() {
        assert_eq!(events(&message(AddressFamily::Bridge, 7, true)), []);
    }

    #[test]
    fn what_cannot_be_read_asks_for_a_new_list() {
        assert_eq!(events(&[1, 2, 3]), [LinkEvent::Lost]);
        let mut cut = message(AddressFamily::Unspec, 7, false);
        cut.truncate(20);
        assert_eq!(events(&cut), [LinkEvent::Lost]);
    }
}
