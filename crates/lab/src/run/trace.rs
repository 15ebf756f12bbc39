//! A run's packets: captured inside the first sending VM and at both ends' ports, then analysed.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use evenkeel_scenario::format::{GuestTcp, RtoMin, RtoMinWord};
use evenkeel_scenario::result::PacketRecord;

use crate::capture::analyze::bursts::{self, Bursts};
use crate::capture::analyze::clock::{self, ClockMap};
use crate::capture::analyze::flow::{self, Flow, Span};
use crate::capture::analyze::timeouts::{self, Rule};
use crate::capture::analyze::{acks, rtt, wakeup};
use crate::capture::live::Capture;
use crate::capture::packets::{self, Packet};
use crate::error::LabError;
use crate::host::schedule::OffInterval;
use crate::host::vm::Vm;
use crate::proto::{Answer, Op};

/// Where tcpdump writes in the guest.
const GUEST_FILE: &str = "/tmp/capture.pcap";
/// What is kept of a packet: all headers and options.
const GUEST_SNAPLEN: &str = "128";

/// A capture under way.
pub struct Trace<'a> {
    sender: &'a Vm,
    task: u64,
    host: Capture,
    host_file: PathBuf,
}

/// What was captured.
#[derive(Debug)]
pub struct Captured {
    guest_file: PathBuf,
    host_file: PathBuf,
    sender_port: Option<u32>,
    receiver_port: Option<u32>,
    remarks: Vec<String>,
}

/// What the captures show of the first sender's flows.
#[derive(Debug, Default)]
pub struct Traced {
    /// Pure duplicate ACKs that the sender received.
    pub duplicate_acks: Option<u64>,
    /// Runs of one, two, three, four and more timeouts.
    pub rto_runs: Option<[u64; 4]>,
    /// RTT samples of the largest flow: host time, and the sample.
    pub meas_rtt: Vec<(i64, i64)>,
    /// How flows that come and go filled the wire.
    pub bursts: Option<Bursts>,
    /// Packets around one wake-up.
    pub packets: Vec<PacketRecord>,
    /// What the reader must know.
    pub remarks: Vec<String>,
}

impl<'a> Trace<'a> {
    /// Starts to capture in `sender` and at the two ports; files go to `directory`.
    pub fn start(sender: &'a Vm, receiver_port: &str, directory: &Path) -> Result<Self, LabError> {
        let failed = |e: anyhow::Error| LabError::io("capturing at the ports", std::io::Error::other(format!("{e:#}")));
        let host_file = directory.join("ports.pcap");
        let host = Capture::start(&[sender.spec.port(), receiver_port], &host_file).map_err(failed)?;
        let argv = ["tcpdump", "-i", "eth0", "-s", GUEST_SNAPLEN, "-B", "16384", "-w", GUEST_FILE, "tcp"]
            .map(str::to_owned)
            .to_vec();
        match sender.call(Op::Spawn { argv })? {
            Answer::Started { task } => Ok(Self { sender, task, host, host_file }),
            other => Err(LabError::Vm {
                name: sender.spec.name.clone(),
                why: format!("unexpected answer to spawn: {other:?}"),
            }),
        }
    }

    /// Ends the captures and fetches the guest's.
    pub fn finish(self, directory: &Path) -> Result<Captured, LabError> {
        let failed = |e: anyhow::Error| LabError::io("capturing at the ports", std::io::Error::other(format!("{e:#}")));
        let ended = self.sender.call(Op::Kill { task: self.task })?;
        let index = |i: usize| self.host.interfaces().get(i).map(|interface| interface.index);
        let (sender_port, receiver_port) = (index(0), index(1));
        let summary = self.host.stop().map_err(failed)?;
        let mut remarks = summary.remarks;
        if summary.dropped > 0 {
            remarks.push(format!("{} packets are missing in the capture at the ports", summary.dropped));
        }
        if let Answer::Exec { stderr, .. } = &ended {
            remarks.extend(
                missed(stderr)
                    .map(|n| format!("{n} packets are missing in the capture inside {}", self.sender.spec.name)),
            );
        }
        let guest_file = directory.join("sender.pcap");
        let bytes = self.sender.read_file(GUEST_FILE)?;
        std::fs::write(&guest_file, bytes).map_err(|e| LabError::io(format!("writing {}", guest_file.display()), e))?;
        Ok(Captured { guest_file, host_file: self.host_file, sender_port, receiver_port, remarks })
    }
}

/// Of IPv4 and TCP, without options.
const HEADER_BYTES: u32 = 40;

/// A capture beyond the first sender's host, of flows that come and go.
pub struct Wire {
    capture: Capture,
    file: PathBuf,
}

impl Wire {
    /// Starts to capture at the switch's port towards the sender's host.
    pub fn start(switch_port: &str, directory: &Path) -> Result<Self, LabError> {
        let file = directory.join("wire.pcap");
        let capture = Capture::start(&[switch_port], &file).map_err(not_captured)?;
        Ok(Self { capture, file })
    }

    /// Ends the capture: how the flows that this address sent filled the wire, what the reader must know, and the file.
    pub fn finish(self, sender: Ipv4Addr, mtu_bytes: u32) -> Result<(Bursts, Vec<String>, PathBuf), LabError> {
        let summary = self.capture.stop().map_err(not_captured)?;
        let packets = packets::read(&self.file).map_err(not_captured)?.packets;
        let mut remarks = summary.remarks;
        if summary.dropped > 0 {
            remarks.push(format!("{} packets are missing in the capture on the wire", summary.dropped));
        }
        let sent = flow::flows(&packets).into_iter().filter(|(key, _)| key.sender.ip() == sender);
        let bursts = sent.filter_map(|(key, _)| {
            // A flow that began before the capture cannot be told from a flood.
            let first_byte = flow::first_byte(key, &packets)?;
            let opened = packets.iter().any(|p| p.src == key.sender && p.dst == key.receiver && p.flags.syn());
            opened.then(|| bursts::of(&Flow::new(key, first_byte, &packets), mtu_bytes.saturating_sub(HEADER_BYTES)))
        });
        Ok((bursts.reduce(Bursts::max).unwrap_or_default(), remarks, self.file))
    }
}

fn not_captured(error: anyhow::Error) -> LabError {
    LabError::io("capturing", std::io::Error::other(format!("{error:#}")))
}

/// How many packets tcpdump says that the kernel dropped, if any.
fn missed(stderr: &str) -> Option<u64> {
    let line = stderr.lines().find(|l| l.contains("dropped by kernel"))?;
    line.split_whitespace().next()?.parse().ok().filter(|n| *n > 0)
}

impl Captured {
    /// Analyses the flows. `measured`: the measured time, CLOCK_REALTIME of this machine. `off`: when the VM whose
    /// wake-up is shown was off its core.
    pub fn analyse(&self, tcp: &GuestTcp, hz: u32, measured: Span, off: &[OffInterval]) -> Result<Traced, LabError> {
        let read = |file: &Path| {
            packets::read(file).map_err(|e| {
                LabError::io(format!("reading {}", file.display()), std::io::Error::other(format!("{e:#}")))
            })
        };
        let (guest, host) = (read(&self.guest_file)?.packets, read(&self.host_file)?.packets);
        let mut traced = Traced { remarks: self.remarks.clone(), ..Traced::default() };
        let rule = Rule::new(smallest_rto_us(tcp, hz), hz, tcp.tail_loss_probe());
        let (mut runs, mut duplicates) = ([0; 4], 0);
        // In the VM's time, as soon as that is known.
        let mut span = Span::ALL;
        for (position, (key, _)) in flow::flows(&guest).into_iter().enumerate() {
            // Requests of a strobe are data too, in the other direction.
            let Some(first_byte) = flow::first_byte(key, &guest).filter(|_| sent_by_guest(key, &guest)) else {
                continue;
            };
            let inside = Flow::new(key, first_byte, &guest);
            let first = position == 0;
            let clock = first.then(|| self.picture(&inside, first_byte, &host, off, &mut traced)).flatten();
            if let Some(clock) = clock {
                span = Span { from_ns: clock.to_vm(measured.from_ns), to_ns: clock.to_vm(measured.to_ns) };
            }
            duplicates += acks::count(&inside, span).duplicate;
            let found = timeouts::runs(&inside, rule, span);
            runs.iter_mut().zip(found.runs).for_each(|(sum, n)| *sum += n);
        }
        traced.rto_runs = Some(runs);
        traced.duplicate_acks = Some(duplicates);
        Ok(traced)
    }

    /// Adds a flow's RTT samples and its packets around a wake-up to `traced`; returns how the VM's clock is aligned.
    fn picture(
        &self,
        inside: &Flow,
        first_byte: u32,
        host: &[Packet],
        off: &[OffInterval],
        traced: &mut Traced,
    ) -> Option<ClockMap> {
        let at = |port: Option<u32>| {
            Flow::new(inside.key, first_byte, host.iter().filter(move |p| port.is_some() && p.interface == port))
        };
        let (sender_port, receiver_port) = (at(self.sender_port), at(self.receiver_port));
        let Some(clock) = clock::align(inside, &sender_port) else {
            let why = "the captures share no segment, so there is no picture of a wake-up, and what the capture inside \
                       the VM shows of the time before and after the measured time is counted, too";
            traced.remarks.push(why.to_owned());
            return None;
        };
        traced.meas_rtt =
            rtt::samples(inside).into_iter().map(|(t_ns, rtt_ns)| (clock.to_host(t_ns), rtt_ns)).collect();
        let off: Vec<(i64, i64)> = off.iter().map(|o| (o.start_ns as i64, o.end_ns as i64)).collect();
        let views = wakeup::Views {
            sender: inside,
            clock: &clock,
            sender_port: &sender_port,
            receiver_port: Some(&receiver_port),
        };
        if let Some(wake_up) = wakeup::pick(views, &off) {
            traced.packets = wake_up.packets;
        }
        Some(clock)
    }

    /// Copies the files beside the results.
    pub fn keep(&self, results: &Path, labels: &[(String, String)], repetition: u32) -> Result<(), LabError> {
        keep(&[(&self.guest_file, "sender"), (&self.host_file, "ports")], results, labels, repetition)
    }
}

/// Copies captures, each of its kind, beside the results.
pub fn keep(
    files: &[(&Path, &str)],
    results: &Path,
    labels: &[(String, String)],
    repetition: u32,
) -> Result<(), LabError> {
    let safe = |text: &str| {
        text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect::<String>()
    };
    let cell = labels.iter().map(|(_, label)| safe(label)).collect::<Vec<_>>().join(".");
    let directory = results.join("captures");
    std::fs::create_dir_all(&directory).map_err(|e| LabError::io(format!("making {}", directory.display()), e))?;
    for (file, kind) in files {
        let to = directory.join(format!("{cell}.{repetition}.{kind}.pcap"));
        std::fs::copy(file, &to).map_err(|e| LabError::io(format!("copying a capture to {}", to.display()), e))?;
    }
    Ok(())
}

fn sent_by_guest(key: flow::FlowKey, guest: &[Packet]) -> bool {
    let bytes = |from, to| guest.iter().filter(|p| p.src == from && p.dst == to).map(|p| u64::from(p.len)).sum::<u64>();
    bytes(key.sender, key.receiver) > bytes(key.receiver, key.sender)
}

/// The smallest RTO that these settings allow: srtt and the smallest variance, each rounded up to a tick.
fn smallest_rto_us(tcp: &GuestTcp, hz: u32) -> u32 {
    let tick_us = 1_000_000 / hz.max(1);
    match tcp.rto_min_us {
        RtoMin::Word(RtoMinWord::Smallest) => 2 * tick_us,
        RtoMin::Word(RtoMinWord::Default) => 200_000,
        RtoMin::Us(us) => us.max(2 * tick_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_rto_is_two_ticks() {
        let tcp = |rto_min_us| GuestTcp { rto_min_us, ..GuestTcp::default() };
        assert_eq!(smallest_rto_us(&tcp(RtoMin::Word(RtoMinWord::Smallest)), 250), 8000);
        assert_eq!(smallest_rto_us(&tcp(RtoMin::Us(1000)), 1000), 2000);
        assert_eq!(smallest_rto_us(&tcp(RtoMin::Us(10_000)), 250), 10_000);
    }

    #[test]
    fn tcpdump_says_what_it_missed() {
        let report = "10 packets captured\n10 packets received by filter\n3 packets dropped by kernel\n";
        assert_eq!(missed(report), Some(3));
        assert_eq!(missed("0 packets dropped by kernel\n"), None);
        assert_eq!(missed(""), None);
    }
}
