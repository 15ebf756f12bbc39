//! What the records of runs have on one time axis, for Perfetto: the lab's as the simulator's.

use std::collections::BTreeMap;
use std::path::Path;

use evenkeel_scenario::result::{FlowRecord, PacketRecord, RunRecord, SeenAt, Series};
use serde_json::json;

use super::json::{Arguments, Json, Process};
use super::run_name;
use crate::{ReportError, Results};

/// Writes the series, flows and packets of all runs into one trace; returns how many events are in it. Time counts from
/// the start of each run's measured time, or from the earliest of what it has.
///
/// # Errors
/// [`ReportError::Write`]
pub fn write_records(results: &Results, file: &Path) -> Result<u64, ReportError> {
    let mut json = Json::create(file)?;
    for record in &results.records {
        let name = if results.records.len() > 1 { format!("{}: ", run_name(record)) } else { String::new() };
        OneRun { json: &mut json, name, shift_us: shift_us(record), machines: BTreeMap::new() }.write(record);
    }
    json.finish()
}

/// What is added to all times, so that none is negative.
fn shift_us(record: &RunRecord) -> i64 {
    let began = |series: &Series, (at_us, value): &(i64, f64)| at_us - span_us(&series.name, *value).0;
    let of_series = record.series.iter().flat_map(|series| series.points.iter().map(move |point| began(series, point)));
    -of_series.min().unwrap_or(0).min(0)
}

/// For a series whose points are spans: how long before a point its span began, and how long it took.
fn span_us(name: &str, value_ms: f64) -> (i64, i64) {
    let took = (value_ms * 1e3) as i64;
    match name {
        // A wait stands at its end, a ping at its reply, a block at its request.
        "vcpu_wait_ms" | "rtt_ms" => (took, took),
        "block_ms" => (0, took),
        _ => (0, 0),
    }
}

struct OneRun<'a> {
    json: &'a mut Json,
    /// What its processes' names begin with.
    name: String,
    shift_us: i64,
    machines: BTreeMap<String, Process>,
}

impl OneRun<'_> {
    fn write(&mut self, record: &RunRecord) {
        record.series.iter().for_each(|series| self.series(series));
        record.flows.iter().for_each(|flow| self.flow(flow));
        if !record.packets.is_empty() {
            self.packets(&record.packets);
        }
    }

    fn process(&mut self, machine: &str) -> Process {
        let (json, name) = (&mut self.json, &self.name);
        let new = || json.process(&format!("{name}{machine}"));
        *self.machines.entry(machine.to_owned()).or_insert_with(new)
    }

    fn series(&mut self, series: &Series) {
        // `sender-0 flow 1` is a socket of `sender-0`.
        let (machine, part) = series.subject.split_once(' ').unwrap_or((&series.subject, ""));
        let process = self.process(machine);
        let slice = match series.name.as_str() {
            "vcpu_wait_ms" => Some(("core", "waits for its core")),
            "rtt_ms" => Some(("ping", "ping")),
            "block_ms" => Some(("block", "block")),
            _ => None,
        };
        let counter = format!("{part}{}{}", if part.is_empty() { "" } else { ": " }, series.name);
        for &(at_us, value) in &series.points {
            let at_ns = (at_us + self.shift_us) * 1000;
            match slice {
                Some(named) => {
                    let (before_us, took_us) = span_us(&series.name, value);
                    let span = (at_ns - before_us * 1000, took_us * 1000);
                    self.json.overlapping(span, process, named, Arguments::new());
                }
                None => self.json.counter(at_ns, process, &counter, value),
            }
        }
    }

    fn flow(&mut self, flow: &FlowRecord) {
        let process = self.process(&flow.from);
        let span = ((flow.start_us as i64 + self.shift_us) * 1000, flow.duration_us as i64 * 1000);
        let args = Arguments::from_iter([("bytes".to_owned(), json!(flow.bytes))]);
        self.json.overlapping(span, process, ("flow", &format!("flow to {}", flow.to)), args);
    }

    /// The packets around one wake-up have a time of their own.
    fn packets(&mut self, packets: &[PacketRecord]) {
        let process = self.json.process(&format!("{}packets around a wake-up, from the window's start", self.name));
        let core = self.json.thread(process, "virtual CPU, as far as packets show it");
        let mut threads = BTreeMap::new();
        let mut is_off = false;
        for packet in packets {
            let at_ns = packet.t_us * 1000;
            if packet.descheduled != is_off {
                is_off = packet.descheduled;
                if is_off {
                    self.json.begin(at_ns, core, ("core", "off its core"), Arguments::new());
                } else {
                    self.json.end(at_ns, core, Arguments::new());
                }
            }
            let at = match packet.at {
                SeenAt::Sender => "in the sender",
                SeenAt::SenderPort => "at the sender's port",
                SeenAt::ReceiverPort => "at the receiver's port",
            };
            let thread = *threads.entry(at).or_insert_with(|| self.json.thread(process, at));
            let name = match (packet.data, packet.retransmission) {
                (true, false) => format!("data {}", packet.seq),
                (true, true) => format!("data {} again", packet.seq),
                (false, _) => format!("ACK {}", packet.seq),
            };
            let args = Arguments::from_iter([("bytes".to_owned(), json!(packet.len))]);
            self.json.instant(at_ns, thread, ("packet", &name), args);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn record() -> RunRecord {
        let series = |name: &str, subject: &str, points: &[(i64, f64)]| Series {
            name: name.to_owned(),
            subject: subject.to_owned(),
            points: points.to_vec(),
        };
        let packet = |t_us, descheduled| PacketRecord {
            t_us,
            at: SeenAt::SenderPort,
            data: true,
            seq: 7,
            len: 100,
            retransmission: descheduled,
            descheduled,
        };
        RunRecord {
            cell: Vec::new(),
            repetition: 0,
            seed: 1,
            duration_us: 1000,
            metrics: BTreeMap::new(),
            counters: BTreeMap::new(),
            flows: vec![FlowRecord {
                from: "a-0".to_owned(),
                to: "b-0".to_owned(),
                bytes: 9,
                start_us: 100,
                duration_us: 200,
            }],
            series: vec![
                series("vcpu_wait_ms", "a-0", &[(1000, 3.0)]),
                series("cwnd_segments", "a-0 flow 1", &[(0, 10.0), (500, 11.0)]),
            ],
            packets: vec![packet(0, false), packet(10, true), packet(20, true), packet(30, false)],
            remarks: Vec::new(),
        }
    }

    fn written(record: &RunRecord) -> Vec<Value> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("t.json");
        let mut json = Json::create(&file).unwrap();
        let (name, shift_us) = ("r: ".to_owned(), shift_us(record));
        OneRun { json: &mut json, name, shift_us, machines: BTreeMap::new() }.write(record);
        let events = json.finish().unwrap();
        let trace: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let trace = trace["traceEvents"].as_array().unwrap().clone();
        assert_eq!(trace.len() as u64, events);
        trace
    }

    #[test]
    fn what_a_record_has_stands_on_one_axis_that_begins_with_its_earliest() {
        let trace = written(&record());
        let of = |name: &str| -> Vec<(String, f64)> {
            let own = trace.iter().filter(|event| event["name"] == name);
            own.map(|event| (event["ph"].as_str().unwrap().to_owned(), event["ts"].as_f64().unwrap())).collect()
        };
        let at = |phase: &str, us: f64| (phase.to_owned(), us);
        // The wait that ended after 1 ms had begun 2 ms before the measured time.
        assert_eq!(of("waits for its core"), [at("b", 0.0), at("e", 3000.0)]);
        assert_eq!(of("flow to b-0"), [at("b", 2100.0), at("e", 2300.0)]);
        assert_eq!(of("flow 1: cwnd_segments"), [at("C", 2000.0), at("C", 2500.0)]);
        // Packets have a time of their own.
        assert_eq!(of("off its core"), [at("B", 10.0)]);
        assert_eq!(of("data 7 again"), [at("i", 10.0), at("i", 20.0)]);
        let names: Vec<&str> = trace
            .iter()
            .filter(|event| event["name"] == "process_name")
            .filter_map(|e| e["args"]["name"].as_str())
            .collect();
        assert_eq!(names, ["r: a-0", "r: packets around a wake-up, from the window's start"]);
    }

    #[test]
    fn what_cannot_be_written_is_an_error_at_the_end() {
        let mut json = Json::create(Path::new("/dev/full")).unwrap();
        let process = json.process("p");
        (0..10_000).for_each(|at| json.counter(at, process, "c", 1.0));
        let error = json.finish().unwrap_err().to_string();
        assert!(error.starts_with("cannot write /dev/full: "), "{error}");
    }
}
