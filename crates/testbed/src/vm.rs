//! A VM as far as its host's port goes: a network namespace behind a veth port on a bridge.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, setns};

use crate::place::ip;

/// Its namespace is there until this is dropped.
#[derive(Debug)]
pub struct Vm {
    /// Its own.
    pub address: Ipv4Addr,
    keeper: Child,
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

impl Vm {
    /// `port` on the bridge `br0` of this thread's namespace, `eth0` with an IPv4 address inside. `more` are further
    /// arguments of `ip link add` for the port.
    pub fn new(port: &str, more: &str, address: &str) -> Self {
        let vm = Self::bare(address);
        ip(&format!("link add {port} {more} type veth peer name eth0 netns {}", vm.keeper.id()));
        ip(&format!("link set {port} master br0 up"));
        let address = vm.address;
        vm.spawn(move || {
            ip(&format!("addr add {address}/24 dev eth0"));
            ip("link set eth0 up");
        })
        .join()
        .expect("the VM's device is there");
        vm
    }

    /// Without a device.
    pub fn bare(address: &str) -> Self {
        let mut keeper = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up; echo ready; exec sleep 3600"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("util-linux is installed");
        let mut line = String::new();
        let output = keeper.stdout.take().expect("it was piped");
        BufReader::new(output).read_line(&mut line).expect("the namespace is made by root");
        assert_eq!(line, "ready\n");
        Self { address: address.parse().expect("an IPv4 address"), keeper }
    }

    /// A process inside, as long as it is there.
    pub fn pid(&self) -> u32 {
        self.keeper.id()
    }

    /// A thread inside.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.keeper.id())).expect("the namespace is there");
        std::thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).expect("root may enter it");
            work()
        })
    }
}

/// The bridge of [`Vm`]s.
pub fn bridge() {
    ip("link add br0 type bridge");
    ip("link set br0 up");
}

/// A counter of TCP (`/proc/net/snmp`) in this thread's namespace.
pub fn tcp_counter(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("it is always there");
    let lines: Vec<_> = text.lines().filter(|l| l.starts_with("Tcp:")).collect();
    let at = lines[0].split_whitespace().position(|n| n == name).expect("a counter of TCP");
    lines[1].split_whitespace().nth(at).expect("names and values go together").parse().expect("a number")
}
