//! A VM behind a tap: frames wait in the tap's ring until somebody takes them out, as QEMU does for a VM that has its
//! core.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::place::ip;
use crate::thread;
use crate::vm::Vm;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
/// TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6
const OFFLOADS: libc::c_ulong = 1 | 2 | 4;
/// The longest frame, with its virtio_net_hdr.
const LONGEST: usize = (64 << 10) + 256;
/// How long GRO waits for what can be joined, in nanoseconds.
const GRO_NS: u32 = 200_000;

/// How a tap takes frames, and gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Each is a segment.
    Plain,
    /// They have a `virtio_net_hdr` before them, and may be large and unfinished.
    Offloads,
    /// Each is a segment, and those that come in are joined (GRO).
    Gro,
}

/// An open tap: frames for the VM are read from it, frames of the VM are written to it.
#[derive(Debug)]
pub struct TapFile(File);

impl TapFile {
    /// Makes a tap in this thread's namespace.
    pub fn of(name: &str, kind: Kind) -> Self {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun").unwrap();
        let mut request = [0u8; 40];
        request[..name.len()].copy_from_slice(name.as_bytes());
        let more = match kind {
            Kind::Plain => 0,
            Kind::Offloads => libc::IFF_VNET_HDR,
            Kind::Gro => libc::IFF_NAPI,
        };
        let flags = (libc::IFF_TAP | libc::IFF_NO_PI | more) as u16;
        request[16..18].copy_from_slice(&flags.to_ne_bytes());
        // SAFETY: request is an ifreq that outlives the call.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) };
        assert!(made >= 0, "{}", io::Error::last_os_error());
        if kind == Kind::Offloads {
            // SAFETY: TUNSETOFFLOAD takes its argument by value.
            let set = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, OFFLOADS) };
            assert!(set >= 0, "{}", io::Error::last_os_error());
        }
        if kind == Kind::Gro {
            wait_for_gro(name);
        }
        Self(file)
    }

    /// [`Kind::Offloads`], or [`Kind::Plain`].
    pub fn new(name: &str, has_offloads: bool) -> Self {
        Self::of(name, if has_offloads { Kind::Offloads } else { Kind::Plain })
    }

    /// Lets the device outlive this file.
    pub fn persist(&self) {
        // SAFETY: TUNSETPERSIST takes its argument by value.
        let set = unsafe { libc::ioctl(self.0.as_raw_fd(), TUNSETPERSIST, 1) };
        assert!(set >= 0, "{}", io::Error::last_os_error());
    }

    /// Takes a frame out of the ring; `None` if there is none.
    pub fn take(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; LONGEST];
        let length = (&self.0).read(&mut buffer).ok()?;
        buffer.truncate(length);
        Some(buffer)
    }

    /// Puts a frame of the VM's on its way.
    pub fn put(&self, frame: &[u8]) {
        (&self.0).write_all(frame).unwrap();
    }
}

/// Makes GRO wait: otherwise each frame that is written would be a batch of its own.
fn wait_for_gro(device: &str) {
    let directory = tempfile::tempdir().unwrap();
    // A sysfs of this network namespace.
    mount(Some("sysfs"), directory.path(), Some("sysfs"), MsFlags::empty(), None::<&str>).unwrap();
    let file = Path::new("class/net").join(device).join("gro_flush_timeout");
    std::fs::write(directory.path().join(file), GRO_NS.to_string()).unwrap();
    umount2(directory.path(), MntFlags::MNT_DETACH).unwrap();
}

impl AsFd for TapFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A VM whose core can be taken away.
#[derive(Debug)]
pub struct TapVm {
    /// Its namespace.
    pub vm: Vm,
    runs: Arc<AtomicBool>,
    rests: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    pump: Option<JoinHandle<u64>>,
}

impl TapVm {
    /// Tap `port` on the bridge `br0` of this thread's namespace, `eth0` with an IPv4 address inside.
    pub fn new(port: &str, has_offloads: bool, address: &str) -> Self {
        let kind = if has_offloads { Kind::Offloads } else { Kind::Plain };
        Self::through(port, kind, address, |_| {})
    }

    /// The same, with something on its way out that may change each frame.
    pub fn through(port: &str, kind: Kind, address: &str, touch: impl FnMut(&mut [u8]) + Send + 'static) -> Self {
        thread::asleep();
        let outside = TapFile::of(port, kind);
        ip(&format!("link set {port} master br0 up"));
        let vm = Vm::bare(address);
        let address = vm.address;
        let inside = vm
            .spawn(move || {
                let tap = TapFile::new("eth0", kind == Kind::Offloads);
                ip(&format!("addr add {address}/24 dev eth0"));
                ip("link set eth0 txqueuelen 10000 up");
                tap
            })
            .join()
            .unwrap();
        let (runs, ends) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let rests = Arc::new(AtomicBool::new(false));
        let core = Core { may_run: Arc::clone(&runs), rests: Arc::clone(&rests), must_end: Arc::clone(&ends) };
        let pump = std::thread::spawn(move || pump(&outside, &inside, &core, touch));
        Self { vm, runs, rests, ends, pump: Some(pump) }
    }

    /// Gives it its core, or takes it away: then nothing goes in or out any more.
    pub fn run(&self, runs: bool) {
        self.runs.store(runs, Ordering::SeqCst);
        let is_over = || self.pump.as_ref().is_none_or(JoinHandle::is_finished);
        while self.rests.load(Ordering::SeqCst) == runs && !is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for TapVm {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        if let Some(pump) = self.pump.take() {
            let _ = pump.join();
        }
    }
}

/// What the VM and its pump tell each other.
struct Core {
    may_run: Arc<AtomicBool>,
    /// The pump has seen that it must not.
    rests: Arc<AtomicBool>,
    must_end: Arc<AtomicBool>,
}

/// Carries frames both ways; returns how many went in.
fn pump(outside: &TapFile, inside: &TapFile, core: &Core, mut touch: impl FnMut(&mut [u8])) -> u64 {
    let mut taken = 0;
    while !core.must_end.load(Ordering::SeqCst) {
        let may_run = core.may_run.load(Ordering::SeqCst);
        core.rests.store(!may_run, Ordering::SeqCst);
        if !may_run {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let mut ready = [outside, inside].map(|tap| PollFd::new(tap.0.as_fd(), PollFlags::POLLIN));
        let _ = poll(&mut ready, PollTimeout::from(10u8));
        // Short turns, so that a core can be taken away soon.
        for _ in 0..16 {
            let (to, mut from) = (outside.take(), inside.take());
            if let Some(frame) = &to {
                taken += 1;
                inside.put(frame);
            }
            if let Some(frame) = &mut from {
                touch(frame);
                outside.put(frame);
            }
            if to.is_none() && from.is_none() {
                break;
            }
        }
    }
    taken
}
