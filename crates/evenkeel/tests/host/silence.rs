//! A VM that is dead is not kept alive: from a second after its last sign of life nobody gets an answer in its name,
//! whatever is asked, and its peers find out as they would without the host.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use evenkeel_algo::frames::{ACK, SYN, Segment};
use evenkeel_algo::packet::{self, Kind, Packet};
use evenkeel_testbed::place::{Tap, index, ip};
use evenkeel_testbed::tap::TapVm;
use evenkeel_testbed::vm::Vm;
use nix::sys::socket::{setsockopt, sockopt};

use crate::bed::{Host, LIMIT, METRICS, SERVER, counter, wait_until};
use crate::upload::{VSNOOP, add_v6, server};

const PUSH: u8 = 8;
/// The other end's port.
const PORT: u16 = 4077;
const ISS: u32 = 1000;
/// Bytes of a full segment, which IPv6 has room for, too.
const MSS: usize = 1400;

fn mac(device: &str) -> [u8; 6] {
    let links: serde_json::Value = serde_json::from_str(&ip(&format!("-j link show {device}"))).unwrap();
    let bytes = links[0]["address"].as_str().unwrap().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
    bytes.collect::<Vec<_>>().try_into().unwrap()
}

/// A TCP of the test's own at the other end, segment by segment.
struct Peer {
    tap: Tap,
    macs: [[u8; 6]; 2],
    addresses: [String; 2],
    /// Number of the next byte that the VM sends.
    ack: u32,
}

impl Peer {
    fn send(&self, seq: u32, flags: u8, payload: usize) {
        let [vm, own] = &self.addresses;
        let options = if flags & SYN != 0 { [&[2, 4][..], &(MSS as u16).to_be_bytes()].concat() } else { Vec::new() };
        let ack = if flags & ACK != 0 { self.ack } else { 0 };
        let segment =
            Segment { seq, ack, options, payload, ..Segment::new((own.as_str(), PORT), (vm.as_str(), SERVER), flags) };
        let mut frame = segment.frame();
        frame[..6].copy_from_slice(&self.macs[0]);
        frame[6..12].copy_from_slice(&self.macs[1]);
        self.tap.send(&frame);
    }

    /// What comes from the VM until nothing more does for a second.
    fn answers(&self) -> Vec<Packet> {
        self.up_to(10_000)
    }

    fn answer(&self) -> Option<Packet> {
        self.up_to(1).pop()
    }

    fn up_to(&self, most: usize) -> Vec<Packet> {
        let frames = self.tap.tcp(most);
        let packets = frames.iter().filter_map(|frame| match packet::parse(frame) {
            Kind::Tcp(packet, _) => Some(packet),
            _ => None,
        });
        packets.filter(|packet| packet.source_port == SERVER && packet.destination_port == PORT).collect()
    }
}

/// What the application does with what comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Application {
    /// It reads what there is.
    Reads,
    /// It reads nothing, so that its window closes.
    LooksAway,
}

/// Starts an application in the VM, which ends when the returned sender is dropped.
fn serve(vm: &Vm, at: SocketAddr, application: Application) -> Sender<()> {
    let (ready, is_ready) = channel();
    let (end, ends): (_, Receiver<()>) = channel();
    vm.spawn(move || {
        let listener = TcpListener::bind(at).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        if application == Application::Reads {
            stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
            while ends.try_recv() != Err(TryRecvError::Disconnected) {
                match stream.read(&mut [0; 4096]) {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                    Err(_) => return,
                }
            }
        }
        let _ = ends.recv();
    });
    is_ready.recv().unwrap();
    end
}

/// The host, a VM, and the raw end of a connection to it from a device on the bridge.
fn a_dead_vm(addresses: [&str; 2], application: Application) {
    let mut host = Host::new();
    host.configure("off", METRICS, VSNOOP);
    let vm = TapVm::new("vp1", false, "10.9.0.1");
    add_v6(&vm.vm, "fd09::1");
    ip("link add raw type veth peer name inner");
    ip("link set raw master br0 up");
    ip("link set inner up");
    let own = mac("inner");
    let neighbour =
        format!("neigh replace {} dev eth0 lladdr {}", addresses[1], own.map(|b| format!("{b:02x}")).join(":"));
    let vm_mac = vm.vm.spawn(move || {
        ip(&neighbour);
        mac("eth0")
    });
    let vm_mac = vm_mac.join().unwrap();
    let at = server(addresses[0]);
    let _application = serve(&vm.vm, at, application);
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);

    let mut peer =
        Peer { tap: Tap::new(index("inner")), macs: [vm_mac, own], addresses: addresses.map(str::to_owned), ack: 0 };
    peer.send(ISS, SYN, 0);
    peer.ack = peer.answer().expect("the VM accepts the connection").seq.wrapping_add(1);
    peer.send(ISS + 1, ACK, 0);
    let mut next = ISS + 1;
    let push = |peer: &Peer, next: &mut u32, segments: usize| {
        for _ in 0..segments {
            peer.send(*next, ACK | PUSH, MSS);
            *next += MSS as u32;
        }
    };
    // The VM shows by these that it is the end of the connection.
    for _ in 0..3 {
        push(&peer, &mut next, 2);
        assert_eq!(peer.answers().last().expect("the VM acknowledges").ack, next);
    }
    if application == Application::LooksAway {
        let mut window = u16::MAX;
        while window > 0 {
            push(&peer, &mut next, 1);
            let answer = peer.answer().expect("the VM acknowledges");
            (next, window) = (answer.ack, answer.window);
        }
        // The last of its answers, too.
        next = peer.answers().last().map_or(next, |answer| answer.ack);
    }
    vm.run(false);
    let before = counter(&host.status(), "vp1", "vsnoop_early_acks");
    if application == Application::Reads {
        push(&peer, &mut next, 4);
        // All but the last segment, which is the VM's to acknowledge.
        let told = peer.answers().last().expect("it is off its core, and data is acknowledged early").ack;
        assert_eq!(told, next - MSS as u32);
        assert!(counter(&host.status(), "vp1", "vsnoop_early_acks") > before);
    }
    std::thread::sleep(Duration::from_secs(1));
    let questions: [(&str, &dyn Fn()); 6] = [
        ("keepalives", &|| peer.send(next - 1, ACK, 0)),
        ("keepalives of an octet", &|| peer.send(next - 1, ACK, 1)),
        ("window probes of new data", &|| peer.send(next, ACK, 1)),
        ("the last segment again", &|| peer.send(next - MSS as u32, ACK | PUSH, MSS)),
        ("all segments again", &|| (1..=4).rev().for_each(|n| peer.send(next - n * MSS as u32, ACK | PUSH, MSS))),
        ("new data", &|| peer.send(next, ACK | PUSH, MSS)),
    ];
    for (what, ask) in questions {
        for _ in 0..10 {
            ask();
        }
        assert_eq!(peer.answers().len(), 0, "{what} are answered for a VM that is dead");
    }
    assert_eq!(counter(&host.status(), "vp1", "vsnoop_failed"), 0);
}

#[test]
fn nobody_answers_for_a_dead_vm() {
    for addresses in [["10.9.0.1", "10.9.0.77"], ["fd09::1", "fd09::77"]] {
        for application in [Application::Reads, Application::LooksAway] {
            a_dead_vm(addresses, application);
        }
    }
}

/// What a peer does while its VM is dead.
#[derive(Debug, Clone, Copy)]
enum Peers {
    /// It waits, with keepalives.
    Wait,
    /// It sends now and then.
    Send,
}

/// The peer finds out by its own timers, which take far less than [`LIMIT`].
fn a_peer_finds_out(peers: Peers, address: &str) {
    let mut host = Host::new();
    host.configure("off", METRICS, VSNOOP);
    let vm = TapVm::new("vp1", false, "10.9.0.1");
    let client = Vm::new("plain", "", "10.9.0.2");
    add_v6(&vm.vm, "fd09::1");
    add_v6(&client, "fd09::2");
    let at = server(address);
    let _application = serve(&vm.vm, at, Application::Reads);
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    let (is_up, up) = channel();
    let (dies, dead): (_, Receiver<()>) = channel();
    let peer = client.spawn(move || {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        for _ in 0..10 {
            stream.write_all(&[0; 6000]).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        is_up.send(()).unwrap();
        dead.recv().unwrap();
        let end = Instant::now() + LIMIT;
        match peers {
            Peers::Wait => {
                setsockopt(&stream, sockopt::KeepAlive, &true).unwrap();
                setsockopt(&stream, sockopt::TcpKeepIdle, &1).unwrap();
                setsockopt(&stream, sockopt::TcpKeepInterval, &1).unwrap();
                setsockopt(&stream, sockopt::TcpKeepCount, &3).unwrap();
                stream.read(&mut [0]).unwrap_err().kind()
            }
            Peers::Send => {
                setsockopt(&stream, sockopt::TcpUserTimeout, &4000).unwrap();
                loop {
                    assert!(Instant::now() < end, "nobody tells it");
                    match stream.write_all(&[0; 6000]) {
                        Ok(()) => std::thread::sleep(Duration::from_millis(100)),
                        Err(error) => break error.kind(),
                    }
                }
            }
        }
    });
    up.recv().unwrap();
    assert!(counter(&host.status(), "vp1", "vsnoop_early_acks") > 0, "nothing was acknowledged early");
    vm.run(false);
    dies.send(()).unwrap();
    assert_eq!(peer.join().unwrap(), ErrorKind::TimedOut, "{peers:?}");
}

#[test]
fn peers_of_a_dead_vm_find_out() {
    for address in ["10.9.0.1", "fd09::1"] {
        a_peer_finds_out(Peers::Wait, address);
        a_peer_finds_out(Peers::Send, address);
    }
}
