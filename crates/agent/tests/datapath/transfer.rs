//! Real TCP between two VMs (network namespaces) behind a bridge, with veth ports that have their offloads: GSO packets and partial
//! checksums. A program of three instructions at the receiver's port stands for a switch that marks all it can.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use evenkeel_agent::datapath::{Datapath, intf};
use nix::sched::{CloneFlags, setns};

use crate::place::{A, B, KEY, index, ip, leave, settings};

const BYTES: usize = 8 << 20;

/// A network namespace that a sleeping process keeps.
struct Vm(Child);

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Vm {
    fn new(port: &str, address: &str) -> Self {
        let mut keeper = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo ready; exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("util-linux is installed");
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let vm = Self(keeper);
        ip(&format!("link add {port} type veth peer name eth0 netns {}", vm.0.id()));
        ip(&format!("link set {port} master br0 up"));
        let address = address.to_owned();
        vm.spawn(move || {
            ip(&format!("addr add {address}/24 dev eth0"));
            ip("link set eth0 up");
        })
        .join()
        .unwrap();
        vm
    }

    fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.0.id())).unwrap();
        std::thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        })
    }
}

/// Marks every ECN-capable packet that leaves a device, before the programs there. Holds as long as the descriptors.
fn mark_all(device: u32) -> (OwnedFd, OwnedFd) {
    use libbpf_sys::{BPF_F_BEFORE, BPF_FUNC_skb_ecn_set_ce, BPF_PROG_TYPE_SCHED_CLS, BPF_TCX_EGRESS, bpf_insn};
    let instruction = |code, imm| bpf_insn { code, imm, ..Default::default() };
    // call bpf_skb_ecn_set_ce(skb); r0 = TCX_NEXT; exit
    let program = [instruction(0x85, BPF_FUNC_skb_ecn_set_ce as i32), instruction(0xb7, -1), instruction(0x95, 0)];
    // SAFETY: name, licence and instructions outlive the call; no options. What comes back is checked and owned once.
    unsafe {
        let program = libbpf_sys::bpf_prog_load(
            BPF_PROG_TYPE_SCHED_CLS,
            c"mark_all".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as _,
            std::ptr::null_mut(),
        );
        assert!(program >= 0, "{}", std::io::Error::last_os_error());
        let program = OwnedFd::from_raw_fd(program);
        let options = libbpf_sys::bpf_link_create_opts {
            sz: std::mem::size_of::<libbpf_sys::bpf_link_create_opts>() as _,
            flags: BPF_F_BEFORE,
            ..Default::default()
        };
        let link = libbpf_sys::bpf_link_create(program.as_raw_fd(), device as i32, BPF_TCX_EGRESS, &options);
        assert!(link >= 0, "{}", std::io::Error::last_os_error());
        (program, OwnedFd::from_raw_fd(link))
    }
}

/// The value of a counter of /proc/net/snmp or netstat in this thread's namespace.
fn tcp_counter(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let lines: Vec<_> = text.lines().filter(|l| l.starts_with("Tcp:")).collect();
    let at = lines[0].split_whitespace().position(|n| n == name).unwrap();
    lines[1].split_whitespace().nth(at).unwrap().parse().unwrap()
}

struct Seen {
    a: intf::ek_counters,
    b: intf::ek_counters,
    flow_a: intf::ek_flow,
    flow_b: intf::ek_flow,
}

/// Moves BYTES from A to B over one connection and takes the state before it is closed.
fn transfer(is_marking: bool) -> Seen {
    let directory = tempfile::tempdir().unwrap();
    leave(directory.path());
    ip("link add br0 type bridge");
    ip("link set br0 up");
    let (vm_a, vm_b) = (Vm::new("pa", A), Vm::new("pb", B));
    let mut datapath = Datapath::open(&directory.path().join("evenkeel")).unwrap();
    let (pa, pb) = (index("pa"), index("pb"));
    for port in [pa, pb] {
        datapath.attach(port, &settings(intf::EK_MODE_ENFORCE)).unwrap();
    }
    let mut host = intf::ek_host { version: intf::EK_INTF_VERSION, keys: 1, ..Default::default() };
    host.key[0] = KEY;
    datapath.set_host(&host).unwrap();
    let _marker = is_marking.then(|| mark_all(pb));

    let listener = vm_b.spawn(|| TcpListener::bind((B, 8000)).unwrap()).join().unwrap();
    let receiver = vm_b.spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut data = vec![0; BYTES];
        stream.read_exact(&mut data).unwrap();
        stream.write_all(b"!").unwrap();
        assert!(data.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8), "data arrived changed");
        (stream, tcp_counter("InCsumErrors"), tcp_counter("OutRsts"))
    });
    let sender = vm_a.spawn(|| {
        let mut stream = TcpStream::connect((B, 8000)).unwrap();
        let data: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
        stream.write_all(&data).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        (stream, tcp_counter("InCsumErrors"), tcp_counter("OutRsts"))
    });
    let sender = sender.join().unwrap();
    let receiver = receiver.join().unwrap();
    assert_eq!((sender.1, sender.2, receiver.1, receiver.2), (0, 0, 0, 0), "checksum errors and resets");
    let flow = |port| {
        let flows = datapath.flows().unwrap();
        let found: Vec<_> = flows.iter().filter(|(key, _)| key.ifindex == port).collect();
        assert_eq!(found.len(), 1);
        found[0].1
    };
    Seen { a: datapath.counters(pa).unwrap(), b: datapath.counters(pb).unwrap(), flow_a: flow(pa), flow_b: flow(pb) }
}

fn value(counters: &intf::ek_counters, which: u32) -> u64 {
    counters.value[which as usize]
}

#[test]
fn a_transfer_without_marks() {
    let seen = transfer(false);
    assert_eq!(value(&seen.a, intf::EK_COUNT_PROBES_SENT), 10);
    assert_eq!(value(&seen.b, intf::EK_COUNT_PROBES_SEEN), 10);
    assert_eq!(value(&seen.a, intf::EK_COUNT_REPORTS_SEEN), 1);
    assert_eq!(value(&seen.b, intf::EK_COUNT_SYNACKS_SCALED), 1);
    assert_eq!(seen.flow_b.synack_window_bytes, 10 * 1448);
    assert!(value(&seen.a, intf::EK_COUNT_ECT_SET) > 0);
    assert_eq!(value(&seen.a, intf::EK_COUNT_WINDOWS_LIMITED), 0);
    assert!(seen.flow_a.bytes_from_vm >= BYTES as u64);
}

#[test]
fn a_transfer_with_everything_marked() {
    let seen = transfer(true);
    assert_eq!(value(&seen.b, intf::EK_COUNT_PROBES_MARKED), 10);
    assert_eq!(value(&seen.b, intf::EK_COUNT_SYNACKS_ONE_MSS), 1);
    assert_eq!(seen.flow_b.synack_window_bytes, 1448);
    let hidden = value(&seen.b, intf::EK_COUNT_CE_HIDDEN);
    assert!(hidden > 0 && hidden == value(&seen.b, intf::EK_COUNT_CE_SEEN));
    assert!(value(&seen.b, intf::EK_COUNT_ECE_SET) > 0);
    let hidden = value(&seen.a, intf::EK_COUNT_ECE_HIDDEN);
    assert!(hidden > 0 && hidden == value(&seen.a, intf::EK_COUNT_ECE_SEEN));
    assert!(value(&seen.a, intf::EK_COUNT_WINDOWS_LIMITED) > 0);
    for counters in [&seen.a, &seen.b] {
        assert_eq!(value(counters, intf::EK_COUNT_WRITE_FAILED), 0);
    }
}
