//! Events of the datapath that nobody was woken up for are read all the same.

use std::ffi::CString;
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_testbed::place::ip;
use evenkeel_testbed::vm::Vm;
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::sys::signal::Signal;

use crate::bed::{Host, LIMIT, METRICS, SERVER, connect, receive, wait_until};

const PAGE: usize = 4096;
/// How long a SYN waits for an answer. The datapath tells a stopped agent of SYNs for at least as long; if a SYN is
/// later, the test tries again.
const TIMEOUT: Duration = Duration::from_millis(100);

/// The two pages of a ring that say where its reader and its writer are.
struct Places {
    reader: NonNull<AtomicU64>,
    writer: NonNull<AtomicU64>,
}

impl Places {
    fn of(pin: &str) -> Self {
        let path = CString::new(pin).unwrap();
        // SAFETY: the path is a string of C, and the descriptor is new.
        let map = unsafe { OwnedFd::from_raw_fd(libbpf_sys::bpf_obj_get(path.as_ptr())) };
        let page = |number: usize, access| {
            let at = (number * PAGE) as libc::off_t;
            // SAFETY: memory that nobody else has; it stays mapped.
            unsafe { mmap(None, NonZeroUsize::new(PAGE).unwrap(), access, MapFlags::MAP_SHARED, &map, at) }.unwrap()
        };
        let reader = page(0, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE).cast();
        Self { reader, writer: page(1, ProtFlags::PROT_READ).cast() }
    }

    fn reader(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped, and begins with that number.
        unsafe { self.reader.as_ref() }
    }

    fn written(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.writer.as_ref() }.load(Ordering::Acquire)
    }
}

/// A SYN that nobody answers.
fn knock(client: &Vm, server: SocketAddr) {
    client.spawn(move || std::net::TcpStream::connect_timeout(&server, TIMEOUT).unwrap_err()).join().unwrap();
}

#[test]
fn events_without_a_wake_up_are_found_and_said() {
    let (host, server, client) = Host::with_server_and_client("enforce");
    let address = server.address;
    client.spawn(move || receive(&mut connect(address))).join().unwrap();
    let places = Places::of(&host.text("bpf/evenkeel/events"));
    assert_eq!(host.status()["agent"]["events_found_waiting"], 0);
    let resent = || host.status()["agent"]["syns_resent"].as_u64().unwrap();
    ip("link set vp1 nomaster");

    // As after a lost wake-up: an event is there, and the reader was elsewhere when it came.
    let state = format!("/proc/{}/stat", host.status()["pid"]);
    let end = Instant::now() + LIMIT;
    loop {
        wait_until("the ring to be empty", || places.reader().load(Ordering::Acquire) == places.written());
        host.signal(Signal::SIGSTOP);
        wait_until("the agent to stand still", || fs::read_to_string(&state).unwrap().contains(") T "));
        let at = places.written();
        if places.reader().compare_exchange(at, at - 8, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            knock(&client, SocketAddr::from((address, SERVER)));
            places.reader().store(at, Ordering::Release);
        }
        host.signal(Signal::SIGCONT);
        if places.written() != at {
            break;
        }
        assert!(Instant::now() < end, "the datapath tells of no SYN");
    }
    wait_until("the events to be found", || host.status()["agent"]["events_found_waiting"].as_u64() > Some(0));

    // The agent hears of events again.
    let before = resent();
    knock(&client, SocketAddr::from((address, SERVER)));
    wait_until("a SYN to be sent again", || resent() > before);
    let metrics = host.metrics(METRICS).unwrap();
    assert!(metrics.contains("evenkeel_host_agent_events_found_waiting_total "), "{metrics}");
}
