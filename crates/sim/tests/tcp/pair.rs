//! Two connections and a pipe between them, in virtual time.

use std::collections::BTreeMap;

use evenkeel_algo::pvtcp::{Settings, Vcpu};
use evenkeel_sim::packet::{Ecn, Flags, Segment};
use evenkeel_sim::tcp::{Absences, Connection, Env, Note, Outgoing, Role, TcpConfig, TimerKind};
use evenkeel_sim::time::{Duration, Instant};

/// What happens to a packet in the pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    pub drop: bool,
    pub duplicate: bool,
    pub mark: bool,
    pub late: Duration,
}

/// Decides about each packet: its direction (0: from the client), its number among those of its direction, the packet.
pub type Judge = Box<dyn FnMut(usize, u64, &mut Outgoing) -> Fate>;

pub struct Pair {
    pub now: Instant,
    pub ends: [Connection; 2],
    pub configs: [TcpConfig; 2],
    pub notes: [Vec<Note>; 2],
    /// What each end sent, and when.
    pub sent: [Vec<(Instant, Outgoing)>; 2],
    pub delay: Duration,
    pub judge: Judge,
    /// PVTCP in the client, and whether it acts.
    pub pvtcp: Option<(Vcpu, Settings, bool)>,
    /// Retransmit timers and arrivals of the client wait until then.
    pub client_off_until: Instant,
    queue: BTreeMap<(Instant, u64), (usize, Segment, bool)>,
    number: u64,
    serialized: [Instant; 2],
    pub per_packet: Duration,
}

impl Pair {
    pub fn new(client: TcpConfig, server: TcpConfig) -> Self {
        Self {
            now: Instant::START + Duration::from_s(1),
            ends: [Connection::new(&client, Role::Client), Connection::new(&server, Role::Server)],
            configs: [client, server],
            notes: Default::default(),
            sent: Default::default(),
            delay: Duration::from_ms(5),
            judge: Box::new(|_, _, _| Fate::default()),
            pvtcp: None,
            client_off_until: Instant::START,
            queue: BTreeMap::new(),
            number: 0,
            serialized: [Instant::START; 2],
            per_packet: Duration::from_us(10),
        }
    }

    /// A pair that has shaken hands, with nothing on its way.
    pub fn established(config: TcpConfig) -> Self {
        let mut pair = Self::new(config.clone(), config);
        pair.connect();
        pair.run_for(Duration::from_ms(100));
        assert!(pair.ends.iter().all(Connection::is_established));
        pair.forget();
        pair
    }

    pub fn forget(&mut self) {
        self.sent = Default::default();
        self.notes = Default::default();
    }

    pub fn connect(&mut self) {
        self.with(0, Connection::connect);
    }

    pub fn write(&mut self, side: usize, bytes: u64) -> u64 {
        self.with(side, |end, env| end.write(env, bytes))
    }

    pub fn with<T>(&mut self, side: usize, act: impl FnOnce(&mut Connection, &mut Env) -> T) -> T {
        let mut out = Vec::new();
        let pvtcp = self.pvtcp.as_ref().filter(|_| side == 0);
        let pvtcp = pvtcp.map(|(vcpu, settings, acts)| Absences { vcpu, settings, acts: *acts });
        let mut env =
            Env { now: self.now, config: &self.configs[side], out: &mut out, notes: &mut self.notes[side], pvtcp };
        let result = act(&mut self.ends[side], &mut env);
        for mut packet in out {
            let number = self.sent[side].len() as u64;
            self.sent[side].push((self.now, packet));
            let fate = (self.judge)(side, number, &mut packet);
            let start = self.serialized[side].max(self.now);
            self.serialized[side] = start + self.per_packet;
            let at = start + self.per_packet + self.delay + fate.late;
            let marked = fate.mark && packet.ecn != Ecn::NotEct;
            for _ in 0..(1 + usize::from(fate.duplicate)) * usize::from(!fate.drop) {
                self.number += 1;
                self.queue.insert((at, self.number), (1 - side, packet.segment, marked));
            }
        }
        result
    }

    fn shifted(&self, side: usize, at: Instant) -> Instant {
        if side == 0 { at.max(self.client_off_until) } else { at }
    }

    /// Does what is next, timers before packets, as guests do; returns false if there is nothing.
    pub fn step(&mut self, until: Instant) -> bool {
        let timers = [0, 1].map(|side| self.ends[side].next_timer().map(|(_, at)| self.shifted(side, at)));
        let packet = self.queue.iter().map(|(key, value)| (self.shifted(value.0, key.0), *key)).min();
        let timer = (0..2).filter_map(|side| timers[side].map(|at| (at, side))).min();
        let (at, side, key) = match (timer, packet) {
            (Some((at, side)), Some((arrival, _))) if at <= arrival => (at, side, None),
            (_, Some((arrival, key))) => (arrival, 0, Some(key)),
            (Some((at, side)), None) => (at, side, None),
            (None, None) => return false,
        };
        if at > until {
            return false;
        }
        self.now = self.now.max(at);
        match key.and_then(|key| self.queue.remove(&key)) {
            Some((side, segment, marked)) => self.with(side, |end, env| {
                end.on_segment(env, &segment, marked);
                end.on_read(env);
            }),
            None => self.with(side, Connection::on_timer),
        }
        true
    }

    pub fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        while self.step(until) {}
        self.now = until;
    }

    /// Runs until nothing is left to do.
    pub fn finish(&mut self) {
        let until = self.now + Duration::from_s(3000);
        while self.step(until) {}
    }

    /// Numbers of the data segments that an end sent: index of the segment in the stream, `r` if retransmitted.
    pub fn trace(&self, side: usize) -> String {
        let mss = self.configs[side].mss_bytes;
        let start = self.configs[side].initial_sequence.wrapping_add(1);
        let data = self.sent[side].iter().filter(|(_, packet)| packet.segment.payload_bytes > 0);
        data.map(|(_, packet)| {
            let index = packet.segment.seq.wrapping_sub(start) / mss;
            format!("{index}{}", if packet.retransmission { "r" } else { "" })
        })
        .collect::<Vec<_>>()
        .join(" ")
    }

    pub fn count(&self, side: usize, note: fn(&Note) -> bool) -> usize {
        self.notes[side].iter().filter(|&told| note(told)).count()
    }

    pub fn timer(&self, side: usize) -> Option<TimerKind> {
        self.ends[side].next_timer().map(|(kind, _)| kind)
    }
}

/// Drops these data segments: an index in the stream, and how many times.
pub fn drop_data(mss: u32, list: &[(u32, u32)]) -> Judge {
    let mut left: BTreeMap<u32, u32> = list.iter().copied().collect();
    Box::new(move |side, _, packet| {
        let index = packet.segment.seq.wrapping_sub(1) / mss;
        let hit = side == 0 && packet.segment.payload_bytes > 0 && !packet.segment.flags.has(Flags::SYN);
        let times = left.get_mut(&index).filter(|times| hit && **times > 0);
        Fate { drop: times.map(|times| *times -= 1).is_some(), ..Fate::default() }
    })
}
