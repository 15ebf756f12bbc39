//! Control groups that limit how much of a core their threads get, of both versions.

use std::collections::BTreeMap;

use super::files::{Files, value};

/// A hierarchy's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    First,
    Second,
}

/// The hierarchy that has the processor's controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    version: Version,
    root: String,
}

/// A group with a quota.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Group {
    /// Time of cores in a period.
    pub quota_us: u64,
    pub period_us: u64,
    /// What may be saved up for later; `None` if this kernel cannot.
    pub burst_us: Option<u64>,
    /// Periods with something to do.
    pub periods: u64,
    /// Those of them that used the quota up.
    pub throttled: u64,
    /// Time that cores were refused for that.
    pub throttled_us: u64,
    /// Whether it is set by `cpu.max`.
    pub is_second: bool,
}

impl Hierarchy {
    /// `None`: this machine has none.
    pub(super) fn find(files: Files<'_>) -> Option<Self> {
        let mounts = files.text("/proc/self/mounts")?;
        let mut first = None;
        for line in mounts.lines() {
            let mut fields = line.split_whitespace().skip(1);
            let (Some(root), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let has_cpu = |words: &str| words.split([',', ' ']).any(|word| word == "cpu");
            let second = || files.text(&format!("{root}/cgroup.controllers"));
            if kind == "cgroup2" && second().is_some_and(|words| has_cpu(&words)) {
                return Some(Self { version: Version::Second, root: root.to_owned() });
            }
            if kind == "cgroup" && has_cpu(options) && first.is_none() {
                first = Some(Self { version: Version::First, root: root.to_owned() });
            }
        }
        first
    }

    /// The path of a thread's group in the hierarchy, from the text of `/proc/PID/task/TID/cgroup`.
    pub(super) fn of_thread(&self, cgroups: &str) -> Option<String> {
        cgroups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let is_it = match self.version {
                Version::First => controllers.split(',').any(|name| name == "cpu"),
                Version::Second => number == "0" && controllers.is_empty(),
            };
            is_it.then(|| path.to_owned())
        })
    }

    /// Reads the group at this path and those above it, as far as they have a quota, by their directories.
    pub(super) fn read(&self, files: Files<'_>, path: &str, groups: &mut BTreeMap<String, Group>) {
        for path in with_ancestors(path) {
            let directory = format!("{}{path}", self.root);
            if groups.contains_key(&directory) {
                continue;
            }
            let group = match self.version {
                Version::First => first(files, &directory),
                Version::Second => second(files, &directory),
            };
            if let Some(group) = group {
                groups.insert(directory, group);
            }
        }
    }

    /// The directories that limit a thread of the group at this path.
    pub(super) fn limiting(&self, path: &str) -> impl Iterator<Item = String> {
        with_ancestors(path).map(move |path| format!("{}{path}", self.root))
    }
}

/// `/a/b`, `/a`; not the root, which has no quota.
fn with_ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path.trim_end_matches('/')), |path| Some(&path[..path.rfind('/')?]))
        .take_while(|path| !path.is_empty())
}

fn first(files: Files<'_>, directory: &str) -> Option<Group> {
    let quota: i64 = files.number(&format!("{directory}/cpu.cfs_quota_us"))?;
    let stat = files.text(&format!("{directory}/cpu.stat")).unwrap_or_default();
    Some(Group {
        quota_us: u64::try_from(quota).ok()?,
        period_us: files.number(&format!("{directory}/cpu.cfs_period_us"))?,
        burst_us: files.number(&format!("{directory}/cpu.cfs_burst_us")),
        periods: value(&stat, "nr_periods").unwrap_or(0),
        throttled: value(&stat, "nr_throttled").unwrap_or(0),
        // In nanoseconds.
        throttled_us: value::<u64>(&stat, "throttled_time").unwrap_or(0) / 1000,
        is_second: false,
    })
}

fn second(files: Files<'_>, directory: &str) -> Option<Group> {
    let limit = files.text(&format!("{directory}/cpu.max"))?;
    let (quota, period) = limit.split_once(' ')?;
    let stat = files.text(&format!("{directory}/cpu.stat")).unwrap_or_default();
    Some(Group {
        // `max` is none.
        quota_us: quota.parse().ok()?,
        period_us: period.parse().ok()?,
        burst_us: files.number(&format!("{directory}/cpu.max.burst")),
        periods: value(&stat, "nr_periods").unwrap_or(0),
        throttled: value(&stat, "nr_throttled").unwrap_or(0),
        throttled_us: value(&stat, "throttled_usec").unwrap_or(0),
        is_second: true,
    })
}
