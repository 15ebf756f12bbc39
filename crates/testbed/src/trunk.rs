//! A VM with a trunk: one tap, and behind it networks that only VLAN tags tell apart. They may have the same addresses.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::place::ip;
use crate::tap::TapFile;
use crate::thread;
use crate::vm::Vm;

/// Where tags stand in a frame.
const TAGS: usize = 12;
/// MTU of the networks, so that a frame with two tags is not too long for the bridge.
const MTU: usize = 1492;

/// Its networks are there until this is dropped.
#[derive(Debug)]
pub struct Trunk {
    /// A namespace for each network, with `eth0`.
    pub networks: Vec<Vm>,
    ends: Arc<AtomicBool>,
    pump: Option<JoinHandle<()>>,
}

impl Trunk {
    /// Tap `port` on the bridge `br0` of this thread's namespace, a network for each stack of tags (TPID and VID, the
    /// outermost first), all with this IPv4 address.
    pub fn new(port: &str, address: &str, stacks: &[&[(u16, u16)]]) -> Self {
        thread::asleep();
        let outside = TapFile::new(port, false);
        ip(&format!("link set {port} master br0 up"));
        let mut networks = Vec::new();
        let mut inside = Vec::new();
        for stack in stacks {
            let network = Vm::bare(address);
            let address = network.address;
            let tap = network.spawn(move || {
                let tap = TapFile::new("eth0", false);
                ip(&format!("addr add {address}/24 dev eth0"));
                // One device with many networks has one MAC address.
                let [_, _, _, last] = address.octets();
                ip(&format!("link set eth0 address 02:00:00:00:09:{last:02x} mtu {MTU} txqueuelen 10000 up"));
                tap
            });
            let tags = stack.iter().flat_map(|(tpid, vid)| [tpid.to_be_bytes(), vid.to_be_bytes()].concat());
            inside.push((tap.join().unwrap(), tags.collect::<Vec<u8>>()));
            networks.push(network);
        }
        let ends = Arc::new(AtomicBool::new(false));
        let must_end = Arc::clone(&ends);
        let pump = std::thread::spawn(move || pump(&outside, &inside, &must_end));
        Self { networks, ends, pump: Some(pump) }
    }
}

impl Drop for Trunk {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        if let Some(pump) = self.pump.take() {
            let _ = pump.join();
        }
    }
}

/// Carries frames both ways, and takes tags off and puts them on.
fn pump(outside: &TapFile, inside: &[(TapFile, Vec<u8>)], must_end: &AtomicBool) {
    while !must_end.load(Ordering::SeqCst) {
        let taps = inside.iter().map(|(tap, _)| tap).chain([outside]);
        let mut ready: Vec<_> = taps.map(|tap| PollFd::new(tap.as_fd(), PollFlags::POLLIN)).collect();
        let _ = poll(&mut ready, PollTimeout::from(10u8));
        while let Some(frame) = outside.take() {
            deliver(&frame, inside);
        }
        for (tap, tags) in inside {
            while let Some(frame) = tap.take() {
                outside.put(&[&frame[..TAGS], tags, &frame[TAGS..]].concat());
            }
        }
    }
}

/// Puts a frame into the network that has exactly its tags.
fn deliver(frame: &[u8], inside: &[(TapFile, Vec<u8>)]) {
    for (tap, tags) in inside {
        let Some(rest) = frame.get(TAGS..).and_then(|rest| rest.strip_prefix(tags.as_slice())) else { continue };
        if !matches!(rest, [0x81, 0, ..] | [0x88, 0xa8, ..]) {
            tap.put(&[&frame[..TAGS], rest].concat());
        }
    }
}
