//! A device and its queue, as the agent wants them.

use super::core::Core;
use super::links::{Link, Links};
use super::state::QueueAction;

/// A device is there or has changed; its queue follows.
pub fn seen(core: &mut Core, links: &mut Links, link: &Link) {
    let action = core.seen(link);
    set_queue(core, links, link, action);
}

/// Does what the agent's core wants done with a queue.
pub fn set_queue(core: &mut Core, links: &mut Links, link: &Link, action: QueueAction) {
    let QueueAction::Set(segments) = action else { return };
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
