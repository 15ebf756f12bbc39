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
use super::state::{HostState, QueueAction};
use super::{limits, lock, settle};
use crate::datapath::{Datapath, Removed};

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
    limits::raise();
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

fn remove_all(mut state: HostState, run_dir: &Path, pin_dir: &Path) -> Result<Stopped, HostError> {
    Datapath::recall_namespaces(pin_dir)?;
    let mut links = Links::new()?;
    // What the agent promised waits in the queues even though it is gone.
    let mut unsettled = BTreeSet::new();
    if !state.queues.is_empty() {
        let (raised, _) = noted(&mut state, |ifindex| links.get(ifindex));
        match Datapath::open(pin_dir) {
            Ok(mut datapath) => unsettled = settle::unsettled(&mut datapath, &raised, &state.queues),
            Err(error) => tracing::warn!("queues are put back whatever waits in them: {error}"),
        }
    }
    put_back(&mut links, Datapath::remove_pins(pin_dir), state, &unsettled, run_dir)
}

/// Removes all that the running agent has put on ports.
///
/// # Errors
/// What stays, and why: it is noted still, and can be tried again without this agent.
pub(super) fn dismantle(core: &RefCell<Core>, links: &mut Links, run_dir: &Path) -> Result<Stopped, String> {
    let mut core = core.borrow_mut();
    let mut state = core.state().clone();
    let (raised, _) = noted(&mut state, |ifindex| links.get(ifindex));
    let (removed, unsettled) = core.dismantle(&raised);
    put_back(links, removed, state, &unsettled, run_dir).map_err(what_stays)
}

/// The devices whose queues are noted, as they are now; notes of devices that are gone are dropped. Each is asked for,
/// as a list of all devices may lack some. Also those that cannot be asked for, in words: their notes stay.
fn noted(
    state: &mut HostState,
    mut ask: impl FnMut(u32) -> Result<Option<Link>, HostError>,
) -> (Vec<Link>, Vec<String>) {
    let (mut there, mut unseen) = (Vec::new(), Vec::new());
    state.queues.retain(|ifindex, change| match ask(*ifindex) {
        Ok(Some(link)) => {
            there.push(link);
            true
        }
        Ok(None) => false,
        Err(error) => {
            unseen.push(format!("the queue of {} may not be as it was: {error}", shown(&change.name)));
            true
        }
    });
    (there, unseen)
}

/// The words of [`HostError::Stays`].
fn what_stays(error: HostError) -> String {
    match error {
        HostError::Stays { why } => why,
        other => other.to_string(),
    }
}

/// Puts back the queues that nobody else has set since, whatever else stays, and forgets what was changed.
fn put_back(
    links: &mut Links,
    removed: Removed,
    mut state: HostState,
    unsettled: &BTreeSet<u32>,
    run_dir: &Path,
) -> Result<Stopped, HostError> {
    let mut left: Vec<String> = removed.left.iter().map(ToString::to_string).collect();
    let name = |ifindex: u32| links.get(ifindex).ok().flatten().map(|link| link.name);
    let mut stopped = Stopped { ports: removed.ports.into_iter().filter_map(name).collect(), ..Stopped::default() };
    let (there, unseen) = noted(&mut state, |ifindex| links.get(ifindex));
    left.extend(unseen);
    let set = |ifindex, segments| links.set_queue(ifindex, segments);
    left.extend(queues_back(&there, &mut state, unsettled, &mut stopped, set));
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
        let before = state.queues.get(&link.ifindex).cloned();
        let (port, now) = (link.name.clone(), link.queue_segments);
        match state.plan(link, 0) {
            QueueAction::Leave => {}
            QueueAction::Theirs => stopped.left.push(port),
            // The change was noted, but never made.
            QueueAction::Set(segments) if segments == now => {
                state.confirm(link.ifindex);
            }
            QueueAction::Set(segments) if unsettled.contains(&link.ifindex) => {
                state.restore(link.ifindex, before);
                left.push(format!(
                    "the queue of {} is still {now} packets long instead of {segments}: packets that were acknowledged \
                     for the VM wait in it, until the VM runs",
                    shown(&port)
                ));
            }
            QueueAction::Set(segments) => match set(link.ifindex, segments) {
                Ok(()) => {
                    state.confirm(link.ifindex);
                    stopped.queues.push(RestoredQueue { port, segments });
                }
                Err(error) if error.is_gone() => {}
                Err(error) => left.push(format!(
                    "the queue of {} is still {now} packets long instead of {segments}: {error}",
                    shown(&port)
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

    #[test]
    fn a_queue_that_waits_for_its_vm_stays_noted() {
        let (mut state, mut stopped) = (HostState::default(), Stopped::default());
        assert_eq!(state.plan(&link(1, 70), 4000), QueueAction::Set(4000));
        let noted = state.clone();
        let raised = [link(1, 4000)];
        let none = |_, _| panic!("it is shortened");
        let left = queues_back(&raised, &mut state, &BTreeSet::from([1]), &mut stopped, none);
        assert!(left.len() == 1 && left[0].contains("vnet1 is still 4000 packets long instead of 70"), "{left:?}");
        assert_eq!((&state, &stopped), (&noted, &Stopped::default()));
        assert!(queues_back(&raised, &mut state, &BTreeSet::new(), &mut stopped, |_, _| Ok(())).is_empty());
        assert_eq!(stopped.queues, [RestoredQueue { port: "vnet1".to_owned(), segments: 70 }]);
    }

    #[test]
    fn a_device_that_cannot_be_asked_for_stays_noted_and_one_that_is_gone_does_not() {
        let mut state = HostState::default();
        (1..=3).for_each(|ifindex| assert_eq!(state.plan(&link(ifindex, 70), 4000), QueueAction::Set(4000)));
        let refused = || HostError::netlink("cannot ask", io::Error::from_raw_os_error(libc::ENOBUFS));
        let (there, unseen) = noted(&mut state, |ifindex| match ifindex {
            1 => Ok(Some(link(1, 4000))),
            2 => Ok(None),
            _ => Err(refused()),
        });
        assert_eq!(there, [link(1, 4000)]);
        assert!(unseen.len() == 1 && unseen[0].contains("vnet3 may not be as it was: cannot ask"), "{unseen:?}");
        assert_eq!(state.queues.into_keys().collect::<Vec<_>>(), [1, 3]);
    }
}
