//! The uplinks: which there are, what they carry, and how much waits at them.

use std::io;
use std::mem::size_of;
use std::time::Duration;

use evenkeel_settings::cera::Cera;
use netlink_sys::Socket;

use super::rate::{self, RateFrom};
use crate::netdevice::NetDevices;
use crate::netlink::{
    self, TC_H_ROOT, TCA_KIND, TCA_OPTIONS, TCA_STATS_QUEUE, TCA_STATS2, TCMSG_BYTES, attribute, tcmsg, u32_at,
};

/// Ethernet's header, which qdiscs count.
const ETHERNET_BYTES: u32 = 14;
/// An answer takes microseconds, unless somebody changes devices meanwhile.
const TIMEOUT: Duration = Duration::from_millis(100);

/// A network card that leads out of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Its name.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// Kind of its root qdisc.
    pub qdisc: String,
    /// What it carries.
    pub bytes_per_s: u64,
    /// Where that was found.
    pub rate_from: RateFrom,
    mtu_bytes: u32,
}

/// All of them.
#[derive(Debug)]
pub struct Uplinks {
    socket: Socket,
    devices: NetDevices,
    buffer: Vec<u8>,
    seq: u32,
    found: Vec<Uplink>,
}

/// A message about a qdisc or a class.
struct Message<'a> {
    kind: u16,
    seq: u32,
    parent: u32,
    attributes: &'a [u8],
}

/// The messages of one read.
fn messages(bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    fn about(message: netlink::Message<'_>) -> Message<'_> {
        Message {
            kind: message.kind,
            seq: message.seq,
            parent: u32_at(message.body, 12).unwrap_or(0),
            attributes: message.body.get(TCMSG_BYTES..).unwrap_or_default(),
        }
    }
    netlink::messages(bytes).map_while(|message| message.map(about))
}

/// What waits at a qdisc, from its attributes. Where it has queues below it (mq, HTB) the kernel has added them up.
///
/// Qdiscs without a lock (`pfifo_fast`) count on each CPU for itself, and a packet that is taken out by another CPU
/// between the two looks makes the sum negative: nothing waits there.
fn backlog_bytes(attributes: &[u8]) -> Option<u32> {
    let queue = attribute(attribute(attributes, TCA_STATS2)?, TCA_STATS_QUEUE)?;
    u32_at(queue, size_of::<u32>()).map(|bytes| if bytes > i32::MAX as u32 { 0 } else { bytes })
}

impl Uplinks {
    /// Without any yet.
    ///
    /// # Errors
    /// The system's answer.
    pub fn new() -> io::Result<Self> {
        let socket = netlink::route(TIMEOUT)?;
        Ok(Self { socket, devices: NetDevices::new()?, buffer: Vec::with_capacity(1 << 15), seq: 0, found: Vec::new() })
    }

    fn send(&mut self, kind: u16, flags: u16, ifindex: u32, parent: u32) -> io::Result<()> {
        self.seq = self.seq.wrapping_add(1);
        let flags = flags | libc::NLM_F_REQUEST as u16;
        let request = netlink::request(kind, flags, self.seq, &tcmsg(ifindex, parent));
        self.socket.send(&request, 0).map(|_| ())
    }

    /// What comes next.
    fn receive(&mut self) -> io::Result<&[u8]> {
        self.buffer.clear();
        self.socket.recv(&mut self.buffer, 0)?;
        Ok(&self.buffer)
    }

    /// Asks for a device's root qdisc, which the kernel finds without a search (it answers a single request only if
    /// that asks for its echo).
    fn root(&mut self, ifindex: u32) -> io::Result<Message<'_>> {
        self.send(libc::RTM_GETQDISC, libc::NLM_F_ECHO as u16, ifindex, TC_H_ROOT)?;
        let seq = self.seq;
        // An answer that came too late for the request before this one may still be there.
        while messages(self.receive()?).next().is_none_or(|message| message.seq != seq) {}
        match messages(&self.buffer).next() {
            Some(message) if message.kind == libc::RTM_NEWQDISC => Ok(message),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// What the top classes of an HTB may take together.
    fn htb_rate(&mut self, ifindex: u32) -> io::Result<Option<u64>> {
        self.send(libc::RTM_GETTCLASS, libc::NLM_F_DUMP as u16, ifindex, 0)?;
        let (seq, mut sum) = (self.seq, None);
        loop {
            for message in messages(self.receive()?).filter(|message| message.seq == seq) {
                if message.kind == libc::NLMSG_DONE as u16 || message.kind == libc::NLMSG_ERROR as u16 {
                    return Ok(sum);
                }
                let options = attribute(message.attributes, TCA_OPTIONS);
                if message.kind == libc::RTM_NEWTCLASS && message.parent == TC_H_ROOT {
                    if let Some(rate) = options.and_then(rate::of_htb_class) {
                        sum = Some(sum.unwrap_or(0) + rate);
                    }
                }
            }
        }
    }

    /// Looks for the devices that the configuration names, and for what they carry.
    ///
    /// # Errors
    /// What is missing, in words that end a sentence about CERA.
    pub fn find(&mut self, config: &Cera, is_port: impl Fn(&str) -> bool) -> Result<&[Uplink], String> {
        self.found.clear();
        let names =
            nix::net::if_::if_nameindex().map_err(|errno| format!("network devices cannot be listed: {errno}"))?;
        let mut found = Vec::new();
        for interface in &names {
            let Ok(name) = interface.name().to_str() else { continue };
            if config.uplinks.iter().any(|pattern| pattern.matches(name)) && !is_port(name) {
                found.push(self.look_at(name, interface.index(), config.rate_mbit.is_some())?);
            }
        }
        if found.is_empty() {
            let patterns: Vec<_> = config.uplinks.iter().map(|pattern| pattern.as_str()).collect();
            return Err(format!("no device matches cera.uplinks = {patterns:?}"));
        }
        if let Some(mbit) = config.rate_mbit {
            // The configured rate is that of all uplinks together; each is shown with an equal part.
            let part = u64::from(mbit.get()) * 125_000 / found.len() as u64;
            for uplink in &mut found {
                (uplink.bytes_per_s, uplink.rate_from) = (part, RateFrom::Config);
            }
        }
        self.found = found;
        Ok(&self.found)
    }

    fn look_at(&mut self, name: &str, ifindex: u32, is_rate_given: bool) -> Result<Uplink, String> {
        let gone = |error: io::Error| format!("{name} cannot be asked: {error}");
        let mtu_bytes = self.devices.mtu_bytes(name).map_err(gone)?;
        // Even of a device that is down, the kernel reports the qdisc and what it holds.
        if let Some(why) = self.devices.standstill(name).map_err(gone)? {
            return Err(format!("{name} {why}"));
        }
        let link = self.devices.link_rate(name);
        let message = self.root(ifindex).map_err(gone)?;
        let kind = attribute(message.attributes, TCA_KIND).unwrap_or_default();
        let qdisc = String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned();
        if qdisc == "noqueue" {
            return Err(format!("{name} has no queue (qdisc noqueue), so nothing ever waits there"));
        }
        let tbf = attribute(message.attributes, TCA_OPTIONS).filter(|_| qdisc == "tbf").and_then(rate::of_tbf);
        let shaper = match qdisc.as_str() {
            "htb" => self.htb_rate(ifindex).map_err(gone)?,
            _ => tbf,
        };
        let slowest = shaper.into_iter().chain(link).min();
        let rate_from = if shaper.is_some() && slowest == shaper { RateFrom::Shaper } else { RateFrom::Link };
        if slowest.is_none() && !is_rate_given {
            return Err(format!("{name} does not say how fast its link is: cera.rate_mbit has to"));
        }
        let bytes_per_s = slowest.unwrap_or(0);
        Ok(Uplink { name: name.to_owned(), ifindex, qdisc, bytes_per_s, rate_from, mtu_bytes })
    }

    /// Those that were found.
    pub fn found(&self) -> &[Uplink] {
        &self.found
    }

    /// C: what all carry together.
    pub fn bytes_per_s(&self) -> u64 {
        self.found.iter().map(|uplink| uplink.bytes_per_s).sum()
    }

    /// S: bytes of a full segment as qdiscs count it.
    pub fn segment_bytes(&self) -> u32 {
        self.found.iter().map(|uplink| uplink.mtu_bytes).max().unwrap_or(1500) + ETHERNET_BYTES
    }

    /// q: what waits at all of them.
    ///
    /// # Errors
    /// The system's answer: then the uplinks have to be looked for again.
    pub fn backlog_bytes(&mut self) -> io::Result<u64> {
        let mut sum = 0;
        for at in 0..self.found.len() {
            let message = self.root(self.found[at].ifindex)?;
            let bytes = backlog_bytes(message.attributes).ok_or(io::ErrorKind::InvalidData)?;
            sum += u64::from(bytes);
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use evenkeel_algo::frames::{ACK, Segment};
    use evenkeel_testbed::place::{Tap, index, ip};
    use nix::sched::{CloneFlags, unshare};
    use proptest::prelude::*;

    use super::*;
    use evenkeel_settings::host::Config;

    fn tc(arguments: &str) -> String {
        let output = Command::new("tc").args(arguments.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn config(more: &str) -> Cera {
        Config::parse(&format!("[cera]\nuplinks = [\"up*\"]\n{more}"), std::path::Path::new("host.toml")).unwrap().cera
    }

    /// The kernel notes a little later that the other end is up, or down.
    fn wait_for_carrier(is_there: bool) {
        while ip("link show up0").contains("LOWER_UP") != is_there {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Runs `test` in a network namespace of its own, with an uplink of two queues.
    fn with_uplink(test: impl FnOnce(Uplinks) + Send + 'static) {
        let place = move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("this test needs root");
            // Otherwise the kernel sends multicast reports at times of its own, which wait in the queues.
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
            ip("link add up0 numtxqueues 2 numrxqueues 2 type veth peer name far numtxqueues 2 numrxqueues 2");
            ip("link set up0 up");
            ip("link set far up");
            wait_for_carrier(true);
            test(Uplinks::new().unwrap());
        };
        if let Err(panic) = std::thread::spawn(place).join() {
            std::panic::resume_unwind(panic);
        }
    }

    #[test]
    fn a_rate_is_that_of_the_shaper_or_the_link_or_what_is_said() {
        with_uplink(|mut uplinks| {
            let error = uplinks.find(&config(""), |_| false).unwrap_err();
            assert!(error.contains("up0 has no queue"), "{error}");
            let found = |uplinks: &mut Uplinks, more: &str| {
                let uplink = uplinks.find(&config(more), |_| false).unwrap()[0].clone();
                (uplink.qdisc, uplink.bytes_per_s, uplink.rate_from)
            };
            tc("qdisc replace dev up0 root pfifo limit 1000");
            assert_eq!(found(&mut uplinks, ""), ("pfifo".to_owned(), 1_250_000_000, RateFrom::Link));
            assert_eq!(found(&mut uplinks, "rate_mbit = 8"), ("pfifo".to_owned(), 1_000_000, RateFrom::Config));
            tc("qdisc replace dev up0 root tbf rate 80mbit burst 10k limit 1m");
            assert_eq!(found(&mut uplinks, ""), ("tbf".to_owned(), 10_000_000, RateFrom::Shaper));
            tc("qdisc replace dev up0 root handle 1: htb default 1");
            tc("class add dev up0 parent 1: classid 1:1 htb rate 8mbit ceil 16mbit");
            tc("class add dev up0 parent 1:1 classid 1:3 htb rate 8mbit ceil 800mbit");
            tc("class add dev up0 parent 1: classid 1:2 htb rate 24mbit");
            assert_eq!(found(&mut uplinks, ""), ("htb".to_owned(), 5_000_000, RateFrom::Shaper));
            assert_eq!(uplinks.segment_bytes(), 1514);
            let error = uplinks.find(&config(""), |name| name == "up0").unwrap_err();
            assert!(error.contains("no device matches cera.uplinks"), "{error}");
            assert!(uplinks.found().is_empty());
        });
    }

    #[test]
    fn a_device_by_which_nothing_leaves_is_no_uplink_whatever_its_qdisc() {
        with_uplink(|mut uplinks| {
            tc("qdisc replace dev up0 root tbf rate 80mbit burst 10k limit 1m");
            assert!(uplinks.find(&config(""), |_| false).is_ok());
            ip("link set far down");
            wait_for_carrier(false);
            assert_eq!(uplinks.find(&config(""), |_| false).unwrap_err(), "up0 has no carrier");
            ip("link set up0 down");
            assert_eq!(uplinks.find(&config("rate_mbit = 8"), |_| false).unwrap_err(), "up0 is down");
            assert!(uplinks.found().is_empty());
            ip("link set up0 up");
            ip("link set far up");
            wait_for_carrier(true);
            assert_eq!(uplinks.find(&config(""), |_| false).unwrap().len(), 1);
        });
    }

    #[test]
    fn what_waits_in_all_queues_counts() {
        with_uplink(|mut uplinks| {
            tc("qdisc replace dev up0 root handle 1: mq");
            tc("qdisc add dev up0 parent 1:1 handle 10: tbf rate 8bit burst 2k limit 1m");
            tc("qdisc add dev up0 parent 1:2 handle 20: tbf rate 8bit burst 2k limit 1m");
            uplinks.find(&config("rate_mbit = 10"), |_| false).unwrap();
            let tap = Tap::new(index("up0"));
            for port in 0..64 {
                let segment = Segment::new(("10.0.0.1", 40_000 + port), ("10.0.0.2", 80), ACK);
                tap.send(&Segment { payload: 1000, ..segment }.frame());
            }
            let listed: serde_json::Value = serde_json::from_str(&tc("-s -j qdisc show dev up0")).unwrap();
            let waiting = |handle: &str| {
                let qdisc = listed.as_array().unwrap().iter().find(|q| q["handle"] == handle).unwrap();
                qdisc["backlog"].as_u64().unwrap()
            };
            assert!(waiting("10:") > 0 && waiting("20:") > 0, "{listed}");
            assert_eq!(uplinks.backlog_bytes().unwrap(), waiting("10:") + waiting("20:"));
            ip("link del up0");
            assert!(uplinks.backlog_bytes().is_err());
        });
    }

    #[test]
    fn a_sum_below_nothing_is_nothing() {
        let stats = |backlog: u32| {
            let queue = [0, backlog, 0, 0, 0].map(u32::to_ne_bytes).concat();
            crate::netlink::nla(TCA_STATS2, &crate::netlink::nla(TCA_STATS_QUEUE, &queue))
        };
        for (backlog, bytes) in [(0, 0), (1514, 1514), (i32::MAX as u32, i32::MAX as u32), (1514u32.wrapping_neg(), 0)]
        {
            assert_eq!(backlog_bytes(&stats(backlog)), Some(bytes));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_run_on(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in messages(&bytes) {
                backlog_bytes(message.attributes);
            }
            prop_assert!(messages(&bytes).count() <= bytes.len() / netlink::HEADER_BYTES);
        }
    }
}
