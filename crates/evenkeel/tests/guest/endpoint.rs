//! What a real guest says of its own TCP, to its host and in its own status.

use evenkeel_agent::channel::{Reason, Reasons};

use crate::bed::{Bed, PORT};

const RPS: &str = "/sys/class/net/eth0/queues/rx-0/rps_cpus";
const SHRINK_WINDOW: &str = "/proc/sys/net/ipv4/tcp_shrink_window";

/// On a guest as it was booted; leaves no agent behind.
pub fn vouches(bed: &Bed) {
    let said = || bed.channels.endpoint(PORT);
    let says = |what: &str, reasons: Reasons| {
        bed.wait_until(what, || said() == Some(reasons));
        assert_eq!(bed.status()["endpoint_objections"], serde_json::json!(reasons.words()));
    };
    let yes = Reasons::default();
    assert!(bed.status()["endpoint_objections"].is_null());
    bed.start_agent("");
    says("a guest as it was booted to vouch", yes);
    assert!(bed.shell("evenkeel guest --status").contains("vouches for its TCP"));

    let mut switches = vec![(RPS, Reason::Rps)];
    if bed.shell(&format!("ls {SHRINK_WINDOW} 2>/dev/null || true")).trim().is_empty() {
        println!("this kernel does not take windows back");
    } else {
        switches.push((SHRINK_WINDOW, Reason::ShrinkWindow));
    }
    for (file, reason) in switches {
        bed.shell(&format!("echo 1 >{file}"));
        says(file, Reasons::from_iter([reason]));
        let status = bed.shell("evenkeel guest --status");
        assert!(status.contains("does NOT vouch for its TCP"), "{status}");
        bed.shell(&format!("echo 0 >{file}"));
        says("the guest to vouch again", yes);
    }

    bed.relay.freeze(true);
    bed.wait_until("the word to end with the channel", || said().is_none());
    bed.relay.freeze(false);
    says("the guest to vouch again", yes);
    bed.shell("kill -9 $(cat /run/evenkeel/guest.lock)");
    bed.wait_until("the word to end with the agent", || said().is_none());
    assert!(bed.status()["endpoint_objections"].is_null());
    println!("{}", bed.shell("cat /tmp/guest.log; evenkeel guest --stop"));
}
