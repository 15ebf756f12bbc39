//! Network namespaces with names, whose devices are ports like those of the agent's own: pods', as Kubernetes' runtimes
//! make them.
//!
//! The agent holds a namespace open while it serves that. When the name goes, the agent undoes what it did there, and
//! keeps the namespace alive no longer.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::core::Core;
use super::devices::set_queues;
use super::links::{LinkEvent, LinkWatch, Links};
use super::watch::Watch;
use crate::netns::{self, DIRECTORY, Namespace};

/// How long a look waits after news of names: more is mostly on its way, and a file is there before it is a namespace.
const LOOK_SOON: Duration = Duration::from_millis(10);
/// How often to look without news.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// News of devices that may wait for the agent.
const WAITING: usize = 64;

/// What there is news of.
pub enum News {
    /// Namespaces have come or gone.
    Names,
    /// Devices in one of them have changed.
    Devices(Vec<LinkEvent>),
}

/// The namespaces, and the tasks that hear of their devices.
pub struct Namespaces {
    names: Watch,
    looks_at: Instant,
    /// How long until the next look, while a name is no namespace yet.
    put_off: Duration,
    hearers: BTreeMap<u32, JoinHandle<()>>,
    /// Namespaces in which not everything is undone yet, with what was said of that.
    left_over: BTreeMap<u32, String>,
    unopened: Unopened,
    sender: mpsc::Sender<Vec<LinkEvent>>,
    devices: mpsc::Receiver<Vec<LinkEvent>>,
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.hearers.values().for_each(JoinHandle::abort);
    }
}

impl Namespaces {
    /// Nothing is known yet.
    pub fn new() -> Self {
        let (sender, devices) = mpsc::channel(WAITING);
        let names = Watch::new(Path::new(DIRECTORY));
        Self {
            names,
            looks_at: Instant::now(),
            put_off: LOOK_SOON,
            hearers: BTreeMap::new(),
            left_over: BTreeMap::new(),
            unopened: Unopened::default(),
            sender,
            devices,
        }
    }

    /// When [`look`](Self::look) is to be called; never where no other namespace is wanted, or was.
    pub fn looks_at(&self, core: &Core) -> Option<Instant> {
        let has_some = core.is_elsewhere() || !self.hearers.is_empty() || !self.left_over.is_empty();
        has_some.then_some(self.looks_at)
    }

    /// Which namespaces are wanted may have changed.
    pub fn look_soon(&mut self) {
        (self.looks_at, self.put_off) = (Instant::now() + LOOK_SOON, LOOK_SOON);
    }

    /// Tries again to watch the names, and the devices of namespaces whose watch has ended.
    pub fn keep(&mut self, core: &mut Core) {
        self.names.keep();
        self.look_soon();
        let deaf: Vec<u32> =
            self.hearers.iter().filter(|(_, task)| task.is_finished()).map(|(base, _)| *base).collect();
        for base in deaf {
            self.listen(base);
            core.ask_for_list();
        }
    }

    /// What there is news of. Can be dropped while it waits.
    pub async fn news(&mut self) -> News {
        tokio::select! {
            () = self.names.changed() => News::Names,
            events = self.devices.recv() => match events {
                Some(events) => News::Devices(events),
                None => pending().await,
            }
        }
    }

    /// Looks up which namespaces there are: takes new ones, and leaves those that are gone or no longer wanted.
    pub fn look(&mut self, core: &mut Core, links: &mut Links) {
        let known = netns::all();
        let found = netns::files().map(|files| find(&files, &known, core));
        let Found { kept, new, unopened, mut is_early } = match found {
            Ok(found) => found,
            // They are all kept.
            Err(error) => {
                self.say(vec![(DIRECTORY.to_owned(), error)]);
                self.look_again(true);
                return;
            }
        };
        self.say(unopened);
        for (base, name, inode) in known.iter().filter(|(base, ..)| !kept.contains(base)) {
            let is_gone = netns::inode(&Path::new(DIRECTORY).join(name)).is_ok_and(|found| found != Some(*inode));
            let undone = undo(*base, core, links);
            if let (false, Err(why)) = (is_gone, &undone) {
                if self.left_over.insert(*base, why.clone()).as_ref() != Some(why) {
                    tracing::error!(name, "not all is undone in this network namespace, which is tried again: {why}");
                }
                is_early = true;
                continue;
            }
            // One without a name would be kept alive by the wait.
            undone.unwrap_or_else(|why| tracing::error!(name, "not all is undone in this network namespace: {why}"));
            tracing::info!(name, "the network namespace is left: it has this name no more, or is not wanted");
            self.leave(*base, core);
        }
        self.left_over.retain(|base, _| !kept.contains(base));
        for base in kept.into_iter().filter(|base| !self.hearers.contains_key(base)).collect::<Vec<_>>() {
            self.listen(base);
        }
        for namespace in new {
            self.take(namespace, core);
        }
        self.look_again(is_early);
    }

    /// Says what could not be opened, once.
    fn say(&mut self, unopened: Vec<(String, io::Error)>) {
        for (name, why) in self.unopened.news(unopened) {
            tracing::warn!(
                name,
                "this cannot be looked at: network namespaces that are served stay, new ones wait: {why}"
            );
        }
    }

    fn look_again(&mut self, is_early: bool) {
        self.looks_at = Instant::now() + if is_early { self.put_off } else { LOOK_EVERY };
        self.put_off = if is_early { (2 * self.put_off).min(LOOK_EVERY) } else { LOOK_SOON };
    }

    fn take(&mut self, namespace: Namespace, core: &mut Core) {
        let name = namespace.name.clone();
        let base = match core.take_namespace(namespace) {
            Ok(Some(base)) => base,
            // Taken already, under another name.
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, name, "ports of this network namespace are not served");
                return;
            }
        };
        tracing::info!(name, "a network namespace");
        self.listen(base);
        match Links::list_in(base) {
            Ok(listing) if listing.is_whole => {
                listing.links.into_iter().for_each(|link| core.appeared(link.ifindex, link.name));
            }
            Ok(_) => core.ask_for_list(),
            Err(error) => {
                tracing::error!(%error, name, "the devices of this network namespace are not known yet");
                core.ask_for_list();
            }
        }
    }

    /// Hears of devices there from now on.
    fn listen(&mut self, base: u32) {
        let mut watch = match LinkWatch::new(base) {
            Ok(watch) => watch,
            Err(error) => {
                tracing::error!(%error, "no news of devices of a network namespace");
                return;
            }
        };
        let sender = self.sender.clone();
        let hear = async move {
            loop {
                match watch.next().await {
                    Ok(events) => {
                        let events = events.into_iter().filter_map(|event| event.in_namespace(base));
                        if sender.send(events.collect()).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        tracing::error!(%error, "news of devices is lost");
                        return;
                    }
                }
            }
        };
        if let Some(before) = self.hearers.insert(base, tokio::task::spawn_local(hear)) {
            before.abort();
        }
    }

    fn leave(&mut self, base: u32, core: &mut Core) {
        core.leave_namespace(base);
        self.left_over.remove(&base);
        if let Some(task) = self.hearers.remove(&base) {
            task.abort();
        }
    }
}

/// What a look at the names has found.
#[derive(Debug, Default)]
struct Found {
    /// Bases of namespaces that are known, and are still there as far as one can see.
    kept: Vec<u32>,
    new: Vec<Namespace>,
    unopened: Vec<(String, io::Error)>,
    /// Something is to be looked at again soon.
    is_early: bool,
}

/// Looks at the names that are wanted. `known`: bases with names and inodes.
fn find(files: &[PathBuf], known: &[(u32, String, u32)], core: &Core) -> Found {
    let mut found = Found::default();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !core.has_namespace(&name) {
            continue;
        }
        let inode = netns::inode(path);
        // One that cannot be looked at may be any that had this name.
        let is_it = |is: u32| inode.as_ref().map_or(true, |inode| *inode == Some(is));
        let mut kept = known.iter().filter(|(_, of, is)| *of == name && is_it(*is)).map(|(base, ..)| *base);
        match inode {
            Ok(_) => {
                if let Some(base) = kept.find(|base| !found.kept.contains(base)) {
                    found.kept.push(base);
                    continue;
                }
            }
            Err(_) => found.kept.extend(kept),
        }
        match Namespace::open(path) {
            Ok(Some(namespace)) => found.new.push(namespace),
            Ok(None) => found.is_early = true,
            Err(error) => found.unopened.push((name, error)),
        }
    }
    found.is_early |= !found.unopened.is_empty();
    found
}

/// Namespaces that could not be opened at the last look, with why.
#[derive(Debug, Default)]
struct Unopened(BTreeMap<String, String>);

impl Unopened {
    /// Takes those of a look. Returns what was not so at the look before: all of it is tried again, and said once.
    fn news(&mut self, found: Vec<(String, io::Error)>) -> Vec<(String, String)> {
        // A name that went in between is no trouble.
        let is_trouble = |(_, error): &(String, io::Error)| error.kind() != io::ErrorKind::NotFound;
        let found = found.into_iter().filter(is_trouble).map(|(name, error)| (name, error.to_string()));
        let before = std::mem::replace(&mut self.0, found.collect());
        let is_new = |(name, why): &(&String, &String)| before.get(*name) != Some(*why);
        self.0.iter().filter(is_new).map(|(name, why)| (name.clone(), why.clone())).collect()
    }
}

/// Undoes what was done to devices of a namespace; what cannot be undone stays noted.
///
/// # Errors
/// What is left, and why.
fn undo(base: u32, core: &mut Core, links: &mut Links) -> Result<(), String> {
    let mut planned = Vec::new();
    let mut unseen = Ok(());
    for number in core.touched_in(base) {
        match links.get(number) {
            Ok(Some(link)) => {
                let action = core.let_go(&link);
                planned.push((link, action));
            }
            Ok(None) => {}
            Err(error) => unseen = Err(error.to_string()),
        }
    }
    set_queues(core, links, &planned);
    unseen?;
    let raised = planned.iter().find(|(link, _)| core.has_changed_queue(link.ifindex));
    raised.map_or(Ok(()), |(link, _)| Err(format!("the queue of {} does not have its length yet", link.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_cannot_be_opened_is_said_once() {
        let mut unopened = Unopened::default();
        let mut look = |codes: &[(&str, i32)]| {
            let found = codes.iter().map(|(name, code)| ((*name).to_owned(), io::Error::from_raw_os_error(*code)));
            unopened.news(found.collect()).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(look(&[("pod1", libc::EMFILE), ("pod2", libc::ENOENT)]), ["pod1"]);
        assert!(look(&[("pod1", libc::EMFILE)]).is_empty());
        assert_eq!(look(&[("pod1", libc::EACCES), ("pod3", libc::EMFILE)]), ["pod1", "pod3"]);
        assert!(look(&[]).is_empty());
        assert_eq!(look(&[("pod1", libc::EACCES)]), ["pod1"], "it was open meanwhile");
    }
}
