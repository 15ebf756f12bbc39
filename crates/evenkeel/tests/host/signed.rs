//! Connections whose headers are signed, as BGP's are (TCP-MD5, RFC 2385), through enforced ports: they work as without
//! evenkeel.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc;

use evenkeel_testbed::place::ip;
use evenkeel_testbed::vm::Vm;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, connect, listen, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use crate::bed::{BYTES, Host, LIMIT, METRICS, SERVER, counter, pattern, wait_until};

const KEY: &[u8] = b"evenkeel";

/// struct tcp_md5sig of linux/tcp.h.
#[repr(C)]
struct Md5Sig {
    address: libc::sockaddr_storage,
    flags: u8,
    prefix: u8,
    key_bytes: u16,
    ifindex: i32,
    key: [u8; 80],
}

/// A socket that signs what it says to `peer`.
fn signing(peer: IpAddr) -> OwnedFd {
    const TCP_MD5SIG: libc::c_int = 14;
    let family = if peer.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::empty(), None).unwrap();
    // SAFETY: all zeros are a valid value of it.
    let mut signature: Md5Sig = unsafe { std::mem::zeroed() };
    match peer {
        IpAddr::V4(address) => {
            // SAFETY: the storage is large enough, and aligned, for every address.
            let to = unsafe { &mut *std::ptr::from_mut(&mut signature.address).cast::<libc::sockaddr_in>() };
            to.sin_family = libc::AF_INET as libc::sa_family_t;
            to.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
        }
        IpAddr::V6(address) => {
            // SAFETY: as above.
            let to = unsafe { &mut *std::ptr::from_mut(&mut signature.address).cast::<libc::sockaddr_in6>() };
            to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            to.sin6_addr.s6_addr = address.octets();
        }
    }
    signature.key_bytes = KEY.len() as u16;
    signature.key[..KEY.len()].copy_from_slice(KEY);
    // SAFETY: the structure outlives the call, and its size is its own.
    let set = unsafe {
        let value = std::ptr::from_ref(&signature).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, TCP_MD5SIG, value, size_of::<Md5Sig>() as u32)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    socket
}

/// The server sends [`BYTES`] to the first that connects, and the client compares.
fn transfer(server: &Vm, client: &Vm, addresses: [IpAddr; 2]) {
    let [server_at, client_at] = addresses;
    let at = SocketAddr::new(server_at, SERVER);
    let (ready, is_ready) = mpsc::channel();
    let serving = server.spawn(move || {
        let socket = signing(client_at);
        setsockopt(&socket, sockopt::ReuseAddr, &true).unwrap();
        bind(socket.as_raw_fd(), &SockaddrStorage::from(at)).unwrap();
        listen(&socket, Backlog::new(1).unwrap()).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = TcpListener::from(socket).accept().unwrap();
        stream.write_all(&(0..BYTES).map(pattern).collect::<Vec<u8>>()).unwrap();
        let _ = stream.read(&mut [0]);
    });
    is_ready.recv().unwrap();
    let asking = client.spawn(move || {
        let socket = signing(server_at);
        // This also limits the time for connecting.
        setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(LIMIT.as_secs() as i64, 0)).unwrap();
        connect(socket.as_raw_fd(), &SockaddrStorage::from(at)).expect("a signed connection failed");
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut data = vec![0; BYTES];
        stream.read_exact(&mut data).expect("a signed transfer failed");
        assert!(data.iter().enumerate().all(|(index, byte)| *byte == pattern(index)), "a transfer came damaged");
    });
    asking.join().unwrap();
    serving.join().unwrap();
}

#[test]
fn signed_connections_are_left_alone() {
    let mut host = Host::new();
    host.configure("enforce", METRICS, "[vsnoop]\nmode = \"enforce\"");
    let vms = [host.add_vm(1), host.add_vm(2)];
    for (vm, address) in vms.iter().zip(["fd09::1", "fd09::2"]) {
        vm.spawn(move || ip(&format!("addr add {address}/64 dev eth0 nodad"))).join().unwrap();
    }
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
    let mut signed = 0;
    for addresses in [["10.9.0.1", "10.9.0.2"], ["fd09::1", "fd09::2"]] {
        transfer(&vms[0], &vms[1], addresses.map(|address| address.parse().unwrap()));
        let status = host.status();
        let now = counter(&status, "vp1", "signed");
        assert!(now > signed, "the handshake counts");
        signed = now;
        for (port, name) in [("vp2", "probes_sent"), ("vp1", "flows"), ("vp2", "flows"), ("vp1", "write_failed")] {
            assert_eq!(counter(&status, port, name), 0, "{port} {name}");
        }
    }
}
