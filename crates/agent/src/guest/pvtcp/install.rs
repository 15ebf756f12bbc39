//! Installs the module from its sources: by DKMS, which builds it again for every kernel to come, or, where there is no
//! DKMS, for the running kernel alone. Removes what it has installed.

mod needs;
mod signing;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use evenkeel_quote::shown;
use serde::Serialize;

use super::MODULE;
use super::error::PvtcpError;
pub use signing::Signing;

/// A folder that distributions put no modules into, and that modprobe searches first.
const UPDATES: &str = "updates";
/// Marks the sources as those of [`install`], not of a package.
const MARK: &str = "installed-by-evenkeel";
/// Lines of a failed build that are shown.
const SHOWN_LINES: usize = 12;

/// The module's sources, as DKMS wants them.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Name of the DKMS package.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Names of files, with `/` in them, and their texts.
    pub files: &'static [(&'static str, &'static str)],
}

/// Where to install.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Its root directory.
    pub root: PathBuf,
    /// Its kernel, as `uname -r` has it.
    pub release: String,
    /// Where programs are looked for.
    pub programs: Vec<PathBuf>,
}

/// How the module was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// By DKMS: it is built again for every new kernel.
    Dkms,
    /// With make, for one kernel.
    Make,
}

/// What was installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Installed {
    /// The module's version.
    pub version: String,
    /// The kernel that it was built for.
    pub kernel: String,
    /// How it was built.
    pub method: Method,
    /// Where its sources are.
    pub sources: PathBuf,
    /// Whether this kernel wants modules signed, and what to do then.
    pub signing: Signing,
    /// Kernels that are installed with their headers, and for which it could not be built.
    pub not_built: Vec<String>,
}

impl Machine {
    /// The machine that this is.
    ///
    /// # Errors
    /// [`PvtcpError::Io`] if the kernel does not say its release.
    pub fn this() -> Result<Self, PvtcpError> {
        let uname =
            nix::sys::utsname::uname().map_err(|errno| PvtcpError::io("cannot ask for the kernel's release", errno))?;
        let release = uname.release().to_string_lossy().into_owned();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut programs: Vec<PathBuf> = std::env::split_paths(&path).collect();
        // A user's PATH leaves them out, and sudo may keep it.
        programs.extend(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
        Ok(Self { root: PathBuf::from("/"), release, programs })
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        self.programs.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    fn modules(&self) -> PathBuf {
        self.root.join("lib/modules").join(&self.release)
    }

    fn sources(&self, sources: &Sources) -> PathBuf {
        self.root.join("usr/src").join(format!("{}-{}", sources.name, sources.version))
    }

    /// Runs a program that is known to be there; what it printed is the reason if it fails.
    fn run(&self, name: &str, arguments: &[&str]) -> Result<(), PvtcpError> {
        let program = self.program(name).unwrap_or_else(|| name.into());
        let path = std::env::join_paths(&self.programs).unwrap_or_default();
        let output = Command::new(program).args(arguments).env("PATH", path).stdin(Stdio::null()).output();
        let output = output.map_err(|error| PvtcpError::io(format!("cannot run {name}"), error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        let said = last_lines(&String::from_utf8_lossy(&said));
        Err(PvtcpError::NotBuilt { command: format!("{name} {}", arguments.join(" ")), said })
    }
}

/// Writes the sources, and builds and installs the module from them, in place of what an earlier call installed.
///
/// # Errors
/// [`PvtcpError::Missing`] names all that is missing at once, before anything is changed; [`PvtcpError::Packaged`] if a
/// package has the module; [`PvtcpError::NotBuilt`] with the compiler's words.
pub fn install(machine: &Machine, sources: &Sources) -> Result<Installed, PvtcpError> {
    let method = needs::check(machine)?;
    let folder = machine.sources(sources);
    if folder.exists() && !folder.join(MARK).exists() {
        return Err(PvtcpError::Packaged { folder });
    }
    // What an older evenkeel installed would be a second module of this name.
    let was_there = !remove(machine, &sources.name)?.is_empty();
    write_sources(&folder, sources)?;
    let built = match method {
        Method::Dkms => build_by_dkms(machine, sources),
        Method::Make => build_by_make(machine, &folder),
    };
    if let Err(mut error) = built {
        // Half an installation would stand in the way of the next try.
        remove(machine, &sources.name)?;
        if let (PvtcpError::NotBuilt { said, .. }, true) = (&mut error, was_there) {
            said.push_str("\nThe module that was installed before is gone, too: this one was to take its place.");
        }
        return Err(error);
    }
    let not_built = match method {
        Method::Dkms => build_for_others(machine, sources),
        Method::Make => Vec::new(),
    };
    let signing = Signing::of(machine);
    let (version, kernel) = (sources.version.clone(), machine.release.clone());
    Ok(Installed { version, kernel, method, sources: folder, signing, not_built })
}

/// Removes what [`install`] has put there, of any version. Returns the folders of sources that it removed.
///
/// # Errors
/// [`PvtcpError::Io`] and [`PvtcpError::NotBuilt`], with what is left.
pub fn remove(machine: &Machine, name: &str) -> Result<Vec<PathBuf>, PvtcpError> {
    let mut removed = Vec::new();
    for folder in marked_folders(machine, name)? {
        let version = folder.file_name().map(|f| f.to_string_lossy().into_owned()).unwrap_or_default();
        let version = version.trim_start_matches(name).trim_start_matches('-').to_owned();
        if machine.root.join("var/lib/dkms").join(name).join(&version).exists() {
            machine.run("dkms", &["remove", &format!("{name}/{version}"), "--all"])?;
        }
        remove_made(machine)?;
        fs::remove_dir_all(&folder)
            .map_err(|error| PvtcpError::io(format!("cannot remove {}", folder.display()), error))?;
        removed.push(folder);
    }
    Ok(removed)
}

fn marked_folders(machine: &Machine, name: &str) -> Result<Vec<PathBuf>, PvtcpError> {
    let place = machine.root.join("usr/src");
    let entries = match fs::read_dir(&place) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(PvtcpError::io(format!("cannot read {}", place.display()), error)),
    };
    let prefix = format!("{name}-");
    let is_ours = |path: &PathBuf| {
        path.join(MARK).exists() && path.file_name().is_some_and(|f| f.to_string_lossy().starts_with(&prefix))
    };
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_ours).collect();
    folders.sort();
    Ok(folders)
}

fn write_sources(folder: &Path, sources: &Sources) -> Result<(), PvtcpError> {
    let mark = "Written by `evenkeel guest pvtcp install`; `evenkeel guest pvtcp remove` removes this folder.\n";
    // The mark comes first, so that a folder that is not written to its end can be removed as evenkeel's.
    for (name, text) in [(MARK, mark)].iter().chain(sources.files) {
        let path = folder.join(name);
        let written = fs::create_dir_all(path.parent().unwrap_or(folder)).and_then(|()| fs::write(&path, text));
        written.map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => PvtcpError::Missing {
                what: format!("{} cannot be written: installing a module needs root", path.display()),
                help: "run it with sudo".to_owned(),
            },
            _ => PvtcpError::io(format!("cannot write {}", path.display()), error),
        })?;
    }
    Ok(())
}

fn build_by_dkms(machine: &Machine, sources: &Sources) -> Result<(), PvtcpError> {
    let module = format!("{}/{}", sources.name, sources.version);
    machine.run("dkms", &["add", &module])?;
    let built = machine.run("dkms", &["install", &module, "-k", &machine.release]);
    // dkms itself only says where the compiler's words are.
    let log = machine.root.join("var/lib/dkms").join(&module).join("build/make.log");
    match (built, fs::read_to_string(log)) {
        (Err(PvtcpError::NotBuilt { command, .. }), Ok(said)) => {
            Err(PvtcpError::NotBuilt { command, said: last_lines(&said) })
        }
        (built, _) => built,
    }
}

/// Builds it for the other kernels that are there: DKMS does so by itself only when a kernel is installed. Returns
/// those for which that fails.
fn build_for_others(machine: &Machine, sources: &Sources) -> Vec<String> {
    let module = format!("{}/{}", sources.name, sources.version);
    let folders = fs::read_dir(machine.root.join("lib/modules")).into_iter().flatten().flatten();
    let has_headers = |folder: &fs::DirEntry| folder.path().join("build/Makefile").exists();
    let kernels = folders.filter(has_headers).map(|folder| folder.file_name().to_string_lossy().into_owned());
    let mut failed: Vec<String> = kernels
        .filter(|kernel| *kernel != machine.release)
        .filter(|kernel| machine.run("dkms", &["install", &module, "-k", kernel]).is_err())
        .collect();
    failed.sort();
    failed
}

fn build_by_make(machine: &Machine, folder: &Path) -> Result<(), PvtcpError> {
    let build = format!("KDIR={}", machine.modules().join("build").display());
    let place = folder.display().to_string();
    machine.run("make", &["-C", &place, &build, "modules"])?;
    let (built, updates) = (folder.join(format!("{MODULE}.ko")), machine.modules().join(UPDATES));
    let target = updates.join(format!("{MODULE}.ko"));
    fs::create_dir_all(&updates)
        .and_then(|()| fs::copy(&built, &target))
        .map_err(|error| PvtcpError::io(format!("cannot copy the module to {}", target.display()), error))?;
    machine.run("make", &["-C", &place, &build, "clean"])?;
    machine.run("depmod", &[&machine.release])
}

/// Removes modules that [`build_by_make`] has put below any kernel.
fn remove_made(machine: &Machine) -> Result<(), PvtcpError> {
    let Ok(kernels) = fs::read_dir(machine.root.join("lib/modules")) else { return Ok(()) };
    for kernel in kernels.flatten() {
        let updates = kernel.path().join(UPDATES);
        match fs::remove_file(updates.join(format!("{MODULE}.ko"))) {
            Ok(()) => {
                // Others' modules may be beside it.
                let _ = fs::remove_dir(&updates);
                machine.run("depmod", &[&kernel.file_name().to_string_lossy()])?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(PvtcpError::io(format!("cannot remove a module of {}", updates.display()), error));
            }
        }
    }
    Ok(())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

impl fmt::Display for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, kernel) = (&self.version, &self.kernel);
        match self.method {
            Method::Dkms => {
                writeln!(f, "{MODULE} {version} is installed by DKMS for {kernel} and for kernels to come")?;
                for other in &self.not_built {
                    writeln!(
                        f,
                        "it could not be built for {}, which is here, too: TCP there stays as it is",
                        shown(other)
                    )?;
                }
            }
            Method::Make => writeln!(
                f,
                "{MODULE} {version} is installed for {kernel} alone: there is no dkms here; after an update of the \
                 kernel, install it again"
            )?,
        }
        writeln!(f, "its sources are in {}", self.sources.display())?;
        write!(f, "{}", self.signing)?;
        writeln!(f, "`evenkeel guest pvtcp load` loads it")
    }
}

#[cfg(test)]
mod tests;
