//! Real TCP to a VM behind a tap that loses its core again and again, with vSnoop at its port. All data arrives as it
//! was sent, and every promise on the wire is one that the port and the VM had given.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_agent::datapath::{Datapath, intf};
use evenkeel_algo::noise::Random;
use evenkeel_testbed::place::{index, ip, leave};
use evenkeel_testbed::tap::TapVm;
use evenkeel_testbed::thread;
use evenkeel_testbed::vm::{Vm, bridge, tcp_counter};
use evenkeel_testbed::watch::{Proof, Watch};

use crate::ports::{A, B, vcpus};

const LIMIT: Duration = Duration::from_secs(60);
const PORT: u16 = 8000;
/// Where nobody listens.
const NOBODY: u16 = 9;

/// What the sender and the receiver do.
#[derive(Clone, Copy)]
struct Case {
    mode: u32,
    queue_segments: u32,
    has_offloads: bool,
    bytes: usize,
    /// Bytes of one write.
    write_bytes: usize,
    connections: usize,
    /// Others send the same VM more packets than its queue takes.
    is_crowded: bool,
    /// The application looks away between reads.
    is_slow: bool,
}

const USUAL: Case = Case {
    mode: intf::EK_MODE_ENFORCE,
    queue_segments: 1000,
    has_offloads: true,
    bytes: 8 << 20,
    write_bytes: 64 << 10,
    connections: 1,
    is_crowded: false,
    is_slow: false,
};

struct Outcome {
    counters: intf::ek_counters,
    proof: Proof,
}

impl Outcome {
    fn count(&self, which: u32) -> u64 {
        self.counters.value[which as usize]
    }
}

fn pattern(connection: usize, at: usize) -> u8 {
    ((at + connection) % 251) as u8
}

fn settings(case: &Case) -> intf::ek_port {
    intf::ek_port {
        vsnoop: intf::ek_vsnoop_settings {
            mode: case.mode,
            settings: intf::vsnoop_settings { budget_segments: case.queue_segments / 2 },
            reserve_segments: case.queue_segments / 4,
            endpoint: intf::EK_VSNOOP_ENDPOINT_OBSERVED,
            vcpus: vcpus(&[thread::asleep()]),
        },
        ..Default::default()
    }
}

/// Takes the core away for a while, gives it back for a while, until told to end.
fn slices(vm: &TapVm, ends: &AtomicBool) {
    let mut random = Random::new(7);
    while !ends.load(Ordering::SeqCst) {
        for runs in [false, true] {
            vm.run(runs);
            std::thread::sleep(Duration::from_millis(5 + random.below(20) as u64));
        }
    }
    vm.run(true);
}

fn receive(listener: &TcpListener, case: &Case) {
    for _ in 0..case.connections {
        let (mut stream, _) = listener.accept().unwrap();
        let case = *case;
        std::thread::spawn(move || {
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let mut which = [0];
            stream.read_exact(&mut which).unwrap();
            let mut buffer = vec![0; 256 << 10];
            let mut total = 0;
            while total < case.bytes {
                let length = stream.read(&mut buffer).expect("data that was acknowledged did not come");
                assert!(length > 0, "the connection ended after {total} bytes");
                let damaged = (0..length).find(|i| buffer[*i] != pattern(which[0].into(), total + i));
                assert_eq!(damaged, None, "damaged after {total} bytes");
                total += length;
                if case.is_slow {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            stream.write_all(b"!").unwrap();
        });
    }
}

fn send(connection: usize, case: &Case) {
    let mut stream = TcpStream::connect((B, PORT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream.write_all(&[connection as u8]).unwrap();
    let data: Vec<u8> = (0..case.bytes).map(|at| pattern(connection, at)).collect();
    for piece in data.chunks(case.write_bytes) {
        stream.write_all(piece).unwrap();
    }
    let mut answer = [0];
    stream.read_exact(&mut answer).expect("data that was acknowledged did not come");
}

/// The VM's queue has overflowed.
fn wait_until_full() {
    let end = Instant::now() + LIMIT;
    let dropped = || {
        let links: serde_json::Value = serde_json::from_str(&ip("-s -j link show vnet0")).unwrap();
        links[0]["stats64"]["tx"]["dropped"].as_u64().unwrap()
    };
    while dropped() == 0 {
        assert!(Instant::now() < end, "the queue was never full");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn transfer(case: Case) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    leave(directory.path());
    bridge();
    let sender = Vm::new("pa", "", A);
    let vm = Arc::new(TapVm::new("vnet0", case.has_offloads, B));
    ip(&format!("link set vnet0 txqueuelen {}", case.queue_segments));
    let mut datapath = Datapath::open(&directory.path().join("evenkeel")).unwrap();
    let (port, wire) = (index("vnet0"), index("pa"));
    datapath.attach(port, &settings(&case)).unwrap();
    let host = intf::ek_host { version: intf::EK_INTF_VERSION, ..Default::default() };
    datapath.set_host(&host).unwrap();

    let watch = Watch::start();
    let bind = || {
        // In a window as small as the default, only 14 segments have memory for certain.
        std::fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 4194304 8388608").unwrap();
        TcpListener::bind((B, PORT)).unwrap()
    };
    let listener = vm.vm.spawn(bind).join().unwrap();
    let receiver = vm.vm.spawn(move || receive(&listener, &case));
    let ends = Arc::new(AtomicBool::new(false));
    let scheduler = std::thread::spawn({
        let (vm, ends) = (Arc::clone(&vm), Arc::clone(&ends));
        move || slices(&vm, &ends)
    });
    let crowd = case.is_crowded.then(|| {
        let ends = Arc::clone(&ends);
        sender.spawn(move || {
            let socket = UdpSocket::bind((A, 0)).unwrap();
            while !ends.load(Ordering::SeqCst) {
                for _ in 0..200 {
                    let _ = socket.send_to(&[0; 100], (B, NOBODY));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    });
    if case.is_crowded {
        wait_until_full();
    }
    let senders: Vec<_> =
        (0..case.connections).map(|connection| sender.spawn(move || send(connection, &case))).collect();
    let results: Vec<_> = senders.into_iter().map(std::thread::JoinHandle::join).collect();
    ends.store(true, Ordering::SeqCst);
    scheduler.join().unwrap();
    if let Some(crowd) = crowd {
        crowd.join().unwrap();
    }
    let counters = datapath.counters(port).unwrap();
    println!(
        "{} early ACKs, {} dropped ones, {} no buffer, {} no place, {} unexpected",
        counters.value[intf::EK_COUNT_VSNOOP_EARLY_ACKS as usize],
        counters.value[intf::EK_COUNT_VSNOOP_DROPPED as usize],
        counters.value[intf::EK_COUNT_VSNOOP_NO_BUFFER as usize],
        counters.value[intf::EK_COUNT_VSNOOP_NO_PLACE as usize],
        counters.value[intf::EK_COUNT_VSNOOP_UNEXPECTED_SEQUENCE as usize],
    );
    for result in results {
        result.unwrap();
    }
    receiver.join().unwrap();
    let wrong = || (tcp_counter("InCsumErrors"), tcp_counter("OutRsts"));
    let in_vm = vm.vm.spawn(wrong).join().unwrap();
    assert_eq!((sender.spawn(wrong).join().unwrap(), in_vm), ((0, 0), (0, 0)), "checksum errors and resets");
    // Nothing is left behind by connections that are closed on both sides.
    Outcome { counters, proof: watch.judge(port, wire) }
}

fn promises_are_kept(case: Case) -> Outcome {
    let outcome = transfer(case);
    println!("{:?}", outcome.proof);
    assert!(outcome.proof.early > 0, "nothing was acknowledged before the VM did it");
    assert_eq!(outcome.count(intf::EK_COUNT_VSNOOP_FAILED), 0);
    outcome
}

#[test]
fn a_transfer_in_large_packets() {
    let outcome = promises_are_kept(USUAL);
    assert!(outcome.count(intf::EK_COUNT_VSNOOP_DROPPED) > 0);
}

#[test]
fn a_transfer_in_single_segments() {
    promises_are_kept(Case { has_offloads: false, bytes: 4 << 20, ..USUAL });
}

#[test]
fn several_connections_share_the_queue() {
    promises_are_kept(Case { connections: 4, bytes: 2 << 20, queue_segments: 200, has_offloads: false, ..USUAL });
}

#[test]
fn a_queue_that_overflows_drops_nothing_that_was_promised() {
    // The others may leave no place during a whole transfer, or all that finds none may exceed the VM's memory, too.
    let has_early_when_full = (0..10).any(|_| {
        let outcome = transfer(Case { is_crowded: true, bytes: 1 << 20, queue_segments: 200, ..USUAL });
        println!("{:?}", outcome.proof);
        assert_eq!(outcome.count(intf::EK_COUNT_VSNOOP_FAILED), 0);
        outcome.proof.early > 0 && outcome.count(intf::EK_COUNT_VSNOOP_NO_PLACE) > 0
    });
    assert!(has_early_when_full, "no transfer had early ACKs and found the queue full");
}

#[test]
fn an_application_that_reads_slowly() {
    promises_are_kept(Case { is_slow: true, bytes: 4 << 20, ..USUAL });
}

#[test]
fn small_segments_for_an_application_that_reads_slowly() {
    promises_are_kept(Case { is_slow: true, bytes: 256 << 10, write_bytes: 50, has_offloads: false, ..USUAL });
}

#[test]
fn observed_the_vm_acknowledges_itself() {
    let outcome = transfer(Case { mode: intf::EK_MODE_OBSERVE, ..USUAL });
    assert!(outcome.count(intf::EK_COUNT_VSNOOP_EARLY_ACKS) > 0);
    assert_eq!(outcome.proof.early, 0);
}
