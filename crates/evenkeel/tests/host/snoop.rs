//! vSnoop and real guests: kernels of two ages behind a tap, their QEMU stopped again and again while they fetch files. Every file comes
//! whole, and no promise was made that the port and the guest had not given.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::{self, KernelSeries};
use evenkeel_testbed::noise::Random;
use evenkeel_testbed::place::index;
use evenkeel_testbed::vm::Vm;
use evenkeel_testbed::watch::Watch;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bed::{Host, METRICS, counter, wait_until};
use crate::others::{WEB, boot, fetch, serve_web, takes_the_programs};

const VSNOOP: &str = "[vsnoop]\nmode = \"enforce\"";

/// Stops a process for up to 40 ms, lets it go on for as long, until told to end.
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
        assert_eq!(status["ports"][0]["vsnoop"]["place"], "free", "{}: {}", image.release, status["ports"][0]);
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
        evenkeel_testbed::place::ip("link del vp5");
        wait_until("the port to go", || !host.ports().contains(&"vp5".to_owned()));
    }
}
