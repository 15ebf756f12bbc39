//! One machine of the lab: its process, its control port, its threads. It is a VM in QEMU, or a network namespace of
//! this machine.

mod control;
mod migration;
mod namespace;
mod qemu;
mod rings;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

use self::control::Control;
pub use self::migration::Migrated;
pub use self::qemu::RING_SLOTS;
use super::cores::{self, CoreId, Policy};
use crate::error::LabError;
use crate::interrupt::Interrupt;
use crate::prepare::GuestImage;
use crate::proto::{Answer, Call, Op, Reply};

/// How long an answer may take: a guest under TCG may be off its core most of the time.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Below the vCPU scheduler's.
const DRIVER_DOMAIN_PRIORITY: i32 = 20;
/// Of the virtual CPUs of VMs that are driver domains.
const DOMAIN_VCPU_PRIORITY: i32 = 19;
/// Of network namespaces, which stand for machines of their own. With a priority below the driver domain's, a receiver
/// reads nothing before its transfer's end.
const NAMESPACE_PRIORITY: i32 = 21;
/// How much of the console is quoted in errors.
const CONSOLE_LINES: usize = 8;
/// What a kernel says when one of its CPUs loops for ever: waiting for it is of no use.
const HUNG: &str = "soft lockup - CPU#";

/// How QEMU runs guest code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// In hardware.
    Kvm,
    /// By translation.
    Tcg,
}

/// What a machine runs.
#[derive(Debug, Clone)]
pub enum System {
    /// A kernel of its own, in QEMU.
    Booted(GuestImage),
    /// This machine's kernel, in a network namespace.
    Namespace(Userland),
}

/// The programs of a namespace.
#[derive(Debug, Clone)]
pub struct Userland {
    /// The binary that is its runner.
    pub evenkeel: PathBuf,
    /// Its root directory.
    pub root: PathBuf,
}

/// What a machine is made of.
#[derive(Debug, Clone)]
pub struct VmSpec {
    /// As in `sender-0`.
    pub name: String,
    /// Group in the scenario.
    pub group: String,
    /// Its number in the group, from 0.
    pub number: u32,
    /// Kernel and programs.
    pub system: System,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// Threads that run them: one each, or a single one for all in turn. A namespace has none.
    pub vcpu_threads: u32,
    /// Memory.
    pub memory_mib: u32,
    /// Its network cards; the first is the one with the address.
    pub nics: Vec<Nic>,
    /// Address in the lab.
    pub address: Ipv4Addr,
    /// Its virtio-serial ports beside the control port.
    pub channels: Vec<Channel>,
    /// How guest code is run.
    pub accelerator: Accelerator,
}

impl VmSpec {
    /// Whether it is a network namespace of this machine.
    pub fn is_namespace(&self) -> bool {
        matches!(self.system, System::Namespace(_))
    }

    /// Its first network card's port on the host.
    pub fn port(&self) -> &str {
        self.nics.first().map_or("", |nic| &nic.tap)
    }

    /// Its first network card's address.
    pub fn mac(&self) -> &str {
        self.nics.first().map_or("", |nic| &nic.mac)
    }
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// The tap that it is at.
    pub tap: String,
    /// MAC address.
    pub mac: String,
    /// Whether it takes and gives segments larger than the MTU.
    pub segmentation_offload: bool,
}

/// A virtio-serial port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Its name in the guest.
    pub name: String,
    /// Its Unix socket on the host.
    pub socket: PathBuf,
    /// Whether QEMU listens there, or connects.
    pub listens: bool,
}

/// A running machine; killed when dropped.
#[derive(Debug)]
pub struct Vm {
    /// What it is made of.
    pub spec: VmSpec,
    child: Mutex<Child>,
    control: Mutex<Option<Control>>,
    /// How the names of its sockets and logs begin; this changes when it moves.
    stem: Mutex<String>,
    directory: PathBuf,
    interrupt: Interrupt,
}

impl Vm {
    /// Starts QEMU in the calling thread's network namespace, or a namespace of its own. `directory` takes its sockets
    /// and console log.
    pub fn spawn(spec: VmSpec, directory: &Path, interrupt: Interrupt) -> Result<Self, LabError> {
        let child = match &spec.system {
            System::Booted(image) => qemu::start(&spec, image, directory, &spec.name, &[]),
            System::Namespace(userland) => namespace::start(userland, directory, &spec.name),
        }?;
        Ok(Self {
            child: Mutex::new(child),
            control: Mutex::new(None),
            stem: Mutex::new(spec.name.clone()),
            spec,
            directory: directory.to_owned(),
            interrupt,
        })
    }

    fn stem(&self) -> String {
        self.stem.lock().unwrap_or_else(|p| p.into_inner()).clone()
    }

    fn socket(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{}.{kind}", self.stem()))
    }

    fn failure(&self, why: impl Into<String>) -> LabError {
        LabError::Vm { name: self.spec.name.clone(), why: why.into() }
    }

    /// Why the VM cannot go on, if it has ended or its kernel hangs.
    pub fn check_alive(&self) -> Result<(), LabError> {
        let status = self.child.lock().unwrap_or_else(|p| p.into_inner()).try_wait();
        match status {
            Ok(None) => match self.console().lines().find(|line| line.contains(HUNG)) {
                Some(line) => Err(self.failure(format!("its kernel hangs: {}", line.trim()))),
                None => Ok(()),
            },
            Ok(Some(status)) => {
                let what = if self.spec.is_namespace() { "its runner" } else { "QEMU" };
                let how = match (status.code(), status.signal()) {
                    (Some(code), _) => format!("{what} ended with exit code {code}"),
                    (None, Some(signal)) => format!("{what} was ended by signal {signal}"),
                    (None, None) => format!("{what} ended"),
                };
                Err(self.failure(format!("{how}; {}", self.last_words())))
            }
            Err(error) => Err(LabError::io(format!("asking for {}'s state", self.spec.name), error)),
        }
    }

    /// The guest kernel's console so far.
    pub fn console(&self) -> String {
        let bytes = std::fs::read(self.socket("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn last_words(&self) -> String {
        let tail = |text: &str| {
            let lines: VecDeque<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
            lines.iter().rev().take(CONSOLE_LINES).rev().map(|l| l.trim()).collect::<Vec<_>>().join(" | ")
        };
        let stderr = std::fs::read_to_string(self.socket("stderr")).unwrap_or_default();
        let words = [tail(&stderr), tail(&self.console())].join(" ");
        if words.trim().is_empty() { "it said nothing".to_owned() } else { format!("it said: {}", words.trim()) }
    }

    /// Waits until the guest's runner answers; returns its kernel release and HZ.
    pub fn wait_ready(&self, timeout: Duration) -> Result<(String, u32), LabError> {
        let deadline = Instant::now() + timeout;
        let socket = self.socket("control");
        let stream = loop {
            self.check_alive()?;
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
                Err(e) => return Err(LabError::io(format!("connecting to {}'s control port", self.spec.name), e)),
            }
        };
        *self.control.lock().unwrap_or_else(|p| p.into_inner()) = Some(Control::new(stream, 0)?);
        // QEMU keeps what is written before the guest opens its port, so one Hello is enough.
        match self.call_until(Op::Hello, deadline)? {
            Answer::Hello { release, hz } => Ok((release, hz)),
            other => Err(self.failure(format!("unexpected answer to hello: {other:?}"))),
        }
    }

    /// Asks the guest's runner for something and waits for the answer.
    pub fn call(&self, op: Op) -> Result<Answer, LabError> {
        self.call_until(op, Instant::now() + CALL_TIMEOUT)
    }

    /// As [`Vm::call`], with a time limit of its own.
    pub fn call_within(&self, op: Op, limit: Duration) -> Result<Answer, LabError> {
        self.call_until(op, Instant::now() + limit)
    }

    fn call_until(&self, op: Op, deadline: Instant) -> Result<Answer, LabError> {
        let mut guard = self.control.lock().unwrap_or_else(|p| p.into_inner());
        let control = guard.as_mut().ok_or_else(|| self.failure("not connected yet"))?;
        control.next_id += 1;
        let id = control.next_id;
        let what = format!("{op:?}");
        let mut line =
            serde_json::to_string(&Call { id, op }).map_err(|e| self.failure(format!("cannot write {what}: {e}")))?;
        line.push('\n');
        control
            .writer
            .write_all(line.as_bytes())
            .map_err(|e| self.failure(format!("control port: {e}; {}", self.last_words())))?;
        let mut answer = Vec::new();
        loop {
            match control.reader.read_until(b'\n', &mut answer) {
                Ok(0) => {
                    // The socket was closed: once the process can be reaped, the reason can be told.
                    std::thread::sleep(Duration::from_millis(100));
                    self.check_alive()?;
                    return Err(self.failure(format!("the control port closed; {}", self.last_words())));
                }
                Ok(_) if answer.ends_with(b"\n") => {
                    let reply: Reply = serde_json::from_slice(&answer)
                        .map_err(|e| self.failure(format!("cannot read the answer to {what}: {e}")))?;
                    answer.clear();
                    // An answer that came after its call had been given up.
                    if reply.id != id {
                        continue;
                    }
                    return reply.result.map_err(|why| self.failure(format!("{what}: {why}")));
                }
                Ok(_) => {}
                Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                    self.interrupt.check()?;
                    self.check_alive()?;
                    if Instant::now() > deadline {
                        return Err(self.failure(format!("no answer in time to {what}; {}", self.last_words())));
                    }
                }
                Err(e) => return Err(self.failure(format!("control port: {e}"))),
            }
        }
    }

    /// Runs a shell script in the guest; an error if any command of it fails.
    pub fn shell(&self, script: &str) -> Result<String, LabError> {
        let argv = ["/bin/sh", "-e", "-c", script].map(str::to_owned).to_vec();
        match self.call(Op::Exec { argv })? {
            Answer::Exec { status: 0, stdout, .. } => Ok(stdout),
            Answer::Exec { status, stdout, stderr } => {
                Err(self.failure(format!("exit code {status} from `{script}`: {} {}", stdout.trim(), stderr.trim())))
            }
            other => Err(self.failure(format!("unexpected answer to a script: {other:?}"))),
        }
    }

    /// Fetches a whole file of the guest.
    pub fn read_file(&self, path: &str) -> Result<Vec<u8>, LabError> {
        use base64::Engine;
        let mut bytes = Vec::new();
        loop {
            match self.call(Op::ReadFile { path: path.to_owned(), offset: bytes.len() as u64 })? {
                Answer::Bytes { base64, eof } => {
                    let piece = base64::engine::general_purpose::STANDARD
                        .decode(base64)
                        .map_err(|e| self.failure(format!("{path}: {e}")))?;
                    if eof || piece.is_empty() {
                        bytes.extend(piece);
                        return Ok(bytes);
                    }
                    bytes.extend(piece);
                }
                other => return Err(self.failure(format!("unexpected answer to reading {path}: {other:?}"))),
            }
        }
    }

    /// Threads that run its virtual CPUs, in order.
    pub fn vcpu_threads(&self) -> Result<Vec<i32>, LabError> {
        let mut vcpus: Vec<(u32, i32)> =
            self.threads()?.into_iter().filter_map(|(tid, name)| Some((qemu::vcpu_index(&name)?, tid))).collect();
        vcpus.sort_unstable();
        if vcpus.len() == self.spec.vcpu_threads as usize {
            Ok(vcpus.into_iter().map(|(_, tid)| tid).collect())
        } else {
            Err(self.failure(format!("QEMU shows {} vCPU threads, {} expected", vcpus.len(), self.spec.vcpu_threads)))
        }
    }

    /// Threads that run no virtual CPU: QEMU's own.
    pub fn other_threads(&self) -> Result<Vec<i32>, LabError> {
        let others = self.threads()?.into_iter().filter(|(_, name)| qemu::vcpu_index(name).is_none());
        Ok(others.map(|(tid, _)| tid).collect())
    }

    /// Pins QEMU's threads: vCPUs to their cores, all others to the driver domain's core, where they have priority over
    /// vCPUs: in the papers that domain has a core to itself. The threads of a namespace have priority over both.
    pub fn pin(&self, vcpu_cores: &[Vec<CoreId>], driver_domain: CoreId) -> Result<(), LabError> {
        self.pin_process(self.pid(), vcpu_cores, driver_domain)
    }

    /// Does the same for a QEMU that the VM will move to.
    pub fn pin_process(&self, pid: u32, vcpu_cores: &[Vec<CoreId>], driver_domain: CoreId) -> Result<(), LabError> {
        for (tid, name) in threads(pid)? {
            let vcpu_cores = qemu::vcpu_index(&name).and_then(|i| vcpu_cores.get(i as usize));
            let policy = match vcpu_cores {
                Some(_) => Policy::Other,
                None if self.spec.is_namespace() => Policy::RoundRobin(NAMESPACE_PRIORITY),
                None => Policy::RoundRobin(DRIVER_DOMAIN_PRIORITY),
            };
            pin(tid, vcpu_cores.map_or(&[driver_domain], Vec::as_slice), policy)?;
        }
        Ok(())
    }

    /// Pins QEMU's own threads to their host's cores, where they compete with vCPUs.
    pub fn pin_others_beside_vcpus(&self, cores: &[CoreId]) -> Result<(), LabError> {
        self.other_threads()?.into_iter().try_for_each(|tid| pin(tid, cores, Policy::Other))
    }

    /// Pins the threads of a VM that is a driver domain: its virtual CPUs have priority over all others on that core,
    /// but not over the threads that give them their packets.
    pub fn pin_domain(&self, core: CoreId) -> Result<(), LabError> {
        self.pin(&vec![vec![core]; self.spec.vcpu_threads as usize], core)?;
        let vcpus = self.vcpu_threads()?;
        vcpus.into_iter().try_for_each(|tid| cores::set_policy(tid, Policy::RoundRobin(DOMAIN_VCPU_PRIORITY)))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap_or_else(|p| p.into_inner()).id()
    }

    fn threads(&self) -> Result<Vec<(i32, String)>, LabError> {
        threads(self.pid())
    }
}

/// Where a machine's process says what went wrong.
fn log_file(directory: &Path, stem: &str) -> Result<File, LabError> {
    File::create(directory.join(format!("{stem}.stderr"))).map_err(|e| LabError::io("making a log file", e))
}

/// Makes a machine end with the lab, whatever ends the lab, with namespaces of its own of these kinds. A Ctrl-C in the
/// terminal goes to the lab alone, which then ends its machines in order.
pub(super) fn ends_with_the_lab(command: &mut Command, namespaces: CloneFlags) {
    // SAFETY: prctl, setpgid and unshare are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::setpgid(0, 0) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            unshare(namespaces).map_err(Into::into)
        });
    }
}

/// Pins a thread and sets its policy. A worker thread may end between being listed and being pinned.
fn pin(tid: i32, cores: &[CoreId], policy: Policy) -> Result<(), LabError> {
    match cores::pin(tid, cores).and_then(|()| cores::set_policy(tid, policy)) {
        Err(LabError::Io { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}

/// Threads of a process and their names.
fn threads(pid: u32) -> Result<Vec<(i32, String)>, LabError> {
    let directory = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&directory).map_err(|e| LabError::io(format!("reading {directory}"), e))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| {
            let tid = entry.file_name().to_str()?.parse().ok()?;
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            Some((tid, name.trim().to_owned()))
        })
        .collect())
}

impl Drop for Vm {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(|p| p.into_inner());
        // It may have ended already.
        let _ = child.kill();
        let _ = child.wait();
        if tracing::enabled!(tracing::Level::DEBUG) {
            tracing::debug!(vm = self.spec.name, console = self.console(), "console");
        }
    }
}
