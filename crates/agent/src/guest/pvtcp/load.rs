//! Loads the module or sets the loaded one, and unloads it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};
use serde::Serialize;

use super::error::PvtcpError;
use super::kmsg::Mark;
use super::settings::Settings;
use super::status::read_parameter;
use super::{MODULE, SYSFS};

/// The outcome of loading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Loaded {
    /// It was not loaded before.
    Loaded,
    /// It was loaded and has other settings now.
    Changed {
        /// Names of parameters with other values.
        changed: Vec<&'static str>,
    },
    /// It was loaded with these settings already.
    Unchanged,
}

/// Loads the module, from `file` or as `modprobe` finds it, with these settings. A module that is loaded already gets
/// the settings; those not named stay as they are.
///
/// # Errors
/// A file that is no module, lacking privileges, and the reason of a kernel or module that refuses.
pub fn load(file: Option<&Path>, settings: &Settings) -> Result<Loaded, PvtcpError> {
    let module = Path::new(SYSFS);
    if module.exists() {
        let changed = change(module, settings)?;
        return Ok(if changed.is_empty() { Loaded::Unchanged } else { Loaded::Changed { changed } });
    }
    if !Path::new("/proc/modules").exists() {
        let help = "use a kernel built with CONFIG_MODULES, such as any distribution's".to_owned();
        return Err(PvtcpError::Missing { what: "this kernel cannot load modules".to_owned(), help });
    }
    let mark = Mark::now();
    let result = match file {
        Some(file) => load_file(file, settings),
        None => load_installed(settings),
    };
    match result {
        Ok(()) => {}
        // Loaded by somebody else in the meantime.
        Err(Refusal::Errno(Errno::EEXIST)) => {}
        Err(refusal) => return Err(refusal.explain(&mark.said())),
    }
    // The kernel passes over parameters that a module does not have, with a line in its log.
    change(module, settings)?;
    Ok(Loaded::Loaded)
}

/// Unloads the module. Returns whether it was loaded.
///
/// # Errors
/// Lacking privileges, or a module that is in use.
pub fn unload() -> Result<bool, PvtcpError> {
    let name = CString::new(MODULE).expect("the name has no zero byte");
    match delete_module(&name, DeleteModuleFlags::O_NONBLOCK) {
        Ok(()) => Ok(true),
        // ENOSYS: a kernel without modules has none loaded.
        Err(Errno::ENOENT | Errno::ENOSYS) => Ok(false),
        Err(Errno::EPERM) => Err(no_privilege()),
        Err(Errno::EAGAIN | Errno::EBUSY) => Err(PvtcpError::InUse),
        Err(error) => Err(PvtcpError::io("cannot unload the module", error)),
    }
}

/// Why loading failed, before it is put into words.
#[derive(Debug)]
enum Refusal {
    /// The kernel's answer.
    Errno(Errno),
    /// What modprobe printed.
    Modprobe(String),
    /// In words already.
    Other(PvtcpError),
}

impl Refusal {
    /// The reason, in the module's words where it said any.
    fn explain(self, said: &[String]) -> PvtcpError {
        let own_words = said.join("; ");
        match self {
            Self::Other(error) => error,
            Self::Errno(Errno::EPERM) if said.is_empty() => no_privilege(),
            Self::Modprobe(text) if said.is_empty() && text.contains("not found") => PvtcpError::Missing {
                what: format!("the module is not installed for this kernel (modprobe: {text})"),
                help: "`evenkeel guest pvtcp install` builds and installs it, or name its file with --module"
                    .to_owned(),
            },
            Self::Modprobe(text) if said.is_empty() && text.contains("Operation not permitted") => no_privilege(),
            Self::Errno(errno) if said.is_empty() => PvtcpError::Refused { why: meaning(errno) },
            Self::Modprobe(text) if said.is_empty() => PvtcpError::Refused { why: format!("modprobe: {text}") },
            // The kernel's words on a file for another kernel are beyond most readers.
            Self::Errno(Errno::ENOEXEC) => {
                PvtcpError::Refused { why: format!("it was built for another kernel, or is damaged ({own_words})") }
            }
            Self::Errno(_) | Self::Modprobe(_) => PvtcpError::Refused { why: own_words },
        }
    }
}

fn no_privilege() -> PvtcpError {
    let (what, help) = if nix::unistd::geteuid().is_root() {
        (
            "this kernel or container lets nobody load or unload modules",
            "`evenkeel doctor` says why, as far as that can be seen",
        )
    } else {
        ("loading, setting and unloading a module needs root", "run it with sudo")
    };
    PvtcpError::Missing { what: what.to_owned(), help: help.to_owned() }
}

/// What the kernel's answers mean for a module.
fn meaning(errno: Errno) -> String {
    let words = match errno {
        Errno::ENOEXEC => "it was built for another kernel, or is damaged",
        Errno::ENOKEY | Errno::EKEYREJECTED => "it is not signed with a key that this kernel trusts (Secure Boot)",
        Errno::ENOENT => "it needs a function that this kernel does not have",
        Errno::ENOMEM => "no memory",
        other => other.desc(),
    };
    format!("{words} ({errno:?}); the kernel's log has no line of it or cannot be read")
}

fn load_installed(settings: &Settings) -> Result<(), Refusal> {
    let output = Command::new("modprobe").arg(MODULE).args(settings.arguments()).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().map(|l| l.trim().trim_start_matches("modprobe: ")).collect::<Vec<_>>().join("; ");
            Err(Refusal::Modprobe(if said.is_empty() { output.status.to_string() } else { said }))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Refusal::Other(PvtcpError::Missing {
            what: "`modprobe` is not installed".to_owned(),
            help: "apt-get install kmod, or name the module's file with --module".to_owned(),
        })),
        Err(error) => Err(Refusal::Other(PvtcpError::io("cannot run modprobe", error))),
    }
}

fn load_file(path: &Path, settings: &Settings) -> Result<(), Refusal> {
    let file = check_file(path).map_err(Refusal::Other)?;
    let arguments = CString::new(settings.arguments().join(" ")).expect("values have no zero byte");
    finit_module(&file, &arguments, ModuleInitFlags::empty()).map_err(Refusal::Errno)
}

/// Opens the file if it looks like a module that can be given to the kernel as it is.
fn check_file(path: &Path) -> Result<File, PvtcpError> {
    let failed = |error| PvtcpError::io(format!("cannot read {}", path.display()), error);
    let mut file = File::open(path).map_err(failed)?;
    let mut head = Vec::new();
    Read::by_ref(&mut file).take(6).read_to_end(&mut head).map_err(failed)?;
    let refuse = |what, help| Err(PvtcpError::NotAModule { file: path.to_owned(), what, help });
    match &head[..] {
        [0x7f, b'E', b'L', b'F', ..] => Ok(file),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            refuse("compressed", "unpack it with `unxz` first, or install it and leave --module out")
        }
        [0x1f, 0x8b, ..] => refuse("compressed", "unpack it with `gunzip` first, or install it and leave --module out"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            refuse("compressed", "unpack it with `unzstd` first, or install it and leave --module out")
        }
        _ => refuse("no kernel module", "give the path of evenkeel_pvtcp.ko"),
    }
}

/// Writes those settings that differ, and returns their names. Missing ones are found before anything is written.
fn change(module: &Path, settings: &Settings) -> Result<Vec<&'static str>, PvtcpError> {
    let mut differing = Vec::new();
    for (name, wanted) in settings.iter() {
        match read_parameter(module, name)? {
            None => return Err(PvtcpError::OldModule { name }),
            Some(found) if found == wanted => {}
            Some(_) => differing.push((name, wanted)),
        }
    }
    for (name, wanted) in &differing {
        let path = module.join("parameters").join(name);
        fs::write(&path, wanted).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => no_privilege(),
            _ => PvtcpError::io(format!("cannot write {wanted} to {}", path.display()), error),
        })?;
        let found = read_parameter(module, name)?.unwrap_or_default();
        if found != *wanted {
            return Err(PvtcpError::NotTaken { name, wanted: (*wanted).to_owned(), found });
        }
    }
    Ok(differing.into_iter().map(|(name, _)| name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(values: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::default();
        values.iter().for_each(|(name, value)| settings.set(name, value).unwrap());
        settings
    }

    fn module() -> tempfile::TempDir {
        let module = tempfile::tempdir().unwrap();
        fs::create_dir(module.path().join("parameters")).unwrap();
        for (name, value) in [("mode", "enforce\n"), ("hold_rto", "Y\n"), ("late_us", "2000\n")] {
            fs::write(module.path().join("parameters").join(name), value).unwrap();
        }
        module
    }

    #[test]
    fn only_what_differs_is_written() {
        let module = module();
        let wanted = settings(&[("hold_rto", "on"), ("late_us", "500"), ("mode", "observe")]);
        assert_eq!(change(module.path(), &wanted).unwrap(), ["late_us", "mode"]);
        assert_eq!(read_parameter(module.path(), "mode").unwrap().as_deref(), Some("observe"));
        assert_eq!(change(module.path(), &wanted).unwrap(), [""; 0]);
    }

    #[test]
    fn a_parameter_the_module_lacks_changes_nothing() {
        let module = module();
        let error = change(module.path(), &settings(&[("mode", "observe"), ("jit_segments", "3")])).unwrap_err();
        assert!(matches!(error, PvtcpError::OldModule { name: "jit_segments" }), "{error}");
        assert_eq!(read_parameter(module.path(), "mode").unwrap().as_deref(), Some("enforce"));
    }

    #[test]
    fn compressed_and_foreign_files_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let refusal = |bytes: &[u8]| {
            let path = directory.path().join("module");
            fs::write(&path, bytes).unwrap();
            let error = check_file(&path).unwrap_err();
            (error.to_string(), error.help().unwrap_or_default().to_owned())
        };
        assert!(refusal(b"\xfd7zXZ\0rest").1.contains("unxz"));
        assert!(refusal(b"\x1f\x8b").1.contains("gunzip"));
        assert!(refusal(b"\x28\xb5\x2f\xfd").1.contains("unzstd"));
        assert!(refusal(b"text").0.contains("no kernel module"));
        assert!(refusal(b"").0.contains("no kernel module"));
        fs::write(directory.path().join("module"), b"\x7fELF").unwrap();
        assert!(check_file(&directory.path().join("module")).is_ok());
    }

    #[test]
    fn the_modules_own_words_come_first() {
        let said =
            ["cannot probe tcp_ack_update_rtt() of this kernel (error -2): not loaded, TCP is as it was".to_owned()];
        let error = Refusal::Modprobe("ERROR: could not insert: Invalid argument".into()).explain(&said);
        assert_eq!(error.to_string(), format!("the kernel did not take the module: {}", said[0]));
        let error = Refusal::Errno(Errno::ENOEXEC).explain(&[]);
        assert!(error.to_string().contains("another kernel"), "{error}");
        assert!(matches!(Refusal::Errno(Errno::EPERM).explain(&[]), PvtcpError::Missing { .. }));
        let error = Refusal::Modprobe("FATAL: Module evenkeel_pvtcp not found in directory".into()).explain(&[]);
        assert!(matches!(error, PvtcpError::Missing { .. }), "{error}");
    }
}
