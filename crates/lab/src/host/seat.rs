//! Where a host agent runs: on this machine, or in a driver domain.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::vm::Vm;
use crate::ask::ask;
use crate::error::LabError;
use crate::proto::{Answer, Op};

/// What the agent says.
const LOG: &str = "host.log";

/// A program's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Whether it ended well.
    pub success: bool,
    /// How it ended.
    pub status: String,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A machine that an agent runs on. Paths are those of that machine.
pub trait Seat: fmt::Debug {
    /// The agent's files.
    fn directory(&self) -> &Path;
    /// Its pins, in a bpf file system.
    fn pins(&self) -> PathBuf;
    /// Makes a file in the directory, for root alone.
    fn write(&self, name: &str, text: &str) -> Result<(), LabError>;
    /// Runs the binary in the directory, to its end.
    fn run(&self, arguments: &[&str]) -> Result<Ended, LabError>;
    /// Sends a line to a socket in the directory and returns the line that comes back.
    fn ask(&self, socket: &str, line: &str) -> Result<String, LabError>;
    /// Starts the binary in the directory as the agent.
    fn start(&mut self, arguments: &[&str]) -> Result<(), LabError>;
    /// How the agent ended: whether well, and in words. None: it runs.
    fn ended(&mut self) -> Result<Option<(bool, String)>, LabError>;
    /// What the agent has said.
    fn log(&self) -> String;
    /// Whether it left pins.
    fn has_pins(&self) -> Result<bool, LabError>;
    /// Ends the agent at once.
    fn kill(&mut self);
}

/// This machine: the lab's own namespaces, whose end takes all of it along.
#[derive(Debug)]
pub struct Here {
    evenkeel: PathBuf,
    directory: PathBuf,
    child: Option<Child>,
    _pins: BpfFs,
}

/// A bpf file system, unmounted when dropped: nobody could remove the directory otherwise.
#[derive(Debug)]
struct BpfFs(PathBuf);

impl BpfFs {
    fn mount(path: PathBuf) -> Result<Self, LabError> {
        std::fs::create_dir_all(&path).map_err(|e| LabError::io("making the agent's directories", e))?;
        mount(Some("bpf"), &path, Some("bpf"), MsFlags::empty(), None::<&str>)
            .map_err(|e| LabError::io("mounting a bpf file system for the agent", e))?;
        Ok(Self(path))
    }
}

impl Drop for BpfFs {
    fn drop(&mut self) {
        if let Err(error) = umount2(&self.0, MntFlags::MNT_DETACH) {
            tracing::debug!(path = %self.0.display(), %error, "the namespace takes the mount along");
        }
    }
}

impl Here {
    /// With this binary, in a directory of its own.
    pub fn new(evenkeel: &Path, directory: &Path) -> Result<Self, LabError> {
        let pins = BpfFs::mount(directory.join("bpf"))?;
        std::fs::create_dir_all(directory.join("run"))
            .map_err(|e| LabError::io("making the agent's directories", e))?;
        Ok(Self { evenkeel: evenkeel.to_owned(), directory: directory.to_owned(), child: None, _pins: pins })
    }

    /// A command of the binary that runs in the directory, so that paths are short enough for sockets.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.evenkeel);
        command.args(arguments).current_dir(&self.directory).env_remove("EVENKEEL_LOG");
        command
    }
}

impl Seat for Here {
    fn directory(&self) -> &Path {
        &self.directory
    }

    fn pins(&self) -> PathBuf {
        self.directory.join("bpf/evenkeel")
    }

    fn write(&self, name: &str, text: &str) -> Result<(), LabError> {
        let made = |e| LabError::io("making the agent's files", e);
        let path = self.directory.join(name);
        std::fs::write(&path, text).map_err(made)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(made)
    }

    fn run(&self, arguments: &[&str]) -> Result<Ended, LabError> {
        let output = self
            .command(arguments)
            .output()
            .map_err(|e| LabError::io(format!("running `evenkeel {}`", arguments.join(" ")), e))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Ended {
            success: output.status.success(),
            status: output.status.to_string(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        })
    }

    fn ask(&self, socket: &str, line: &str) -> Result<String, LabError> {
        ask(&self.directory.join(socket), line).map_err(|e| LabError::Agent { why: format!("{e:#}") })
    }

    fn start(&mut self, arguments: &[&str]) -> Result<(), LabError> {
        let log = std::fs::File::create(self.directory.join(LOG)).map_err(|e| LabError::io("making a log file", e))?;
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // SAFETY: prctl and setpgid are async-signal-safe. The agent ends with the lab, whatever ends that; a Ctrl-C in
        // the terminal goes to the lab alone, which then stops it.
        unsafe {
            command.pre_exec(|| {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::setpgid(0, 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        self.child = Some(command.spawn().map_err(|e| LabError::io("starting `evenkeel host`", e))?);
        Ok(())
    }

    fn ended(&mut self) -> Result<Option<(bool, String)>, LabError> {
        let status = self.child.as_mut().map(Child::try_wait).transpose();
        let status = status.map_err(|e| LabError::io("asking for the agent's state", e))?.flatten();
        Ok(status.map(|status| (status.success(), status.to_string())))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join(LOG)).unwrap_or_default()
    }

    fn has_pins(&self) -> Result<bool, LabError> {
        Ok(self.pins().exists())
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A driver domain, which has a binary, a bpf file system and nothing else that uses them.
#[derive(Debug)]
pub struct InDomain<'a> {
    vm: &'a Vm,
    task: Option<u64>,
}

/// The agent's files in a domain.
const DIRECTORY: &str = "/run/evenkeel-lab";
/// Where the agent's exit code goes when it ends.
const ENDED: &str = "ended";

impl<'a> InDomain<'a> {
    /// In this domain, with an empty directory.
    pub fn new(vm: &'a Vm) -> Result<Self, LabError> {
        vm.shell(&format!("rm -rf {DIRECTORY}\nmkdir -p {DIRECTORY}/run"))?;
        Ok(Self { vm, task: None })
    }

    fn unexpected(&self, answer: &Answer) -> LabError {
        LabError::Vm { name: self.vm.spec.name.clone(), why: format!("unexpected answer: {answer:?}") }
    }
}

impl Seat for InDomain<'_> {
    fn directory(&self) -> &Path {
        Path::new(DIRECTORY)
    }

    fn pins(&self) -> PathBuf {
        "/sys/fs/bpf/evenkeel".into()
    }

    fn write(&self, name: &str, text: &str) -> Result<(), LabError> {
        let path = format!("{DIRECTORY}/{name}");
        self.vm.call(Op::WriteFile { path: path.clone(), text: text.to_owned() })?;
        self.vm.shell(&format!("chmod 600 {path}")).map(drop)
    }

    fn run(&self, arguments: &[&str]) -> Result<Ended, LabError> {
        let argv = ["env", "-C", DIRECTORY, "evenkeel"].iter().chain(arguments).map(|w| (*w).to_owned()).collect();
        match self.vm.call(Op::Exec { argv })? {
            Answer::Exec { status, stdout, stderr } => {
                Ok(Ended { success: status == 0, status: format!("exit code {status}"), stdout, stderr })
            }
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask(&self, socket: &str, line: &str) -> Result<String, LabError> {
        match self.vm.call(Op::Ask { socket: format!("{DIRECTORY}/{socket}"), line: line.to_owned() })? {
            Answer::Line { text } => Ok(text),
            other => Err(self.unexpected(&other)),
        }
    }

    fn start(&mut self, arguments: &[&str]) -> Result<(), LabError> {
        let line = arguments.join(" ");
        let script = format!("cd {DIRECTORY}\nrm -f {ENDED}\nevenkeel {line} 2>{LOG}\necho $? >{ENDED}");
        let argv = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
        match self.vm.call(Op::Spawn { argv })? {
            Answer::Started { task } => self.task = Some(task),
            other => return Err(self.unexpected(&other)),
        }
        Ok(())
    }

    fn ended(&mut self) -> Result<Option<(bool, String)>, LabError> {
        if self.task.is_none() {
            return Ok(None);
        }
        self.vm.check_alive()?;
        let code = self.vm.shell(&format!("if [ -e {DIRECTORY}/{ENDED} ]; then cat {DIRECTORY}/{ENDED}; fi"))?;
        Ok(Some(code.trim()).filter(|code| !code.is_empty()).map(|code| (code == "0", format!("exit code {code}"))))
    }

    fn log(&self) -> String {
        self.vm.shell(&format!("cat {DIRECTORY}/{LOG}")).unwrap_or_default()
    }

    fn has_pins(&self) -> Result<bool, LabError> {
        let said = self.vm.shell(&format!("if [ -e {} ]; then echo yes; fi", self.pins().display()))?;
        Ok(said.trim() == "yes")
    }

    fn kill(&mut self) {
        if let Some(task) = self.task.take() {
            if let Err(error) = self.vm.call(Op::Kill { task }) {
                tracing::debug!(%error, "the domain takes the agent along");
            }
        }
    }
}
