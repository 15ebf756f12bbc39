//! Captures headers at network interfaces into a pcap file.
//!
//! The file is of link type LINUX_SLL2 with nanoseconds: each record tells interface and direction, so that one file
//! holds all ports of a lab, and tcpdump and Wireshark read it. Packets are grouped by interface every few
//! milliseconds; [`super::packets::read`] sorts them. What leaves an interface is seen behind its queue: what the queue
//! drops is not in the file.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{setsockopt, sockopt};
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

use super::mmsg::{Batch, Received, SNAPLEN};

/// The kernel's receive buffer per interface, which counts whole packets, not the part that is kept.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
/// How often packets are fetched.
const PAUSE: Duration = Duration::from_millis(5);
/// Length of a LINUX_SLL2 header.
pub(super) const SLL2_BYTES: usize = 20;

type Writer = PcapWriter<BufWriter<File>>;

/// An interface that is captured at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number, by which [`super::packets::Packet::interface`] names it.
    pub index: u32,
}

/// What came of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Packets in the file.
    pub packets: u64,
    /// Packets that the kernel had no room for: figures taken from the file are wrong if this is not zero.
    pub dropped: u64,
    /// What went wrong on the way, one sentence each.
    pub remarks: Vec<String>,
}

/// A running capture; ends when dropped.
#[derive(Debug)]
pub struct Capture {
    interfaces: Vec<Interface>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<Summary>>>,
}

impl Capture {
    /// Starts to capture at `interfaces` of the calling thread's network namespace.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, for an unknown interface, and when the file cannot be written.
    pub fn start(interfaces: &[impl AsRef<str>], file: &Path) -> anyhow::Result<Self> {
        let interfaces = interfaces.iter().map(|name| find(name.as_ref())).collect::<anyhow::Result<Vec<_>>>()?;
        let sockets = interfaces.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
        let header = PcapHeader {
            snaplen: (SLL2_BYTES + SNAPLEN) as u32,
            datalink: DataLink::LINUX_SLL2,
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::native(),
            ..PcapHeader::default()
        };
        let output = File::create(file).with_context(|| format!("cannot create {}", file.display()))?;
        let writer = PcapWriter::with_header(BufWriter::with_capacity(1 << 20, output), header)
            .with_context(|| format!("cannot write {}", file.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let named = interfaces.clone();
        let thread = thread::Builder::new()
            .name("capture".into())
            .spawn(move || run(&named, &sockets, writer, &asked))
            .context("cannot start a thread")?;
        Ok(Self { interfaces, stop, thread: Some(thread) })
    }

    /// What is captured at.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Fetches what the kernel still holds and closes the file.
    ///
    /// # Errors
    /// When the file could not be written.
    pub fn stop(mut self) -> anyhow::Result<Summary> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the capture has ended")?;
        thread.join().map_err(|_| anyhow::anyhow!("the capture's thread panicked"))?
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The caller that drops a capture does not want its outcome.
            let _ = thread.join();
        }
    }
}

fn find(name: &str) -> anyhow::Result<Interface> {
    let index = if_nametoindex(name).with_context(|| format!("no network interface {name}"))?;
    Ok(Interface { name: name.to_owned(), index })
}

/// A packet socket at one interface, for both directions.
fn open(interface: &Interface) -> anyhow::Result<OwnedFd> {
    let context = || format!("cannot capture at {}", interface.name);
    // Cooked packets begin at the IP header. Without a protocol nothing arrives before the interface is chosen.
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    // SAFETY: just opened, and nobody else knows it.
    let socket = Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).with_context(context)?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true).with_context(context)?;
    setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES)
        .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES))
        .with_context(context)?;
    // SAFETY: sockaddr_ll is plain integers, for which zero is a value.
    let mut at: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    at.sll_family = libc::AF_PACKET as u16;
    at.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    at.sll_ifindex = i32::try_from(interface.index).with_context(context)?;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `at` is a sockaddr_ll of `length` bytes.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const at).cast(), length) };
    Errno::result(bound).with_context(context)?;
    Ok(socket)
}

fn run(
    interfaces: &[Interface],
    sockets: &[OwnedFd],
    mut writer: Writer,
    stop: &AtomicBool,
) -> anyhow::Result<Summary> {
    let mut batch = Batch::new();
    let mut summary = Summary { packets: 0, dropped: 0, remarks: Vec::new() };
    loop {
        // Read before fetching, so that packets from before the request to stop are in the file.
        let last = stop.load(Ordering::Relaxed);
        for (interface, socket) in interfaces.iter().zip(sockets) {
            if let Some(error) = drain(socket, &mut batch, &mut writer, &mut summary.packets, last)? {
                // An interface that goes down says so once, and comes back.
                let remark = format!("capture at {}: {error}", interface.name);
                if !summary.remarks.contains(&remark) {
                    summary.remarks.push(remark);
                }
            }
        }
        if last {
            break;
        }
        thread::sleep(PAUSE);
    }
    writer.into_writer().flush().context("cannot write the capture")?;
    for socket in sockets {
        summary.dropped += u64::from(drops(socket)?);
    }
    Ok(summary)
}

/// Fetches what one socket holds, in a bounded number of rounds (in the last call enough for a full buffer), so that
/// heavy traffic cannot keep it busy for ever. Returns the socket's error, if it has one; a file that cannot be written
/// ends the capture.
fn drain(
    socket: &OwnedFd,
    batch: &mut Batch,
    writer: &mut Writer,
    packets: &mut u64,
    last: bool,
) -> anyhow::Result<Option<io::Error>> {
    let rounds = if last { 4096 } else { 256 };
    for _ in 0..rounds {
        let mut written = Ok(());
        let some = batch.receive(socket, |received| {
            *packets += 1;
            if written.is_ok() {
                written = write(writer, &received);
            }
        });
        written.context("cannot write the capture")?;
        match some {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return Ok(Some(error)),
        }
    }
    Ok(None)
}

/// One record.
fn write(writer: &mut Writer, received: &Received<'_>) -> Result<(), PcapError> {
    let mut record = [0; SLL2_BYTES + SNAPLEN];
    let link = received.link;
    // The protocol is in network byte order already.
    record[0..2].copy_from_slice(&link.sll_protocol.to_ne_bytes());
    record[4..8].copy_from_slice(&link.sll_ifindex.to_be_bytes());
    record[8..10].copy_from_slice(&link.sll_hatype.to_be_bytes());
    record[10] = link.sll_pkttype;
    record[11] = link.sll_halen;
    record[12..20].copy_from_slice(&link.sll_addr);
    let kept = received.data.len().min(SNAPLEN);
    record[SLL2_BYTES..SLL2_BYTES + kept].copy_from_slice(&received.data[..kept]);
    let t_ns = received.t_ns.map_or_else(now, |t_ns| Duration::from_nanos(u64::try_from(t_ns).unwrap_or(0)));
    let packet = RawPcapPacket {
        ts_sec: u32::try_from(t_ns.as_secs()).unwrap_or(u32::MAX),
        ts_frac: t_ns.subsec_nanos(),
        incl_len: (SLL2_BYTES + kept) as u32,
        orig_len: u32::try_from(SLL2_BYTES + received.wire_len).unwrap_or(u32::MAX),
        data: Cow::Borrowed(&record[..SLL2_BYTES + kept]),
    };
    writer.write_raw_packet(&packet).map(drop)
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Packets dropped for want of room.
fn drops(socket: &OwnedFd) -> anyhow::Result<u32> {
    /// `struct tpacket_stats` of linux/if_packet.h.
    #[repr(C)]
    #[derive(Default)]
    struct Statistics {
        packets: u32,
        drops: u32,
    }
    let mut statistics = Statistics::default();
    let mut length = size_of::<Statistics>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `statistics`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut length,
        )
    };
    Errno::result(result).context("cannot read the capture's statistics")?;
    Ok(statistics.drops)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::capture::packets;

    #[test]
    fn traffic_over_loopback_is_in_the_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let Ok(capture) = Capture::start(&["lo"], file.path()) else {
            eprintln!("not allowed to capture here");
            return;
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let receiver = listener.local_addr().expect("bound");
        let mut near = TcpStream::connect(receiver).expect("connects");
        let sender = near.local_addr().expect("bound");
        let (mut far, _) = listener.accept().expect("accepts");
        near.write_all(&[1; 5000]).expect("sent");
        far.read_exact(&mut [0; 5000]).expect("received");
        let lo = capture.interfaces()[0].clone();
        let summary = capture.stop().expect("written");
        assert!(summary.packets >= 4 && summary.remarks.is_empty(), "{summary:?}");
        let trace = packets::read(file.path()).expect("read");
        let data: Vec<_> =
            trace.packets.iter().filter(|p| p.src == sender && p.dst == receiver && p.outgoing == Some(true)).collect();
        assert_eq!(data.iter().map(|p| p.len).sum::<u32>(), 5000);
        assert!(data[0].flags.syn() && data.iter().all(|p| p.interface == Some(lo.index)));
        // Loopback shows each packet in both directions.
        assert!(trace.packets.iter().any(|p| p.src == sender && p.outgoing == Some(false)));
        assert!(trace.packets.windows(2).all(|pair| pair[0].t_ns <= pair[1].t_ns));
    }

    #[test]
    fn an_unknown_interface_is_named() {
        let error = Capture::start(&["no-such-if0"], Path::new("/dev/null")).expect_err("unknown");
        assert!(error.to_string().contains("no-such-if0"));
    }
}
