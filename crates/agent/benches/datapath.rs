//! What a packet costs in each program, by BPF_PROG_TEST_RUN, beside a port that no settings exist for: the program's entry and nothing
//! else. Needs root. `cargo bench -p evenkeel-agent --bench datapath`

#[path = "../tests/datapath/frames.rs"]
#[allow(dead_code, unused_imports)]
mod frames;
#[path = "../tests/datapath/handshake.rs"]
#[allow(dead_code, unused_imports)]
mod handshake;
#[path = "../tests/datapath/marks.rs"]
#[allow(dead_code, unused_imports)]
mod marks;
#[path = "../tests/datapath/place.rs"]
#[allow(dead_code, unused_imports)]
mod place;

use evenkeel_agent::datapath::intf;

use place::{Place, settings};

const ROUNDS: usize = 9;

/// Median of some rounds, in nanoseconds.
fn measure(place: &mut Place, what: &str, name: &str, port: u32, frame: &[u8], repeat: u32) {
    let mut times: Vec<u128> = (0..ROUNDS)
        .map(|_| place.datapath.trial(name, port, 0, frame, repeat).expect("root, and Linux 6.6").duration.as_nanos())
        .collect();
    times.sort_unstable();
    println!("{what:<58} {:>6} ns", times[ROUNDS / 2]);
}

fn main() {
    let mut place = Place::new(intf::EK_MODE_ENFORCE);
    marks::connect(&mut place);
    let (pa, pb) = (place.pa, place.pb);
    let mut port = settings(intf::EK_MODE_ENFORCE);
    port.proboscis.budget_probes_per_s = 1_000_000_000;
    port.proboscis.budget_burst_probes = 1_000_000_000;
    place.datapath.attach(pa, &port).expect("the port is there");
    let (data, ack) = (marks::data(0).frame(), marks::ack(0, 0).frame());
    let mut other = data.clone();
    other[23] = 17;
    measure(&mut place, "to_vm, a port without settings", "to_vm", 1, &ack, 1_000_000);
    measure(&mut place, "from_vm, a port without settings", "from_vm", 1, &data, 1_000_000);
    measure(&mut place, "to_vm, not TCP", "to_vm", pa, &other, 1_000_000);
    measure(&mut place, "to_vm, an unknown flow", "to_vm", pb, &ack, 1_000_000);
    measure(&mut place, "to_vm, an ACK", "to_vm", pa, &ack, 1_000_000);
    measure(&mut place, "to_vm, data", "to_vm", pb, &data, 1_000_000);
    // After the first run the frame is ECN-capable already.
    measure(&mut place, "from_vm, data", "from_vm", pa, &data, 1_000_000);
    measure(&mut place, "from_vm, an ACK", "from_vm", pb, &ack, 1_000_000);
    measure(&mut place, "from_vm, a SYN with ten probes sent", "from_vm", pa, &handshake::syn().frame(), 1000);
    measure(
        &mut place,
        "from_vm, a SYN-ACK with its report and window",
        "from_vm",
        pb,
        &handshake::synack().frame(),
        1000,
    );
}
