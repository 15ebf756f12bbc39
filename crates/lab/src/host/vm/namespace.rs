//! A machine that is a network namespace of this one: the runner that guests have, without a kernel of its own.
//!
//! It is the first process of a PID namespace, so that all it has started ends with it, and the first of its network
//! namespace, so that its end takes the devices along.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, setns, unshare};

use super::Userland;
use crate::error::LabError;

/// Starts the runner; `name` names its socket and its log. The calling thread must live as long as the lab.
pub(super) fn start(userland: &Userland, directory: &Path, name: &str) -> Result<Child, LabError> {
    let mut command = Command::new(&userland.evenkeel);
    command
        .arg("lab-guest")
        .arg("--control")
        .arg(directory.join(format!("{name}.control")))
        .arg("--root")
        .arg(&userland.root)
        .env_clear()
        .envs([("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/root")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(super::log_file(directory, name)?);
    let own = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    super::ends_with_the_lab(&mut command, own);
    let failed = |e: nix::Error| LabError::io(format!("making a PID namespace for {name}"), e);
    let before = std::fs::File::open("/proc/thread-self/ns/pid").map_err(|e| LabError::io("opening a namespace", e))?;
    // It takes effect for the children of this thread only.
    unshare(CloneFlags::CLONE_NEWPID).map_err(failed)?;
    let child = command.spawn();
    setns(before.as_fd(), CloneFlags::CLONE_NEWPID).map_err(failed)?;
    child.map_err(|e| LabError::io(format!("starting {name}'s runner"), e))
}
