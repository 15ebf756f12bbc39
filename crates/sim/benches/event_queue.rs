//! How long the candidates for the event queue take per event, in the hold model: each step takes the next event out
//! and puts in one that follows it, so that as many wait as before. `docs/findings/simulator.md` has the figures;
//! `cargo bench --bench event_queue` measures anew.

use std::hint::black_box;
use std::time::Duration as Wall;

use criterion::{BenchmarkId, Criterion, Throughput};
use evenkeel_sim::event::binary::Binary;
use evenkeel_sim::event::quaternary::Quaternary;
use evenkeel_sim::event::radix::Radix;
use evenkeel_sim::event::wheel::Wheel;
use evenkeel_sim::event::{Agenda, Event, Onward, Order, PortId};
use evenkeel_sim::packet::ConnId;
use evenkeel_sim::time::{Duration, Instant};

const PENDING: [u32; 4] = [300, 1_000, 10_000, 100_000];
const STEPS: u64 = 20_000;

/// Draws how long after its cause an event happens, as the simulator's do (xorshift64).
struct Spans(u64);

impl Spans {
    /// Events keep their kind: if each step drew a kind, nearly all that waits would soon be timers, which stay
    /// longest.
    fn draw(&mut self, event: Event) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let number = self.0 >> 16;
        match (event, self.0 % 4) {
            // A timer, 4 ms to 200 ms later.
            (Event::Timer(_), _) => Duration::from_us(4_000 + number % 196_000),
            // A packet crosses a link that was idle: 50 us, and up to 1.2 us to send it.
            (_, 0) => Duration::from_ps(50_000_000 + number % 1_200_000),
            // A link's next packet: 100 ns to 10 us later.
            _ => Duration::from_ps(100_000 + number % 9_900_000),
        }
    }
}

struct Hold<Q> {
    events: Agenda<Q>,
    spans: Spans,
}

impl<Q: Order> Hold<Q> {
    /// A queue that has settled: its ports' events were replaced many times.
    fn new(pending: u32) -> Self {
        let mut spans = Spans(0x9e37_79b9_7f4a_7c15);
        let mut events = Agenda::<Q>::default();
        for index in 0..pending {
            // A quarter are timers, the rest busy ports.
            let timer = Event::Timer(ConnId { index, generation: 0 });
            let event = if index % 4 == 0 { timer } else { Event::Arrival(PortId(index), Onward::port(PortId(index))) };
            events.push(Instant::START + spans.draw(event), event);
        }
        let mut hold = Self { events, spans };
        hold.run(u64::from(pending) * 20);
        hold
    }

    fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            let Some((now, event)) = self.events.pop() else { return };
            let event = black_box(event);
            self.events.push(now + self.spans.draw(event), event);
        }
    }
}

fn measure<Q: Order>(bench: &mut Criterion, name: &str) {
    let mut group = bench.benchmark_group(name);
    group.throughput(Throughput::Elements(STEPS));
    for pending in PENDING {
        let mut hold = Hold::<Q>::new(pending);
        group.bench_function(BenchmarkId::from_parameter(pending), |bench| bench.iter(|| hold.run(STEPS)));
    }
}

fn main() {
    let mut bench = Criterion::default()
        .sample_size(15)
        .warm_up_time(Wall::from_millis(300))
        .measurement_time(Wall::from_millis(900))
        .configure_from_args();
    measure::<Binary>(&mut bench, "binary heap");
    measure::<Quaternary>(&mut bench, "4-ary heap");
    measure::<Radix>(&mut bench, "radix heap");
    measure::<Wheel<13>>(&mut bench, "wheel of 8 ns");
    measure::<Wheel<16>>(&mut bench, "wheel of 66 ns");
    measure::<Wheel<19>>(&mut bench, "wheel of 0.5 us");
    bench.final_summary();
}
