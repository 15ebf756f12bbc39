//! Before a tap's queue is made shorter, which drops what does not fit any more: what waits there may have been
//! acknowledged for the VM.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::links::{Kind, Link};
use super::state::QueueChange;
use crate::datapath::{Datapath, intf};

/// How long is waited for a VM that is off its core and leaves packets in its queue.
pub const TIMEOUT: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(2);

/// Whether a queue of so many places is a shorter one for a tap; others lose nothing.
pub fn shortens(link: &Link, segments: u32) -> bool {
    link.kind == Kind::Tap && segments < link.queue_segments
}

/// Whether nothing is dropped if the queue of this port, for which nothing more is promised, has so many places. Waits
/// for it.
pub fn has_settled(datapath: &mut Datapath, link: &Link, segments: u32, patience: Duration) -> bool {
    if !shortens(link, segments) {
        return true;
    }
    let end = Instant::now() + patience;
    let free = link.queue_segments - segments;
    // Where that cannot be asked nothing is promised.
    while datapath.waits(link.ifindex, free).unwrap_or(false) {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(STEP);
    }
    true
}

/// Ends all promises on ports whose queues are to go back. Those in which too much waits for that, after some waiting.
pub fn unsettled(datapath: &mut Datapath, links: &[Link], queues: &BTreeMap<u32, QueueChange>) -> BTreeSet<u32> {
    let back = |link: &Link| queues.get(&link.ifindex).map(|change| change.before_segments);
    let shorter = links.iter().filter_map(|link| Some((back(link)?, link)));
    let mut unsettled = BTreeSet::new();
    for (segments, link) in shorter.filter(|(segments, link)| shortens(link, *segments)) {
        end_promises(datapath, link, &intf::ek_port::default());
        if !has_settled(datapath, link, segments, TIMEOUT) {
            unsettled.insert(link.ifindex);
        }
    }
    unsettled
}

/// Nothing more is acknowledged for the port's VM, which has these settings otherwise.
pub fn end_promises(datapath: &mut Datapath, link: &Link, settings: &intf::ek_port) {
    let mut settings = *settings;
    settings.vsnoop.mode = intf::EK_MODE_OFF;
    if let Err(error) = datapath.attach(link.ifindex, &settings) {
        tracing::warn!(port = link.name, %error, "vSnoop cannot be stopped before the queue is shortened");
    }
}
