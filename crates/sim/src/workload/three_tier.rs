//! A web application of three tiers (vFlood Table 1): users, a web front, and behind it a database, a cache and a file
//! store.
//!
//! A user asks the web front for a page and for the objects on it, one after the other, on one connection. For each the
//! web front calls the stores, one after the other, each time on a connection that no other request is using; it opens
//! another where all are in use. Without keep-alive every request has a connection of its own.

use std::collections::BTreeMap;

use evenkeel_scenario::format;

use super::{FlowDone, FlowId, Members, Random, Recording, Side, System};
use crate::packet::GuestId;
use crate::time::{Duration, Instant};

/// How long a server computes before it handles what has come meanwhile.
const QUANTUM: Duration = Duration::from_us(100);

/// Users, their pace, and what they do.
#[derive(Debug)]
pub(super) struct Settings {
    pub users: u32,
    pub think_time: Duration,
    pub keep_alive: bool,
    pub operations: Vec<Operation>,
}

/// What a user does: exchanges with the web front.
#[derive(Debug)]
pub(super) struct Operation {
    weight: u32,
    exchanges: Vec<Exchange>,
}

/// A request of a user, what the web front asks of the stores for it, and its response.
#[derive(Debug)]
struct Exchange {
    request_bytes: u64,
    calls: Vec<Call>,
    work: Duration,
    response_bytes: u64,
}

/// A request to a store, and its response.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// Its place among the servers.
    store: usize,
    request_bytes: u64,
    work: Duration,
    response_bytes: u64,
}

impl From<&format::Operation> for Operation {
    fn from(spec: &format::Operation) -> Self {
        let call = |call: &format::StoreCall| Call {
            store: call.store as usize,
            request_bytes: u64::from(call.request_bytes),
            work: Duration::from_us(u64::from(call.work_us)),
            response_bytes: u64::from(call.response_bytes),
        };
        let calls = |calls: &[format::StoreCall]| -> Vec<Call> {
            calls.iter().flat_map(|one| std::iter::repeat_n(call(one), one.times as usize)).collect()
        };
        let page = Exchange {
            request_bytes: u64::from(spec.request_bytes),
            calls: calls(&spec.calls),
            work: Duration::from_us(u64::from(spec.work_us)),
            response_bytes: u64::from(spec.response_bytes),
        };
        let object = |object_bytes: u32| {
            let read = Call {
                store: format::Store::Files as usize,
                request_bytes: u64::from(format::OBJECT_REQUEST_BYTES),
                work: Duration::ZERO,
                response_bytes: u64::from(object_bytes),
            };
            let request_bytes = u64::from(format::OBJECT_REQUEST_BYTES);
            Exchange { request_bytes, calls: vec![read], work: Duration::ZERO, response_bytes: u64::from(object_bytes) }
        };
        let objects = (0..spec.objects).map(|_| object(spec.object_bytes));
        Self { weight: spec.weight, exchanges: std::iter::once(page).chain(objects).collect() }
    }
}

impl Operation {
    /// Bytes that a user receives.
    fn bytes(&self) -> u64 {
        self.exchanges.iter().map(|exchange| exchange.response_bytes).sum()
    }
}

#[derive(Debug)]
pub(super) struct ThreeTier {
    settings: Settings,
    servers: Vec<GuestId>,
    users: Vec<User>,
    links: Vec<Link>,
    /// By user: what a server computes for the request. Jobs' tags follow those of all users, in the same order.
    jobs: Vec<Option<Job>>,
    /// By server: the unused connections to it.
    idle: Vec<Vec<usize>>,
    by_flow: BTreeMap<FlowId, End>,
}

/// What a server computes, and the answer that it then gives.
#[derive(Clone, Copy, Debug)]
struct Job {
    server: GuestId,
    left: Duration,
    answers: FlowId,
    response_bytes: u64,
}

/// The owner of a connection.
#[derive(Clone, Copy, Debug)]
enum End {
    User(usize),
    Link(usize),
}

/// A user, and how far the web front is with the request.
#[derive(Debug)]
struct User {
    guest: GuestId,
    random: Random,
    flow: Option<FlowId>,
    operation: usize,
    exchange: usize,
    /// The next call of the web front.
    call: usize,
    began: Option<Instant>,
    requests_bytes: u64,
    responses_bytes: u64,
}

/// A connection of the web front to a store.
#[derive(Debug)]
struct Link {
    flow: FlowId,
    store: usize,
    user: usize,
    call: Call,
    requests_bytes: u64,
    responses_bytes: u64,
}

impl ThreeTier {
    pub(super) fn new(members: &Members, settings: Settings) -> Self {
        let servers: Vec<GuestId> = members.from.iter().map(|member| member.guest).collect();
        let users = (0..settings.users as usize).map(|number| User {
            guest: members.to[number % members.to.len()].guest,
            random: Random::new(members.seed, 1 + number as u64),
            flow: None,
            operation: 0,
            exchange: 0,
            call: 0,
            began: None,
            requests_bytes: 0,
            responses_bytes: 0,
        });
        Self {
            users: users.collect(),
            jobs: vec![None; settings.users as usize],
            idle: vec![Vec::new(); servers.len()],
            servers,
            settings,
            links: Vec::new(),
            by_flow: BTreeMap::new(),
        }
    }

    pub(super) fn start(&mut self, system: &mut impl System) {
        let spread = self.settings.think_time.max(super::START_SPREAD);
        for (tag, user) in self.users.iter_mut().enumerate() {
            system.call_in(user.guest, Instant::START + user.random.span(spread), tag as u32);
        }
    }

    /// A user has finished thinking, or a server has computed a quantum.
    pub(super) fn on_call(&mut self, system: &mut impl System, tag: u32) {
        let number = tag as usize;
        let Some(user) = self.users.get_mut(number) else {
            return self.compute(system, number - self.users.len());
        };
        user.operation = draw(&mut user.random, &self.settings.operations);
        user.exchange = 0;
        user.began = Some(system.now());
        self.begin_exchange(system, number);
    }

    /// A server begins to work on a user's request, or answers at once.
    fn work(&mut self, system: &mut impl System, number: usize, job: Job) {
        self.jobs[number] = Some(job);
        self.compute(system, number);
    }

    /// Does the next quantum of a server's work. Between quanta, packets and other work get their turns.
    fn compute(&mut self, system: &mut impl System, number: usize) {
        let Some(job) = self.jobs.get_mut(number).and_then(Option::as_mut) else { return };
        if job.left == Duration::ZERO {
            let Job { answers, response_bytes, .. } = *job;
            self.jobs[number] = None;
            return system.write(answers, Side::Acceptor, response_bytes);
        }
        let quantum = job.left.min(QUANTUM);
        job.left = job.left - quantum;
        system.work(job.server, quantum);
        system.call_in(job.server, system.now(), (self.users.len() + number) as u32);
    }

    fn begin_exchange(&mut self, system: &mut impl System, number: usize) {
        let user = &mut self.users[number];
        match user.flow {
            Some(flow) => self.ask(system, number, flow),
            None => {
                let flow = system.open(user.guest, self.servers[format::Store::WEB]);
                user.flow = Some(flow);
                (user.requests_bytes, user.responses_bytes) = (0, 0);
                self.by_flow.insert(flow, End::User(number));
            }
        }
    }

    /// The response has come: the connection is free for others, or closed without keep-alive.
    fn release(&mut self, system: &mut impl System, flow: FlowId) {
        if !self.settings.keep_alive {
            self.by_flow.remove(&flow);
            system.close(flow);
        }
    }

    pub(super) fn on_established(&mut self, system: &mut impl System, flow: FlowId) {
        match self.by_flow.get(&flow) {
            Some(&End::User(number)) => self.ask(system, number, flow),
            Some(&End::Link(number)) => self.call_store(system, number, flow),
            None => {}
        }
    }

    pub(super) fn on_delivered(
        &mut self,
        system: &mut impl System,
        recording: &mut Recording,
        flow: FlowId,
        side: Side,
    ) {
        match (self.by_flow.get(&flow), side) {
            (Some(&End::User(number)), Side::Acceptor) => {
                self.users[number].call = 0;
                self.serve(system, number);
            }
            (Some(&End::User(number)), Side::Opener) => self.answered(system, recording, number, flow),
            (Some(&End::Link(number)), Side::Acceptor) => {
                let Link { user, call, .. } = self.links[number];
                let server = self.servers[call.store];
                let job = Job { server, left: call.work, answers: flow, response_bytes: call.response_bytes };
                self.work(system, user, job);
            }
            (Some(&End::Link(number)), Side::Opener) => {
                let Link { store, user, .. } = self.links[number];
                self.release(system, flow);
                self.idle[store].push(number);
                self.serve(system, user);
            }
            (None, _) => {}
        }
    }

    fn exchange(&self, number: usize) -> &Exchange {
        let user = &self.users[number];
        &self.settings.operations[user.operation].exchanges[user.exchange]
    }

    /// A user asks.
    fn ask(&mut self, system: &mut impl System, number: usize, flow: FlowId) {
        let Exchange { request_bytes, response_bytes, .. } = *self.exchange(number);
        let user = &mut self.users[number];
        user.requests_bytes += request_bytes;
        user.responses_bytes += response_bytes;
        system.expect(flow, Side::Acceptor, user.requests_bytes);
        system.expect(flow, Side::Opener, user.responses_bytes);
        system.write(flow, Side::Opener, request_bytes);
    }

    /// The web front makes its next call, or answers.
    fn serve(&mut self, system: &mut impl System, number: usize) {
        let exchange = self.exchange(number);
        let (left, response_bytes) = (exchange.work, exchange.response_bytes);
        let Some(call) = exchange.calls.get(self.users[number].call).copied() else {
            if let Some(answers) = self.users[number].flow {
                let server = self.servers[format::Store::WEB];
                self.work(system, number, Job { server, left, answers, response_bytes });
            }
            return;
        };
        self.users[number].call += 1;
        let idle = self.idle[call.store].pop();
        if let Some(link) = idle.filter(|_| self.settings.keep_alive) {
            (self.links[link].user, self.links[link].call) = (number, call);
            return self.call_store(system, link, self.links[link].flow);
        }
        let flow = system.open(self.servers[format::Store::WEB], self.servers[call.store]);
        let fresh = Link { flow, store: call.store, user: number, call, requests_bytes: 0, responses_bytes: 0 };
        let place = idle.unwrap_or(self.links.len());
        match self.links.get_mut(place) {
            Some(link) => *link = fresh,
            None => self.links.push(fresh),
        }
        self.by_flow.insert(flow, End::Link(place));
    }

    fn call_store(&mut self, system: &mut impl System, number: usize, flow: FlowId) {
        let link = &mut self.links[number];
        link.requests_bytes += link.call.request_bytes;
        link.responses_bytes += link.call.response_bytes;
        system.expect(flow, Side::Acceptor, link.requests_bytes);
        system.expect(flow, Side::Opener, link.responses_bytes);
        system.write(flow, Side::Opener, link.call.request_bytes);
    }

    /// A user has a response.
    fn answered(&mut self, system: &mut impl System, recording: &mut Recording, number: usize, flow: FlowId) {
        let now = system.now();
        let web = self.servers[format::Store::WEB];
        let user = &mut self.users[number];
        let exchanges = &self.settings.operations[user.operation].exchanges;
        user.exchange += 1;
        let is_last = user.exchange == exchanges.len();
        if !self.settings.keep_alive {
            user.flow = None;
        }
        self.release(system, flow);
        if !is_last {
            return self.begin_exchange(system, number);
        }
        let user = &mut self.users[number];
        if let Some(start) = user.began.take() {
            let bytes = self.settings.operations[user.operation].bytes();
            recording.flow(FlowDone {
                from: web,
                to: user.guest,
                bytes,
                start,
                took: now.since(start),
                connected_took: None,
            });
        }
        let thought = user.random.gap(self.settings.think_time.ps() as f64);
        system.call_in(user.guest, now + thought, number as u32);
    }

    /// Records what is under way at the end.
    pub(super) fn leave(&self, recording: &mut Recording, end: Instant) {
        for user in &self.users {
            if let Some(start) = user.began {
                recording.under_way(self.settings.operations[user.operation].bytes(), start, end);
            }
        }
    }
}

/// Draws one of the operations by their weights.
fn draw(random: &mut Random, operations: &[Operation]) -> usize {
    let all: u64 = operations.iter().map(|operation| u64::from(operation.weight)).sum();
    let mut place = random.below(all as usize) as u64;
    for (number, operation) in operations.iter().enumerate() {
        match place.checked_sub(u64::from(operation.weight)) {
            Some(rest) => place = rest,
            None => return number,
        }
    }
    0
}
