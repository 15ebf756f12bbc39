//! Reads qdiscs over netlink, cheaply enough for a series (3 us a read; `tc` takes a millisecond): samples of a
//! backlog, and what shaped devices have dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::cores;
use crate::backlog::Backlog;
use crate::error::LabError;

/// The queue below a shaper: `tc` calls it 10:, in hexadecimal.
const LEAF: TcHandle = TcHandle { major: 0x10, minor: 0 };

/// One sample.
#[derive(Debug, Clone, Copy)]
struct Look {
    packets: u32,
    bytes: u32,
    sent_bytes: u64,
    dropped: u32,
}

/// A sampler that runs until it is stopped.
#[derive(Debug)]
pub struct BacklogSampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Backlog>>,
}

impl BacklogSampler {
    /// Samples the qdisc of this kind on an interface of the calling thread's network namespace.
    pub fn start(interface: &str, kind: &str, period_ms: u32) -> Result<Self, LabError> {
        let index =
            nix::net::if_::if_nametoindex(interface).map_err(|e| LabError::io(format!("looking up {interface}"), e))?;
        let socket = open()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, kind) = (Arc::clone(&stop), kind.to_owned());
        let thread = std::thread::Builder::new()
            .name("ek-backlog".into())
            .spawn(move || {
                let mut backlog = Backlog::default();
                let mut first = None;
                while !seen.load(Ordering::Relaxed) {
                    if let Ok(Some(look)) = read(&socket, index, &kind) {
                        backlog.samples.push((cores::monotonic_ns(), look.packets));
                        backlog.waiting_bytes += u64::from(look.bytes);
                        backlog.sent_bytes = look.sent_bytes.saturating_sub(*first.get_or_insert(look.sent_bytes));
                    }
                    std::thread::sleep(Duration::from_millis(u64::from(period_ms)));
                }
                backlog
            })
            .map_err(|e| LabError::io("starting the backlog sampler", e))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the sampling.
    pub fn stop(mut self) -> Backlog {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for BacklogSampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What the queues of all shaped devices of this network namespace have dropped so far, by the device's index.
pub fn drops() -> Result<BTreeMap<u32, u64>, LabError> {
    let mut drops = BTreeMap::new();
    let all = dump(&open()?).map_err(|e| LabError::io("asking the kernel for its qdiscs", e))?;
    for qdisc in all.iter().filter(|qdisc| qdisc.header.handle == LEAF) {
        *drops.entry(qdisc.header.index as u32).or_default() += look(qdisc).map_or(0, |look| u64::from(look.dropped));
    }
    Ok(drops)
}

fn open() -> Result<Socket, LabError> {
    let mut socket = Socket::new(NETLINK_ROUTE).map_err(|e| LabError::io("opening a netlink socket", e))?;
    socket.bind_auto().map_err(|e| LabError::io("binding a netlink socket", e))?;
    socket.connect(&SocketAddr::new(0, 0)).map_err(|e| LabError::io("connecting a netlink socket", e))?;
    Ok(socket)
}

fn read(socket: &Socket, index: u32, kind: &str) -> std::io::Result<Option<Look>> {
    let all = dump(socket)?;
    Ok(all.iter().filter(|qdisc| qdisc.header.index == index as i32 && is_kind(qdisc, kind)).find_map(look))
}

/// All qdiscs. RTM_GETQDISC answers a request for one only with NLM_F_ECHO; a dump of the lab's few costs no more.
fn dump(socket: &Socket) -> std::io::Result<Vec<TcMessage>> {
    let message = TcMessage::default();
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetQueueDiscipline(message));
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut all = Vec::new();
    loop {
        let (reply, _) = socket.recv_from_full()?;
        let mut rest = &reply[..];
        while rest.len() >= 16 {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(std::io::Error::other)?;
            let length = (message.header.length as usize).next_multiple_of(4).max(16);
            match message.payload {
                NetlinkPayload::Done(_) | NetlinkPayload::Error(_) => return Ok(all),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewQueueDiscipline(qdisc)) => all.push(qdisc),
                _ => {}
            }
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

fn is_kind(qdisc: &TcMessage, kind: &str) -> bool {
    qdisc.attributes.iter().any(|attribute| matches!(attribute, TcAttribute::Kind(k) if k == kind))
}

fn look(qdisc: &TcMessage) -> Option<Look> {
    let stats = qdisc.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Stats2(stats) => Some(stats),
        _ => None,
    })?;
    let queue = stats.iter().find_map(|stat| match stat {
        TcStats2::Queue(queue) => Some(*queue),
        _ => None,
    })?;
    let basic = stats.iter().find_map(|stat| match stat {
        TcStats2::Basic(basic) => Some(*basic),
        _ => None,
    })?;
    Some(Look { packets: queue.qlen, bytes: queue.backlog, sent_bytes: basic.bytes, dropped: queue.drops })
}
