//! Cgroups with the processor's controller: a tree of the lab's own, below the root of the hierarchy.
//!
//! Version 2 where it has the controller, else version 1. A group has a group `vcpu` within it: the outer one has the
//! VM's weight, the inner one its virtual CPUs and their quota, as libvirt has it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_scenario::format::Quota;

use crate::error::LabError;

/// How the names of the lab's trees begin; the process follows, so that no two are alike.
const PREFIX: &str = "evenkeel-lab-";
/// How they end if their lab gave the controller to the groups of the root: whoever removes the tree takes it back.
const GAVE: &str = "-gave";
/// Where virtual CPUs are.
const VCPUS: &str = "vcpu";
/// How long what was killed may take to leave its group.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The weight of a group that has none of its own, as the versions have it.
const DEFAULT_WEIGHT: u32 = 100;
const DEFAULT_SHARES: u32 = 1024;
/// The lab's weight beside the machine's other groups: the largest there is.
const MOST_WEIGHT: u32 = 10_000;

/// Which interface a hierarchy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// `cpu.shares`, `cpu.cfs_quota_us`, `tasks`.
    V1,
    /// `cpu.weight`, `cpu.max`, `cgroup.threads`.
    V2,
}

/// This machine's hierarchy with the processor's controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its interface.
    pub version: Version,
    /// Where it is mounted.
    pub root: PathBuf,
}

impl Hierarchy {
    /// Finds this machine's hierarchy, if it has one.
    pub fn find() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        Self::of(&mounts, |root| std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default())
    }

    /// Picks the hierarchy among these mounts; `controllers` reads those of a hierarchy of version 2.
    fn of(mounts: &str, controllers: impl Fn(&Path) -> String) -> Option<Self> {
        let mounted = || mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let has_cpu = |words: &str, end: char| words.split(end).any(|word| word == "cpu");
        let second = mounted().find_map(|fields| match fields[..] {
            [_, root, "cgroup2", ..] if has_cpu(&controllers(Path::new(root)).replace('\n', " "), ' ') => {
                Some(Self { version: Version::V2, root: root.into() })
            }
            _ => None,
        });
        second.or_else(|| {
            mounted().find_map(|fields| match fields[..] {
                [_, root, "cgroup", options, ..] if has_cpu(options, ',') => {
                    Some(Self { version: Version::V1, root: root.into() })
                }
                _ => None,
            })
        })
    }

    /// The group of this process, as /proc/self/cgroup names it.
    fn home(&self, cgroups: &str) -> PathBuf {
        let path = cgroups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let is_it = match self.version {
                Version::V1 => controllers.split(',').any(|name| name == "cpu"),
                Version::V2 => number == "0" && controllers.is_empty(),
            };
            is_it.then(|| self.root.join(path.trim_start_matches('/')))
        });
        // In a container, the path may not exist below what is mounted.
        path.filter(|path| path.exists()).unwrap_or_else(|| self.root.clone())
    }

    /// Removes the trees of labs that have ended.
    pub fn remove_leftovers(&self) {
        for tree in below(&self.root) {
            let name = tree.file_name().unwrap_or_default().to_string_lossy();
            if !is_left_over(&name) {
                continue;
            }
            match remove(&tree) {
                Ok(()) if name.ends_with(GAVE) => self.take_back(),
                Ok(()) => (),
                Err(error) => {
                    tracing::debug!(tree = %tree.display(), %error, "a cgroup of an earlier lab stays");
                }
            }
        }
    }

    /// Where version 2 has which controllers the root's groups have.
    fn control(&self) -> PathBuf {
        self.root.join("cgroup.subtree_control")
    }

    /// Takes the controller from the root's groups, unless one of them has come to use it.
    fn take_back(&self) {
        if !below(&self.root).iter().any(|group| uses_controller(group)) {
            let _ = std::fs::write(self.control(), "-cpu");
        }
    }
}

/// Whether a group of version 2 has a weight or a quota of its own, or passes the controller on.
fn uses_controller(group: &Path) -> bool {
    let text = |file: &str| std::fs::read_to_string(group.join(file)).unwrap_or_default();
    let is_other = |file: &str, default: &str| text(file).split_whitespace().next().is_some_and(|own| own != default);
    is_other("cpu.weight", "100")
        || is_other("cpu.max", "max")
        || text("cgroup.subtree_control").split_whitespace().any(|name| name == "cpu")
}

/// What a group has of its host's cores.
#[derive(Debug, Clone, Copy, Default)]
pub struct Share {
    /// Weight beside others; None is the default, 100.
    pub weight: Option<u32>,
    /// At most.
    pub quota: Option<Quota>,
}

/// The lab's tree of groups. A drop removes it and moves what is in it back to the lab's own group.
#[derive(Debug)]
pub struct Tree {
    hierarchy: Hierarchy,
    path: PathBuf,
    home: PathBuf,
    /// Whether the hierarchy's root gave the controller to its groups before.
    was_given: bool,
    /// Processes whose threads were moved (version 2, where they go as one).
    processes: Vec<u32>,
}

impl Tree {
    /// Makes an empty tree for this process.
    pub fn make(hierarchy: Hierarchy) -> Result<Self, LabError> {
        let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let was_given = match hierarchy.version {
            Version::V1 => true,
            Version::V2 => read(&hierarchy.control())?.split_whitespace().any(|name| name == "cpu"),
        };
        let path = hierarchy.root.join(own_name() + if was_given { "" } else { GAVE });
        let home = hierarchy.home(&cgroups);
        let tree = Self { hierarchy, path, home, was_given, processes: Vec::new() };
        // The tree is first: its name tells of the controller.
        make(&tree.path)?;
        if !tree.was_given {
            write(&tree.hierarchy.control(), "+cpu")?;
        }
        tree.give(&tree.path)?;
        tree.set(&tree.path, &weight(tree.hierarchy.version, MOST_WEIGHT))?;
        Ok(tree)
    }

    /// Gives the controller to the groups in this one.
    fn give(&self, group: &Path) -> Result<(), LabError> {
        match self.hierarchy.version {
            Version::V1 => Ok(()),
            Version::V2 => write(&group.join("cgroup.subtree_control"), "+cpu"),
        }
    }

    fn set(&self, group: &Path, files: &[(&str, String)]) -> Result<(), LabError> {
        files.iter().try_for_each(|(file, value)| write(&group.join(file), value))
    }

    /// Makes the group of a VM, with this share.
    pub fn add_vm(&mut self, name: &str, share: Share) -> Result<VmGroup, LabError> {
        let version = self.hierarchy.version;
        let path = self.path.join(name);
        let vcpus = path.join(VCPUS);
        make(&path)?;
        make(&vcpus)?;
        if version == Version::V2 {
            write(&vcpus.join("cgroup.type"), "threaded")?;
            self.give(&path)?;
        }
        self.set(&path, &weight(version, share.weight.unwrap_or(DEFAULT_WEIGHT)))?;
        if let Some(quota) = share.quota {
            self.set(&vcpus, &limit(version, quota))?;
        }
        Ok(VmGroup { version, path, vcpus })
    }

    /// Makes a group for a process, and puts the process into it.
    pub fn add_process(&self, name: &str, pid: u32) -> Result<(), LabError> {
        let path = self.path.join(name);
        make(&path)?;
        write(&path.join("cgroup.procs"), &pid.to_string())
    }

    /// Puts a VM's threads into its group: its virtual CPUs, and the others, which version 2 cannot leave where they
    /// are.
    pub fn put(&mut self, group: &VmGroup, pid: u32, vcpus: &[i32], others: &[i32]) -> Result<(), LabError> {
        let threads = match group.version {
            Version::V1 => {
                others.iter().try_for_each(|tid| put_thread(&group.path.join("tasks"), *tid))?;
                "tasks"
            }
            Version::V2 => {
                self.processes.push(pid);
                write(&group.path.join("cgroup.procs"), &pid.to_string())?;
                "cgroup.threads"
            }
        };
        vcpus.iter().try_for_each(|tid| put_thread(&group.vcpus.join(threads), *tid))
    }

    /// Puts everything back to where the lab is.
    fn empty(&self) {
        if self.hierarchy.version == Version::V2 {
            for pid in &self.processes {
                // This fails for a VM that has ended, and so has left.
                let _ = std::fs::write(self.home.join("cgroup.procs"), pid.to_string());
            }
            return;
        }
        let mut groups = vec![self.path.clone()];
        while let Some(group) = groups.pop() {
            for tid in read(&group.join("tasks")).unwrap_or_default().split_whitespace() {
                let _ = std::fs::write(self.home.join("tasks"), tid);
            }
            groups.extend(below(&group));
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.empty();
        if let Err(error) = remove(&self.path) {
            tracing::warn!(%error, "a cgroup of the lab stays; the next lab removes it");
        }
        if !self.was_given {
            self.hierarchy.take_back();
        }
    }
}

/// The group of a VM.
#[derive(Debug)]
pub struct VmGroup {
    version: Version,
    path: PathBuf,
    vcpus: PathBuf,
}

impl VmGroup {
    /// What its quota has done.
    pub fn throttled(&self) -> Result<Throttled, LabError> {
        read(&self.vcpus.join("cpu.stat")).map(|text| Throttled::of(self.version, &text))
    }
}

/// What a quota did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Periods in which its group had something to do.
    pub periods: u64,
    /// Those of them in which the quota was used up.
    pub throttled: u64,
    /// Time without quota, until the next period.
    pub throttled_us: u64,
}

impl Throttled {
    /// As `cpu.stat` says.
    fn of(version: Version, text: &str) -> Self {
        let values: BTreeMap<&str, u64> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(n, v)| Some((n, v.parse().ok()?)))
            .collect();
        let value = |name: &str| values.get(name).copied().unwrap_or_default();
        let throttled_us = match version {
            Version::V1 => value("throttled_time") / 1000,
            Version::V2 => value("throttled_usec"),
        };
        Self { periods: value("nr_periods"), throttled: value("nr_throttled"), throttled_us }
    }
}

/// The files of a weight, whose default is 100.
fn weight(version: Version, weight: u32) -> Vec<(&'static str, String)> {
    match version {
        Version::V1 => vec![("cpu.shares", (weight * DEFAULT_SHARES / DEFAULT_WEIGHT).to_string())],
        Version::V2 => vec![("cpu.weight", weight.to_string())],
    }
}

/// The files of a quota, in the order in which the kernel takes them. Without a burst, the kernel need not know bursts.
fn limit(version: Version, quota: Quota) -> Vec<(&'static str, String)> {
    let Quota { us, period_us, burst_us } = quota;
    let (mut files, burst) = match version {
        Version::V1 => (
            vec![("cpu.cfs_period_us", period_us.to_string()), ("cpu.cfs_quota_us", us.to_string())],
            "cpu.cfs_burst_us",
        ),
        Version::V2 => (vec![("cpu.max", format!("{us} {period_us}"))], "cpu.max.burst"),
    };
    if burst_us > 0 {
        files.push((burst, burst_us.to_string()));
    }
    files
}

/// The name of this process's tree, without its end.
fn own_name() -> String {
    let pid = std::process::id();
    format!("{PREFIX}{pid}-{}", started(pid).unwrap_or_default())
}

/// Whether a tree of this name belongs to a lab that has ended.
fn is_left_over(name: &str) -> bool {
    let process = name.strip_suffix(GAVE).unwrap_or(name).strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    let Some((Ok(pid), Ok(start))) = process.map(|(pid, start)| (pid.parse::<u32>(), start.parse::<u64>())) else {
        return false;
    };
    started(pid) != Some(start)
}

/// When a process was started, in ticks since boot: its number may have been reused.
fn started(pid: u32) -> Option<u64> {
    start_of(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The 22nd field; the second, a name in parentheses, may be anything.
fn start_of(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Groups within one.
fn below(group: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Removes a group and all within it, when what was killed has left them.
fn remove(group: &Path) -> Result<(), LabError> {
    below(group).iter().try_for_each(|inner| remove(inner))?;
    let end = Instant::now() + TIMEOUT;
    loop {
        match std::fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() > end => {
                return Err(LabError::io(format!("removing {}", group.display()), error));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn make(group: &Path) -> Result<(), LabError> {
    std::fs::create_dir(group).map_err(|e| LabError::io(format!("making the cgroup {}", group.display()), e))
}

fn read(file: &Path) -> Result<String, LabError> {
    std::fs::read_to_string(file).map_err(|e| LabError::io(format!("reading {}", file.display()), e))
}

fn write(file: &Path, value: &str) -> Result<(), LabError> {
    std::fs::write(file, value).map_err(|e| LabError::io(format!("writing {value} to {}", file.display()), e))
}

/// A worker thread may end between being listed and being moved.
fn put_thread(file: &Path, tid: i32) -> Result<(), LabError> {
    match write(file, &tid.to_string()) {
        Err(LabError::Io { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
        cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
        cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";

    #[test]
    fn the_controller_is_found_in_either_version() {
        let found = |mounts: &str, controllers: &str| Hierarchy::of(mounts, |_| controllers.to_owned());
        let first = Hierarchy { version: Version::V1, root: "/sys/fs/cgroup/cpu,cpuacct".into() };
        assert_eq!(found(HYBRID, ""), Some(first.clone()));
        assert_eq!(found(HYBRID, "cpuset io memory"), Some(first));
        let second = Hierarchy { version: Version::V2, root: "/sys/fs/cgroup/unified".into() };
        assert_eq!(found(HYBRID, "cpuset cpu io\n"), Some(second.clone()));
        assert_eq!(found(HYBRID, "io cpu\n"), Some(second));
        assert_eq!(found("cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n", ""), None);
        assert_eq!(found("", ""), None);
    }

    #[test]
    fn weights_and_quotas_are_written_as_each_version_has_them() {
        let text = |value: &str| value.to_owned();
        assert_eq!(weight(Version::V1, 100), [("cpu.shares", text("1024"))]);
        assert_eq!(weight(Version::V1, 1), [("cpu.shares", text("10"))]);
        assert_eq!(weight(Version::V2, 300), [("cpu.weight", text("300"))]);
        let quota = Quota { us: 30_000, period_us: 100_000, burst_us: 0 };
        assert_eq!(
            limit(Version::V1, quota),
            [("cpu.cfs_period_us", text("100000")), ("cpu.cfs_quota_us", text("30000"))]
        );
        assert_eq!(limit(Version::V2, quota), [("cpu.max", text("30000 100000"))]);
        let burst = Quota { burst_us: 5_000, ..quota };
        assert_eq!(limit(Version::V1, burst)[2], ("cpu.cfs_burst_us", text("5000")));
        assert_eq!(limit(Version::V2, burst)[1], ("cpu.max.burst", text("5000")));
    }

    #[test]
    fn what_a_quota_did_is_read_of_either_version() {
        let expected = Throttled { periods: 40, throttled: 12, throttled_us: 7_000 };
        let first = "nr_periods 40\nnr_throttled 12\nthrottled_time 7000123\nnr_bursts 0\nburst_time 0\n";
        assert_eq!(Throttled::of(Version::V1, first), expected);
        let second = "usage_usec 5\nuser_usec 3\nnr_periods 40\nnr_throttled 12\nthrottled_usec 7000\nnr_bursts 0\n";
        assert_eq!(Throttled::of(Version::V2, second), expected);
        assert_eq!(Throttled::of(Version::V2, ""), Throttled::default());
    }

    #[test]
    fn a_process_is_at_home_where_its_hierarchy_says() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().to_owned();
        std::fs::create_dir(root.join("machine")).expect("made");
        let home = |version, text: &str| Hierarchy { version, root: root.clone() }.home(text);
        let text = "3:cpu,cpuacct:/machine\n1:cpuset:/\n0::/user\n";
        assert_eq!(home(Version::V1, text), root.join("machine"));
        assert_eq!(home(Version::V2, text), root);
        assert_eq!(home(Version::V2, "0::/machine\n"), root.join("machine"));
        assert_eq!(home(Version::V1, ""), root);
    }

    /// With the version that this machine has, where its groups may be made.
    #[test]
    fn a_process_is_throttled_in_a_tree_and_goes_back() {
        let Some(hierarchy) = Hierarchy::find().filter(|_| nix::unistd::geteuid().is_root()) else { return };
        let mut busy = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("started");
        let (pid, mut tree) = (busy.id(), Tree::make(hierarchy).expect("made"));
        let path = tree.path.clone();
        let quota = Some(Quota { us: 10_000, period_us: 50_000, burst_us: 5_000 });
        let group = tree.add_vm("vm-0", Share { weight: Some(300), quota }).expect("added");
        tree.put(&group, pid, &[pid as i32], &[]).expect("put");
        std::thread::sleep(Duration::from_millis(500));
        let throttled = group.throttled().expect("read");
        let inside = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("read");
        drop(tree);
        let outside = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("read");
        busy.kill().and_then(|()| busy.wait()).expect("killed");
        assert!(throttled.throttled > 1 && throttled.throttled_us > 10_000, "{throttled:?}");
        let place = format!("{}/vm-0/{VCPUS}", path.file_name().expect("a name").to_string_lossy());
        assert!(inside.contains(&place) && !outside.contains(PREFIX), "{inside} {outside}");
        assert!(!path.exists());
    }

    /// In directories that stand for a hierarchy.
    #[test]
    fn the_controller_that_a_killed_lab_gave_is_taken_back_unless_others_use_it() {
        let after = |tree: &str, files: &[(&str, &str)]| {
            let directory = tempfile::tempdir().expect("a directory");
            let root = directory.path();
            let tree = root.join(format!("{PREFIX}{}-{tree}", std::process::id()));
            std::fs::create_dir_all(tree.join("vm-0/vcpu")).expect("made");
            std::fs::create_dir(root.join("machine")).expect("made");
            std::fs::write(root.join("cgroup.subtree_control"), "cpu memory\n").expect("written");
            for (file, text) in [("cpu.weight", "100\n"), ("cpu.max", "max 100000\n")].iter().chain(files) {
                std::fs::write(root.join("machine").join(file), text).expect("written");
            }
            Hierarchy { version: Version::V2, root: root.to_owned() }.remove_leftovers();
            let control = std::fs::read_to_string(root.join("cgroup.subtree_control")).expect("read");
            (tree.exists(), control == "-cpu")
        };
        assert_eq!(after("1-gave", &[("cgroup.subtree_control", "memory\n")]), (false, true));
        assert_eq!(after("1", &[]), (false, false), "another gave it");
        for used in [("cpu.weight", "300\n"), ("cpu.max", "20000 100000\n"), ("cgroup.subtree_control", "cpu\n")] {
            assert_eq!(after("1-gave", &[used]), (false, false), "{used:?}");
        }
        let living = format!("{}-gave", started(std::process::id()).expect("runs"));
        assert_eq!(after(&living, &[]), (true, false));
    }

    #[test]
    fn a_tree_is_left_over_when_its_lab_is_gone() {
        assert!(!is_left_over(&own_name()));
        let own = std::process::id();
        assert!(is_left_over(&format!("{PREFIX}{own}-1")) && is_left_over(&format!("{PREFIX}{own}-1{GAVE}")));
        assert!(!is_left_over(&(own_name() + GAVE)));
        assert!(is_left_over(&format!("{PREFIX}{}-1", u32::MAX)));
        for other in ["evenkeel-lab-", "evenkeel-lab-x-1", "evenkeel-lab-1", "machine.slice"] {
            assert!(!is_left_over(other), "{other}");
        }
        assert_eq!(start_of("7 (a) b) S 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 0"), Some(4711));
    }
}
