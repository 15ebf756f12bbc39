//! The root of a network namespace: programs that others share, files of its own.

use std::path::Path;

use anyhow::Context;
use nix::mount::{MsFlags, mount};
use nix::unistd::{chdir, chroot};

/// Where programs write.
const OWN: [&str; 4] = ["run", "tmp", "var/log", "var/lib/nginx"];

/// Makes `root` the root of this process, which has mounts of its own. Only [`OWN`] can be written to, and begins
/// empty.
pub fn enter(root: &Path) -> anyhow::Result<()> {
    const NONE: Option<&str> = None;
    let at = |below: &str| root.join(below);
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).context("cannot make mounts private")?;
    mount(Some(root), root, NONE, MsFlags::MS_BIND, NONE)
        .with_context(|| format!("cannot mount {}", root.display()))?;
    mount(NONE, root, NONE, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, NONE)
        .with_context(|| format!("cannot protect {}", root.display()))?;
    mount(Some("/dev"), &at("dev"), NONE, MsFlags::MS_BIND, NONE).context("cannot mount /dev")?;
    // procfs shows this PID namespace, sysfs this network namespace.
    for (kind, below) in [("proc", "proc"), ("sysfs", "sys")] {
        mount(Some(kind), &at(below), Some(kind), MsFlags::empty(), NONE)
            .with_context(|| format!("cannot mount {kind}"))?;
    }
    for below in OWN {
        mount(Some("tmpfs"), &at(below), Some("tmpfs"), MsFlags::empty(), NONE)
            .with_context(|| format!("cannot mount an empty /{below}"))?;
    }
    chroot(root).and_then(|()| chdir("/")).context("cannot change the root")
}
