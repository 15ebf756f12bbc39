//! The VMs behind ports: their names, and the channels to their agents.
//!
//! [`libvirt`] reads what libvirt notes, [`process`] what processes say, [`map`] decides without any I/O; [`Vms`] looks
//! when there is news, and remembers.

mod libvirt;
mod map;
mod process;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) use libvirt::DIRECTORY;
use map::Evidence;
pub(super) use map::Unknown;
pub use map::{FoundBy, Vm};
use process::Process;

use crate::datapath::{Processes, Seen};

/// How long a look waits after news, as several pieces of news come together.
const LOOK_SOON: Duration = Duration::from_millis(50);
/// How often to look without news.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// After a look, the next one waits at least this many times as long as the look took.
const REST: u32 = 20;

/// A tap that a VM may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tap {
    /// Its index.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
}

/// What is known of ports' VMs.
#[derive(Debug)]
pub(super) struct Vms {
    files: libvirt::Files,
    /// Finds the processes that have taps open; opened when first needed.
    processes: Option<Processes>,
    /// By the index of their devices.
    known: BTreeMap<u32, Result<Vm, Unknown>>,
    look_at: Instant,
    /// How long the next look is put off where something is missing.
    put_off: Duration,
    /// No look before this.
    rests_until: Instant,
}

impl Vms {
    /// Nothing is known yet.
    pub fn new(now: Instant) -> Self {
        Self::at(Path::new(libvirt::DIRECTORY), now)
    }

    fn at(directory: &Path, now: Instant) -> Self {
        Self {
            files: libvirt::Files::new(directory),
            processes: None,
            known: BTreeMap::new(),
            look_at: now,
            put_off: LOOK_SOON,
            rests_until: now,
        }
    }

    /// The VM of the port with this index.
    pub fn of(&self, ifindex: u32) -> Option<&Vm> {
        self.known.get(&ifindex)?.as_ref().ok()
    }

    /// Why the VM of this port is not known.
    pub fn obstacle(&self, ifindex: u32) -> Option<&Unknown> {
        self.known.get(&ifindex).map_or(Some(&Unknown::Unseen), |known| known.as_ref().err())
    }

    /// Forgets a device that is gone, or no port any more.
    pub fn forget(&mut self, ifindex: u32) {
        self.known.remove(&ifindex);
    }

    /// There is news.
    pub fn look_soon(&mut self, now: Instant) {
        self.put_off = LOOK_SOON;
        self.look_at = self.look_at.min(now + LOOK_SOON);
    }

    /// When [`look`](Self::look) is to be called.
    pub fn looks_at(&self) -> Instant {
        self.look_at.max(self.rests_until)
    }

    /// Reads libvirt's notes, and looks up who has these taps open. Returns the taps of which something else is known
    /// now.
    pub fn look(&mut self, taps: &[Tap], now: Instant) -> Vec<u32> {
        self.files.look();
        let seen = if taps.is_empty() { Ok(Seen::default()) } else { self.holders() };
        let changed = self.learn(taps, seen.as_ref().map_err(String::as_str), now);
        self.rests_until = now + REST * now.elapsed();
        changed
    }

    fn holders(&mut self) -> Result<Seen, String> {
        let processes = match self.processes.take() {
            Some(processes) => Ok(processes),
            None => Processes::open(),
        };
        let seen = processes.and_then(|processes| self.processes.insert(processes).look());
        seen.map_err(|error| error.to_string())
    }

    fn learn(&mut self, taps: &[Tap], seen: Result<&Seen, &str>, now: Instant) -> Vec<u32> {
        let evidence = Evidence::new(self.files.domains(), seen);
        let mut changed = Vec::new();
        let mut is_missing = self.files.is_partial();
        for tap in taps {
            let vm = evidence.vm(tap.ifindex, &tap.name, Process::look);
            let vm = vm.map(|vm| Vm { cgroup: process::cgroup_of(vm.process), ..vm });
            is_missing |= vm.is_err();
            if self.known.get(&tap.ifindex) != Some(&vm) {
                changed.push(tap.ifindex);
            }
            self.known.insert(tap.ifindex, vm);
        }
        self.look_at = now + if is_missing { self.put_off } else { LOOK_EVERY };
        self.put_off = if is_missing { (2 * self.put_off).min(LOOK_EVERY) } else { LOOK_SOON };
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::Holder;

    const WEB1: &str = include_str!("fixtures/web1.xml");

    fn seen(holders: &[(u32, u32)]) -> Seen {
        let holder = |(process, port): &_| Holder { process: *process, port: *port };
        Seen { holders: holders.iter().map(holder).collect(), threads: Vec::new() }
    }

    fn tap(ifindex: u32, name: &str) -> Tap {
        Tap { ifindex, name: name.to_owned() }
    }

    /// The tap is there, then the file, then the process has the tap; a second tap is plugged in; all goes.
    #[test]
    fn a_domain_comes_gets_another_port_and_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("web1.xml");
        let start = Instant::now();
        let mut vms = Vms::at(directory.path(), start);
        let name = |vms: &Vms, ifindex| vms.of(ifindex).and_then(|vm| vm.name.clone());
        let turn = |vms: &mut Vms, taps: &[Tap], holders: &[(u32, u32)]| {
            vms.files.look();
            vms.learn(taps, Ok(&seen(holders)), start)
        };
        let first = [tap(3, "vnet0")];
        assert_eq!(vms.obstacle(3), Some(&Unknown::Unseen));
        assert_eq!(turn(&mut vms, &first, &[]), [3]);
        assert_eq!(vms.obstacle(3), Some(&Unknown::Nobody));
        std::fs::write(&path, WEB1).unwrap();
        assert_eq!(turn(&mut vms, &first, &[]), [3]);
        assert!(matches!(vms.obstacle(3), Some(Unknown::Elsewhere { .. })));
        assert_eq!(turn(&mut vms, &first, &[(23659, 3)]), [3]);
        assert_eq!((name(&vms, 3).as_deref(), vms.obstacle(3)), (Some("web1"), None));
        assert!(turn(&mut vms, &first, &[(23659, 3)]).is_empty());
        let both = [tap(3, "vnet0"), tap(4, "vnet1")];
        assert_eq!(turn(&mut vms, &both, &[(23659, 3), (23659, 4)]), [4]);
        assert_eq!(name(&vms, 4).as_deref(), Some("web1"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(turn(&mut vms, &both, &[]), [3, 4]);
        vms.forget(3);
        assert_eq!((vms.obstacle(3), vms.obstacle(4)), (Some(&Unknown::Unseen), Some(&Unknown::Nobody)));
    }

    #[test]
    fn what_is_missing_is_looked_for_less_and_less_often() {
        let directory = tempfile::tempdir().unwrap();
        let start = Instant::now();
        let mut vms = Vms::at(directory.path(), start);
        let mut now = start;
        let mut waits = Vec::new();
        for _ in 0..13 {
            vms.learn(&[tap(3, "vnet0")], Ok(&seen(&[])), now);
            waits.push((vms.looks_at() - now).as_millis());
            now = vms.looks_at();
        }
        assert_eq!(waits[..4], [50, 100, 200, 400]);
        assert_eq!(waits[10..], [51_200, 60_000, 60_000]);
        vms.look_soon(now - LOOK_EVERY);
        assert_eq!(vms.looks_at(), now - LOOK_EVERY + LOOK_SOON);
        vms.learn(&[tap(3, "vnet0")], Ok(&seen(&[(1, 3)])), now);
        assert_eq!(vms.looks_at(), now + LOOK_EVERY);
        // However much news there is, others have their turn.
        vms.rests_until = now + LOOK_EVERY;
        vms.look_soon(now);
        assert_eq!(vms.looks_at(), now + LOOK_EVERY);
    }
}
