//! Each workload on machines where any number of bytes takes one millisecond.

use std::collections::BTreeMap;

use evenkeel_scenario::format::{FlowSizes, FlowSizesWord, Operation, Store, StoreCall, Workload as Spec};

use super::*;

const LATENCY: Duration = Duration::from_ms(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Established(FlowId),
    Arrives(FlowId, Side, u64),
    Call(u32),
    Echo(GuestId, u32),
}

#[derive(Debug, Default)]
struct Flow {
    ends: (GuestId, GuestId),
    open: bool,
    /// By side: delivered, and what is expected.
    sides: [(u64, Option<u64>); 2],
}

/// Guests that run all the time, except for one stretch each.
#[derive(Debug, Default)]
struct Machines {
    now: Instant,
    queue: BTreeMap<(Instant, u64), Happens>,
    number: u64,
    flows: Vec<Flow>,
    off: BTreeMap<GuestId, (Instant, Instant)>,
    busy: BTreeMap<GuestId, Instant>,
    pings: Vec<(Instant, GuestId)>,
    written: Vec<(Instant, FlowId, Side, u64)>,
    lost_pings: bool,
    stopped: bool,
}

impl Machines {
    fn push(&mut self, at: Instant, happens: Happens) {
        self.queue.insert((at, self.number), happens);
        self.number += 1;
    }

    fn run(&mut self, workload: &mut Workload, until: Instant) {
        while let Some(entry) = self.queue.first_entry().filter(|e| e.key().0 <= until && !self.stopped) {
            self.now = entry.key().0;
            match entry.remove() {
                Happens::Established(flow) => workload.on_established(self, flow),
                Happens::Call(tag) => workload.on_call(self, tag),
                Happens::Echo(guest, number) => workload.on_echo(self, guest, number),
                Happens::Arrives(flow, side, bytes) => {
                    self.flows[flow.0 as usize].sides[side as usize].0 += bytes;
                    self.tell(workload, flow, side);
                }
            }
        }
        if !self.stopped {
            self.now = until;
        }
    }

    fn tell(&mut self, workload: &mut Workload, flow: FlowId, side: Side) {
        let state = &mut self.flows[flow.0 as usize];
        let (delivered, expected) = &mut state.sides[side as usize];
        if state.open && expected.is_some_and(|expected| *delivered >= expected) {
            *expected = None;
            workload.on_delivered(self, flow, side);
        }
    }
}

impl System for Machines {
    fn now(&self) -> Instant {
        self.now
    }

    fn open(&mut self, from: GuestId, to: GuestId) -> FlowId {
        let flow = FlowId(self.flows.len() as u32);
        self.flows.push(Flow { ends: (from, to), open: true, ..Flow::default() });
        self.push(self.now + LATENCY, Happens::Established(flow));
        flow
    }

    fn write(&mut self, flow: FlowId, side: Side, bytes: u64) {
        self.written.push((self.now, flow, side, bytes));
        let other = if side == Side::Opener { Side::Acceptor } else { Side::Opener };
        self.push(self.now + LATENCY, Happens::Arrives(flow, other, bytes));
    }

    fn expect(&mut self, flow: FlowId, side: Side, total: u64) {
        self.flows[flow.0 as usize].sides[side as usize].1 = Some(total);
        self.push(self.now, Happens::Arrives(flow, side, 0));
    }

    fn close(&mut self, flow: FlowId) {
        self.flows[flow.0 as usize].open = false;
    }

    fn call_at(&mut self, at: Instant, tag: u32) {
        self.push(at, Happens::Call(tag));
    }

    fn call_in(&mut self, guest: GuestId, at: Instant, tag: u32) {
        let off = self.off.get(&guest).filter(|(start, end)| (*start..*end).contains(&at));
        let at = off.map_or(at, |(_, end)| *end);
        self.push(self.busy.get(&guest).map_or(at, |until| at.max(*until)), Happens::Call(tag));
    }

    fn work(&mut self, guest: GuestId, time: Duration) {
        let until = self.busy.get(&guest).map_or(self.now, |until| self.now.max(*until)) + time;
        self.busy.insert(guest, until);
    }

    fn ping(&mut self, from: GuestId, _: GuestId, number: u32) {
        self.pings.push((self.now, from));
        if !self.lost_pings {
            self.push(self.now + LATENCY * 2, Happens::Echo(from, number));
        }
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}

fn members(from: u32, to: u32) -> Members {
    let member = |n| Member { guest: GuestId(n), host: HostId(n) };
    let from: Vec<Member> = (0..from).map(member).collect();
    let first = from.len() as u32;
    let to = if to == 0 { from.clone() } else { (first..first + to).map(member).collect() };
    Members { from, to, capacity_bps: 1_000_000_000, seed: 1 }
}

fn ends() -> (String, String) {
    ("a".to_owned(), "b".to_owned())
}

fn started(spec: &Spec, members: Members) -> (Machines, Workload) {
    let (mut machines, mut workload) =
        (Machines::default(), Workload::new(spec, members).expect("it can be simulated"));
    workload.start(&mut machines);
    (machines, workload)
}

fn at_ms(ms: u64) -> Instant {
    Instant::START + Duration::from_ms(ms)
}

#[test]
fn a_ping_does_not_make_up_for_missed_times() {
    let (from, to) = ends();
    let (mut machines, mut workload) = started(&Spec::Ping { from, to, interval_ms: 10 }, members(1, 1));
    machines.off.insert(GuestId(0), (at_ms(20), at_ms(57)));
    machines.run(&mut workload, at_ms(10));
    workload.mark(&mut machines);
    machines.run(&mut workload, at_ms(110));
    let recording = workload.collect(machines.now);
    // Of ten times four were in the stretch; one request went out at its end.
    assert_eq!(recording.pings.len(), 7, "{:?}", machines.pings);
    assert!(recording.pings.iter().all(|p| p.took == LATENCY * 2));
    let after: Vec<Instant> = machines.pings.iter().map(|(at, _)| *at).filter(|at| *at >= at_ms(57)).collect();
    assert_eq!(after[0], at_ms(57));
    assert!(after[1].since(machines.pings[0].0).ps() % Duration::from_ms(10).ps() == 0, "off the grid");
}

#[test]
fn a_ping_without_reply_is_lost_after_a_second() {
    let (from, to) = ends();
    let (mut machines, mut workload) = started(&Spec::Ping { from, to, interval_ms: 500 }, members(2, 1));
    machines.lost_pings = true;
    workload.mark(&mut machines);
    machines.run(&mut workload, at_ms(3_000));
    let recording = workload.collect(machines.now);
    assert_eq!((recording.pings.len(), recording.pings_lost), (0, 6));
}

#[test]
fn bulk_opens_its_flows_and_writes_without_end() {
    let (from, to) = ends();
    let (mut machines, mut workload) = started(&Spec::Bulk { from, to, flows: 2 }, members(3, 2));
    machines.run(&mut workload, at_ms(10));
    let mut pairs: Vec<(u32, u32)> = machines.flows.iter().map(|f| (f.ends.0.0, f.ends.1.0)).collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [(0, 3), (0, 3), (1, 4), (1, 4), (2, 3), (2, 3)]);
    assert!(machines.written.iter().all(|w| w.2 == Side::Opener && w.3 > 1 << 40));
    assert_eq!(machines.written.len(), 6);
    // Nothing starts at the same picosecond.
    assert!(machines.written.windows(4).all(|w| w[0].0 != w[3].0));
}

#[test]
fn a_strobe_asks_again_when_all_blocks_are_in() {
    let (from, to) = ends();
    let (mut machines, mut workload) = started(&Spec::Strobe { from, to, block_kib: 3, requests: 0 }, members(3, 1));
    // Three connections, one after the other, then 2 ms for each request.
    machines.run(&mut workload, at_ms(6));
    workload.mark(&mut machines);
    machines.run(&mut workload, at_ms(17));
    let recording = workload.collect(machines.now);
    // The request that began at 5 ms is of the warm-up.
    assert_eq!(recording.blocks.iter().map(|b| b.start.us()).collect::<Vec<_>>(), [7000, 9000, 11_000, 13_000, 15_000]);
    assert!(recording.blocks.iter().all(|b| b.took == LATENCY * 2 && b.guest == GuestId(3)));
    assert!(machines.flows.iter().all(|f| f.ends.0 == GuestId(3)));
    for (_, _, side, bytes) in &machines.written {
        assert_eq!(*bytes, if *side == Side::Opener { 8 } else { 1024 });
    }
}

#[test]
fn a_strobe_with_a_limit_waits_for_the_mark_and_ends_the_run() {
    let (from, to) = ends();
    let (mut machines, mut workload) = started(&Spec::Strobe { from, to, block_kib: 1, requests: 3 }, members(2, 1));
    machines.run(&mut workload, at_ms(100));
    assert!(!machines.stopped);
    assert_eq!(machines.written.iter().filter(|w| w.2 == Side::Opener).count(), 6);
    workload.mark(&mut machines);
    machines.run(&mut workload, at_ms(1000));
    assert!(machines.stopped);
    assert_eq!(machines.now, at_ms(106));
    assert_eq!(workload.collect(machines.now).blocks.len(), 3);
}

fn poisson(flows: u32, deadline_ms: u32, persistent: bool) -> Spec {
    let sizes = FlowSizes::Word(FlowSizesWord::Websearch);
    Spec::Poisson {
        from: "a".to_owned(),
        to: None,
        load: 0.5,
        sizes,
        flows,
        deadline_ms,
        persistent,
        request_bytes: 0,
        burst_flows: 1,
        background_flows: 0,
        background_mesh_flows: 0,
    }
}

#[test]
fn poisson_flows_come_at_their_load_between_all_pairs() {
    let (mut machines, mut workload) = started(&poisson(0, 0, false), members(4, 0));
    workload.mark(&mut machines);
    machines.run(&mut workload, Instant::START + Duration::from_s(200));
    let recording = workload.collect(machines.now);
    let bytes: u64 = recording.flows.iter().map(|f| f.bytes).sum();
    let load = bytes as f64 * 8.0 / 200.0 / 1e9;
    assert!((load - 0.5).abs() < 0.05, "{load}");
    let mut pairs: Vec<(GuestId, GuestId)> = recording.flows.iter().map(|f| (f.from, f.to)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs.len(), 12);
    assert!(pairs.iter().all(|(from, to)| from != to));
    assert!(recording.flows.iter().all(|f| f.took == LATENCY * 2));
    assert_eq!(machines.flows.iter().filter(|f| f.open).count(), recording.unfinished.len());
    assert!(recording.unfinished.iter().all(|f| f.bytes > 0 && f.waited <= LATENCY * 2), "{:?}", recording.unfinished);
}

#[test]
fn poisson_measures_as_many_flows_as_asked() {
    let (mut machines, mut workload) = started(&poisson(100, 1, false), members(3, 0));
    machines.run(&mut workload, at_ms(1000));
    workload.mark(&mut machines);
    machines.run(&mut workload, at_ms(1_000_000));
    assert!(machines.stopped);
    let recording = workload.collect(machines.now);
    assert_eq!((recording.flows.len(), recording.unfinished.len()), (100, 0));
    // All of them miss their deadline.
    assert!(recording.flows.iter().all(|f| f.start >= at_ms(1000) && f.took == LATENCY * 2));
}

#[test]
fn persistent_connections_are_used_again() {
    let (mut machines, mut workload) = started(&poisson(0, 0, true), members(2, 0));
    workload.mark(&mut machines);
    machines.run(&mut workload, Instant::START + Duration::from_s(60));
    let recording = workload.collect(machines.now);
    assert!(recording.flows.len() > 1000, "{}", recording.flows.len());
    assert!(machines.flows.len() < recording.flows.len() / 10, "{}", machines.flows.len());
    let again = recording.flows.iter().filter(|f| f.took == LATENCY).count();
    assert!(again > recording.flows.len() / 2);
}

/// An opener that is off its core learns of its flows later; their time has begun all the same.
#[test]
fn a_poisson_flow_is_timed_from_its_arrival_and_counts_if_it_never_began() {
    let (warm, back, end) = (at_ms(50), at_ms(100), at_ms(400));
    let run = |off: &[(u32, Instant, Instant)]| {
        let members = Members { capacity_bps: 100_000_000_000, ..members(4, 0) };
        let (mut machines, mut workload) = started(&poisson(0, 0, false), members);
        machines.off = off.iter().map(|(guest, from, until)| (GuestId(*guest), (*from, *until))).collect();
        machines.run(&mut workload, warm);
        workload.mark(&mut machines);
        machines.run(&mut workload, end);
        workload.collect(machines.now)
    };
    let all = |recording: &Recording| {
        let mut starts: Vec<_> = recording.flows.iter().map(|f| (f.start, f.bytes)).collect();
        starts.extend(recording.unfinished.iter().map(|f| (Instant::from_ps(end.ps() - f.waited.ps()), f.bytes)));
        starts.sort_unstable();
        starts
    };
    let on = run(&[]);
    // One is away from before the mark on, another at the end.
    let off = run(&[(0, at_ms(0), back), (1, at_ms(300), at_ms(500))]);
    assert_eq!(all(&off), all(&on), "the same flows count, from the same times");
    let waited: Vec<&FlowDone> = off.flows.iter().filter(|f| f.from == GuestId(0) && f.start < back).collect();
    assert!(!waited.is_empty() && waited.iter().all(|f| f.took == back.since(f.start) + LATENCY * 2), "{waited:?}");
    assert!(off.unfinished.len() > on.unfinished.len());
}

/// A flow that is asked for is opened by its receiver, and takes one request longer.
#[test]
fn poisson_flows_can_be_answers() {
    let run = |request, persistent| {
        let mut spec = poisson(50, 0, persistent);
        let Spec::Poisson { request_bytes, .. } = &mut spec else { unreachable!() };
        *request_bytes = request;
        let (mut machines, mut workload) = started(&spec, members(3, 0));
        workload.mark(&mut machines);
        machines.run(&mut workload, at_ms(1_000_000));
        (workload.collect(machines.now).flows, machines)
    };
    let ((sent, _), (asked, machines)) = (run(0, false), run(200, false));
    let pairs = |flows: &[FlowDone]| flows.iter().map(|f| (f.from, f.to, f.bytes)).collect::<Vec<_>>();
    let sorted = |mut pairs: Vec<(GuestId, GuestId, u64)>| {
        pairs.sort_unstable();
        pairs
    };
    assert_eq!(sorted(pairs(&sent)), sorted(pairs(&asked)), "the same flows");
    assert!(asked.iter().all(|f| f.took == LATENCY * 3), "handshake, request, answer");
    for &(_, flow, side, bytes) in &machines.written {
        assert_eq!(bytes == 200, side == Side::Opener);
        let opener = machines.flows[flow.0 as usize].ends.0;
        assert!(asked.iter().any(|f| f.to == opener));
    }
    let (again, machines) = run(200, true);
    assert!(machines.flows.len() < again.len() && again.iter().any(|f| f.took == LATENCY * 2));
}

#[test]
fn flows_in_the_background_are_not_measured_and_change_no_draw() {
    let run = |background: u32| {
        let mut spec = poisson(50, 0, false);
        let Spec::Poisson { background_mesh_flows, .. } = &mut spec else { unreachable!() };
        *background_mesh_flows = background;
        let (mut machines, mut workload) = started(&spec, members(3, 0));
        workload.mark(&mut machines);
        machines.run(&mut workload, at_ms(1_000_000));
        let flows = workload.collect(machines.now).flows;
        let endless: Vec<(GuestId, GuestId)> = machines
            .flows
            .iter()
            .enumerate()
            .filter(|(flow, _)| workload.is_background(FlowId(*flow as u32)))
            .map(|(_, flow)| flow.ends)
            .collect();
        (flows, endless)
    };
    let ((alone, none), (beside, endless)) = (run(0), run(2));
    assert_eq!(none, []);
    assert_eq!(endless.len(), 6, "two from each of three");
    assert!(endless.iter().all(|(from, to)| from != to));
    assert_eq!(alone, beside);
}

#[test]
fn requests_follow_responses() {
    let (from, to) = ends();
    let spec = Spec::RequestResponse {
        from,
        to,
        request_bytes: 100,
        response_bytes: 5000,
        outstanding: 2,
        think_time_us: 500,
    };
    let (mut machines, mut workload) = started(&spec, members(2, 1));
    workload.mark(&mut machines);
    machines.run(&mut workload, at_ms(52));
    let recording = workload.collect(machines.now);
    // 2 ms and 0.5 ms of thought for each, on two connections, one to each answerer.
    assert_eq!(recording.flows.len(), 40);
    assert!(recording.flows.iter().all(|f| f.took == LATENCY * 2 && f.bytes == 5000 && f.to == GuestId(2)));
    assert!(
        recording.flows.iter().any(|f| f.from == GuestId(0)) && recording.flows.iter().any(|f| f.from == GuestId(1))
    );
    assert!(recording.unfinished.len() <= 2);
    assert_eq!(machines.flows.len(), 2);
}

#[test]
fn a_page_is_put_together_from_the_stores() {
    let call = |store, times| StoreCall { store, times, request_bytes: 100, response_bytes: 2000, work_us: 0 };
    let page = Operation {
        name: "page".to_owned(),
        weight: 1,
        request_bytes: 500,
        calls: vec![call(Store::Cache, 1), call(Store::Database, 2)],
        work_us: 0,
        response_bytes: 9000,
        objects: 2,
        object_bytes: 30_000,
    };
    for keep_alive in [true, false] {
        let (from, to) = ends();
        let operations = vec![page.clone()];
        let spec = Spec::ThreeTier { from, to, users: 2, think_time_ms: 60_000, keep_alive, operations };
        let (mut machines, mut workload) = started(&spec, members(4, 1));
        workload.mark(&mut machines);
        machines.run(&mut workload, at_ms(120_000));
        let flows = workload.collect(machines.now).flows;
        assert!(flows.len() >= 2, "{}", flows.len());
        let (web, user) = (GuestId(0), GuestId(4));
        assert!(flows.iter().all(|flow| (flow.from, flow.to, flow.bytes) == (web, user, 69_000)), "{flows:?}");
        // The page, its three calls, two objects and their files: two ways each, and without keep-alive a handshake.
        let exchanges = 1 + 3 + 2 * 2;
        let each = if keep_alive { 2 } else { 3 };
        assert!(flows.iter().any(|flow| flow.took == LATENCY * (each * exchanges)), "{flows:?}");
        // Two users, and three stores that both may be asking.
        assert_eq!(machines.flows.len() <= 2 + 3 * 2, keep_alive, "{}", machines.flows.len());
    }
}

#[test]
fn the_handshake_of_a_transfer_is_in_one_of_its_times_only() {
    let (from, to) = ends();
    let spec = Spec::Transfers { from, to, bytes: 1000, concurrent: 2, pause_ms: 1, transfers: 0 };
    let (mut machines, mut workload) = started(&spec, members(1, 1));
    workload.mark(&mut machines);
    machines.run(&mut workload, at_ms(20));
    let flows = workload.collect(machines.now).flows;
    assert!(flows.len() > 4, "{flows:?}");
    let times = |flow: &FlowDone| (flow.took, flow.connected_took);
    assert!(flows.iter().all(|flow| times(flow) == (LATENCY * 2, Some(LATENCY))), "{flows:?}");
}

#[test]
fn iperf3_is_not_simulated() {
    let (from, to) = ends();
    assert!(Workload::new(&Spec::Iperf3 { from, to, flows: 1 }, members(1, 1)).is_none());
}

#[test]
fn a_burst_goes_to_one_receiver_from_all_senders_in_turn() {
    let mut spec = poisson(60, 0, false);
    let Spec::Poisson { to, burst_flows, background_flows, .. } = &mut spec else { unreachable!() };
    (*to, *burst_flows, *background_flows) = (Some("b".to_owned()), 6, 2);
    let (mut machines, mut workload) = started(&spec, members(3, 2));
    workload.mark(&mut machines);
    machines.run(&mut workload, at_ms(1_000_000));
    let flows = workload.collect(machines.now).flows;
    assert_eq!(flows.len(), 60);
    for burst in flows.chunks(6) {
        assert!(burst.iter().all(|flow| (flow.start, flow.to) == (burst[0].start, burst[0].to)), "{burst:?}");
        let each = |sender| burst.iter().filter(|flow| flow.from == GuestId(sender)).count();
        assert_eq!([each(0), each(1), each(2)], [2; 3]);
    }
    let mut endless: Vec<(GuestId, GuestId)> = (0..machines.flows.len())
        .filter(|flow| workload.is_background(FlowId(*flow as u32)))
        .map(|flow| machines.flows[flow].ends)
        .collect();
    endless.sort_unstable();
    let pairs = (0..3).flat_map(|from| [3, 3, 4, 4].map(|to| (GuestId(from), GuestId(to))));
    assert_eq!(endless, pairs.collect::<Vec<_>>());
}

#[test]
fn servers_work_on_what_they_answer() {
    let calls =
        vec![StoreCall { store: Store::Database, times: 2, request_bytes: 100, response_bytes: 2000, work_us: 1500 }];
    let page = Operation {
        name: "page".to_owned(),
        weight: 1,
        request_bytes: 500,
        calls,
        work_us: 4000,
        response_bytes: 9000,
        objects: 0,
        object_bytes: 1,
    };
    let (from, to) = ends();
    let spec = Spec::ThreeTier { from, to, users: 1, think_time_ms: 60_000, keep_alive: true, operations: vec![page] };
    let (mut machines, mut workload) = started(&spec, members(4, 1));
    workload.mark(&mut machines);
    machines.run(&mut workload, at_ms(300_000));
    let flows = workload.collect(machines.now).flows;
    let handshakes = [LATENCY * 2, LATENCY, Duration::ZERO];
    let times = handshakes.map(|extra| LATENCY * 6 + Duration::from_us(2 * 1500 + 4000) + extra);
    assert!(!flows.is_empty() && flows.iter().all(|flow| times.contains(&flow.took)), "{flows:?}");
}
