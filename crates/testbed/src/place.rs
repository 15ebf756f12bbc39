//! A network namespace of the test's own, and what its devices see.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use evenkeel_algo::packet::{self, Kind};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrLike, bind, recv, send, setsockopt,
    socket, sockopt,
};

/// Runs `ip`, and gives what it prints.
pub fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("ip prints text")
}

/// Takes this thread into namespaces of its own, with a bpf file system.
pub fn leave(directory: &Path) {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("this test needs root");
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    mount(Some("bpf"), directory, Some("bpf"), MsFlags::empty(), None::<&str>).unwrap();
    ip("link set lo up");
}

/// A device's index.
pub fn index(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).unwrap()
}

/// Sees what enters a device.
#[derive(Debug)]
pub struct Tap(std::os::fd::OwnedFd);

impl Tap {
    /// From now on.
    pub fn new(device: u32) -> Self {
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), SockProtocol::EthAll).unwrap();
        // SAFETY: all zeros are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = device as i32;
        // SAFETY: the address is a whole sockaddr_ll.
        let address = unsafe {
            LinkAddr::from_raw(
                std::ptr::from_ref(&address).cast(),
                Some(std::mem::size_of::<libc::sockaddr_ll>() as u32),
            )
        };
        bind(socket.as_raw_fd(), &address.unwrap()).unwrap();
        setsockopt(&socket, sockopt::ReceiveTimeout, &nix::sys::time::TimeVal::new(1, 0)).unwrap();
        Self(socket)
    }

    /// Puts a frame on the device's way out. A queue that is full is no failure.
    pub fn send(&self, frame: &[u8]) {
        let _ = send(self.0.as_raw_fd(), frame, MsgFlags::empty());
    }

    /// Up to `most` TCP segments that were seen; fewer if no more come within a second.
    pub fn tcp(&self, most: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut buffer = [0; 2048];
        while frames.len() < most {
            let Ok(length) = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()) else { break };
            let frame = &buffer[..length];
            if matches!(packet::parse(frame), Kind::Tcp(..)) {
                frames.push(frame.to_vec());
            }
        }
        frames
    }
}
