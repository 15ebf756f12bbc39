//! Which programs are on a device, and putting them there by one of the two hooks.

use std::os::fd::AsFd;
use std::path::Path;

use evenkeel_settings::host::Attach;
use libbpf_rs::{AsRawLibbpf, Link};

use super::super::clsact::{self, Place};
use super::super::error::DatapathError;
use super::super::hook::Attached;
use super::super::pins;
use super::super::tcx::{self, Others};
use super::{Datapath, PROGRAMS, program};
use crate::features::{Features, Hook};
use crate::tc::Side;

impl Datapath {
    /// The hook by which the programs are put on ports.
    pub fn hook(&self) -> Hook {
        self.hook
    }

    /// Attaches the programs as `attach` says from now on; each port changes with its next [`attach`](Self::attach).
    ///
    /// # Errors
    /// [`DatapathError::CannotRun`] if this kernel does not take them that way.
    pub fn hook_by(&mut self, attach: Attach) -> Result<(), DatapathError> {
        self.hook = self.hook_for(attach)?;
        Ok(())
    }

    /// The hook that `attach` would choose.
    ///
    /// # Errors
    /// As [`hook_by`](Self::hook_by).
    pub fn hook_for(&self, attach: Attach) -> Result<Hook, DatapathError> {
        hook(&self.features, attach)
    }

    fn filter<'a>(&'a self, ifindex: u32, (name, side): (&'a str, Side)) -> Place<'a> {
        Place { pin_dir: &self.pin_dir, ifindex, name, side }
    }

    /// A pinned link, if its program is on the device that has this index now.
    fn link(&self, ifindex: u32, name: &str) -> Option<(Link, tcx::Attached)> {
        let path = self.path(ifindex, name);
        let link = path.exists().then(|| Link::open(path).ok())??;
        let attached = tcx::Attached::of(&link).filter(|attached| attached.is_on(ifindex))?;
        Some((link, attached))
    }

    /// Whether a program is on the device that has this index now, whichever agent put it there and by whichever hook.
    pub(super) fn is_there(&self, ifindex: u32, program: (&str, Side)) -> bool {
        self.link(ifindex, program.0).is_some() || self.filter(ifindex, program).find().is_some()
    }

    /// Whether all programs are on the device that has this index now.
    pub fn is_on(&self, ifindex: u32) -> bool {
        match self.attached.get(&ifindex) {
            Some(links) => links.len() == PROGRAMS.len() && links.iter().all(|link| link.is_on(ifindex)),
            None => PROGRAMS.iter().all(|program| self.is_there(ifindex, *program)),
        }
    }

    /// Whether the programs on a device are attached by the chosen hook.
    pub fn is_by_hook(&self, ifindex: u32) -> bool {
        self.attached.get(&ifindex).is_none_or(|links| links.iter().all(|link| link.hook() == self.hook))
    }

    /// Programs of others on a port, beside those that were put there.
    pub fn others(&self, ifindex: u32) -> Others {
        let mut others = Others::default();
        for link in self.attached.get(&ifindex).into_iter().flatten() {
            link.note_others(ifindex, &mut others);
        }
        others
    }

    /// Whether programs were put on a device with this index that is gone, or were taken off by somebody else.
    pub fn was_on(&self, ifindex: u32) -> bool {
        let is_pinned = |program: &(&str, Side)| {
            self.path(ifindex, program.0).exists() || self.filter(ifindex, *program).path().exists()
        };
        PROGRAMS.iter().any(is_pinned) && !self.is_on(ifindex)
    }

    pub(super) fn put(&self, ifindex: u32, name: &str, side: Side) -> Result<Option<Attached>, DatapathError> {
        let path = self.path(ifindex, name);
        if self.hook == Hook::Clsact {
            pins::remove(&path)?;
            let program = program(&self.object, name)?;
            let filter = self.filter(ifindex, (name, side)).put(program.as_fd())?;
            return Ok(Some(Attached::Filter(filter)));
        }
        let old = self.link(ifindex, name);
        let program = program(&self.object, name)?;
        if let Some((mut link, _)) = old {
            link.update_prog(&program).map_err(|error| DatapathError::bpf(format!("cannot replace {name}"), &error))?;
            return Ok(tcx::Attached::of(&link).map(Attached::Link));
        }
        pins::remove(&path)?;
        let mut link = tcx::attach(program.as_libbpf_object(), ifindex)
            .map_err(|error| DatapathError::io(format!("cannot attach {name} (tcx)"), error))?;
        link.pin(&path).map_err(|error| DatapathError::bpf(format!("cannot pin {}", path.display()), &error))?;
        Ok(tcx::Attached::of(&link).map(Attached::Link))
    }
}

pub(super) fn hook(features: &Features, attach: Attach) -> Result<Hook, DatapathError> {
    features.hook(attach).map_err(|lacks| DatapathError::CannotRun { lacks })
}

/// Takes the programs off a device, by whichever hook they are attached.
pub(super) fn take_off(pin_dir: &Path, ifindex: u32) -> Result<(), DatapathError> {
    for (name, _) in PROGRAMS {
        pins::remove(&pins::link(pin_dir, ifindex, name))?;
    }
    take_off_filters(pin_dir, ifindex)
}

/// Takes those programs off a device that are attached by clsact.
pub(super) fn take_off_filters(pin_dir: &Path, ifindex: u32) -> Result<(), DatapathError> {
    clsact::take_off(&PROGRAMS.map(|(name, side)| Place { pin_dir, ifindex, name, side }))
}
