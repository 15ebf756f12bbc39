//! No event is missed: a reader that has read all is woken up for the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_agent::datapath::{Datapath, intf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::conversation::syn;
use crate::ports::{Bed, KEY, settings};

/// Runs of the program with a SYN. A reader that looks without a barrier misses one wake-up in one or two hundred
/// thousand events.
const RUNS: u32 = 1_000_000;
/// Runs per call: few, so that the reader has always read all when the next events come.
const AT_ONCE: u32 = 4;
/// How long the reader sleeps before it looks whether something waits.
const SLEEP: Duration = Duration::from_millis(500);

#[test]
fn whoever_has_read_all_events_is_woken_up_for_the_next_one() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let mut port = settings(intf::EK_MODE_ENFORCE);
    port.proboscis.settings.probes = 1;
    port.proboscis.settings.budget_probes_per_s = u32::MAX;
    port.proboscis.settings.budget_burst_probes = u32::MAX;
    place.datapath.attach(place.pa, &port).unwrap();
    let mut host =
        intf::ek_host { version: intf::EK_INTF_VERSION, keys: 1, agent_until_ns: u64::MAX, ..Default::default() };
    host.key[0] = KEY;
    place.datapath.set_host(&host).unwrap();

    let (pins, pa) = (place.pins(), place.pa);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let sender = std::thread::spawn(move || {
        let mut datapath = Datapath::open(&pins).unwrap();
        for _ in 0..RUNS / AT_ONCE {
            datapath.trial("from_vm", pa, 0, &syn().frame(), AT_ONCE).unwrap();
        }
        over.store(true, Ordering::Release);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut seen = 0;
    runtime.block_on(async {
        let fd = place.datapath.events_fd().try_clone_to_owned().unwrap();
        // SAFETY: the descriptor is owned by what waits for it, and so open as long as that.
        let ring = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.unwrap();
        loop {
            if let Ok(ready) = tokio::time::timeout(SLEEP, ring.readable()).await {
                let read = place.datapath.events().unwrap();
                seen += read.events.len() as u64;
                if read.are_all {
                    ready.unwrap().clear_ready();
                }
                continue;
            }
            let is_last = is_over.load(Ordering::Acquire);
            place.datapath.events_wait();
            assert!(!place.datapath.events_wait(), "after {seen} events one waits that nobody was woken up for");
            if is_last {
                break;
            }
        }
    });
    sender.join().unwrap();
    let sent = place.count(pa, intf::EK_COUNT_PROBES_SENT);
    assert!(seen > 0);
    assert_eq!(seen + place.count(pa, intf::EK_COUNT_EVENTS_LOST), sent, "an event for each SYN with its one probe");
}
