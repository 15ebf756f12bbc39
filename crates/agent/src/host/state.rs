//! What the agent changed on this host, kept in a file so that any later agent, or `--stop`, can put it back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::HostError;
use super::links::Link;

/// The format's version; a file of another version is not touched.
const VERSION: u32 = 1;
/// The file's name in the run directory.
const FILE: &str = "host-state.json";

/// The state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostState {
    /// Format of the file.
    version: u32,
    /// The control socket of the agent that wrote this, for `--stop`.
    pub socket: Option<PathBuf>,
    /// Queue lengths that were changed, by device index.
    pub queues: BTreeMap<u32, QueueChange>,
}

/// A queue length that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueChange {
    /// The device's name when it was changed; an index can be given again to another device.
    pub name: String,
    /// Length before.
    pub before_segments: u32,
    /// Lengths that it was given before this one: the agent may have been killed in between, and news of a device may
    /// be old.
    pub older_segments: BTreeSet<u32>,
    /// Length that it was given.
    pub set_segments: u32,
    /// Somebody else has set another length since, where this one was wanted: theirs stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs_over_segments: Option<u32>,
}

impl QueueChange {
    /// Whether a device of this index is most likely the one that is noted: it has the length that was set here, or
    /// somebody has set another one.
    pub fn is_of(&self, link: &Link) -> bool {
        self.set_segments == link.queue_segments || self.theirs_over_segments.is_some()
    }
}

/// What to do with a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueAction {
    /// It is as it should be.
    Leave,
    /// Set it to this length.
    Set(u32),
    /// It was changed by us, and by somebody else since: theirs stays. Said once while a port wants another length, and
    /// again when that ends.
    Theirs,
}

impl Default for HostState {
    fn default() -> Self {
        Self { version: VERSION, socket: None, queues: BTreeMap::new() }
    }
}

impl HostState {
    /// What an earlier agent left; empty if there was none.
    ///
    /// # Errors
    /// [`HostError::State`] if the file cannot be read or is of another version: it may be the only trace of what was
    /// changed.
    pub fn load(run_dir: &Path) -> Result<Self, HostError> {
        let file = run_dir.join(FILE);
        let text = match crate::file::read(&file) {
            Ok((text, _)) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(HostError::State { file, why: error.to_string() }),
        };
        let state: Self = serde_json::from_str(&text)
            .map_err(|error| HostError::State { file: file.clone(), why: error.to_string() })?;
        if state.version != VERSION {
            let why = format!("it has version {}, this evenkeel knows version {VERSION}", state.version);
            return Err(HostError::State { file, why });
        }
        Ok(state)
    }

    /// Writes the file: afterwards it is there whole, or as it was before.
    ///
    /// # Errors
    /// [`HostError::Io`]
    pub fn store(&self, run_dir: &Path) -> Result<(), HostError> {
        let file = run_dir.join(FILE);
        let new = run_dir.join(format!("{FILE}.new"));
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| HostError::State { file: file.clone(), why: error.to_string() })?;
        let write = || -> io::Result<()> {
            let mut handle = File::create(&new)?;
            handle.write_all(text.as_bytes())?;
            handle.sync_all()?;
            fs::rename(&new, &file)
        };
        write().map_err(|error| {
            // A part of it is of no use, and takes room.
            let _ = fs::remove_file(&new);
            HostError::io(format!("cannot write {}", file.display()), error)
        })
    }

    /// Removes the file: nothing is left to put back.
    ///
    /// # Errors
    /// [`HostError::Io`]
    pub fn remove(run_dir: &Path) -> Result<(), HostError> {
        let file = run_dir.join(FILE);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(HostError::io(format!("cannot remove {}", file.display()), error))
            }
            _ => Ok(()),
        }
    }

    /// Forgets devices that are no longer there; true if anything changed. `known` is the name by which the running
    /// agent knows a device: one that it knows is the same under any name.
    pub fn retain<'a>(&mut self, links: &[Link], known: impl Fn(u32) -> Option<&'a str>) -> bool {
        let before = self.queues.clone();
        for link in links {
            if let Some(name) = known(link.ifindex) {
                self.rename(link.ifindex, name, &link.name);
            }
        }
        self.queues.retain(|ifindex, change| links.iter().any(|l| l.ifindex == *ifindex && l.name == change.name));
        self.queues != before
    }

    /// What a device's queue was before it was raised; none where somebody else has set it since.
    pub fn raised_from(&self, ifindex: u32) -> Option<u32> {
        let ours = self.queues.get(&ifindex).filter(|change| change.theirs_over_segments.is_none());
        ours.map(|change| change.before_segments)
    }

    /// A change that was noted has been made; true if it put the original length back, so that its note is gone.
    pub fn confirm(&mut self, ifindex: u32) -> bool {
        let is_back = self.queues.get(&ifindex).is_some_and(|change| change.set_segments == change.before_segments);
        if is_back {
            self.queues.remove(&ifindex);
        }
        is_back
    }

    /// A device that is known to be the same has another name; true if anything was noted of it.
    pub fn rename(&mut self, ifindex: u32, from: &str, to: &str) -> bool {
        let change = self.queues.get_mut(&ifindex).filter(|change| change.name == from);
        change.map(|change| to.clone_into(&mut change.name)).is_some()
    }

    /// Takes back what [`plan`](Self::plan) noted of a device, as it is not done: what was noted before holds again.
    pub fn restore(&mut self, ifindex: u32, before: Option<QueueChange>) {
        match before {
            Some(change) => self.queues.insert(ifindex, change),
            None => self.queues.remove(&ifindex),
        };
    }

    /// What to do so that the device's queue holds at least `wanted_segments`; 0 asks for the length it had. The
    /// answer's change is noted here and must be stored before it is made.
    pub fn plan(&mut self, link: &Link, wanted_segments: u32) -> QueueAction {
        let ours = self.queues.get(&link.ifindex).filter(|change| change.name == link.name).cloned();
        let Some(change) = ours else {
            self.queues.remove(&link.ifindex);
            // A device without a queue reports 0, and 0 is wanted where nobody asks for another length.
            if wanted_segments <= link.queue_segments {
                return QueueAction::Leave;
            }
            let change = QueueChange {
                name: link.name.clone(),
                before_segments: link.queue_segments,
                older_segments: BTreeSet::new(),
                set_segments: wanted_segments,
                theirs_over_segments: None,
            };
            self.queues.insert(link.ifindex, change);
            return QueueAction::Set(wanted_segments);
        };
        match change.theirs_over_segments {
            Some(over) if over == wanted_segments => return QueueAction::Leave,
            Some(_) => {
                self.queues.remove(&link.ifindex);
                return if wanted_segments == 0 { QueueAction::Theirs } else { self.plan(link, wanted_segments) };
            }
            None => {}
        }
        // Lengths that we know; anything else is somebody's choice.
        let is_ours = change.older_segments.contains(&link.queue_segments)
            || [change.before_segments, change.set_segments].contains(&link.queue_segments);
        if !is_ours {
            // Noted while the port is one, for the next agent and for `--stop`.
            match wanted_segments {
                0 => self.queues.remove(&link.ifindex),
                over => self.queues.insert(link.ifindex, QueueChange { theirs_over_segments: Some(over), ..change }),
            };
            return QueueAction::Theirs;
        }
        let target = wanted_segments.max(change.before_segments);
        // The reported length may be old news, from before an earlier change of the agent's. Only a confirmed change
        // ends a note.
        if link.queue_segments == target && target != change.before_segments {
            return QueueAction::Leave;
        }
        let mut older_segments = change.older_segments.clone();
        older_segments.insert(change.set_segments);
        self.queues.insert(link.ifindex, QueueChange { older_segments, set_segments: target, ..change });
        QueueAction::Set(target)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::links::Kind;

    fn link(queue_segments: u32) -> Link {
        Link { ifindex: 3, name: "vnet0".into(), queue_segments, kind: Kind::Other, tap: None }
    }

    #[test]
    fn it_survives_the_agent() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(HostState::load(directory.path()).unwrap(), HostState::default());
        let mut state = HostState { socket: Some("/run/x.sock".into()), ..HostState::default() };
        assert_eq!(state.plan(&link(1000), 4000), QueueAction::Set(4000));
        state.store(directory.path()).unwrap();
        assert_eq!(HostState::load(directory.path()).unwrap(), state);
        HostState::remove(directory.path()).unwrap();
        HostState::remove(directory.path()).unwrap();
        assert_eq!(HostState::load(directory.path()).unwrap(), HostState::default());
    }

    #[test]
    fn a_file_it_does_not_know_is_not_taken_for_empty() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["{", r#"{"version":2,"socket":null,"queues":{}}"#] {
            fs::write(directory.path().join(FILE), text).unwrap();
            let error = HostState::load(directory.path()).unwrap_err().to_string();
            assert!(error.contains(FILE), "{error}");
        }
    }

    #[test]
    fn a_long_queue_is_left_alone() {
        let mut state = HostState::default();
        assert_eq!(state.plan(&link(5000), 4000), QueueAction::Leave);
        assert_eq!(state, HostState::default());
    }

    #[test]
    fn what_somebody_else_set_stays() {
        let mut state = HostState::default();
        state.plan(&link(1000), 4000);
        assert_eq!(state.plan(&link(2000), 0), QueueAction::Theirs);
        assert!(state.queues.is_empty());
    }

    #[test]
    fn what_somebody_else_set_while_an_agent_ran_stays_whichever_agent_comes() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = HostState::default();
        state.plan(&link(1000), 4000);
        assert_eq!(state.raised_from(3), Some(1000));
        assert_eq!(state.plan(&link(500), 4000), QueueAction::Theirs);
        assert_eq!((state.raised_from(3), state.queues[&3].is_of(&link(500))), (None, true));
        assert_eq!(state.plan(&link(500), 4000), QueueAction::Leave);
        state.store(directory.path()).unwrap();
        let load = || HostState::load(directory.path()).unwrap();
        assert_eq!(load().plan(&link(700), 4000), QueueAction::Leave);
        let mut state = load();
        assert_eq!(state.plan(&link(500), 0), QueueAction::Theirs, "`--stop` says so");
        assert!(state.queues.is_empty());
        let mut state = load();
        assert!(state.rename(3, "vnet0", "vnet9"));
        assert_eq!(state.plan(&Link { name: "vnet9".into(), ..link(500) }, 4000), QueueAction::Leave);
        // The operator wants another length now.
        let mut state = load();
        assert_eq!(state.plan(&link(500), 5000), QueueAction::Set(5000));
        assert_eq!(state.plan(&link(5000), 0), QueueAction::Set(500));
    }

    #[test]
    fn another_device_with_the_same_index_is_another_device() {
        let mut state = HostState::default();
        state.plan(&link(1000), 4000);
        let other = Link { name: "vnet9".into(), ..link(500) };
        assert_eq!(state.plan(&other, 0), QueueAction::Leave);
        assert!(state.queues.is_empty());
        state.plan(&link(1000), 4000);
        assert!(state.retain(&[other], |_| None));
        assert!(state.queues.is_empty());
    }

    #[test]
    fn old_news_of_a_length_does_not_make_it_forget() {
        let mut state = HostState::default();
        assert_eq!(state.plan(&link(1000), 4000), QueueAction::Set(4000));
        // The length is to go back, and the news is older than the change.
        assert_eq!(state.plan(&link(1000), 0), QueueAction::Set(1000));
        assert_eq!(state.plan(&link(4000), 0), QueueAction::Set(1000));
        assert!(state.confirm(3));
        assert_eq!(state.plan(&link(4000), 0), QueueAction::Leave);
    }

    #[test]
    fn a_device_keeps_its_length_under_another_name() {
        let mut state = HostState::default();
        state.plan(&link(1000), 4000);
        assert!(state.rename(3, "vnet0", "vnet9"));
        let renamed = Link { name: "vnet9".into(), ..link(4000) };
        assert_eq!(state.plan(&renamed, 0), QueueAction::Set(1000));
        // The same when the new name is first met in a list.
        let mut state = HostState::default();
        state.plan(&link(1000), 4000);
        assert!(state.retain(std::slice::from_ref(&renamed), |_| Some("vnet0")));
        assert_eq!(state.plan(&renamed, 0), QueueAction::Set(1000));
    }

    proptest! {
        /// However often settings change, and wherever a kill stops the agent, the length comes back.
        #[test]
        fn the_first_length_comes_back(
            first in 0u32..3000,
            steps in proptest::collection::vec((0u32..6000, any::<bool>()), 0..20),
        ) {
            let mut state = HostState::default();
            let mut now = first;
            for (wanted, is_killed_before_the_change) in steps {
                if let QueueAction::Set(length) = state.plan(&link(now), wanted) {
                    if !is_killed_before_the_change {
                        now = length;
                        state.confirm(3);
                    }
                }
                // Never shorter than it was.
                prop_assert!(now >= first);
            }
            if let QueueAction::Set(length) = state.plan(&link(now), 0) {
                now = length;
            }
            state.confirm(3);
            prop_assert_eq!(now, first);
            prop_assert_eq!(state.plan(&link(now), 0), QueueAction::Leave);
            prop_assert!(state.queues.is_empty());
        }
    }
}
