//! Network namespaces of ports, and what a port is known by.
//!
//! A port's *number* is its device's index. If the device is in another network namespace than the agent, the number
//! also contains the namespace's base, so that no two ports have the same number; all that is kept about ports is kept
//! by number. Each thread knows the bases for itself, as it is in a namespace for itself. To ask the kernel for a
//! device, a thread enters the device's namespace.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::sched::{CloneFlags, setns};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::datapath::intf::{EK_ELSEWHERE as ELSEWHERE, EK_INDEX_BITS as INDEX_BITS};

/// The directory with the names that iproute2 and container runtimes give namespaces.
pub(crate) const DIRECTORY: &str = "/run/netns";
/// linux/nsfs.h: `_IO(0xb7, 3)`, which tells a namespace's kind.
const NS_GET_NSTYPE: libc::c_ulong = 0xb703;
/// The base of the agent's own namespace.
pub(crate) const HERE: u32 = 0;

thread_local! {
    static KNOWN: RefCell<Known> = const { RefCell::new(Known { own: None, others: BTreeMap::new() }) };
}

struct Known {
    /// The thread's own namespace, to which it goes back.
    own: Option<Rc<OwnedFd>>,
    /// The other namespaces, by their bases.
    others: BTreeMap<u32, Namespace>,
}

/// A network namespace with a name.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// Its name; bytes that are no UTF-8 are replaced.
    pub(crate) name: String,
    /// What the kernel knows it by, as long as it is there.
    pub(crate) inode: u32,
    fd: Rc<OwnedFd>,
}

impl Namespace {
    /// The namespace of this file; `None` if it is none, or not yet one: the file is made first.
    pub(crate) fn open(file: &Path) -> io::Result<Option<Self>> {
        let opened = File::open(file)?;
        if fstatfs(&opened)?.filesystem_type() != NSFS_MAGIC {
            return Ok(None);
        }
        // SAFETY: the request takes no argument.
        let kind = unsafe { libc::ioctl(opened.as_raw_fd(), NS_GET_NSTYPE as _) };
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let inode = opened.metadata()?.ino() as u32;
        Ok((kind == CloneFlags::CLONE_NEWNET.bits()).then(|| Self { name, inode, fd: Rc::new(opened.into()) }))
    }
}

/// The files in the directory of names; none where there is no directory. What cannot be read is an error, and never an
/// absence: what was done in a namespace that has gone is forgotten.
pub(crate) fn files() -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(DIRECTORY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        files => files?.map(|file| Ok(file?.path())).collect(),
    }
}

/// The inode that a file in the directory of names leads to; `None` if it is gone.
pub(crate) fn inode(file: &Path) -> io::Result<Option<u32>> {
    match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => Ok(Some(found?.ino() as u32)),
    }
}

/// The inode of this thread's namespace.
pub(crate) fn own_inode() -> io::Result<u32> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino() as u32)
}

/// The base of a number: [`HERE`], or that of another namespace.
pub(crate) fn base(number: u32) -> u32 {
    if number & ELSEWHERE == 0 { HERE } else { number >> INDEX_BITS << INDEX_BITS }
}

/// The index, in its namespace, of the device with this number.
pub(crate) fn index(number: u32) -> u32 {
    if number & ELSEWHERE == 0 { number } else { number & !(!0 << INDEX_BITS) }
}

/// The number of a device; none if its index is larger than there is room for.
pub(crate) fn number(base: u32, index: u32) -> Option<u32> {
    (base == HERE || index >> INDEX_BITS == 0).then_some(base | index)
}

/// The first base that is not in `taken`.
pub(crate) fn free_base(taken: impl Fn(u32) -> bool) -> Option<u32> {
    (0..ELSEWHERE >> INDEX_BITS).map(|number| ELSEWHERE | number << INDEX_BITS).find(|base| !taken(*base))
}

/// Gives a namespace this base, for this thread.
pub(crate) fn know(base: u32, namespace: Namespace) -> io::Result<()> {
    let own = File::open("/proc/thread-self/ns/net")?;
    KNOWN.with_borrow_mut(|known| {
        known.own.get_or_insert_with(|| Rc::new(own.into()));
        known.others.insert(base, namespace);
    });
    Ok(())
}

/// Takes a base from its namespace, for this thread.
pub(crate) fn forget(base: u32) {
    KNOWN.with_borrow_mut(|known| known.others.remove(&base));
}

/// Bases with the names and inodes of their namespaces.
pub(crate) fn all() -> Vec<(u32, String, u32)> {
    let row = |(base, namespace): (&u32, &Namespace)| (*base, namespace.name.clone(), namespace.inode);
    KNOWN.with_borrow(|known| known.others.iter().map(row).collect())
}

/// A device's name, with its namespace if that is not the agent's own: `NAMESPACE/DEVICE`, which no device's own name
/// can be.
pub(crate) fn name(base: u32, device: &str) -> String {
    let namespace = |known: &Known| known.others.get(&base).map(|namespace| format!("{}/{device}", namespace.name));
    KNOWN.with_borrow(namespace).unwrap_or_else(|| device.to_owned())
}

/// The number of the device with this index in the namespace with this inode, if that is known.
pub(crate) fn number_in(inode: u32, own: u32, device: u32) -> Option<u32> {
    if inode == own {
        return Some(device);
    }
    let found = KNOWN.with_borrow(|known| known.others.iter().find(|(_, other)| other.inode == inode).map(|(b, _)| *b));
    number(found?, device)
}

/// Keeps the thread in the namespace of a device until it is dropped. Must not be nested.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entered {
    back: Option<Rc<OwnedFd>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(own) = &self.back {
            // Otherwise, all that follows would be done in the wrong namespace.
            setns(own.as_fd(), CloneFlags::CLONE_NEWNET).expect("a thread may go back to its own network namespace");
        }
    }
}

/// Enters the namespace that a number or a base belongs to.
///
/// # Errors
/// `ENODEV` if it is not known, as the kernel answers for a device that is not there; `EPERM` without CAP_SYS_ADMIN.
pub(crate) fn enter(number: u32) -> io::Result<Entered> {
    let base = base(number);
    if base == HERE {
        return Ok(Entered { back: None });
    }
    let (own, there) = KNOWN.with_borrow(|known| (known.own.clone(), known.others.get(&base).map(|n| n.fd.clone())));
    let (Some(own), Some(there)) = (own, there) else { return Err(io::Error::from_raw_os_error(libc::ENODEV)) };
    setns(there.as_fd(), CloneFlags::CLONE_NEWNET)?;
    Ok(Entered { back: Some(own) })
}

/// Whether this process may enter other namespaces.
///
/// # Errors
/// The system's answer.
pub(crate) fn may_enter() -> io::Result<()> {
    let own = File::open("/proc/thread-self/ns/net")?;
    Ok(setns(own, CloneFlags::CLONE_NEWNET)?)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use evenkeel_testbed::place::{index as index_of, ip};
    use nix::sched::unshare;

    use super::*;

    #[test]
    fn numbers_of_other_namespaces_are_no_indices() {
        assert_eq!((base(7), index(7), number(HERE, 7)), (HERE, 7, Some(7)));
        assert_eq!(number(HERE, (1 << 31) - 1), Some((1 << 31) - 1));
        let first = free_base(|_| false).unwrap();
        let second = free_base(|base| base == first).unwrap();
        assert_ne!(first, second);
        for of in [first, second] {
            let found = number(of, 7).unwrap();
            assert!(i32::try_from(found).is_err());
            assert_eq!((base(found), index(found), base(of)), (of, 7, of));
            assert_eq!(number(of, 1 << INDEX_BITS), None);
        }
        let asked = Cell::new(0);
        let is_taken = |_| {
            asked.set(asked.get() + 1);
            true
        };
        assert_eq!((free_base(is_taken), asked.get()), (None, 2048));
        assert_eq!(enter(first).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn a_thread_is_elsewhere_as_long_as_it_says_so() {
        let place = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("this test needs root");
            ip("link add here type bridge");
            let own = own_inode().unwrap();
            assert!(Namespace::open(Path::new("/proc/self/ns/uts")).unwrap().is_none(), "it is of another kind");
            assert!(Namespace::open(Path::new("/proc/version")).unwrap().is_none(), "it is none");
            let there = Namespace::open(Path::new("/proc/self/ns/net")).unwrap().unwrap();
            let inode = there.inode;
            let base = free_base(|_| false).unwrap();
            know(base, there).unwrap();
            assert_eq!((name(base, "tap0"), name(HERE, "tap0")), ("net/tap0".to_owned(), "tap0".to_owned()));
            let entered = enter(number(base, 1).unwrap()).unwrap();
            assert_eq!(own_inode().unwrap(), inode);
            drop(entered);
            assert_eq!(own_inode().unwrap(), own);
            index_of("here");
            assert_eq!(number_in(inode, own, 9), number(base, 9));
            assert_eq!((number_in(own, own, 9), number_in(1, own, 9)), (Some(9), None));
            forget(base);
            assert!(enter(base).is_err());
        };
        if let Err(panic) = std::thread::spawn(place).join() {
            std::panic::resume_unwind(panic);
        }
    }
}
