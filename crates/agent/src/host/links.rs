//! Network devices of this host: which there are, which appear and go, and how long their queues are. Their numbers are
//! those of ports; the name of a device in another network namespace begins with the namespace's ([`netns`]).
//!
//! The kernel answers a request while that is made, so asking waits for nothing but the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, ReceiveTimeout};
use nix::sys::socket::{MsgFlags, recv, setsockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::error::HostError;
use super::tap::TapFlags;
use crate::netlink::{self, Message, attribute, messages, request, u32_at};
use crate::netns;

/// `RTNLGRP_LINK` as a bit of the address that the socket is bound to.
const LINK_GROUP: u32 = 1 << (libc::RTNLGRP_LINK - 1);
/// Of `struct ifinfomsg`.
const INFO_BYTES: usize = 16;
/// linux/rtnetlink.h: counters are of no use here, and most of an answer.
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
/// Bytes of one read: the kernel sends no more at once, neither in answers nor as news of one device.
const READ_BYTES: usize = 1 << 16;
/// Room for news that waits: that of some thousand devices, at about 5 KB of the kernel's memory each.
const NEWS_BYTES: usize = 16 << 20;
/// How many reads are made in a row before other tasks have their turn.
const READS: usize = 4096;
/// How long an answer may take, while others change devices.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many lists are taken in a row, at most, because devices changed meanwhile.
const LISTS: usize = 4;

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub ifindex: u32,
    /// Name. To the kernel it is bytes: those that are no UTF-8 are here as `\xNN`.
    pub name: String,
    /// `txqueuelen`, in packets; a GSO packet is one.
    pub queue_segments: u32,
    /// What it is to its VM.
    pub kind: Kind,
    /// How it was made, if it is a tap.
    pub tap: Option<TapFlags>,
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

/// News of devices. It may be older than the present state of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// A device is new, or has changed.
    Changed {
        /// Its index.
        ifindex: u32,
        /// Its name.
        name: String,
    },
    /// A device is gone. Another may have its index by now, which then is news of its own.
    Gone {
        /// Its index.
        ifindex: u32,
    },
    /// News was lost: only a new list tells the truth.
    Lost,
}

/// All devices there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// In the kernel's order.
    pub links: Vec<Link>,
    /// Whether none changed meanwhile, so that none can be missing.
    pub is_whole: bool,
}

/// Hears of devices that appear, change and go.
pub struct LinkWatch {
    socket: AsyncFd<OwnedFd>,
    buffer: Vec<u8>,
    /// News was lost, and the kernel does not say so again before all that waits has been read.
    is_overrun: bool,
}

fn netlink_socket() -> io::Result<Socket> {
    Socket::new(NETLINK_ROUTE)
}

fn owned(socket: &Socket) -> io::Result<OwnedFd> {
    // SAFETY: the socket is open for as long as this borrow.
    unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) }.try_clone_to_owned()
}

impl Link {
    /// As one of the namespace with this base.
    fn in_namespace(self, base: u32) -> Option<Self> {
        Some(Self { ifindex: netns::number(base, self.ifindex)?, name: netns::name(base, &self.name), ..self })
    }
}

impl LinkEvent {
    /// As one of the namespace with this base.
    pub fn in_namespace(self, base: u32) -> Option<Self> {
        Some(match self {
            Self::Changed { ifindex, name } => {
                Self::Changed { ifindex: netns::number(base, ifindex)?, name: netns::name(base, &name) }
            }
            Self::Gone { ifindex } => Self::Gone { ifindex: netns::number(base, ifindex)? },
            Self::Lost => Self::Lost,
        })
    }
}

impl LinkWatch {
    /// Begins to listen in the namespace with this base, and keeps the namespace alive meanwhile. A list that is taken
    /// after this misses nothing.
    ///
    /// # Errors
    /// [`HostError::Netlink`] if the kernel gives no socket.
    pub fn new(base: u32) -> Result<Self, HostError> {
        let opened = netns::enter(base).and_then(|_there| Self::open(NEWS_BYTES));
        opened.map_err(|source| HostError::netlink("cannot listen for network devices", source))
    }

    fn open(news_bytes: usize) -> io::Result<Self> {
        let mut socket = netlink_socket()?;
        socket.set_non_blocking(true)?;
        socket.bind(&SocketAddr::new(0, LINK_GROUP))?;
        let fd = owned(&socket)?;
        // If the system's bound may not be exceeded, less room will do: lost news is made up for by a list.
        setsockopt(&fd, RcvBufForce, &news_bytes).or_else(|_| setsockopt(&fd, RcvBuf, &news_bytes))?;
        // SAFETY: the `AsyncFd` owns the descriptor, so it stays open for as long as it is registered.
        let socket = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self { socket, buffer: vec![0; READ_BYTES], is_overrun: false })
    }

    /// The news that there is. Can be dropped while it waits.
    ///
    /// # Errors
    /// [`HostError::Netlink`] if the socket fails otherwise than by overrun.
    pub async fn next(&mut self) -> Result<Vec<LinkEvent>, HostError> {
        let failed = |source| HostError::netlink("cannot hear of network devices", source);
        loop {
            let mut ready = self.socket.readable().await.map_err(failed)?;
            let mut found = Vec::new();
            for _ in 0..READS {
                match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_TRUNC) {
                    Ok(length) => match self.buffer.get(..length) {
                        Some(bytes) => found.extend(events(bytes)),
                        None => self.is_overrun = true,
                    },
                    Err(Errno::ENOBUFS) => self.is_overrun = true,
                    Err(Errno::EINTR) => {}
                    Err(Errno::EAGAIN) => {
                        ready.clear_ready();
                        if std::mem::take(&mut self.is_overrun) {
                            found.push(LinkEvent::Lost);
                        }
                        break;
                    }
                    Err(errno) => return Err(failed(errno.into())),
                }
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }
}

/// All events of one read; a message that cannot be parsed counts as lost news.
fn events(bytes: &[u8]) -> impl Iterator<Item = LinkEvent> {
    messages(bytes).filter_map(|message| message.map_or(Some(LinkEvent::Lost), |message| event(&message)))
}

fn event(message: &Message<'_>) -> Option<LinkEvent> {
    if ![libc::RTM_NEWLINK, libc::RTM_DELLINK].contains(&message.kind) {
        return None;
    }
    // A bridge tells of its members in the same group: a port that joins or leaves it has not changed.
    if message.body.first().is_some_and(|family| i32::from(*family) != libc::AF_UNSPEC) {
        return None;
    }
    Some(match link(message.body) {
        None => LinkEvent::Lost,
        Some(link) if message.kind == libc::RTM_DELLINK => LinkEvent::Gone { ifindex: link.ifindex },
        Some(link) => LinkEvent::Changed { ifindex: link.ifindex, name: link.name },
    })
}

/// A device, from the body of a message about it.
fn link(body: &[u8]) -> Option<Link> {
    let ifindex = u32_at(body, 4)?;
    let attributes = body.get(INFO_BYTES..)?;
    let name = attribute(attributes, libc::IFLA_IFNAME)?;
    let of_kind = |what| attribute(attributes, libc::IFLA_LINKINFO).and_then(|info| attribute(info, what));
    let kind = match until_zero(of_kind(libc::IFLA_INFO_KIND).unwrap_or_default()) {
        b"tun" => Kind::Tap,
        b"macvtap" | b"ipvtap" => Kind::Macvtap,
        _ => Kind::Other,
    };
    Some(Link {
        ifindex,
        name: text(until_zero(name)),
        queue_segments: attribute(attributes, libc::IFLA_TXQLEN).and_then(|value| u32_at(value, 0)).unwrap_or(0),
        kind,
        tap: of_kind(libc::IFLA_INFO_DATA).filter(|_| kind == Kind::Tap).and_then(TapFlags::of),
    })
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A name as text. In one that is not UTF-8, invalid bytes and backslashes are escaped.
fn text(name: &[u8]) -> String {
    if let Ok(name) = std::str::from_utf8(name) {
        return name.to_owned();
    }
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// Asks for devices and changes them.
pub struct Links {
    fd: OwnedFd,
    seq: u32,
    buffer: Vec<u8>,
}

impl Links {
    /// Opens a connection.
    ///
    /// # Errors
    /// [`HostError::Netlink`] if the kernel gives no socket.
    pub fn new() -> Result<Self, HostError> {
        let open = || -> io::Result<OwnedFd> {
            let mut socket = netlink_socket()?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            let fd = owned(&socket)?;
            setsockopt(&fd, ReceiveTimeout, &TimeVal::seconds(TIMEOUT.as_secs() as i64))?;
            Ok(fd)
        };
        let fd = open().map_err(|source| HostError::netlink("cannot open a netlink socket", source))?;
        Ok(Self { fd, seq: 0, buffer: vec![0; READ_BYTES] })
    }

    fn send(&mut self, kind: u16, flags: i32, ifindex: u32, attribute: &[u8]) -> io::Result<()> {
        self.seq = self.seq.wrapping_add(1);
        let mut body = vec![0; INFO_BYTES];
        body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        body.extend(attribute);
        let bytes = request(kind, (flags | libc::NLM_F_REQUEST) as u16, self.seq, &body);
        nix::unistd::write(&self.fd, &bytes)?;
        Ok(())
    }

    /// Gives the answers to the last request to `take`, until that returns something.
    fn answer<T>(&mut self, mut take: impl FnMut(&Message<'_>) -> Option<T>) -> io::Result<T> {
        loop {
            let length = match recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_TRUNC) {
                Err(Errno::EINTR) => continue,
                length => length?,
            };
            let bytes = self.buffer.get(..length).ok_or(io::ErrorKind::InvalidData)?;
            for message in messages(bytes) {
                let message = message.ok_or(io::ErrorKind::InvalidData)?;
                // An answer that came too late for the request before this one may still be there.
                if message.seq != self.seq {
                    continue;
                }
                let code = u32_at(message.body, 0).map_or(0, |code| code as i32);
                if i32::from(message.kind) == libc::NLMSG_ERROR && code != 0 {
                    return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
                }
                if let Some(taken) = take(&message) {
                    return Ok(taken);
                }
            }
        }
    }

    /// All devices there are, of all namespaces that are known. Where they change faster than they can be listed, one
    /// may be missing.
    ///
    /// # Errors
    /// [`HostError::Netlink`] if the kernel refuses.
    pub fn list(&mut self) -> Result<Listing, HostError> {
        let mut listing = self.list_here()?;
        for (base, ..) in netns::all() {
            let there = Self::list_in(base)?;
            listing.links.extend(there.links);
            listing.is_whole &= there.is_whole;
        }
        Ok(listing)
    }

    /// Those of another namespace.
    ///
    /// # Errors
    /// [`HostError::Netlink`] if the kernel refuses.
    pub fn list_in(base: u32) -> Result<Listing, HostError> {
        let _there = enter(base)?;
        let Listing { links, is_whole } = Self::new()?.list_here()?;
        Ok(Listing { links: links.into_iter().filter_map(|link| link.in_namespace(base)).collect(), is_whole })
    }

    fn list_here(&mut self) -> Result<Listing, HostError> {
        let mut listing = Listing::default();
        for _ in 0..LISTS {
            listing = self.list_once().map_err(|error| HostError::netlink("cannot list network devices", error))?;
            if listing.is_whole {
                break;
            }
        }
        Ok(listing)
    }

    fn list_once(&mut self) -> io::Result<Listing> {
        let without_counters = netlink::word(libc::IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
        self.send(libc::RTM_GETLINK, libc::NLM_F_DUMP, 0, &without_counters)?;
        let mut listing = Listing { links: Vec::new(), is_whole: true };
        self.answer(|message| {
            listing.is_whole &= i32::from(message.flags) & libc::NLM_F_DUMP_INTR == 0;
            if message.kind == libc::RTM_NEWLINK {
                listing.links.extend(link(message.body));
            }
            (i32::from(message.kind) == libc::NLMSG_DONE).then_some(())
        })?;
        Ok(listing)
    }

    /// A device as it is now; `None` if it is gone.
    ///
    /// # Errors
    /// [`HostError::Netlink`] if the kernel refuses.
    pub fn get(&mut self, number: u32) -> Result<Option<Link>, HostError> {
        let (base, ifindex) = (netns::base(number), netns::index(number));
        if base == netns::HERE {
            return self.get_here(ifindex);
        }
        match enter(base) {
            Ok(_there) => Ok(Self::new()?.get_here(ifindex)?.and_then(|link| link.in_namespace(base))),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn get_here(&mut self, ifindex: u32) -> Result<Option<Link>, HostError> {
        let without_counters = netlink::word(libc::IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
        let sent = self.send(libc::RTM_GETLINK, 0, ifindex, &without_counters);
        let is_link = |message: &Message<'_>| (message.kind == libc::RTM_NEWLINK).then(|| link(message.body));
        match sent.and_then(|()| self.answer(is_link)) {
            Ok(link) => Ok(link),
            Err(error) => {
                let error = HostError::netlink(format!("cannot ask for device {ifindex}"), error);
                if error.is_gone() { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Sets the length of a device's queue.
    ///
    /// # Errors
    /// [`HostError::Netlink`], with [`is_gone`](HostError::is_gone) if the device went meanwhile.
    pub fn set_queue(&mut self, number: u32, segments: u32) -> Result<(), HostError> {
        let (base, ifindex) = (netns::base(number), netns::index(number));
        if base == netns::HERE {
            return self.set_queue_here(ifindex, segments);
        }
        let _there = enter(base)?;
        Self::new()?.set_queue_here(ifindex, segments)
    }

    fn set_queue_here(&mut self, ifindex: u32, segments: u32) -> Result<(), HostError> {
        let length = netlink::word(libc::IFLA_TXQLEN, segments);
        let sent = self.send(libc::RTM_SETLINK, libc::NLM_F_ACK, ifindex, &length);
        let is_done = |message: &Message<'_>| (i32::from(message.kind) == libc::NLMSG_ERROR).then_some(());
        sent.and_then(|()| self.answer(is_done))
            .map_err(|error| HostError::netlink(format!("cannot set the queue length of device {ifindex}"), error))
    }
}

fn enter(base: u32) -> Result<netns::Entered, HostError> {
    netns::enter(base).map_err(|error| HostError::netlink("cannot enter a port's network namespace", error))
}

#[cfg(test)]
mod tests {
    use evenkeel_testbed::place::ip;
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::netlink::nla;

    fn message(family: i32, index: u32, kind: u16, name: &[u8]) -> Vec<u8> {
        let mut body = vec![0; INFO_BYTES];
        body[0] = family as u8;
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body.extend(nla(libc::IFLA_IFNAME, &[name, b"\0"].concat()));
        body.extend(netlink::word(libc::IFLA_TXQLEN, 500));
        body.extend(nla(libc::IFLA_LINKINFO, &nla(libc::IFLA_INFO_KIND, b"tun\0")));
        request(kind, 0, 0, &body)
    }

    fn all(bytes: &[u8]) -> Vec<LinkEvent> {
        events(bytes).collect()
    }

    #[test]
    fn several_messages_in_one_read_are_all_heard() {
        let new = message(libc::AF_UNSPEC, 7, libc::RTM_NEWLINK, b"vnet0");
        let bytes = [new.clone(), message(libc::AF_UNSPEC, 8, libc::RTM_DELLINK, b"vnet1")].concat();
        let changed = LinkEvent::Changed { ifindex: 7, name: "vnet0".to_owned() };
        assert_eq!(all(&bytes), [changed, LinkEvent::Gone { ifindex: 8 }]);
        let tap = Link { ifindex: 7, name: "vnet0".to_owned(), queue_segments: 500, kind: Kind::Tap, tap: None };
        assert_eq!(link(&new[netlink::HEADER_BYTES..]), Some(tap));
    }

    #[test]
    fn a_name_is_bytes() {
        for (name, shown) in [
            (&b"vnet0"[..], "vnet0"),
            ("vnet-ä".as_bytes(), "vnet-ä"),
            (b"vnet\\\xff\x00", r"vnet\\\xff"),
            (b"\xe4", r"\xe4"),
        ] {
            assert_eq!(text(until_zero(name)), shown);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_run_on(
            noise in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
            at in 0usize..160,
            byte in proptest::num::u8::ANY,
        ) {
            all(&noise);
            let new = message(libc::AF_UNSPEC, 7, libc::RTM_NEWLINK, b"vnet0");
            let mut bytes = [new, message(libc::AF_UNSPEC, 8, libc::RTM_DELLINK, b"vnet1")].concat();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            // Each message takes its header at least, and the last one may be none.
            proptest::prop_assert!(all(&bytes).len() <= bytes.len() / netlink::HEADER_BYTES + 1);
        }
    }

    #[test]
    fn leaving_a_bridge_is_not_going() {
        assert_eq!(all(&message(libc::AF_BRIDGE, 7, libc::RTM_DELLINK, b"vnet0")), []);
    }

    #[test]
    fn what_cannot_be_read_asks_for_a_new_list() {
        assert_eq!(all(&[1, 2, 3]), [LinkEvent::Lost]);
        let mut cut = message(libc::AF_UNSPEC, 7, libc::RTM_NEWLINK, b"vnet0");
        cut.truncate(20);
        assert_eq!(all(&cut), [LinkEvent::Lost]);
    }

    /// The kernel says once that it has no room, and goes on to drop until all that waits has been read: a list that
    /// is taken before that misses what comes meanwhile.
    #[test]
    fn an_overrun_is_told_once_all_that_waits_is_read() {
        let place = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("this test needs root");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                // Room for the news of some devices.
                let mut watch = LinkWatch::open(1 << 14).unwrap();
                let mut links = Links::new().unwrap();
                for number in 0..60 {
                    ip(&format!("link add d{number} type bridge"));
                }
                let heard = watch.next().await.unwrap();
                assert!(heard.len() < 60, "the kernel had room for all");
                assert_eq!(heard.last(), Some(&LinkEvent::Lost), "{heard:?}");
                let listing = links.list().unwrap();
                assert!(listing.is_whole);
                assert_eq!(listing.links.iter().filter(|link| link.name.starts_with('d')).count(), 60);
                // From here on nothing is lost again.
                ip("link del d7");
                let gone = listing.links.iter().find(|link| link.name == "d7").unwrap().ifindex;
                let heard = watch.next().await.unwrap();
                assert!(heard.contains(&LinkEvent::Gone { ifindex: gone }), "{heard:?}");
                assert_eq!(links.get(gone).unwrap(), None);
            });
        };
        if let Err(panic) = std::thread::spawn(place).join() {
            std::panic::resume_unwind(panic);
        }
    }

    #[test]
    fn queues_are_set_and_names_need_not_be_text() {
        let place = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("this test needs root");
            let mut links = Links::new().unwrap();
            let made = std::process::Command::new("ip")
                .args(["link", "add"])
                .arg(std::os::unix::ffi::OsStrExt::from_bytes(b"vp\xff") as &std::ffi::OsStr)
                .args(["txqueuelen", "71", "type", "bridge"])
                .status();
            assert!(made.unwrap().success());
            let found = links.list().unwrap().links.into_iter().find(|link| link.name == r"vp\xff").unwrap();
            assert_eq!((found.queue_segments, found.kind), (71, Kind::Other));
            links.set_queue(found.ifindex, 4000).unwrap();
            assert_eq!(links.get(found.ifindex).unwrap().unwrap().queue_segments, 4000);
            let error = links.set_queue(found.ifindex + 1000, 4000).unwrap_err();
            assert!(error.is_gone(), "{error}");
        };
        if let Err(panic) = std::thread::spawn(place).join() {
            std::panic::resume_unwind(panic);
        }
    }
}
