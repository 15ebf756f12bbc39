//! One VM: its QEMU process, its control port, its threads.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::json;

use super::cores::{self, CoreId, Policy};
use super::qmp::Qmp;
use crate::error::LabError;
use crate::interrupt::Interrupt;
use crate::prepare::GuestImage;
use crate::proto::{Answer, CONTROL_PORT, Call, Op, Reply};

/// The slowest answer that is still an answer: a guest that is off its core most of the time, under TCG.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Below the vCPU scheduler's.
const DRIVER_DOMAIN_PRIORITY: i32 = 20;
/// Of the virtual CPUs of VMs that are driver domains.
const DOMAIN_VCPU_PRIORITY: i32 = 19;
/// How much of the console is quoted in errors.
const CONSOLE_LINES: usize = 8;
/// QEMU 7.2's flags after CMPXCHG16B are sometimes a register's value, which the kernel's allocator does not survive under load.
const TCG_PROCESSOR: &str = "max,-cx16";
/// A VM's memory goes at this rate to its new place: the core that copies it has the driver domains' packets to do as well.
const MIGRATION_BYTES_PER_S: u64 = 64 << 20;
/// QEMU stops the VM when the rest can be copied in so long.
const MIGRATION_DOWNTIME_MS: u64 = 300;
const MIGRATION_LIMIT: Duration = Duration::from_secs(60);
/// What a kernel says whose CPU goes round without end: waiting for it is of no use.
const HUNG: &str = "soft lockup - CPU#";

/// How QEMU runs guest code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// In hardware.
    Kvm,
    /// By translation.
    Tcg,
}

/// What a VM is made of.
#[derive(Debug, Clone)]
pub struct VmSpec {
    /// As in `sender-0`.
    pub name: String,
    /// Group in the scenario.
    pub group: String,
    /// Its number in the group, from 0.
    pub number: u32,
    /// Kernel and initramfs.
    pub image: GuestImage,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// Threads that run them: one each, or a single one for all in turn.
    pub vcpu_threads: u32,
    /// Memory.
    pub memory_mib: u32,
    /// Its network cards; the first is the one with the address.
    pub nics: Vec<Nic>,
    /// Address in the lab.
    pub address: Ipv4Addr,
    /// Its virtio-serial ports beside the control port.
    pub channels: Vec<Channel>,
    /// Whether the network cards take and give segments larger than the MTU.
    pub segmentation_offload: bool,
    /// How guest code is run.
    pub accelerator: Accelerator,
}

impl VmSpec {
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
}

/// A virtio-serial port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Its name in the guest.
    pub name: String,
    /// The Unix socket that it is outside.
    pub socket: PathBuf,
    /// Whether QEMU listens there, or connects.
    pub listens: bool,
}

/// A running VM; killed when dropped.
#[derive(Debug)]
pub struct Vm {
    /// What it is made of.
    pub spec: VmSpec,
    child: Mutex<Child>,
    control: Mutex<Option<Control>>,
    /// What its sockets and logs are named by: another name after it has moved.
    stem: Mutex<String>,
    directory: PathBuf,
    interrupt: Interrupt,
}

#[derive(Debug)]
struct Control {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    next_id: u64,
}

impl Control {
    fn new(stream: UnixStream, next_id: u64) -> Result<Self, LabError> {
        let writer = stream.try_clone().map_err(|e| LabError::io("sharing a control socket", e))?;
        let limit = Some(Duration::from_millis(500));
        stream.set_read_timeout(limit).map_err(|e| LabError::io("setting a time limit", e))?;
        Ok(Self { reader: BufReader::new(stream), writer, next_id })
    }
}

/// What a live migration took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// For so long the VM stood still, as QEMU says.
    pub downtime_ms: u64,
    /// From the order to the end.
    pub total_ms: u64,
    /// Memory that was copied.
    pub ram_bytes: u64,
    /// When it went on in its new place, CLOCK_MONOTONIC.
    pub done_ns: u64,
}

/// The QEMU that a VM is to move to; killed if it does not.
struct Moving(Option<Child>);

impl Drop for Moving {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Vm {
    /// Starts QEMU in the calling thread's network namespace. `directory` takes its sockets and console log.
    pub fn spawn(spec: VmSpec, directory: &Path, interrupt: Interrupt) -> Result<Self, LabError> {
        let child = start(&spec, directory, &spec.name, &[])?;
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

    /// Moves the running VM to another QEMU by live migration, whose network cards and channels are these. `place` is called as soon as that has
    /// its threads.
    pub fn migrate(
        &self,
        nics: Vec<Nic>,
        channels: Vec<Channel>,
        place: impl FnOnce(&Self, u32) -> Result<(), LabError>,
    ) -> Result<Migrated, LabError> {
        // Nobody may ask the guest anything meanwhile: the answer would go to a QEMU that is no more.
        let mut control = self.control.lock().unwrap_or_else(|p| p.into_inner());
        let stem = format!("{}-moved", self.spec.name);
        let address = format!("unix:{}", self.directory.join(format!("{stem}.ram")).display());
        let spec = VmSpec { nics, channels, ..self.spec.clone() };
        let mut target = Moving(Some(start(&spec, &self.directory, &stem, &["-incoming", &address])?));
        let mut qmp = Qmp::connect(&self.socket("qmp"), &self.spec.name)?;
        // It listens on its sockets by now, so that the guest finds its host connected when it goes on.
        drop(Qmp::connect(&self.directory.join(format!("{stem}.qmp")), &stem)?);
        let stream = UnixStream::connect(self.directory.join(format!("{stem}.control")))
            .map_err(|e| LabError::io(format!("connecting to {stem}'s control port"), e))?;
        place(self, target.0.as_ref().map_or(0, Child::id))?;
        qmp.execute(
            "migrate-set-parameters",
            json!({ "max-bandwidth": MIGRATION_BYTES_PER_S, "downtime-limit": MIGRATION_DOWNTIME_MS }),
        )?;
        qmp.execute("migrate", json!({ "uri": address }))?;
        let end = Instant::now() + MIGRATION_LIMIT;
        let info = loop {
            let info = qmp.execute("query-migrate", json!({}))?;
            match info["status"].as_str() {
                Some("completed") => break info,
                Some("failed" | "cancelled") => return Err(self.failure(format!("it could not be moved: {info}"))),
                _ if Instant::now() > end => return Err(self.failure(format!("it was not moved in time: {info}"))),
                _ => self.interrupt.sleep(Duration::from_millis(5), || Ok(()))?,
            }
        };
        let done_ns = cores::monotonic_ns();
        if let Some(moved) = target.0.take() {
            let mut left = std::mem::replace(&mut *self.child.lock().unwrap_or_else(|p| p.into_inner()), moved);
            // It stands still since, and holds the taps.
            let _ = left.kill();
            let _ = left.wait();
        }
        *self.stem.lock().unwrap_or_else(|p| p.into_inner()) = stem;
        let next_id = control.as_ref().map_or(0, |control| control.next_id);
        *control = Some(Control::new(stream, next_id)?);
        let ms = |key: &str| info[key].as_u64().unwrap_or_default();
        Ok(Migrated {
            downtime_ms: ms("downtime"),
            total_ms: ms("total-time"),
            ram_bytes: info["ram"]["transferred"].as_u64().unwrap_or_default(),
            done_ns,
        })
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
                let how = match (status.code(), status.signal()) {
                    (Some(code), _) => format!("QEMU ended with exit code {code}"),
                    (None, Some(signal)) => format!("QEMU was ended by signal {signal}"),
                    (None, None) => "QEMU ended".to_owned(),
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

    /// Waits until the guest's runner answers; its kernel release and HZ.
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
        // What is written before the guest opens its port is kept by QEMU, so one Hello is enough.
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
                    // QEMU closed the socket: give it a moment to be reaped, so that the reason can be told.
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
            self.threads()?.into_iter().filter_map(|(tid, name)| Some((vcpu_index(&name)?, tid))).collect();
        vcpus.sort_unstable();
        if vcpus.len() == self.spec.vcpu_threads as usize {
            Ok(vcpus.into_iter().map(|(_, tid)| tid).collect())
        } else {
            Err(self.failure(format!("QEMU shows {} vCPU threads, {} expected", vcpus.len(), self.spec.vcpu_threads)))
        }
    }

    /// Pins QEMU's threads: vCPUs to their cores, all others to the driver domain's, where they go before any vCPU that runs there too: in the
    /// papers that domain has a core to itself.
    pub fn pin(&self, vcpu_cores: &[CoreId], driver_domain: CoreId) -> Result<(), LabError> {
        self.pin_process(self.pid(), vcpu_cores, driver_domain)
    }

    /// The same of a QEMU that the VM is to move to.
    pub fn pin_process(&self, pid: u32, vcpu_cores: &[CoreId], driver_domain: CoreId) -> Result<(), LabError> {
        for (tid, name) in threads(pid)? {
            let vcpu_core = vcpu_index(&name).and_then(|i| vcpu_cores.get(i as usize)).copied();
            let policy = if vcpu_core.is_some() { Policy::Other } else { Policy::RoundRobin(DRIVER_DOMAIN_PRIORITY) };
            let set = cores::pin(tid, vcpu_core.unwrap_or(driver_domain)).and_then(|()| cores::set_policy(tid, policy));
            match set {
                // A worker thread may end between being listed and being pinned.
                Err(LabError::Io { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Pins the threads of a VM that is a driver domain: its virtual CPUs go before all others that run on that core, but not before what
    /// gives them their packets.
    pub fn pin_domain(&self, core: CoreId) -> Result<(), LabError> {
        self.pin(&vec![core; self.spec.vcpu_threads as usize], core)?;
        let vcpus = self.vcpu_threads()?;
        vcpus.into_iter().try_for_each(|tid| cores::set_policy(tid, Policy::RoundRobin(DOMAIN_VCPU_PRIORITY)))
    }

    fn pid(&self) -> u32 {
        self.child.lock().unwrap_or_else(|p| p.into_inner()).id()
    }

    fn threads(&self) -> Result<Vec<(i32, String)>, LabError> {
        threads(self.pid())
    }
}

/// Starts QEMU for a VM; `stem` names its sockets and logs.
fn start(spec: &VmSpec, directory: &Path, stem: &str, more: &[&str]) -> Result<Child, LabError> {
    let console = directory.join(format!("{stem}.console"));
    let socket = directory.join(format!("{stem}.control"));
    let (accelerator, processor) = match spec.accelerator {
        Accelerator::Kvm => ("kvm", "max"),
        Accelerator::Tcg if spec.vcpu_threads < spec.vcpus => ("tcg,thread=single", TCG_PROCESSOR),
        Accelerator::Tcg => ("tcg,thread=multi", TCG_PROCESSOR),
    };
    let offload = if spec.segmentation_offload { "on" } else { "off" };
    let offloads =
        ["gso", "host_tso4", "host_tso6", "host_ecn", "host_ufo", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"]
            .map(|name| format!("{name}={offload}"))
            .join(",");
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args(["-name", &format!("{},debug-threads=on", spec.name)])
        .args(["-machine", "q35", "-accel", accelerator, "-cpu", processor])
        .args(["-smp", &spec.vcpus.to_string(), "-m", &spec.memory_mib.to_string()])
        .arg("-kernel")
        .arg(&spec.image.vmlinuz)
        .arg("-initrd")
        .arg(&spec.image.initramfs)
        .args(["-append", &command_line(spec.accelerator)])
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .args(["-device", "virtio-rng-pci"])
        .arg("-chardev")
        .arg(format!("socket,id=control,path={},server=on,wait=off", socket.display()))
        .args([
            "-device",
            "virtio-serial-pci",
            "-device",
            &format!("virtserialport,chardev=control,name={CONTROL_PORT}"),
        ])
        .args([
            "-chardev",
            &format!("socket,id=qmp,path={},server=on,wait=off", directory.join(format!("{stem}.qmp")).display()),
        ])
        .args(["-mon", "chardev=qmp,mode=control"])
        .args(devices(spec, &offloads))
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(
            std::fs::File::create(directory.join(format!("{stem}.stderr")))
                .map_err(|e| LabError::io("making a log file", e))?,
        );
    // SAFETY: prctl and setpgid are async-signal-safe. The VM dies with the lab, whatever ends that; a Ctrl-C in the terminal goes to
    // the lab alone, which then ends its VMs in order.
    unsafe {
        command.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::setpgid(0, 0) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command.spawn().map_err(|e| LabError::io("starting qemu-system-x86_64", e))
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

/// Arguments for network cards and for ports beside the control port.
fn devices(spec: &VmSpec, offloads: &str) -> Vec<String> {
    let nics = spec.nics.iter().enumerate().flat_map(|(index, Nic { tap, mac })| {
        [
            "-netdev".to_owned(),
            format!("tap,id=net{index},ifname={tap},script=no,downscript=no,vhost=off"),
            "-device".to_owned(),
            format!("virtio-net-pci,netdev=net{index},mac={mac},romfile=,{offloads}"),
        ]
    });
    let channels = spec.channels.iter().enumerate().flat_map(|(index, Channel { name, socket, listens })| {
        // One that connects may come before the other end, and goes on when that comes anew.
        let how = if *listens { "server=on,wait=off" } else { "server=off,reconnect=1" };
        [
            "-chardev".to_owned(),
            format!("socket,id=channel{index},path={},{how}", socket.display()),
            "-device".to_owned(),
            format!("virtserialport,chardev=channel{index},name={name}"),
        ]
    });
    nics.chain(channels).collect()
}

/// The guest kernel's command line.
fn command_line(accelerator: Accelerator) -> String {
    // A ramfs, because a tmpfs would take half of the memory that is free beside the archive, and the archive must fit.
    let common =
        "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off no_timer_check random.trust_cpu=on rootfstype=ramfs";
    match accelerator {
        Accelerator::Kvm => common.to_owned(),
        // The guest reads this machine's TSC, but cannot measure its rate while it shares a core: guest clocks ran ten times too fast. A
        // waiting vCPU would also make the TSC look unstable to the clock watchdog, which then falls back to a slow clock.
        Accelerator::Tcg => format!("{common} tsc=reliable tsc_early_khz={}", cores::tsc_khz()),
    }
}

/// QEMU names a vCPU's thread `CPU 0/TCG` or `CPU 0/KVM`, and `ALL CPUs/TCG` the one that runs them all.
fn vcpu_index(thread_name: &str) -> Option<u32> {
    if thread_name == "ALL CPUs/TCG" {
        return Some(0);
    }
    thread_name.strip_prefix("CPU ")?.split('/').next()?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::vcpu_index;

    #[test]
    fn names_of_vcpu_threads() {
        assert_eq!(vcpu_index("CPU 0/TCG"), Some(0));
        assert_eq!(vcpu_index("ALL CPUs/TCG"), Some(0));
        assert_eq!(vcpu_index("CPU 11/KVM"), Some(11));
        assert_eq!(vcpu_index("sender-0"), None);
        assert_eq!(vcpu_index("CPU x/TCG"), None);
    }
}
