//! What building a module needs, asked for before anything is changed.

use super::{Machine, Method};
use crate::guest::pvtcp::error::PvtcpError;

/// How each family of distributions gets the headers of a kernel, the tools and DKMS: names in `ID` and `ID_LIKE` of
/// os-release, and the command, with `{release}` for the kernel.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["debian", "ubuntu"], "apt-get install linux-headers-{release} dkms gcc make kmod"),
    (
        &["fedora", "rhel", "centos"],
        "dnf install kernel-devel-{release} gcc make kmod elfutils-libelf-devel (and dkms, which RHEL has in EPEL)",
    ),
    (&["suse", "opensuse"], "zypper install kernel-default-devel gcc make kmod dkms"),
    (&["arch"], "pacman -S linux-headers gcc make kmod dkms"),
];

/// How the module can be built here.
///
/// # Errors
/// [`PvtcpError::Missing`] with everything that is missing, and the command that installs it.
pub(super) fn check(machine: &Machine) -> Result<Method, PvtcpError> {
    let mut missing = Vec::new();
    let build = machine.modules().join("build");
    if !build.join("Makefile").exists() {
        missing.push(format!("headers of kernel {} ({})", machine.release, build.display()));
    }
    if !has_compiler(machine) {
        missing.push("`gcc`".to_owned());
    }
    for program in ["make", "depmod"] {
        if machine.program(program).is_none() {
            missing.push(format!("`{program}`"));
        }
    }
    if !missing.is_empty() {
        let what = format!("the module cannot be built here, for lack of {}", missing.join(", "));
        return Err(PvtcpError::Missing { what, help: help(machine) });
    }
    Ok(if machine.program("dkms").is_some() { Method::Dkms } else { Method::Make })
}

/// Debian's headers name the compiler with its version (`gcc-14`) and bring it, without a `gcc` beside it.
fn has_compiler(machine: &Machine) -> bool {
    let is_one = |name: &str| {
        let rest = name.strip_prefix("gcc").or_else(|| name.strip_prefix("clang"));
        rest.is_some_and(|rest| rest.trim_start_matches('-').chars().all(|c| c.is_ascii_digit()))
    };
    let entries = machine.programs.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_str().is_some_and(is_one))
}

fn help(machine: &Machine) -> String {
    let text = std::fs::read_to_string(machine.root.join("etc/os-release")).unwrap_or_default();
    let ids: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .flat_map(|value| value.trim_matches('"').split([' ', '-']))
        .collect();
    let command = COMMANDS.iter().find(|(names, _)| names.iter().any(|name| ids.contains(name)));
    match command {
        Some((_, command)) => command.replace("{release}", &machine.release),
        None => "install the headers of the running kernel, gcc, make and kmod; and dkms, if there is one".to_owned(),
    }
}
