//! A flood of SYNs from one VM. `make flood` sends a million; `EVENKEEL_FLOOD` says how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_algo::frames::{LINUX_OPTIONS, SYN, Segment};
use evenkeel_testbed::place::{Tap, index, ip};
use evenkeel_testbed::vm::{Vm, tcp_counter};
use serde_json::Value;

use crate::bed::{Host, LIMIT, connect, counter, receive, serve, wait_until};

const BUDGET_PER_S: f64 = 20_000.0;
const BURST: u64 = 2_000;
/// Transfers before the flood, to compare with.
const TRANSFERS: usize = 30;

fn syns() -> u64 {
    match std::env::var("EVENKEEL_FLOOD") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("EVENKEEL_FLOOD is a number of SYNs, not {text:?}")),
        Err(_) => 50_000,
    }
}

/// Puts SYNs with ever new ports and sequence numbers on a VM's wire.
fn flood(vm: &Vm, target: &str, mac: [u8; 6], count: u64) {
    let (source, target) = (vm.address.to_string(), target.to_owned());
    vm.spawn(move || {
        // Bound to the device, it sends as well as it sees.
        let socket = Tap::new(index("eth0"));
        for i in 0..count {
            let port = 1024 + (i % 60_000) as u16;
            let options = LINUX_OPTIONS.to_vec();
            let seq = i as u32;
            let mut frame = Segment { options, seq, ..Segment::new((&source, port), (&target, 9), SYN) }.frame();
            frame[..6].copy_from_slice(&mac);
            socket.send(&frame);
        }
    })
    .join()
    .unwrap();
}

/// Makes one transfer after the other; returns how long each took, with connecting.
fn transfers(vm: &Vm, server: std::net::Ipv4Addr, more: impl Fn(usize) -> bool + Send + 'static) -> Vec<Duration> {
    vm.spawn(move || {
        let mut times = Vec::new();
        while more(times.len()) {
            let start = Instant::now();
            receive(&mut connect(server));
            times.push(start.elapsed());
        }
        times
    })
    .join()
    .unwrap()
}

fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    format!("{} transfers, median {:.2} ms, p90 {:.2}, most {:.2}", times.len(), at(50), at(90), at(100))
}

#[test]
fn a_flood_of_syns_harms_no_other_vm() {
    let (host, server, client) = Host::with_server_and_client("enforce");
    let (target, flooder) = (host.add_vm(3), host.add_vm(4));
    serve(&target);
    wait_until("the ports", || host.ports() == ["vp1", "vp2", "vp3", "vp4"]);
    // The target's host answers probes, so every SYN that gets some is work for the agent, too.
    let address = target.address;
    flooder.spawn(move || receive(&mut connect(address))).join().unwrap();

    let address = server.address;
    let resets = || tcp_counter("OutRsts") + tcp_counter("EstabResets");
    let resets_before = client.spawn(resets).join().unwrap();
    let count = syns();
    let links = target.spawn(|| ip("-j link show eth0")).join().unwrap();
    let links: Value = serde_json::from_str(&links).unwrap();
    let mac = links[0]["address"].as_str().unwrap().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
    let mac: Vec<u8> = mac.collect();
    // The same flood, first with a datapath that reads no packet: the others' times then are the baseline.
    let others_during_flood = || {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        std::thread::scope(|scope| {
            let more = move |done| done == 0 || !over.load(Ordering::Relaxed);
            let working = scope.spawn(|| transfers(&client, address, more));
            flood(&flooder, "10.9.0.3", mac.clone().try_into().unwrap(), count);
            is_over.store(true, Ordering::Relaxed);
            working.join().unwrap()
        })
    };
    host.switch("off");
    let mut before = transfers(&client, address, |done| done < TRANSFERS);
    let mut during_off = others_during_flood();
    host.switch("enforce");

    // A connection that lives through it.
    let (hold, is_held) = std::sync::mpsc::channel::<()>();
    let (sender, tuple) = std::sync::mpsc::channel();
    let open = client.spawn(move || {
        let mut stream = connect(address);
        sender.send(format!("{}-{}", stream.local_addr().unwrap(), stream.peer_addr().unwrap())).unwrap();
        is_held.recv().unwrap();
        receive(&mut stream);
    });
    let tuple = tuple.recv_timeout(LIMIT).unwrap();

    let status = host.status();
    let probes_before = counter(&status, "vp4", "probes_sent") + counter(&status, "vp4", "probes_failed");
    let syns_before = counter(&status, "vp4", "syns_from_vm");
    let start = Instant::now();
    let mut during = others_during_flood();
    let took = start.elapsed();
    let status = host.status();

    // All SYNs were seen, and probes stayed within the budget of the time that it took.
    let seen = counter(&status, "vp4", "syns_from_vm") - syns_before;
    assert!(seen >= count, "{seen} SYNs seen of {count}");
    let sent = counter(&status, "vp4", "probes_sent") + counter(&status, "vp4", "probes_failed") - probes_before;
    let allowed = BURST + (start.elapsed().as_secs_f64() * BUDGET_PER_S) as u64 + 10;
    assert!(sent <= allowed, "{sent} probes, {allowed} allowed");
    let resent = status["agent"]["probes_resent"].as_u64().unwrap();
    let refused = counter(&status, "vp4", "probes_refused");
    println!(
        "{count} SYNs in {took:.1?}: {sent} probes ({resent} trains again), {refused} SYNs without for the budget"
    );
    println!("others, no flood:      {}", spread(&mut before));
    println!("others, flood at off:  {}", spread(&mut during_off));
    println!("others, flood enforce: {}", spread(&mut during));

    // The others' connections: not one reset, none forgotten, and the agent is there for them.
    assert_eq!(client.spawn(resets).join().unwrap(), resets_before);
    host.ask(&["flows", "--explain", &tuple]).unwrap();
    hold.send(()).unwrap();
    open.join().unwrap();
    transfers(&client, address, |done| done < 1);
    assert_eq!(counter(&host.status(), "vp2", "probes_refused"), 0);
}
