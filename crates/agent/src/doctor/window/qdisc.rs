//! Queues in front of devices, which only netlink shows.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use netlink_sys::Socket;

use crate::netlink::{
    TC_H_ROOT, TCA_KIND, TCA_STATS_QUEUE, TCA_STATS2, TCMSG_BYTES, attribute, messages, request, route, tcmsg, u32_at,
};

/// The parent of clsact and ingress, which hold filters and no packets.
const TC_H_CLSACT: u32 = 0xffff_fff1;
/// An answer takes microseconds, unless somebody changes devices meanwhile.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A device's queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Qdisc {
    /// `fq_codel`, `pfifo_fast`, `noqueue`, ...
    pub kind: String,
    /// Dropped since it was made. Where it has queues below it (mq, HTB) the kernel has added them up.
    pub drops: u64,
    /// Dropped by filters and programs beside it (clsact, ingress).
    pub filter_drops: u64,
    /// What waits.
    pub backlog_bytes: u64,
    pub backlog_packets: u64,
}

/// Root queues, by the index of their devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Qdiscs(BTreeMap<u32, Qdisc>);

impl Qdiscs {
    pub(super) fn of(&self, ifindex: u32) -> Option<&Qdisc> {
        self.0.get(&ifindex)
    }

    /// All, with the indices of their devices.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &Qdisc)> {
        self.0.iter().map(|(ifindex, qdisc)| (*ifindex, qdisc))
    }

    /// Takes what one read of the socket has brought. Returns whether the list is complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> io::Result<bool> {
        for message in messages(bytes) {
            let message = message.ok_or(io::ErrorKind::InvalidData)?;
            if message.kind == libc::NLMSG_DONE as u16 {
                return Ok(true);
            }
            if message.kind == libc::NLMSG_ERROR as u16 {
                let errno = u32_at(message.body, 0).unwrap_or(0) as i32;
                return Err(io::Error::from_raw_os_error(errno.wrapping_neg()));
            }
            if message.kind == libc::RTM_NEWQDISC {
                self.add(message.body).ok_or(io::ErrorKind::InvalidData)?;
            }
        }
        Ok(false)
    }

    /// A `struct tcmsg` and its attributes.
    fn add(&mut self, body: &[u8]) -> Option<()> {
        let (ifindex, parent) = (u32_at(body, 4)?, u32_at(body, 12)?);
        let attributes = body.get(TCMSG_BYTES..)?;
        let queue = attribute(attributes, TCA_STATS2).and_then(|stats| attribute(stats, TCA_STATS_QUEUE));
        // struct gnet_stats_queue: qlen, backlog, drops
        let number = |at| u64::from(queue.and_then(|queue| u32_at(queue, at)).unwrap_or(0));
        let own = self.0.entry(ifindex).or_default();
        match parent {
            TC_H_ROOT => {
                let kind = attribute(attributes, TCA_KIND)?;
                own.kind = String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned();
                (own.backlog_packets, own.backlog_bytes, own.drops) = (number(0), number(4), number(8));
            }
            TC_H_CLSACT => own.filter_drops = number(8),
            _ => {}
        }
        Some(())
    }
}

/// Asks the kernel for queues.
#[derive(Debug)]
pub(super) struct Asker {
    socket: Socket,
    seq: u32,
}

impl Asker {
    /// # Errors
    /// The system's answer.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { socket: route(TIMEOUT)?, seq: 0 })
    }

    /// The queues of this moment.
    ///
    /// # Errors
    /// The system's answer.
    pub(super) fn ask(&mut self) -> io::Result<Qdiscs> {
        self.seq = self.seq.wrapping_add(1);
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        self.socket.send(&request(libc::RTM_GETQDISC, flags, self.seq, &tcmsg(0, 0)), 0)?;
        let mut qdiscs = Qdiscs::default();
        loop {
            let mut buffer = Vec::with_capacity(1 << 16);
            self.socket.recv(&mut buffer, 0)?;
            // Part of an answer that came too late for an earlier request.
            if messages(&buffer).next().flatten().is_some_and(|message| message.seq != self.seq) {
                continue;
            }
            if qdiscs.take(&buffer)? {
                return Ok(qdiscs);
            }
        }
    }
}
