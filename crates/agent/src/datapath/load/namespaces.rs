//! Which network namespaces ports are in beside the agent's, as the programs and the next agent know it.

use std::io;
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::super::error::DatapathError;
use super::super::map::read_all;
use super::Datapath;
use crate::common::bytes::as_bytes;
use crate::netns::{self, Namespace};

/// The map of them.
const MAP: &str = "namespaces";

impl Datapath {
    /// Lets ports be in a namespace from now on. Returns the base of their numbers; `None` if the namespace is known
    /// already, or is the agent's own.
    ///
    /// # Errors
    /// [`DatapathError`]
    pub(crate) fn take_namespace(&self, namespace: Namespace) -> Result<Option<u32>, DatapathError> {
        let inode = namespace.inode;
        if inode == own()? || netns::all().iter().any(|(_, _, known)| *known == inode) {
            return Ok(None);
        }
        let noted = noted(&self.namespaces)?;
        // The inode may have been noted under another name, which is gone.
        let before = noted.iter().find(|(of, _)| *of == inode).map(|(_, base)| *base);
        let free = || netns::free_base(|base| noted.iter().any(|(_, taken)| *taken == base));
        let base = before.or_else(free).ok_or_else(|| {
            DatapathError::io("no room for another network namespace", io::Error::other("too many are known"))
        })?;
        self.namespaces
            .update(as_bytes(&inode), as_bytes(&base), MapFlags::ANY)
            .map_err(|error| DatapathError::bpf("cannot note a network namespace", &error))?;
        netns::know(base, namespace).map_err(failed)?;
        Ok(Some(base))
    }

    /// Forgets a namespace in which no port is any more.
    pub(crate) fn leave_namespace(&self, base: u32) {
        for (of, _, inode) in netns::all() {
            if of == base {
                // Not there is as good as removed.
                let _ = self.namespaces.delete(as_bytes(&inode));
            }
        }
        netns::forget(base);
    }

    /// Recalls the namespaces that an earlier agent has noted, as far as they still have names, and forgets the others.
    /// Returns whether any were noted.
    ///
    /// # Errors
    /// [`DatapathError`], also if it is not known which of them are still there: none is forgotten then.
    pub(crate) fn recall_namespaces(pin_dir: &Path) -> Result<bool, DatapathError> {
        let path = pin_dir.join(MAP);
        if !path.exists() {
            return Ok(false);
        }
        let map = MapHandle::from_pinned_path(path)
            .map_err(|error| DatapathError::bpf(format!("cannot open the map {MAP}"), &error))?;
        let mut noted = noted(&map)?;
        if noted.is_empty() {
            return Ok(false);
        }
        let known = netns::all();
        noted.retain(|(inode, _)| known.iter().all(|(.., of)| of != inode));
        if noted.is_empty() {
            return Ok(true);
        }
        let unread = |file: &Path, error| {
            let what = format!("cannot look at {}, where an agent before this one has ports", file.display());
            DatapathError::io(what, error)
        };
        let mut unopened = Ok(());
        for file in netns::files().map_err(|error| unread(Path::new(netns::DIRECTORY), error))? {
            let is_noted = |inode: u32| noted.iter().position(|(noted, _)| *noted == inode);
            match Namespace::open(&file) {
                Ok(Some(namespace)) => {
                    if let Some(at) = is_noted(namespace.inode) {
                        netns::know(noted.swap_remove(at).1, namespace).map_err(failed)?;
                    }
                }
                Ok(None) => {}
                // It is none of them, or has gone meanwhile.
                Err(_) if netns::inode(&file).is_ok_and(|inode| inode.and_then(is_noted).is_none()) => {}
                Err(error) => unopened = Err(unread(&file, error)),
            }
        }
        if !noted.is_empty() {
            unopened?;
        }
        for (inode, _) in noted {
            let _ = map.delete(as_bytes(&inode));
        }
        Ok(true)
    }
}

/// The inode of the agent's namespace.
pub(super) fn own() -> Result<u32, DatapathError> {
    netns::own_inode().map_err(failed)
}

fn failed(error: io::Error) -> DatapathError {
    DatapathError::io("cannot look at this network namespace", error)
}

/// Inodes and bases.
fn noted(map: &MapHandle) -> Result<Vec<(u32, u32)>, DatapathError> {
    read_all(map, "cannot read which network namespaces ports are in")
}
