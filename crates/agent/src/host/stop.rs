//! `--stop`: everything that an agent has put on this host is taken back, by the agent itself or in its place.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_quote::shown;

use super::control::client::Client;
use super::control::proto::{RestoredQueue, Stopped};
use super::core::Core;
use super::error::HostError;
use super::links::{Link, Links};
use super::lock;
use super::settle;
use super::state::{HostState, QueueAction};
use crate::datapath::Datapath;

/// How long `--stop` waits for an agent that has said it stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long `--stop` waits for an agent that holds the lock and does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(10);

/// Removes everything that an agent has put on this host, ending it if it runs.
///
/// # Errors
/// [`HostError`] if something could not be removed or put back: then it can be tried again.
pub fn stop(run_dir: &Path, pin_dir: &Path) -> Result<Stopped, HostError> {
    let patience = Instant::now() + ANSWER_TIMEOUT;
    let (stopped, running) = loop {
        let state = HostState::load(run_dir)?;
        match lock::take(run_dir) {
            Ok(_lock) => return remove(state, run_dir, pin_dir),
            Err(running @ HostError::Running { .. }) => {
                let client = state.socket.as_deref().map(Client::connect);
                match client.map(|client| client?.stop()) {
                    Some(Ok(stopped)) => break (stopped, running),
                    // The agent was just started, or killed.
                    None | Some(Err(HostError::NotRunning { .. })) if Instant::now() < patience => {
                        std::thread::sleep(STEP);
                    }
                    Some(Err(error)) => return Err(error),
                    None => return Err(running),
                }
            }
            Err(error) => return Err(error),
        }
    };
    let deadline = Instant::now() + STOP_TIMEOUT;
    while Instant::now() < deadline {
        match lock::take(run_dir) {
            Err(HostError::Running { .. }) => std::thread::sleep(STEP),
            outcome => return outcome.map(|_| stopped),
        }
    }
    Err(running)
}

/// Removes what an agent that is gone has put on this host.
fn remove(state: HostState, run_dir: &Path, pin_dir: &Path) -> Result<Stopped, HostError> {
    remove_all(state, run_dir, pin_dir).map_err(|error| HostError::Stays { why: what_stays(error) })
}

fn remove_all(state: HostState, run_dir: &Path, pin_dir: &Path) -> Result<Stopped, HostError> {
    Datapath::recall_namespaces(pin_dir)?;
    let mut links = Links::new()?;
    let list = links.list()?.links;
    // What the agent promised waits in the queues even though it is gone.
    let mut unsettled = BTreeSet::new();
    if !state.queues.is_empty() {
        match Datapath::open(pin_dir) {
            Ok(mut datapath) => unsettled = settle::unsettled(&mut datapath, &list, &state.queues),
            Err(error) => tracing::warn!("queues are put back whatever waits in them: {error}"),
        }
    }
    let name = |ifindex: &u32| list.iter().find(|l| l.ifindex == *ifindex).map(|l| l.name.clone());
    let ports = Datapath::remove_pins(pin_dir)?.iter().filter_map(name).collect();
    put_back(&mut links, ports, state, unsettled, run_dir)
}

/// Removes all that the running agent has put on ports.
///
/// # Errors
/// What stays, and why: it is noted still, and can be tried again without this agent.
pub(super) fn dismantle(core: &RefCell<Core>, links: &mut Links, run_dir: &Path) -> Result<Stopped, String> {
    let mut take = || {
        let list = links.list()?.links;
        let (ports, state, unsettled) = core.borrow_mut().dismantle(&list)?;
        put_back(links, ports, state, unsettled, run_dir)
    };
    take().map_err(what_stays)
}

/// The words of [`HostError::Stays`].
fn what_stays(error: HostError) -> String {
    match error {
        HostError::Stays { why } => why,
        other => other.to_string(),
    }
}

/// Puts back the queues that nobody else has set since, and forgets what was changed.
fn put_back(
    links: &mut Links,
    ports: Vec<String>,
    mut state: HostState,
    unsettled: BTreeSet<u32>,
    run_dir: &Path,
) -> Result<Stopped, HostError> {
    let mut stopped = Stopped { ports, ..Stopped::default() };
    let list = links.list()?.links;
    let set = |ifindex, segments| links.set_queue(ifindex, segments);
    let left = queues_back(&list, &mut state, &unsettled, &mut stopped, set);
    if left.is_empty() {
        HostState::remove(run_dir)?;
        return Ok(stopped);
    }
    // If that fails, the notes before it say more than is left, which does no harm.
    let _ = state.store(run_dir);
    Err(HostError::Stays { why: left.join("; ") })
}

/// Puts queues back by `set`; one that cannot be set keeps none of the others. Returns those, in words; `state` says
/// what they are to be.
fn queues_back(
    list: &[Link],
    state: &mut HostState,
    unsettled: &BTreeSet<u32>,
    stopped: &mut Stopped,
    mut set: impl FnMut(u32, u32) -> Result<(), HostError>,
) -> Vec<String> {
    let mut left = Vec::new();
    for link in list {
        let port = link.name.clone();
        match state.plan(link, 0) {
            QueueAction::Leave => {}
            QueueAction::Theirs => stopped.left.push(port),
            // The change was noted, but never made.
            QueueAction::Set(segments) if segments == link.queue_segments => {}
            QueueAction::Set(segments) if unsettled.contains(&link.ifindex) => {
                stopped.waiting.push(RestoredQueue { port, segments });
            }
            QueueAction::Set(segments) => match set(link.ifindex, segments) {
                Ok(()) => {
                    state.confirm(link.ifindex);
                    stopped.queues.push(RestoredQueue { port, segments });
                }
                Err(error) if error.is_gone() => {}
                Err(error) => left.push(format!(
                    "the queue of {} is still {} packets long instead of {segments}: {error}",
                    shown(&port),
                    link.queue_segments
                )),
            },
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::host::links::Kind;

    fn link(ifindex: u32, queue_segments: u32) -> Link {
        Link { ifindex, name: format!("vnet{ifindex}"), queue_segments, kind: Kind::Other, tap: None }
    }

    #[test]
    fn a_queue_that_cannot_be_set_keeps_no_other_and_is_noted() {
        let mut state = HostState::default();
        (1..=3).for_each(|ifindex| assert_eq!(state.plan(&link(ifindex, 70), 4000), QueueAction::Set(4000)));
        let raised: Vec<_> = (1..=3).map(|ifindex| link(ifindex, 4000)).collect();
        let mut back = |refused: Option<u32>| {
            let mut stopped = Stopped::default();
            let set = |ifindex, _| match Some(ifindex) == refused {
                true => Err(HostError::netlink("cannot set it", io::Error::from_raw_os_error(libc::ENOMEM))),
                false => Ok(()),
            };
            let left = queues_back(&raised, &mut state, &BTreeSet::new(), &mut stopped, set);
            let ports: Vec<_> = stopped.queues.into_iter().map(|queue| queue.port).collect();
            (left, ports, state.queues.keys().copied().collect::<Vec<_>>())
        };
        let (left, ports, noted) = back(Some(2));
        assert!(left.len() == 1 && left[0].contains("vnet2 is still 4000 packets long instead of 70"), "{left:?}");
        assert_eq!((ports, noted), (vec!["vnet1".to_owned(), "vnet3".to_owned()], vec![2]));
        assert_eq!(back(None), (vec![], vec!["vnet2".to_owned()], vec![]));
    }
}
