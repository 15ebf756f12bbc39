//! Devices and their queues, as the agent wants them.

use super::core::Core;
use super::links::{Link, Links};
use super::state::QueueAction;

/// Does what the agent's core wants done with the queues of these devices, once that is noted.
pub fn set_queues(core: &mut Core, links: &mut Links, planned: &[(Link, QueueAction)]) {
    if !core.commit() {
        return;
    }
    for (link, action) in planned {
        if let QueueAction::Set(segments) = action {
            set_queue(core, links, link, *segments);
        }
    }
}

fn set_queue(core: &mut Core, links: &mut Links, link: &Link, segments: u32) {
    match links.set_queue(link.ifindex, segments) {
        Ok(()) => {
            if link.queue_segments != segments {
                tracing::info!(port = link.name, from = link.queue_segments, to = segments, "queue length set");
            }
            core.queue_is_set(link.ifindex);
        }
        Err(error) if error.is_gone() => {}
        Err(error) => tracing::error!(port = link.name, %error, "the queue length stays"),
    }
}
