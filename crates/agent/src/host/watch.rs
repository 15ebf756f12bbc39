//! Hears of changes in a directory. Where that is impossible, callers find changes by looking.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A watch over a directory that may not be there yet.
#[derive(Debug)]
pub(super) struct Watch {
    directory: PathBuf,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    inotify: Inotify,
    ready: AsyncFd<OwnedFd>,
}

impl Open {
    fn new(directory: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let changes = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        inotify.add_watch(directory, changes)?;
        let fd = inotify.as_fd().try_clone_to_owned()?;
        // SAFETY: the `AsyncFd` owns the descriptor, so it stays open for as long as it is registered.
        let ready = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self { inotify, ready })
    }

    /// Waits for changes, and reads them all; false if the directory is another one by now.
    async fn changes(&self) -> io::Result<bool> {
        let mut ready = self.ready.readable().await?;
        let mut is_there = true;
        loop {
            match self.inotify.read_events() {
                Ok(events) => {
                    let gone = AddWatchFlags::IN_IGNORED | AddWatchFlags::IN_MOVE_SELF;
                    is_there &= !events.iter().any(|event| event.mask.intersects(gone));
                }
                Err(Errno::EAGAIN) => {
                    ready.clear_ready();
                    return Ok(is_there);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Watch {
    /// Watches the directory, if it is there.
    pub(super) fn new(directory: &Path) -> Self {
        let mut watch = Self { directory: directory.to_owned(), open: None };
        watch.keep();
        watch
    }

    /// Tries again to watch the directory, if it is not watched.
    pub(super) fn keep(&mut self) {
        if self.open.is_none() {
            self.open = Open::new(&self.directory).ok();
        }
    }

    /// Returns when something has changed. Can be dropped while it waits.
    pub(super) async fn changed(&mut self) {
        let Some(open) = &self.open else { return pending().await };
        if !open.changes().await.unwrap_or(false) {
            self.open = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_comes_and_a_directory_that_goes_are_heard_of() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("qemu");
        std::fs::create_dir(&own).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert!(Open::new(&directory.path().join("absent")).is_err());
            let open = Open::new(&own).unwrap();
            std::fs::write(own.join("web1.xml"), "x").unwrap();
            assert!(open.changes().await.unwrap());
            std::fs::rename(own.join("web1.xml"), own.join("web2.xml")).unwrap();
            assert!(open.changes().await.unwrap());
            std::fs::remove_file(own.join("web2.xml")).unwrap();
            assert!(open.changes().await.unwrap());
            std::fs::remove_dir(&own).unwrap();
            assert!(!open.changes().await.unwrap());
        });
    }
}
