//! Which threads of the host are a VM's virtual CPUs: the programs ask the scheduler whether they run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use evenkeel_quote::shown;
use serde::{Deserialize, Serialize};

use crate::common::vcpu;
use crate::datapath::{Seen, intf, thread_name};

/// Beginnings of the names of a VMM's threads that are not virtual CPUs.
const HELPERS: [&str; 4] = ["vhost-", "kvm-", "iou-", "worker"];

/// How soon to look again, at first, where some VM's virtual CPUs are not known.
const LOOK_SOON: Duration = Duration::from_secs(1);
/// How often to look in any case: VMs end, and virtual CPUs can be added.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How long new taps are looked up in what was last seen, so that a burst of them takes one look.
const FRESH: Duration = Duration::from_millis(100);

/// A VM's virtual CPUs, as far as the host sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Vcpus {
    /// These threads of this process.
    Known {
        /// The process that has the tap open.
        process: u32,
        /// Its threads.
        threads: Vec<u32>,
        /// Whether they are named as virtual CPUs; if no thread is, all but the first are taken for virtual CPUs.
        are_named: bool,
    },
    /// No process was found that has the tap open.
    #[default]
    Nobody,
    /// Several have it open, and nothing shows in which of them the VM is.
    Several {
        /// All of them.
        processes: Vec<u32>,
    },
    /// The kernel does not say who has it open.
    Unreadable {
        /// In its words.
        why: String,
    },
    /// More than the programs look at.
    TooMany {
        /// How many.
        threads: u32,
    },
}

impl Vcpus {
    /// Of the VM behind this tap.
    fn of(ifindex: u32, seen: &Seen) -> Self {
        let its = seen.holders.iter().filter(|holder| holder.port == ifindex);
        let processes: BTreeSet<u32> = its.map(|holder| holder.process).collect();
        let all: Vec<_> = processes.iter().map(|process| (*process, Threads::of(*process, &seen.threads))).collect();
        let named: Vec<_> = all.iter().filter(|(_, threads)| threads.are_named).collect();
        let (process, threads) = match (named.as_slice(), all.as_slice()) {
            ([], []) => return Self::Nobody,
            ([one], _) => one,
            ([], [one]) => one,
            _ => return Self::Several { processes: processes.into_iter().collect() },
        };
        match u32::try_from(threads.ids.len()) {
            Ok(0..=intf::EK_VSNOOP_VCPUS) => {
                Self::Known { process: *process, threads: threads.ids.clone(), are_named: threads.are_named }
            }
            count => Self::TooMany { threads: count.unwrap_or(u32::MAX) },
        }
    }

    /// Whether this is not final yet: the process that makes a tap for a VM has it open before the VM does.
    fn may_change_soon(&self) -> bool {
        !matches!(self, Self::Known { are_named: true, .. })
    }

    /// As the datapath has it.
    pub(super) fn to_intf(&self) -> intf::ek_vsnoop_vcpus {
        let mut own = intf::ek_vsnoop_vcpus::default();
        if let Self::Known { process, threads, .. } = self {
            own.process = *process;
            own.count = threads.len() as u32;
            own.threads[..threads.len()].copy_from_slice(threads);
        }
        own
    }

    /// Why nobody knows whether the VM has its core; `None` if it is known.
    pub fn obstacle(&self) -> Option<String> {
        Some(match self {
            Self::Known { .. } => return None,
            Self::Nobody => "no process has its tap open".to_owned(),
            Self::Unreadable { why } => format!("this kernel does not say who has its tap open: {}", shown(why)),
            Self::Several { processes } => {
                format!("processes {processes:?} have its tap open, and in which of them the VM is cannot be told")
            }
            Self::TooMany { threads } => {
                format!("its VM has {threads} virtual CPUs, more than {}", intf::EK_VSNOOP_VCPUS)
            }
        })
    }
}

impl fmt::Display for Vcpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known { process, threads, .. } => {
                let s = if threads.len() == 1 { "" } else { "s" };
                write!(f, "{} virtual CPU{s} in process {process}", threads.len())
            }
            Self::Nobody => f.write_str("virtual CPUs not found"),
            Self::Unreadable { .. } => f.write_str("virtual CPUs not seen"),
            Self::Several { processes } => write!(f, "virtual CPUs not told apart in processes {processes:?}"),
            Self::TooMany { threads } => write!(f, "{threads} virtual CPUs, too many"),
        }
    }
}

/// Threads of a process that may be virtual CPUs.
#[derive(Debug, PartialEq, Eq)]
struct Threads {
    ids: Vec<u32>,
    /// Whether they are named as virtual CPUs. Of a VMM that names none, they are all but the first, which does the
    /// VM's input and output.
    are_named: bool,
}

impl Threads {
    fn of(process: u32, all: &[intf::ek_thread]) -> Self {
        let named = all.iter().filter(|thread| thread.process == process);
        Self::among(process, named.map(|thread| (thread.id, thread_name(thread))).collect())
    }

    fn among(process: u32, all: Vec<(u32, String)>) -> Self {
        let ids = |is_one: &dyn Fn(u32, &str) -> bool| {
            let mut ids: Vec<u32> = all.iter().filter(|(id, name)| is_one(*id, name)).map(|(id, _)| *id).collect();
            ids.sort_unstable();
            ids
        };
        let named = ids(&|_, name| vcpu::is_name_of_one(name));
        if !named.is_empty() {
            return Self { ids: named, are_named: true };
        }
        let others = ids(&|id, name| id != process && !HELPERS.iter().any(|helper| name.starts_with(helper)));
        Self { ids: if others.is_empty() { vec![process] } else { others }, are_named: false }
    }
}

/// What is known of ports' VMs.
#[derive(Debug)]
pub(super) struct Register {
    /// By the index of their devices.
    known: BTreeMap<u32, Vcpus>,
    /// What was last seen, and when.
    seen: Option<(Instant, Seen)>,
    look_at: Instant,
    /// How long the next look is put off where something is missing.
    put_off: Duration,
}

impl Register {
    pub(super) fn new(now: Instant) -> Self {
        Self { known: BTreeMap::new(), seen: None, look_at: now, put_off: LOOK_SOON }
    }

    pub(super) fn of(&self, ifindex: u32) -> Vcpus {
        self.known.get(&ifindex).cloned().unwrap_or_default()
    }

    pub(super) fn has(&self, ifindex: u32) -> bool {
        self.known.contains_key(&ifindex)
    }

    /// A tap is gone. What was seen of it is not true of another tap that has its index now.
    pub(super) fn forget(&mut self, ifindex: u32) {
        self.known.remove(&ifindex);
        self.seen = None;
    }

    /// Ports have changed: a VM that was not found may be there now, and a known one may be gone.
    pub(super) fn look_soon(&mut self, now: Instant) {
        self.put_off = LOOK_SOON;
        self.look_at = self.look_at.min(now + LOOK_SOON);
    }

    /// Whether it is time to go over the host's processes.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.look_at
    }

    /// Takes what was seen, or why nothing was. Returns the taps of which something else is known now.
    pub(super) fn learn(&mut self, taps: &[u32], seen: Result<Seen, String>, now: Instant) -> Vec<u32> {
        let mut changed = Vec::new();
        let mut is_missing = false;
        for &ifindex in taps {
            let vcpus = match &seen {
                Ok(seen) => Vcpus::of(ifindex, seen),
                Err(why) => Vcpus::Unreadable { why: why.clone() },
            };
            is_missing |= vcpus.may_change_soon();
            if vcpus != self.of(ifindex) {
                changed.push(ifindex);
            }
            self.known.insert(ifindex, vcpus);
        }
        self.seen = seen.ok().map(|seen| (now, seen));
        let wait = if is_missing { self.put_off } else { LOOK_EVERY };
        self.put_off = if is_missing { (2 * self.put_off).min(LOOK_EVERY) } else { LOOK_SOON };
        self.look_at = now + wait;
        changed
    }

    /// Whether what was seen a moment ago will do for a new tap. A VM that is missing there is looked for soon.
    pub(super) fn knew(&mut self, ifindex: u32, now: Instant) -> bool {
        let Some((_, seen)) = self.seen.as_ref().filter(|(when, _)| now < *when + FRESH) else { return false };
        let vcpus = Vcpus::of(ifindex, seen);
        if vcpus.may_change_soon() {
            self.look_soon(now);
        }
        self.known.insert(ifindex, vcpus);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::Holder;

    fn threads(names: &[&str]) -> Threads {
        Threads::among(100, (100..).zip(names.iter().map(|name| (*name).to_owned())).collect())
    }

    #[test]
    fn virtual_cpus_are_known_by_their_names() {
        for (names, ids) in [
            (&["qemu-system-x86", "call_rcu", "CPU 0/KVM", "vhost-100", "CPU 1/KVM"][..], &[102, 104][..]),
            (&["qemu-system-x86", "ALL CPUs/TCG"], &[101]),
            (&["cloud-hypervisor", "vcpu0", "_net0_qp0"], &[101]),
            (&["firecracker", "fc_api", "fc_vcpu 0", "fc_vcpu 1"], &[102, 103]),
        ] {
            assert_eq!(threads(names), Threads { ids: ids.to_vec(), are_named: true }, "{names:?}");
        }
    }

    #[test]
    fn of_those_that_name_none_all_but_the_first_may_be() {
        let unnamed = |ids: &[u32]| Threads { ids: ids.to_vec(), are_named: false };
        assert_eq!(threads(&["vmm", "vmm", "vhost-100", "vmm"]), unnamed(&[101, 103]));
        assert_eq!(threads(&["vmm", "kvm-nx-lpage-re"]), unnamed(&[100]));
        assert_eq!(threads(&["vmm"]), unnamed(&[100]));
    }

    fn holder(process: u32, port: u32) -> Holder {
        Holder { process, port }
    }

    fn thread(process: u32, id: u32, name: &str) -> intf::ek_thread {
        let mut thread = intf::ek_thread { process, id, ..Default::default() };
        for (to, byte) in thread.name.iter_mut().zip(name.bytes()) {
            *to = byte as _;
        }
        thread
    }

    fn known(process: u32, threads: &[u32]) -> Vcpus {
        Vcpus::Known { process, threads: threads.to_vec(), are_named: process == 100 }
    }

    #[test]
    fn only_what_is_certain_is_known() {
        let seen = |holders: &[Holder]| Seen {
            holders: holders.to_vec(),
            threads: vec![
                thread(100, 100, "qemu-system-x86"),
                thread(100, 101, "CPU 0/KVM"),
                thread(200, 200, "vmm"),
                thread(200, 201, "vmm"),
                thread(300, 300, "watcher"),
            ],
        };
        for (holders, expected) in [
            (&[][..], Vcpus::Nobody),
            (&[holder(100, 4)], Vcpus::Nobody),
            (&[holder(100, 3), holder(100, 3)], known(100, &[101])),
            (&[holder(200, 3)], known(200, &[201])),
            (&[holder(300, 3), holder(100, 3)], known(100, &[101])),
            (&[holder(300, 3), holder(200, 3)], Vcpus::Several { processes: vec![200, 300] }),
        ] {
            let vcpus = Vcpus::of(3, &seen(holders));
            let is_known = matches!(expected, Vcpus::Known { .. });
            assert_eq!((vcpus.obstacle().is_none(), vcpus.to_intf().count > 0), (is_known, is_known));
            assert_eq!(vcpus, expected);
        }
        let many = (0..=intf::EK_VSNOOP_VCPUS).map(|i| thread(100, 101 + i, "CPU 0/KVM")).collect();
        let seen = Seen { holders: vec![holder(100, 3)], threads: many };
        assert_eq!(Vcpus::of(3, &seen), Vcpus::TooMany { threads: intf::EK_VSNOOP_VCPUS + 1 });
    }

    #[test]
    fn what_is_missing_is_looked_for_less_and_less_often() {
        let start = Instant::now();
        let mut register = Register::new(start);
        let holders = vec![holder(100, 3)];
        let seen = Seen { holders, threads: vec![thread(100, 100, "vcpu0")] };
        assert!(register.is_due(start));
        assert_eq!(register.learn(&[3], Ok(seen.clone()), start), [3]);
        assert_eq!(register.of(3), known(100, &[100]));
        assert!(!register.is_due(start + LOOK_EVERY - LOOK_SOON) && register.is_due(start + LOOK_EVERY));

        let mut now = start;
        let mut waits = Vec::new();
        for _ in 0..6 {
            register.learn(&[3, 4], Ok(seen.clone()), now);
            waits.push(register.look_at - now);
            now = register.look_at;
        }
        assert_eq!(waits, [1, 2, 4, 8, 10, 10].map(Duration::from_secs));
        register.look_soon(now - LOOK_EVERY);
        assert_eq!(register.look_at, now - LOOK_EVERY + LOOK_SOON);
        assert_eq!(register.learn(&[3], Err("no".to_owned()), now), [3], "what is not seen any more is not known");
        assert_eq!(register.of(3).to_intf().count, 0);
        register.forget(3);
        assert_eq!(register.of(3), Vcpus::Nobody);
    }

    #[test]
    fn one_look_is_for_all_taps_of_a_burst_and_for_none_that_comes_after_one_went() {
        let start = Instant::now();
        let mut register = Register::new(start);
        assert!(!register.knew(3, start), "nobody has looked");
        let threads = vec![thread(100, 100, "vcpu0"), thread(200, 200, "vmm")];
        let seen = Seen { holders: vec![holder(100, 3), holder(200, 4)], threads };
        register.learn(&[3], Ok(seen.clone()), start);
        let soon = start + FRESH - Duration::from_millis(1);
        assert!(register.knew(4, soon) && register.of(4) == known(200, &[200]));
        // This tap's holder came after the look, so another look is due.
        assert!(register.knew(5, soon) && register.of(5) == Vcpus::Nobody && register.is_due(soon + LOOK_SOON));
        assert!(!register.knew(4, start + FRESH), "too long ago");
        // Another tap has the index of one that went: the holder of the first does not hold the second.
        register.learn(&[3], Ok(seen), start);
        register.forget(3);
        assert!(!register.knew(3, soon));
        register.learn(&[3], Err("no".to_owned()), start);
        assert!(!register.knew(3, soon), "nothing was seen");
    }
}
