//! What to do before a tap's queue is shortened, which drops what no longer fits: data that waits there may have been
//! acknowledged for the VM.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::links::{Kind, Link};
use super::state::QueueChange;
use crate::datapath::{Datapath, intf};

/// How long to wait for a VM that is off its core and leaves packets in its queue.
pub const TIMEOUT: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(2);

/// Whether this length makes a tap's queue shorter; other devices lose nothing.
pub fn shortens(link: &Link, segments: u32) -> bool {
    link.kind == Kind::Tap && segments < link.queue_segments
}

/// Waits until the queue of this port can take this length without a drop; false if `patience` runs out first. Nothing
/// more may be promised for the port.
pub fn has_settled(datapath: &mut Datapath, link: &Link, segments: u32, patience: Duration) -> bool {
    if !shortens(link, segments) {
        return true;
    }
    let end = Instant::now() + patience;
    let free = link.queue_segments - segments;
    // Where the datapath cannot tell, nothing is promised.
    while datapath.waits(link.ifindex, free).unwrap_or(false) {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(STEP);
    }
    true
}

/// Ends all promises on ports whose queues are to be put back. Returns those in which too much still waits for that
/// after [`TIMEOUT`].
pub fn unsettled(datapath: &mut Datapath, links: &[Link], queues: &BTreeMap<u32, QueueChange>) -> BTreeSet<u32> {
    let is_ours = |change: &&QueueChange| change.theirs_over_segments.is_none();
    let back = |link: &Link| queues.get(&link.ifindex).filter(is_ours).map(|change| change.before_segments);
    // Where an earlier `--stop` has taken the programs off, nothing more is promised.
    let pinned = datapath.ports();
    let is_bare = |ifindex| pinned.as_ref().is_ok_and(|pinned| !pinned.contains(&ifindex));
    let shorter = links.iter().filter_map(|link| Some((back(link)?, link)));
    let mut unsettled = BTreeSet::new();
    for (segments, link) in shorter.filter(|(segments, link)| shortens(link, *segments)) {
        if !is_bare(link.ifindex) {
            end_promises(datapath, link, &intf::ek_port::default());
        }
        if !has_settled(datapath, link, segments, TIMEOUT) {
            unsettled.insert(link.ifindex);
        }
    }
    unsettled
}

/// Ends early ACKs for the port's VM; the port's other settings are as given.
pub fn end_promises(datapath: &mut Datapath, link: &Link, settings: &intf::ek_port) {
    let mut settings = *settings;
    settings.vsnoop.mode = intf::EK_MODE_OFF;
    if let Err(error) = datapath.attach(link.ifindex, &settings) {
        tracing::warn!(port = link.name, %error, "vSnoop cannot be stopped before the queue is shortened");
    }
}
