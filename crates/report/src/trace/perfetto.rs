//! What happened in a run, on one time axis, for Perfetto.

use std::collections::HashMap;
use std::path::Path;

use evenkeel_scenario::trace::{
    Carries, Core, Ecn, End, Event, Fate, Machine, Origin, Packet, Point, Port, Segment, Sink, Stage, Timer, Way,
    Windows,
};
use serde_json::json;

use super::json::{Arguments, Json, Process, Thread};
use crate::ReportError;

/// Writes a run's events as they come.
#[derive(Debug)]
pub struct Perfetto {
    json: Json,
    machines: Vec<Track>,
    /// By connection: its machines, the opener's first.
    connections: Vec<[u32; 2]>,
    ends: HashMap<End, OfEnd>,
}

/// A machine and its tracks.
#[derive(Debug)]
struct Track {
    name: String,
    port: Port,
    process: Process,
    core: Thread,
    /// Packets at its port and in the machine; towards it first.
    at_port: [Thread; 2],
    inside: [Thread; 2],
}

/// The tracks of a connection's end.
#[derive(Debug)]
struct OfEnd {
    retransmit: Thread,
    delayed_ack: Thread,
    /// What it is called in the names of tracks.
    label: String,
    has_sent: bool,
    windows: Option<Windows>,
}

impl Perfetto {
    /// Begins a file.
    ///
    /// # Errors
    /// [`ReportError::Write`]
    pub fn create(file: &Path) -> Result<Self, ReportError> {
        let json = Json::create(file)?;
        Ok(Self { json, machines: Vec::new(), connections: Vec::new(), ends: HashMap::new() })
    }

    /// Ends the file; returns how many events are in it.
    ///
    /// # Errors
    /// [`ReportError::Write`], also of what was to be written earlier.
    pub fn finish(self) -> Result<u64, ReportError> {
        self.json.finish()
    }

    /// The machine that an end is on, and the end's tracks: new ones if nothing was said of it before.
    fn end(&mut self, end: End) -> Option<(Process, &mut OfEnd)> {
        let [opener, acceptor] = *self.connections.get(end.connection as usize)?;
        let (own, other) = if end.is_opener { (opener, acceptor) } else { (acceptor, opener) };
        let (own, other) = (self.machines.get(own as usize)?, self.machines.get(other as usize)?);
        let json = &mut self.json;
        let of_end = self.ends.entry(end).or_insert_with(|| {
            let label = format!("{} {} {}", end.connection, if end.is_opener { "to" } else { "from" }, other.name);
            let retransmit = json.thread(own.process, &format!("{label}: retransmit timer"));
            let delayed_ack = json.thread(own.process, &format!("{label}: delayed ACK"));
            OfEnd { retransmit, delayed_ack, label, has_sent: false, windows: None }
        });
        Some((own.process, of_end))
    }

    fn packet(&mut self, at_ns: i64, packet: &Packet) {
        let Some(track) = self.machines.get(packet.machine as usize) else { return };
        let way = packet.way as usize;
        let thread = match (packet.point, track.port, packet.way) {
            (Point::Machine, ..) => track.inside[way],
            (Point::NetworkSide, ..) | (Point::VmSide, Port::Plain, Way::Out) => track.at_port[way],
            (Point::VmSide, ..) => return,
        };
        let (name, mut args) = described(&packet.carries);
        if packet.ecn == Ecn::Ce {
            args.insert("ecn".to_owned(), json!("CE"));
        }
        match packet.origin {
            Origin::Passes => {}
            Origin::Held(ns) => drop(args.insert("held_by_vflood_ms".to_owned(), json!(ns as f64 / 1e6))),
            Origin::EarlyAck => drop(args.insert("by".to_owned(), json!("vSnoop, as an early ACK"))),
            Origin::Host => drop(args.insert("by".to_owned(), json!("the host"))),
        }
        self.json.instant(at_ns, thread, ("packet", &name), args);
    }

    fn timer(&mut self, at_ns: i64, end: End, timer: Timer, fate: Fate) {
        let name = match timer {
            Timer::Rto => "RTO",
            Timer::Tlp => "TLP",
            Timer::Reo => "REO",
            Timer::Persist => "persist",
            Timer::DelayedAck => "delayed ACK",
        };
        let Some((_, tracks)) = self.end(end) else { return };
        let thread = if timer == Timer::DelayedAck { tracks.delayed_ack } else { tracks.retransmit };
        let became = |what: &str| Arguments::from_iter([("became".to_owned(), json!(what))]);
        let json = &mut self.json;
        match fate {
            Fate::Set => json.begin(at_ns, thread, ("timer", name), Arguments::new()),
            Fate::Stopped => json.end(at_ns, thread, became("stopped")),
            Fate::Fired => {
                json.end(at_ns, thread, became("fired"));
                json.instant(at_ns, thread, ("fired", &format!("{name} fired")), Arguments::new());
            }
            Fate::Held => {
                json.end(at_ns, thread, became("held"));
                json.begin(at_ns, thread, ("held", &format!("{name} held by PVTCP")), Arguments::new());
            }
            Fate::Ran => {
                json.end(at_ns, thread, became("ran"));
                json.instant(at_ns, thread, ("fired", &format!("{name} fired")), Arguments::new());
            }
            Fate::Overtaken => json.end(at_ns, thread, became("overtaken")),
        }
    }

    fn windows(&mut self, at_ns: i64, end: End, now: Windows) {
        let Some((process, tracks)) = self.end(end) else { return };
        // The windows of an end that sends no data are of no interest.
        tracks.has_sent |= now.in_flight_segments > 0;
        if !tracks.has_sent {
            return;
        }
        let before = tracks.windows.replace(now);
        let label = tracks.label.clone();
        let figures = |windows: Windows| {
            [
                ("cwnd (segments)", Some(f64::from(windows.cwnd_segments))),
                ("ssthresh (segments)", windows.ssthresh_segments.map(f64::from)),
                ("in flight (segments)", Some(f64::from(windows.in_flight_segments))),
                ("rwnd (bytes)", Some(windows.rwnd_bytes as f64)),
            ]
        };
        for (index, (what, value)) in figures(now).into_iter().enumerate() {
            let is_known = before.is_some_and(|before| figures(before)[index].1 == value);
            if let Some(value) = value.filter(|_| !is_known) {
                self.json.counter(at_ns, process, &format!("{label}: {what}"), value);
            }
        }
    }
}

impl Sink for Perfetto {
    fn begin(&mut self, stage: &Stage) {
        for Machine { name, port } in &stage.machines {
            let json = &mut self.json;
            let process = json.process(name);
            let core = json.thread(process, "virtual CPU");
            let mut threads =
                |at: &str| ["to", "from"].map(|way| json.thread(process, &format!("packets {way} it, {at}")));
            let (at_port, inside) = (threads("at its port"), threads("inside"));
            self.machines.push(Track { name: name.clone(), port: *port, process, core, at_port, inside });
        }
    }

    fn take(&mut self, at_ns: u64, event: &Event) {
        let at_ns = at_ns as i64;
        match event {
            Event::Opened { machines, .. } => self.connections.push(*machines),
            Event::Packet(packet) => self.packet(at_ns, packet),
            Event::Core { machine, state } => {
                let Some(track) = self.machines.get(*machine as usize) else { return };
                match state {
                    Core::Has => self.json.begin(at_ns, track.core, ("core", "on its core"), Arguments::new()),
                    Core::Waits => self.json.begin(at_ns, track.core, ("core", "waits for its core"), Arguments::new()),
                    Core::Halted => self.json.end(at_ns, track.core, Arguments::new()),
                }
            }
            Event::WokeUp { machine, off_us } => {
                let Some(track) = self.machines.get(*machine as usize) else { return };
                let args = Arguments::from_iter([("off_us".to_owned(), json!(off_us))]);
                self.json.instant(at_ns, track.core, ("pvtcp", "wake-up noticed by PVTCP"), args);
            }
            Event::Timer { end, timer, fate } => self.timer(at_ns, *end, *timer, *fate),
            Event::Windows { end, windows } => self.windows(at_ns, *end, *windows),
            Event::Says { end, what } => {
                let Some(thread) = self.end(*end).map(|(_, tracks)| tracks.retransmit) else { return };
                self.json.instant(at_ns, thread, ("tcp", what), Arguments::new());
            }
            Event::Measured => {
                if let Some(track) = self.machines.first() {
                    self.json.instant(at_ns, track.core, ("run", "measured time begins"), Arguments::new());
                }
            }
        }
    }
}

/// What a packet is called, and the rest of what is known of it.
fn described(carries: &Carries) -> (String, Arguments) {
    match carries {
        Carries::Echo { number, is_reply } => {
            (format!("echo {} {number}", if *is_reply { "reply" } else { "request" }), Arguments::new())
        }
        Carries::Probe(probe) if probe.report.is_some() => ("report".to_owned(), Arguments::new()),
        Carries::Probe(probe) => (format!("probe {} of {}", probe.index + 1, probe.total), Arguments::new()),
        Carries::Tcp(segment) => (named(segment), of_segment(segment)),
    }
}

fn named(segment: &Segment) -> String {
    match (segment.syn, segment.ack) {
        (Some(_), None) => "SYN".to_owned(),
        (Some(_), Some(_)) => "SYN-ACK".to_owned(),
        _ if segment.payload_bytes > 0 => format!("data {}", segment.seq),
        (None, ack) => format!("ACK {}", ack.unwrap_or(0)),
    }
}

fn of_segment(segment: &Segment) -> Arguments {
    let mut args = Arguments::from_iter([
        ("connection".to_owned(), json!(segment.by.connection)),
        ("bytes".to_owned(), json!(segment.payload_bytes)),
        ("window".to_owned(), json!(segment.window)),
    ]);
    if let Some(ack) = segment.ack.filter(|_| segment.payload_bytes > 0) {
        args.insert("ack".to_owned(), json!(ack));
    }
    if segment.sack_count > 0 {
        args.insert("sack".to_owned(), json!(&segment.sack[..usize::from(segment.sack_count)]));
    }
    for (flag, is_set) in [("ece", segment.ece), ("cwr", segment.cwr)] {
        if is_set {
            args.insert(flag.to_owned(), json!(true));
        }
    }
    args
}
