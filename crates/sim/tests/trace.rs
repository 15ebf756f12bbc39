//! A traced run is the same run, and its events agree with what it counts.

use std::collections::BTreeMap;

use evenkeel_scenario::Scenario;
use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::sweep::cells;
use evenkeel_scenario::trace::{Carries, Core, Ecn, Event, Fate, Origin, Packet, Point, Sink, Stage, Timer, Way};
use evenkeel_sim::run::{Finished, Go, run, trace};

/// All that was told.
#[derive(Default)]
struct Heard {
    stage: Option<Stage>,
    events: Vec<(u64, Event)>,
}

impl Sink for Heard {
    fn begin(&mut self, stage: &Stage) {
        self.stage = Some(stage.clone());
    }

    fn take(&mut self, at_ns: u64, event: &Event) {
        self.events.push((at_ns, event.clone()));
    }
}

impl Heard {
    fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.events.iter().filter_map(|(_, event)| if let Event::Packet(packet) = event { Some(packet) } else { None })
    }

    fn timers(&self, wanted: Fate) -> BTreeMap<Timer, u64> {
        let mut counts = BTreeMap::new();
        for (_, event) in &self.events {
            if let Event::Timer { timer, fate, .. } = event {
                *counts.entry(*timer).or_default() += u64::from(*fate == wanted);
            }
        }
        counts
    }
}

/// Senders and a receiver behind a short queue.
fn incast(network: &str, sender: &str, receiver: &str) -> Cell {
    let text = format!(
        "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 1500\nwarmup_ms = 0\n\
         [network]\nrate_mbit = 1000\nbuffer_segments = 32\n{network}\n\
         [vms.sender]\ncount = 6\n{sender}\n[vms.receiver]\n{receiver}\n\
         [workloads.w]\nkind = \"strobe\"\nfrom = \"sender\"\nto = \"receiver\"\nblock_kib = 1024\n"
    );
    let loaded = Scenario::from_str(&text, "t.toml").unwrap_or_else(|e| panic!("{e}"));
    cells(&loaded).unwrap_or_else(|e| panic!("{e}")).remove(0)
}

const SHARED: &str = "core = { vms_per_core = 3, slice_jitter = 0.5 }\ntcp = { rto_min_us = \"smallest\" }";

fn traced(cell: &Cell) -> (Finished, Heard) {
    let mut heard = Heard::default();
    let finished = trace(cell, 0, &mut heard, &mut |_| Go::On).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(finished, run(cell, 0, &mut |_| Go::On).unwrap_or_else(|e| panic!("{e}")), "tracing changes nothing");
    assert!(heard.events.is_sorted_by_key(|(at, _)| *at));
    timers_in_turn(&heard);
    (finished, heard)
}

/// Checks that every timer is set before anything becomes of it, and one of a kind at a time; returns how many are set
/// at the end.
fn timers_in_turn(heard: &Heard) -> usize {
    let mut open = BTreeMap::new();
    for (at, event) in &heard.events {
        let Event::Timer { end, timer, fate } = *event else { continue };
        let track = (end, timer == Timer::DelayedAck);
        let before = match fate {
            Fate::Set => open.insert(track, (timer, Fate::Set)),
            Fate::Held => open.insert(track, (timer, Fate::Held)),
            Fate::Stopped | Fate::Fired | Fate::Ran | Fate::Overtaken => open.remove(&track),
        };
        let follows = match (before, fate) {
            (None, Fate::Set) => true,
            // What is held can be held again.
            (Some((of, Fate::Set)), Fate::Stopped | Fate::Fired | Fate::Held) => of == timer,
            (Some((of, Fate::Held)), Fate::Held | Fate::Ran | Fate::Overtaken) => of == timer,
            _ => false,
        };
        assert!(follows, "at {at} ns, {end:?}: {timer:?} {fate:?} after {before:?}");
    }
    open.len()
}

fn counted(finished: &Finished, name: &str) -> u64 {
    finished.record.counters.values().filter_map(|counters| counters.get(name)).sum::<i64>() as u64
}

/// Data segments that machines send and whose bytes they had sent before, as the packets show it.
fn sent_again(heard: &Heard) -> u64 {
    let mut ends = BTreeMap::new();
    let mut again = 0;
    for packet in heard.packets().filter(|p| (p.point, p.way) == (Point::Machine, Way::Out)) {
        let Carries::Tcp(segment) = packet.carries else { continue };
        let end: &mut u32 = ends.entry(segment.by).or_default();
        if segment.payload_bytes > 0 {
            again += u64::from(segment.seq < *end);
            *end = (*end).max(segment.seq + segment.payload_bytes);
        }
    }
    again
}

#[test]
fn packets_show_what_is_counted() {
    let (finished, heard) = traced(&incast("", SHARED, ""));
    let again = sent_again(&heard);
    assert_eq!(again, counted(&finished, "TcpRetransSegs"));
    assert!(again > 20, "{again}");
    let stage = heard.stage.expect("it begins");
    let names: Vec<&str> = stage.machines.iter().map(|machine| machine.name.as_str()).collect();
    assert_eq!((names[0], names[6], names.len()), ("sender-0", "receiver-0", 7));
}

#[test]
fn held_timers_are_told_with_pvtcp_and_not_without() {
    let (finished, heard) = traced(&incast("", &format!("{SHARED}\npvtcp = {{ mode = \"enforce\" }}"), ""));
    let held = heard.timers(Fate::Held);
    let kinds = [(Timer::Rto, "PvtcpHeldRto"), (Timer::Tlp, "PvtcpHeldTlp"), (Timer::Reo, "PvtcpHeldReo")];
    for (timer, counter) in kinds {
        assert_eq!(held.get(&timer).copied().unwrap_or(0), counted(&finished, counter), "{counter}");
    }
    let all = |fate| heard.timers(fate).values().sum::<u64>();
    assert!(all(Fate::Held) > 5, "{held:?}");
    // What is held at the end is still held, and what is held anew was not let go.
    assert!(all(Fate::Ran) + all(Fate::Overtaken) <= all(Fate::Held) && all(Fate::Overtaken) > 0);
    let woken = heard.events.iter().filter(|(_, event)| matches!(event, Event::WokeUp { .. })).count();
    assert_eq!(woken as u64, counted(&finished, "PvtcpWakeups"));

    let (finished, heard) = traced(&incast("", SHARED, ""));
    assert_eq!(heard.timers(Fate::Held).values().sum::<u64>(), 0);
    // Every timeout is a timer that has run out.
    assert_eq!(heard.timers(Fate::Fired)[&Timer::Rto], counted(&finished, "TcpExtTCPTimeouts"));
}

#[test]
fn connections_that_are_closed_have_no_timers() {
    let text = "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 1000\nwarmup_ms = 0\n[network]\n\
                rate_mbit = 100\nbuffer_segments = 20\n[vms.a]\ncount = 4\n[vms.b]\n[workloads.w]\n\
                kind = \"poisson\"\nfrom = \"a\"\nto = \"b\"\nload = 0.5\nsizes = 20000\nflows = 100\n";
    let loaded = Scenario::from_str(text, "t.toml").unwrap_or_else(|e| panic!("{e}"));
    let (_, heard) = traced(&cells(&loaded).unwrap_or_else(|e| panic!("{e}")).remove(0));
    let opened = heard.events.iter().filter(|(_, event)| matches!(event, Event::Opened { .. })).count();
    let left = timers_in_turn(&heard);
    // At the end hardly any connection is there.
    assert!(opened >= 100 && left <= 4, "{left} timers of {opened} connections");
}

#[test]
fn virtual_cpus_have_their_cores_in_turn() {
    let (_, heard) = traced(&incast("", SHARED, ""));
    let mut states = BTreeMap::new();
    for (_, event) in &heard.events {
        if let Event::Core { machine, state } = *event {
            assert_ne!(states.insert(machine, state), Some(state), "only changes are told");
        }
    }
    assert_eq!(states.len(), 7);
    assert_eq!(states[&6], Core::Has, "the receiver has a core of its own");
    let changes = heard.events.iter().filter(|(_, event)| matches!(event, Event::Core { machine: 0, .. })).count();
    assert!(changes > 20, "{changes}");
}

#[test]
fn marks_holds_and_early_acks_are_told() {
    let marking = "queue = { discipline = \"red\", ecn_threshold_segments = 10 }";
    let (finished, heard) =
        traced(&incast(marking, "tcp = { congestion_control = \"dctcp\" }", "tcp = { ecn = \"on\" }"));
    let marked =
        heard.packets().filter(|p| p.machine == 6 && p.point == Point::NetworkSide && p.ecn == Ecn::Ce).count();
    assert_eq!(marked as f64, finished.record.metrics["ecn_marks"]);

    let vflood = format!("{SHARED}\nvflood = {{ mode = \"enforce\", off_core_percent = 0 }}");
    let (finished, heard) = traced(&incast("", &vflood, ""));
    let held = heard.packets().filter(|p| matches!(p.origin, Origin::Held(ns) if ns > 0)).count() as u64;
    // Some are let out within the instant, others are refused later.
    assert!(held > 100 && held <= counted(&finished, "VfloodHeld"), "{held}");

    let vsnoop = "core = { vms_per_core = 3 }\nvsnoop = { mode = \"enforce\" }";
    let (finished, heard) = traced(&incast("", "", vsnoop));
    let early = heard.packets().filter(|p| p.origin == Origin::EarlyAck).count() as u64;
    assert!(early > 100 && early <= counted(&finished, "VsnoopEarlyAcks"), "{early}");
    // Both sides of the receiver's port are there, and they differ by what vSnoop makes and drops.
    let at = |point, way| heard.packets().filter(|p| p.machine == 6 && (p.point, p.way) == (point, way)).count() as u64;
    let (sent, left) = (at(Point::VmSide, Way::Out), at(Point::NetworkSide, Way::Out));
    assert_eq!(sent - counted(&finished, "VsnoopDropped") + early, left);
}
