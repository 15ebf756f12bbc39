//! vSnoop and real guests: kernels of two ages behind a tap, their QEMU stopped again and again while they fetch files.
//! Every file comes whole, and no promise was made that the port and the guest had not given.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use evenkeel_algo::noise::Random;
use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::{self, KernelSeries};
use evenkeel_testbed::place::{index, ip};
use evenkeel_testbed::tap::TapVm;
use evenkeel_testbed::vm::Vm;
use evenkeel_testbed::watch::Watch;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::bed::{BYTES, Host, LIMIT, METRICS, SERVER, counter, pattern, queue_length, tcx_programs, wait_until};
use crate::others::{WEB, boot, fetch, serve_web, takes_the_programs};

/// Receive buffers of a VM's sockets: in a window as small as the default, only 14 segments have memory for certain.
const BUFFERS: &str = "4096 4194304 8388608";
const VSNOOP: &str = "[vsnoop]\nmode = \"enforce\"\nendpoint = \"observed\"";

/// Stops a process for up to 40 ms and lets it run for up to 40 ms, in turn, until told to end.
fn stop_and_go(process: Pid, ends: &AtomicBool) {
    let mut random = Random::new(3);
    while !ends.load(Ordering::SeqCst) {
        for signal in [Signal::SIGSTOP, Signal::SIGCONT] {
            kill(process, signal).unwrap();
            std::thread::sleep(Duration::from_millis(5 + random.below(35) as u64));
        }
    }
}

#[test]
fn guests_that_are_stopped_get_all_that_was_promised() {
    let interrupt = Interrupt::install().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_evenkeel"));
    let series = [KernelSeries::V6_12, KernelSeries::Newest];
    let images = prepare::prepare(&series, binary, &|line| println!("{line}")).unwrap();
    let mut host = Host::new();
    host.configure("off", METRICS, VSNOOP);
    let server = Vm::new("plain", "", "10.9.0.1");
    serve_web(&server);
    host.start();
    for image in &images {
        let directory = tempfile::tempdir().unwrap();
        let machine = boot(image, "vp5", 5, directory.path(), &interrupt);
        wait_until("the port", || host.ports().contains(&"vp5".to_owned()));
        let status = host.status();
        assert_eq!(status["ports"][0]["vsnoop"]["queue"], "free", "{}: {}", image.release, status["ports"][0]);
        // The agent sees by the tap alone what QEMU says of itself.
        let threads = serde_json::json!(machine.vcpu_threads().unwrap());
        wait_until("its virtual CPUs", || host.status()["ports"][0]["vsnoop"]["vcpus"]["threads"] == threads);
        machine.shell(&format!("echo {BUFFERS} > /proc/sys/net/ipv4/tcp_rmem")).unwrap();
        machine.shell(&format!("wget -q -O /tmp/data http://{}:{WEB}/data", server.address)).unwrap();
        let watch = Watch::start();
        let ends = Arc::new(AtomicBool::new(false));
        // A thread's number stands for its process.
        let process = Pid::from_raw(machine.vcpu_threads().unwrap()[0]);
        let scheduler = std::thread::spawn({
            let ends = Arc::clone(&ends);
            move || stop_and_go(process, &ends)
        });
        fetch(&machine, server.address);
        ends.store(true, Ordering::SeqCst);
        scheduler.join().unwrap();
        let proof = watch.judge(index("vp5"), index("plain"));
        let status = host.status();
        println!(
            "{}: {} ACKs to the server, {} early; {} of the guest's dropped",
            image.release,
            proof.acks,
            proof.early,
            counter(&status, "vp5", "vsnoop_dropped")
        );
        assert!(proof.early > 0, "nothing was acknowledged early");
        assert_eq!(counter(&status, "vp5", "vsnoop_failed"), 0);
        takes_the_programs(&machine, image);
        drop(machine);
        ip("link del vp5");
        wait_until("the port to go", || !host.ports().contains(&"vp5".to_owned()));
    }
}

const QUEUE: usize = 10;

#[test]
fn stopping_the_agent_keeps_its_promises() {
    keeps_its_promises(Some(Duration::from_millis(100)), |host| {
        assert_eq!(host.stop()["queues"], json!([{ "port": "vp1", "segments": QUEUE }]));
        assert_eq!(queue_length("vp1"), QUEUE as u64);
    });
}

/// A queue is not shortened below what it holds, however long the VM is off its core: `--stop` fails until it has run.
#[test]
fn a_queue_with_promises_in_it_is_not_shortened() {
    for is_killed in [false, true] {
        let (mut host, _vm) = keeps_its_promises(None, |host| {
            if is_killed {
                host.signal(Signal::SIGKILL);
            }
            // The second finds neither an agent nor programs.
            for _ in 0..2 {
                let said = host.stop_in_part();
                assert!(said.contains("vp1 is still 4000 packets long instead of 10: packets that were ack"), "{said}");
                assert_eq!((queue_length("vp1"), tcx_programs("vp1")), (4000, 0));
                assert!(!host.path("bpf/evenkeel").exists());
            }
        });
        assert_eq!(host.ended(), if is_killed { None } else { Some(4) });
        let stopped = host.stop();
        assert_eq!(stopped["queues"], json!([{ "port": "vp1", "segments": QUEUE }]), "{stopped}");
        assert_eq!(queue_length("vp1"), QUEUE as u64);
    }
}

#[test]
fn a_port_that_is_none_any_more_keeps_its_promises() {
    keeps_its_promises(Some(Duration::from_secs(3)), |_| {
        ip("link set vp1 name other1");
        wait_until("its queue", || queue_length("other1") == QUEUE as u64);
        assert_eq!(tcx_programs("other1"), 0);
        ip("link set other1 name vp1");
    });
}

/// A port's queue is lengthened, and more is promised than the old length holds. The VM gets its core back after
/// `absence`, or when `end` is over.
fn keeps_its_promises(absence: Option<Duration>, end: impl FnOnce(&Host) + Send) -> (Host, TapVm) {
    let mut host = Host::new();
    host.configure("off", METRICS, VSNOOP);
    let vm = TapVm::new("vp1", false, "10.9.0.1");
    ip(&format!("link set vp1 txqueuelen {QUEUE}"));
    let server = Vm::new("plain", "", "10.9.0.2");
    host.start();
    wait_until("the port's queue", || host.status()["ports"][0]["queue_segments"] == 4000);

    let bind = || {
        std::fs::write("/proc/sys/net/ipv4/tcp_rmem", BUFFERS).unwrap();
        TcpListener::bind(("10.9.0.1", SERVER)).unwrap()
    };
    let listener = vm.vm.spawn(bind).join().unwrap();
    let receiver = vm.vm.spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut data = Vec::new();
        stream.read_to_end(&mut data).expect("data that was acknowledged did not come");
        assert!(data.iter().enumerate().all(|(i, byte)| *byte == pattern(i)), "a transfer came damaged");
        data.len()
    });
    let (go, may_go) = mpsc::channel();
    let sender = server.spawn(move || {
        let mut stream = TcpStream::connect(("10.9.0.1", SERVER)).unwrap();
        let mut sent = 0;
        loop {
            stream.write_all(&(sent..sent + BYTES).map(pattern).collect::<Vec<_>>()).unwrap();
            sent += BYTES;
            if may_go.recv().is_err() {
                return sent;
            }
        }
    });
    let acked = || host.status()["ports"][0]["vsnoop"]["outstanding_segments"].as_u64().unwrap();
    // The VM's window has grown by then. A VM that has its core may be faster than its host.
    wait_until("an early ACK", || {
        let is_early = counter(&host.status(), "vp1", "vsnoop_early_acks") > 0;
        if !is_early && acked() == 0 {
            go.send(()).unwrap();
        }
        is_early
    });
    // A packet that meets another in the qdisc gets no early ACK, nor do those behind it before the VM has them.
    let is_promised = (0..5).any(|_| {
        wait_until("the VM to have it all", || acked() == 0);
        vm.run(false);
        go.send(()).unwrap();
        let end = Instant::now() + Duration::from_secs(2);
        while acked() <= 2 * QUEUE as u64 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let is_promised = acked() > 2 * QUEUE as u64;
        vm.run(!is_promised);
        is_promised
    });
    assert!(is_promised, "no more is promised than the old queue holds");
    drop(go);
    std::thread::scope(|scope| {
        let end = scope.spawn(|| end(&host));
        match absence {
            Some(absence) => std::thread::sleep(absence),
            None => {
                while !end.is_finished() {
                    std::thread::sleep(Duration::from_millis(10))
                }
            }
        }
        vm.run(true);
        end.join().unwrap();
    });
    let sent = sender.join().unwrap();
    assert_eq!(receiver.join().unwrap(), sent);
    (host, vm)
}
