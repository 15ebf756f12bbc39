//! Which VM has a tap: what libvirt notes, who has the tap open, and what that process says, together.
//!
//! The guest has no part in it: nothing that a guest says gives it a name, or leads to a channel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use evenkeel_quote::shown;
use evenkeel_settings::address::{HostAddress, PORT_NAME};
use serde::{Deserialize, Serialize};

use super::libvirt::Domain;
use super::process::Process;
use crate::channel::{Listener, Target};
use crate::datapath::{Seen, thread_name};

/// A port's VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// What it is called; nothing where its process does not say.
    pub name: Option<String>,
    /// Who says so.
    pub found_by: FoundBy,
    /// The process that has the tap open.
    pub process: u32,
    /// Kernel threads that move this VM's packets (vhost); 0: its process does that itself.
    pub vhost_threads: u32,
    /// Its cgroup: the path in the hierarchy that divides CPU time.
    pub cgroup: Option<String>,
    /// The Unix socket of the virtio port that the guest's agent has.
    pub channel: Option<PathBuf>,
}

/// Where a VM was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FoundBy {
    /// In libvirt's notes.
    Libvirt,
    /// In the command line of the process that has the tap open.
    Process,
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Libvirt => "libvirt",
            Self::Process => "its process",
        })
    }
}

impl Vm {
    /// Where its agent is found.
    ///
    /// # Errors
    /// Why it is not.
    pub(in crate::host) fn target(&self) -> Result<Target, String> {
        let Some(path) = &self.channel else {
            return Err(format!("its VM has no virtio port {PORT_NAME} with a Unix socket that it listens at"));
        };
        let listener = match self.found_by {
            FoundBy::Libvirt => Listener::ProcessOrRoot(self.process),
            FoundBy::Process => Listener::Process(self.process),
        };
        Ok(Target { address: HostAddress::Path(path.clone()), listener })
    }

    /// Where its agent is found, for libvirt's VMs alone.
    ///
    /// # Errors
    /// Why it is not.
    pub(in crate::host) fn target_in_libvirt(&self) -> Result<Target, String> {
        match self.found_by {
            FoundBy::Libvirt => self.target(),
            FoundBy::Process => {
                Err(format!("process {} has the tap open, and no domain of libvirt's has that port", self.process))
            }
        }
    }
}

impl fmt::Display for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or("without a name");
        let vhost = if self.vhost_threads > 0 { "on" } else { "off" };
        write!(f, "{} (by {}), process {}, vhost {vhost}", shown(name), self.found_by, self.process)?;
        match &self.cgroup {
            Some(cgroup) => write!(f, ", cgroup {}", shown(cgroup)),
            None => Ok(()),
        }
    }
}

/// Why no VM is known of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::host) enum Unknown {
    /// Not looked at yet.
    Unseen,
    /// No process has it open.
    Nobody,
    /// Several have.
    Several(Vec<u32>),
    /// libvirt names a domain, and another process, or none, has it open.
    Elsewhere {
        /// The domain.
        domain: String,
        /// Its process.
        process: u32,
        /// Who has the tap open.
        holders: Vec<u32>,
    },
    /// libvirt names several domains, and it cannot be told which of them has it open.
    Domains(Vec<String>),
    /// The kernel does not say who has it open.
    Unreadable(String),
}

impl Unknown {
    /// Whether this is normal while a VM starts, or is so at every port of the host.
    pub(in crate::host) fn is_passing(&self) -> bool {
        match self {
            Self::Unseen | Self::Nobody | Self::Unreadable(_) => true,
            Self::Elsewhere { holders, .. } => holders.is_empty(),
            Self::Several(_) | Self::Domains(_) => false,
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unseen => f.write_str("not looked for yet"),
            Self::Nobody => f.write_str("no process has the tap open"),
            Self::Several(processes) => {
                write!(f, "processes {processes:?} have the tap open, and which of them is the VM cannot be told")
            }
            Self::Elsewhere { domain, process, holders } if holders.is_empty() => {
                write!(f, "libvirt's domain {} has it, and its process {process} has not opened it", shown(domain))
            }
            Self::Elsewhere { domain, process, holders } => write!(
                f,
                "libvirt's domain {} has it by its notes, with process {process}, and by the kernel's {holders:?}",
                shown(domain)
            ),
            Self::Domains(names) => {
                write!(f, "libvirt's notes give it to several domains: {}", shown(&names.join(", ")))
            }
            Self::Unreadable(why) => write!(f, "this kernel does not say who has taps open: {}", shown(why)),
        }
    }
}

/// All that was seen at one moment.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    domains: BTreeMap<&'a str, Vec<&'a Domain>>,
    /// Processes that have taps open, by the taps' indices.
    holders: Result<BTreeMap<u32, BTreeSet<u32>>, &'a str>,
    /// How many there are, by the process whose packets they move.
    vhost_threads: BTreeMap<u32, u32>,
}

impl<'a> Evidence<'a> {
    pub(super) fn new(domains: impl Iterator<Item = &'a Domain>, seen: Result<&Seen, &'a str>) -> Self {
        let mut by_tap: BTreeMap<&str, Vec<&Domain>> = BTreeMap::new();
        for domain in domains {
            for tap in &domain.taps {
                by_tap.entry(tap).or_default().push(domain);
            }
        }
        let mut vhost_threads = BTreeMap::new();
        for thread in seen.map(|seen| seen.threads.as_slice()).unwrap_or_default() {
            // vhost's threads are processes of their own before Linux 6.4 and threads of the VM's from then on, named
            // alike.
            let of = thread_name(thread).strip_prefix("vhost-").and_then(|process| process.parse::<u32>().ok());
            if let Some(process) = of {
                *vhost_threads.entry(process).or_default() += 1;
            }
        }
        let holders = seen.map(|seen| {
            let mut holders: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
            for holder in &seen.holders {
                holders.entry(holder.port).or_default().insert(holder.process);
            }
            holders
        });
        Self { domains: by_tap, holders, vhost_threads }
    }

    /// The VM of the tap with this index and name. `look` is called for a process that libvirt does not know.
    pub(super) fn vm(&self, ifindex: u32, name: &str, look: impl FnOnce(u32) -> Process) -> Result<Vm, Unknown> {
        let named = self.domains.get(name).map(Vec::as_slice).unwrap_or_default();
        let of = |domain: &Domain| self.of_domain(domain);
        let none = BTreeSet::new();
        let holders = match &self.holders {
            Ok(holders) => holders.get(&ifindex).unwrap_or(&none),
            Err(why) => {
                return match named {
                    [] => Err(Unknown::Unreadable((*why).to_owned())),
                    [domain] => Ok(of(domain)),
                    _ => Err(several(named)),
                };
            }
        };
        let open: Vec<_> = named.iter().filter(|domain| holders.contains(&domain.process)).collect();
        let ids = || holders.iter().copied().collect::<Vec<_>>();
        match (open.as_slice(), named) {
            ([domain], _) => Ok(of(domain)),
            ([], [domain, ..]) => {
                Err(Unknown::Elsewhere { domain: domain.name.clone(), process: domain.process, holders: ids() })
            }
            ([], []) => match ids().as_slice() {
                [] => Err(Unknown::Nobody),
                [process] => {
                    let Process { name, channel } = look(*process);
                    Ok(Vm { name, channel, ..self.of_process(*process, FoundBy::Process) })
                }
                _ => Err(Unknown::Several(ids())),
            },
            _ => Err(several(named)),
        }
    }

    fn of_domain(&self, domain: &Domain) -> Vm {
        let name = Some(domain.name.clone());
        Vm { name, channel: domain.channel.clone(), ..self.of_process(domain.process, FoundBy::Libvirt) }
    }

    fn of_process(&self, process: u32, found_by: FoundBy) -> Vm {
        let vhost_threads = self.vhost_threads.get(&process).copied().unwrap_or(0);
        Vm { name: None, found_by, process, vhost_threads, cgroup: None, channel: None }
    }
}

fn several(domains: &[&Domain]) -> Unknown {
    Unknown::Domains(domains.iter().map(|domain| domain.name.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::{Holder, intf};

    fn domain(name: &str, process: u32, taps: &[&str]) -> Domain {
        let taps = taps.iter().map(|tap| (*tap).to_owned()).collect();
        Domain { name: name.to_owned(), process, taps, channel: Some(format!("/channels/{name}").into()) }
    }

    /// Processes with taps open, and threads with their names.
    fn seen(holders: &[(u32, u32)], threads: &[(u32, &str)]) -> Seen {
        let holder = |(process, port): &_| Holder { process: *process, port: *port };
        let thread = |(process, name): &(u32, &str)| {
            let mut thread = intf::ek_thread { process: *process, id: *process, ..Default::default() };
            for (to, byte) in thread.name.iter_mut().zip(name.bytes()) {
                *to = byte as _;
            }
            thread
        };
        Seen { holders: holders.iter().map(holder).collect(), threads: threads.iter().map(thread).collect() }
    }

    fn process(id: u32) -> Process {
        Process { name: Some(format!("of {id}")), channel: Some(format!("/channels/{id}").into()) }
    }

    fn vm(domains: &[Domain], seen: Result<&Seen, &str>) -> Result<(Option<String>, FoundBy, u32), Unknown> {
        let evidence = Evidence::new(domains.iter(), seen);
        evidence.vm(3, "vnet0", process).map(|vm| {
            let name = vm.name.clone().unwrap();
            assert_eq!(vm.channel, Some(format!("/channels/{}", name.trim_start_matches("of ")).into()));
            (vm.name, vm.found_by, vm.process)
        })
    }

    fn elsewhere(process: u32, holders: &[u32]) -> Unknown {
        Unknown::Elsewhere { domain: "web1".to_owned(), process, holders: holders.to_vec() }
    }

    #[test]
    fn libvirts_notes_hold_where_the_kernel_agrees() {
        let (web1, web2) = (domain("web1", 100, &["vnet0", "vnet1"]), domain("web2", 200, &["vnet0"]));
        let found = |name: &str, process| Ok((Some(name.to_owned()), FoundBy::Libvirt, process));
        let one = [web1.clone()];
        let both = [web1, web2];
        assert_eq!(vm(&one, Ok(&seen(&[(100, 3)], &[]))), found("web1", 100));
        assert_eq!(vm(&one, Ok(&seen(&[(9, 3), (100, 3)], &[]))), found("web1", 100));
        assert_eq!(vm(&one, Ok(&seen(&[], &[]))), Err(elsewhere(100, &[])));
        // The same index and name in another network namespace.
        assert_eq!(vm(&one, Ok(&seen(&[(100, 1 << 31 | 3)], &[]))), Err(elsewhere(100, &[])));
        assert_eq!(vm(&one, Ok(&seen(&[(101, 3)], &[]))), Err(elsewhere(100, &[101])));
        // A file left over from a domain that had a device of this name before.
        assert_eq!(vm(&both, Ok(&seen(&[(200, 3)], &[]))), found("web2", 200));
        let names = || vec!["web1".to_owned(), "web2".to_owned()];
        assert_eq!(vm(&both, Ok(&seen(&[(200, 3), (100, 3)], &[]))), Err(Unknown::Domains(names())));
        // A kernel that does not say who has taps open.
        assert_eq!(vm(&one, Err("no types")), found("web1", 100));
        assert_eq!(vm(&both, Err("no types")), Err(Unknown::Domains(names())));
        assert_eq!(vm(&[], Err("no types")), Err(Unknown::Unreadable("no types".to_owned())));
    }

    #[test]
    fn without_notes_the_one_who_has_it_open_is_asked() {
        let others = [domain("web1", 100, &["vnet1"])];
        let found = Ok((Some("of 200".to_owned()), FoundBy::Process, 200));
        assert_eq!(vm(&others, Ok(&seen(&[(200, 3), (200, 3), (100, 4)], &[]))), found);
        assert_eq!(vm(&others, Ok(&seen(&[(100, 4)], &[]))), Err(Unknown::Nobody));
        let two = seen(&[(200, 3), (201, 3)], &[]);
        assert_eq!(vm(&others, Ok(&two)), Err(Unknown::Several(vec![200, 201])));
    }

    #[test]
    fn a_channel_is_where_the_process_with_the_tap_listens() {
        let own = [domain("web1", 100, &["vnet0"])];
        let of = |domains: &[Domain], id| {
            let seen = seen(&[(id, 3)], &[]);
            Evidence::new(domains.iter(), Ok(&seen)).vm(3, "vnet0", process).unwrap()
        };
        let target = |path: &str, listener| Ok(Target { address: HostAddress::Path(path.into()), listener });
        let libvirts = of(&own, 100);
        assert_eq!(libvirts.target(), target("/channels/web1", Listener::ProcessOrRoot(100)));
        assert_eq!(libvirts.target_in_libvirt(), libvirts.target());
        let other = of(&[], 200);
        assert_eq!(other.target(), target("/channels/200", Listener::Process(200)));
        assert!(other.target_in_libvirt().unwrap_err().contains("process 200 has the tap open"));
        let without = Vm { channel: None, ..libvirts };
        assert!(without.target_in_libvirt().unwrap_err().contains("no virtio port org.evenkeel.0"));
    }

    #[test]
    fn vhost_is_known_by_its_threads() {
        let one = [domain("web1", 100, &["vnet0"])];
        let threads = |threads: &[(u32, &str)]| {
            let seen = seen(&[(100, 3)], threads);
            Evidence::new(one.iter(), Ok(&seen)).vm(3, "vnet0", process).unwrap().vhost_threads
        };
        assert_eq!(threads(&[(100, "qemu"), (300, "vhost-300"), (100, "vhost-x")]), 0);
        assert_eq!(threads(&[(100, "vhost-100"), (100, "vhost-100")]), 2);
        assert_eq!(threads(&[(55, "vhost-100")]), 1, "before Linux 6.4");
    }

    #[test]
    fn words_stay_on_their_line() {
        let evil = "a\nb\u{1b}[31m";
        let one = [domain(evil, 100, &["vnet0"])];
        let known = Evidence::new(one.iter(), Err("none")).vm(3, "vnet0", process).unwrap();
        let known = Vm { cgroup: Some(evil.to_owned()), ..known };
        let (name, holders) = (evil.to_owned(), Vec::new());
        let others = [
            Unknown::Elsewhere { domain: name.clone(), process: 1, holders: holders.clone() },
            Unknown::Elsewhere { domain: name.clone(), process: 1, holders: vec![2] },
            Unknown::Domains(vec![name.clone()]),
            Unknown::Unreadable(name),
        ];
        for text in others.iter().map(ToString::to_string).chain([known.to_string()]) {
            assert!(text.contains(r"\n") && !text.contains(['\n', '\u{1b}']), "{text}");
        }
    }
}
