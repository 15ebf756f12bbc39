//! evenkeel's programs on a port of a kernel without tcx: filters at clsact, and the pins by which the next agent knows
//! them. Unlike a link, a filter stays until its qdisc or device goes or a request removes it, and it does not name its
//! owner.
//!
//! | pin below `links` | says |
//! |---|---|
//! | `INDEX-PROGRAM-filter` | the program that evenkeel's filter has |
//! | `INDEX-PROGRAM-next` | the program that is about to replace it: an agent that is killed meanwhile leaves both |
//! | `INDEX-clsact` | evenkeel has made the qdisc |

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::DatapathError;
use super::pins;
use crate::tc::{self, Filter, Side, filters};

/// A filter of evenkeel's as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attached {
    side: Side,
    program: u32,
}

impl Attached {
    /// Whether it is on the device with this index.
    pub(super) fn is_on(self, ifindex: u32) -> bool {
        // If the kernel does not answer, the filter counts as not there.
        own(&filters(ifindex, self.side).unwrap_or_default()).is_some_and(|filter| filter.program == Some(self.program))
    }

    /// Programs of others that see a packet before it and after it, on the device with this index.
    pub(super) fn others(self, ifindex: u32) -> (Vec<u32>, Vec<u32>) {
        let all = filters(ifindex, self.side).unwrap_or_default();
        let Some(at) = all.iter().position(Filter::is_at_own_place) else { return Default::default() };
        let programs = |filters: &[Filter]| filters.iter().filter_map(|filter| filter.program).collect();
        (programs(&all[..at]), programs(&all[at + 1..]))
    }

    /// The side that it is at.
    pub(super) fn side(self) -> Side {
        self.side
    }
}

fn own(all: &[Filter]) -> Option<&Filter> {
    all.iter().find(|filter| filter.is_at_own_place())
}

/// A program of a port, and where its pins are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) pin_dir: &'a Path,
    pub(super) ifindex: u32,
    pub(super) name: &'a str,
    pub(super) side: Side,
}

impl Place<'_> {
    fn pin(&self, what: &str) -> PathBuf {
        pins::link(self.pin_dir, self.ifindex, &format!("{}-{what}", self.name))
    }

    /// The pin of its program.
    pub(super) fn path(&self) -> PathBuf {
        self.pin("filter")
    }

    fn next(&self) -> PathBuf {
        self.pin("next")
    }

    fn made(&self) -> PathBuf {
        pins::link(self.pin_dir, self.ifindex, "clsact")
    }

    /// The filter, if it is on the device that has this index now and an agent with these pins has put it there.
    ///
    /// # Errors
    /// The kernel's answer; none if the device is gone.
    fn look(&self) -> io::Result<Option<Attached>> {
        let pinned = |pin: PathBuf| open(&pin).and_then(|program| number(program.as_fd())).ok();
        let known: Vec<u32> = [self.path(), self.next()].into_iter().filter_map(pinned).collect();
        // Most ports have no pins, which saves the request.
        if known.is_empty() {
            return Ok(None);
        }
        let all = match filters(self.ifindex, self.side) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Vec::new(),
            all => all?,
        };
        let program = own(&all).and_then(|filter| filter.program).filter(|program| known.contains(program));
        Ok(program.map(|program| Attached { side: self.side, program }))
    }

    /// As [`look`](Self::look). If the kernel does not answer, the filter counts as not there.
    pub(super) fn find(&self) -> Option<Attached> {
        self.look().ok().flatten()
    }

    /// Puts a program on the device, or in the place of the one that is there.
    pub(super) fn put(&self, program: BorrowedFd<'_>) -> Result<Attached, DatapathError> {
        let failed = |error: io::Error| self.refused(error);
        let all = filters(self.ifindex, self.side).map_err(failed)?;
        // A filter whose program has this name is evenkeel's even if somebody has removed its pins.
        if own(&all).is_some_and(|filter| !filter.has_program(self.name)) && self.find().is_none() {
            return Err(failed(io::Error::other("somebody else's filter has its priority and handle")));
        }
        let had_made = self.made().exists();
        if !had_made {
            pin(program, &self.made()).map_err(failed)?;
        }
        let made = tc::make(self.ifindex).and_then(|is_new| if is_new { Ok(true) } else { self.check_kind() });
        if !had_made && !matches!(made, Ok(true)) {
            pins::remove(&self.made())?;
        }
        made.map_err(failed)?;
        pins::remove(&self.next())?;
        pin(program, &self.next()).map_err(failed)?;
        tc::put(self.ifindex, self.side, program).map_err(failed)?;
        fs::rename(self.next(), self.path()).map_err(failed)?;
        Ok(Attached { side: self.side, program: number(program).map_err(failed)? })
    }

    /// Checks that the qdisc that is there already is clsact; false, as it is not new. `ingress` would take filters for
    /// both sides, but has one list: the program for packets to the VM would get those from it.
    fn check_kind(&self) -> io::Result<bool> {
        let kind = tc::kind(self.ifindex)?;
        if kind == "clsact" {
            return Ok(false);
        }
        Err(io::Error::other(format!(
            "the qdisc `{kind}` is in clsact's place (libvirt's <bandwidth> with <outbound> makes an `ingress`); \
             remove it, take the port out of `ports`, or boot a kernel with tcx (Linux 6.6 or newer), where both have \
             room"
        )))
    }

    fn refused(&self, error: io::Error) -> DatapathError {
        DatapathError::io(format!("cannot attach {} (a filter at clsact)", self.name), error)
    }

    /// Takes the filter off, if it is there, and forgets it.
    fn take_off(&self) -> Result<(), DatapathError> {
        let failed = |error| DatapathError::io(format!("cannot take {} off device {}", self.name, self.ifindex), error);
        if self.look().map_err(failed)?.is_some() {
            tc::take(self.ifindex, self.side).map_err(failed)?;
        }
        pins::remove(&self.path())?;
        pins::remove(&self.next())
    }
}

/// Takes a port's filters off, and its clsact if evenkeel made that and nobody else has a filter there. A device that
/// is gone, or another that has its index now, is left as it is.
pub(super) fn take_off(places: &[Place<'_>]) -> Result<(), DatapathError> {
    // One that stays keeps no other.
    let tried: Vec<_> = places.iter().map(Place::take_off).collect();
    tried.into_iter().collect::<Result<(), _>>()?;
    let Some(place) = places.first() else { return Ok(()) };
    if place.made().exists() {
        match tc::remove_empty(place.ifindex) {
            // It went with its device, or somebody has removed it.
            Err(error) if !is_gone(&error) => {
                return Err(DatapathError::io(format!("cannot remove clsact of device {}", place.ifindex), error));
            }
            _ => {}
        }
    }
    pins::remove(&place.made())
}

fn is_gone(error: &io::Error) -> bool {
    [Some(libc::ENODEV), Some(libc::ENOENT), Some(libc::EINVAL)].contains(&error.raw_os_error())
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn pin(program: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a string of C, and the program is open.
    tc::outcome(unsafe { libbpf_sys::bpf_obj_pin(program.as_raw_fd(), path.as_ptr()) })
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: the path is a string of C. What comes back is checked and owned once.
    unsafe {
        let program = libbpf_sys::bpf_obj_get(path.as_ptr());
        if program < 0 { Err(io::Error::from_raw_os_error(-program)) } else { Ok(OwnedFd::from_raw_fd(program)) }
    }
}

/// The kernel's number of a program.
fn number(program: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = size_of_val(&info) as u32;
    // SAFETY: the size is the structure's own, and the structure asks for no arrays.
    let code = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut bytes) };
    tc::outcome(code).map(|()| info.id)
}
