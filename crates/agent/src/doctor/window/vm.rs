//! VMs as the host sees them: processes that have a port open, and their threads.

use std::collections::BTreeMap;

use evenkeel_quote::shown;

use super::files::Files;
use super::group::{Group, Hierarchy};
use super::port::Port;
use crate::common::vcpu;

/// What a thread is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// A virtual CPU.
    Vcpu,
    /// It carries packets between port and VM in the kernel.
    Vhost,
    /// The process's first thread, which carries them where vhost does not.
    Main,
    Other,
}

/// A thread, with the scheduler's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Thread {
    pub name: String,
    pub role: Role,
    pub ran_ns: u64,
    /// Ready to run, and without a core.
    pub waited_ns: u64,
    /// Turns on a core.
    pub turns: u64,
    /// Directories of the groups that it is in.
    pub groups: Vec<String>,
}

/// How names of threads begin that are no virtual CPUs, in a VMM that does not name its virtual CPUs.
const HELPERS: [&str; 4] = ["vhost-", "kvm-", "iou-", "worker"];

/// A process that has ports open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Vm {
    /// Its name, as the kernel has it.
    pub command: String,
    pub ports: Vec<String>,
    pub threads: BTreeMap<u32, Thread>,
    /// Whether its virtual CPUs have names. In a VMM that names none, any thread but the first may be one.
    pub are_named: bool,
}

impl Vm {
    /// Finds virtual CPUs by their names, or without.
    fn find_vcpus(&mut self) {
        self.are_named = self.threads.values().any(|thread| vcpu::is_name_of_one(&thread.name));
        for thread in self.threads.values_mut() {
            let is_one = if self.are_named {
                vcpu::is_name_of_one(&thread.name)
            } else {
                thread.role == Role::Other && !HELPERS.iter().any(|helper| thread.name.starts_with(helper))
            };
            if is_one {
                thread.role = Role::Vcpu;
            }
        }
    }
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Vms {
    /// By their process.
    pub all: BTreeMap<u32, Vm>,
    /// Groups with a quota that their threads are in, by directory.
    pub groups: BTreeMap<String, Group>,
    /// Whether some processes did not show their files.
    pub is_partial: bool,
    /// Whether threads show no scheduler's counters.
    pub has_no_waits: bool,
}

/// Reads processes that hold these ports.
pub(super) fn read(files: Files<'_>, ports: &BTreeMap<String, Port>, hierarchy: Option<&Hierarchy>) -> Vms {
    let mut vms = Vms::default();
    if ports.is_empty() {
        return vms;
    }
    let own_namespace = files.link("/proc/self/ns/net");
    // vhost's kernel threads; since Linux 6.4 they are threads of the process that they serve.
    let mut vhosts = Vec::new();
    for process in files.numbers("/proc").unwrap_or_default() {
        let Some(command) = name(files, &format!("/proc/{process}")) else { continue };
        if let Some(served) = command.strip_prefix("vhost-").and_then(|number| number.parse().ok()) {
            vhosts.push((process, served));
            continue;
        }
        let Some(mut held) = ports_of(files, process, ports) else {
            vms.is_partial |= files.has(&format!("/proc/{process}"));
            continue;
        };
        // In another network namespace, the same name is another port.
        if held.is_empty() || files.link(&format!("/proc/{process}/ns/net")) != own_namespace {
            continue;
        }
        held.dedup();
        vms.all.insert(process, Vm { command, ports: held, ..Vm::default() });
    }
    let mut reader = Reader { files, hierarchy, groups: BTreeMap::new(), has_no_waits: false };
    for (process, vm) in &mut vms.all {
        for id in files.numbers(&format!("/proc/{process}/task")).unwrap_or_default() {
            let role = if id == *process { Role::Main } else { Role::Other };
            vm.threads.extend(reader.thread(&format!("/proc/{process}/task/{id}"), role).map(|thread| (id, thread)));
        }
        vm.find_vcpus();
    }
    for (id, served) in vhosts {
        if let Some(vm) = vms.all.get_mut(&served) {
            vm.threads.extend(reader.thread(&format!("/proc/{id}"), Role::Vhost).map(|thread| (id, thread)));
        }
    }
    (vms.groups, vms.has_no_waits) = (reader.groups, reader.has_no_waits);
    leave_to_vms(&mut vms.all);
    vms
}

/// If several processes have one port open, leaves it to those with named virtual CPUs.
fn leave_to_vms(all: &mut BTreeMap<u32, Vm>) {
    let served: Vec<String> = all.values().filter(|vm| vm.are_named).flat_map(|vm| vm.ports.clone()).collect();
    all.retain(|_, vm| {
        if !vm.are_named {
            vm.ports.retain(|port| !served.contains(port));
        }
        !vm.ports.is_empty()
    });
}

/// The ports that a process has open; `None` if it does not show its files.
fn ports_of(files: Files<'_>, process: u32, ports: &BTreeMap<String, Port>) -> Option<Vec<String>> {
    let mut held = Vec::new();
    for fd in files.numbers(&format!("/proc/{process}/fd"))? {
        // It may be closed by now.
        let Some(target) = files.link(&format!("/proc/{process}/fd/{fd}")) else { continue };
        if target == "/dev/net/tun" {
            let info = files.text(&format!("/proc/{process}/fdinfo/{fd}")).unwrap_or_default();
            let name = info.lines().find_map(|line| line.strip_prefix("iff:")).map(str::trim).unwrap_or_default();
            held.extend(ports.get_key_value(name).map(|(name, _)| name.clone()));
        } else if let Some(ifindex) = target.strip_prefix("/dev/tap").and_then(|number| number.parse::<u32>().ok()) {
            let is_it = |port: &Port| port.ifindex == ifindex;
            held.extend(ports.iter().find(|(_, port)| is_it(port)).map(|(name, _)| name.clone()));
        }
    }
    held.sort_unstable();
    Some(held)
}

/// The name of a process or thread, on one line: it can give itself any name.
fn name(files: Files<'_>, directory: &str) -> Option<String> {
    Some(shown(&files.text(&format!("{directory}/comm"))?).into())
}

/// Reads threads, and the groups that they are in.
struct Reader<'a> {
    files: Files<'a>,
    hierarchy: Option<&'a Hierarchy>,
    groups: BTreeMap<String, Group>,
    has_no_waits: bool,
}

impl Reader<'_> {
    /// The thread with this directory; `None` if it has ended.
    fn thread(&mut self, directory: &str, role: Role) -> Option<Thread> {
        let name = name(self.files, directory)?;
        let schedstat = self.files.text(&format!("{directory}/schedstat"));
        self.has_no_waits |= schedstat.is_none();
        let counters = schedstat.unwrap_or_default();
        let mut counters = counters.split_whitespace().map(|word| word.parse().unwrap_or(0));
        let mut next = || counters.next().unwrap_or(0);
        let (ran_ns, waited_ns, turns) = (next(), next(), next());
        let role = match role {
            Role::Other if name.starts_with("vhost-") => Role::Vhost,
            role => role,
        };
        let path = self.files.text(&format!("{directory}/cgroup"));
        let path = self.hierarchy.zip(path).and_then(|(hierarchy, text)| hierarchy.of_thread(&text));
        let mut groups = Vec::new();
        if let Some((hierarchy, path)) = self.hierarchy.zip(path) {
            hierarchy.read(self.files, &path, &mut self.groups);
            groups.extend(hierarchy.limiting(&path).filter(|directory| self.groups.contains_key(directory)));
        }
        Some(Thread { name, role, ran_ns, waited_ns, turns, groups })
    }
}
