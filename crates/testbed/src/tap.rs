//! A VM behind a tap: frames wait in the tap's ring until somebody takes them out, as QEMU does for a VM that has its core.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::place::ip;
use crate::vm::Vm;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
/// TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6
const OFFLOADS: libc::c_ulong = 1 | 2 | 4;
/// The longest frame, with its virtio_net_hdr.
const LONGEST: usize = (64 << 10) + 256;

/// Who has a tap open: frames for the VM are read from it, frames of the VM written to it.
#[derive(Debug)]
pub struct TapFile(File);

impl TapFile {
    /// Makes a tap in this thread's namespace. With offloads, frames have a `virtio_net_hdr` before them and may be unfinished.
    pub fn new(name: &str, has_offloads: bool) -> Self {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun").unwrap();
        let mut request = [0u8; 40];
        request[..name.len()].copy_from_slice(name.as_bytes());
        let header = if has_offloads { libc::IFF_VNET_HDR } else { 0 };
        let flags = (libc::IFF_TAP | libc::IFF_NO_PI | header) as u16;
        request[16..18].copy_from_slice(&flags.to_ne_bytes());
        // SAFETY: request is an ifreq that outlives the call.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) };
        assert!(made >= 0, "{}", io::Error::last_os_error());
        if has_offloads {
            // SAFETY: TUNSETOFFLOAD takes its argument by value.
            let set = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, OFFLOADS) };
            assert!(set >= 0, "{}", io::Error::last_os_error());
        }
        Self(file)
    }

    /// Lets the device outlive who has it open.
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

/// A VM whose core can be taken away.
#[derive(Debug)]
pub struct TapVm {
    /// Its namespace.
    pub vm: Vm,
    runs: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    pump: Option<JoinHandle<u64>>,
}

impl TapVm {
    /// Tap `port` on the bridge `br0` of this thread's namespace, `eth0` with an IPv4 address inside.
    pub fn new(port: &str, has_offloads: bool, address: &str) -> Self {
        let outside = TapFile::new(port, has_offloads);
        ip(&format!("link set {port} master br0 up"));
        let vm = Vm::bare(address);
        let address = vm.address;
        let inside = vm
            .spawn(move || {
                let tap = TapFile::new("eth0", has_offloads);
                ip(&format!("addr add {address}/24 dev eth0"));
                ip("link set eth0 txqueuelen 10000 up");
                tap
            })
            .join()
            .unwrap();
        let (runs, ends) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let (may_run, must_end) = (Arc::clone(&runs), Arc::clone(&ends));
        let pump = std::thread::spawn(move || pump(&outside, &inside, &may_run, &must_end));
        Self { vm, runs, ends, pump: Some(pump) }
    }

    /// Gives it its core, or takes it away: then nothing goes in or out.
    pub fn run(&self, runs: bool) {
        self.runs.store(runs, Ordering::SeqCst);
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

/// Carries frames both ways. How many went in.
fn pump(outside: &TapFile, inside: &TapFile, may_run: &AtomicBool, must_end: &AtomicBool) -> u64 {
    let mut taken = 0;
    while !must_end.load(Ordering::SeqCst) {
        if !may_run.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let mut ready = [outside, inside].map(|tap| PollFd::new(tap.0.as_fd(), PollFlags::POLLIN));
        let _ = poll(&mut ready, PollTimeout::from(10u8));
        // Short turns: a core that is taken away is gone soon.
        for _ in 0..16 {
            let (to, from) = (outside.take(), inside.take());
            if let Some(frame) = &to {
                taken += 1;
                inside.put(frame);
            }
            if let Some(frame) = &from {
                outside.put(frame);
            }
            if to.is_none() && from.is_none() {
                break;
            }
        }
    }
    taken
}
