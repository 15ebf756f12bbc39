//! What an ACK and a data segment cost in order, in nanoseconds.

use std::hint::black_box;
use std::time::Instant as Wall;

use evenkeel_sim::tcp::{Connection, Env, Outgoing, Role, TcpConfig};
use evenkeel_sim::time::{Duration, Instant};

fn main() {
    let config = TcpConfig::current(0);
    let mut ends = [Connection::new(&config, Role::Client), Connection::new(&config, Role::Server)];
    let (mut out, mut notes): (Vec<Outgoing>, _) = (Vec::new(), Vec::new());
    let mut now = Instant::START + Duration::from_s(1);
    ends[0].connect(&mut Env { now, config: &config, out: &mut out, notes: &mut notes, pvtcp: None });
    let mut spent = [std::time::Duration::ZERO; 2];
    let mut handled = [0u32; 2];
    for side in [1, 0, 1].into_iter().chain((0..200_000).map(|round| if round % 2 == 0 { 1 } else { 0 })) {
        now += Duration::from_us(50);
        let mut packets = std::mem::take(&mut out);
        let mut env = Env { now, config: &config, out: &mut out, notes: &mut notes, pvtcp: None };
        if handled[0] == 1 {
            ends[0].write(&mut env, 1 << 40);
        }
        let begin = Wall::now();
        for packet in &packets {
            ends[side].on_segment(&mut env, black_box(&packet.segment), false);
            ends[side].on_read(&mut env);
        }
        spent[side] += begin.elapsed();
        handled[side] += packets.len() as u32;
        env.notes.clear();
        packets.clear();
        if out.is_empty() {
            now += Duration::from_ms(50);
            for end in &mut ends {
                end.on_timer(&mut Env { now, config: &config, out: &mut out, notes: &mut notes, pvtcp: None });
            }
        }
    }
    for (side, what) in ["ACK (and the segments that it lets go)", "data segment (and its ACK)"].iter().enumerate() {
        let ns = spent[side].as_nanos() / u128::from(handled[side].max(1));
        println!("{what}: {ns} ns, {} of them", handled[side]);
    }
    println!("Connection: {} bytes; delivered {}", size_of::<Connection>(), ends[1].delivered());
}
