//! Watches a host's devices while connections run, and says afterwards whether a promise was made that the VM or its
//! port had not given.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use evenkeel_algo::frames::{ACK, FIN, SYN};
use evenkeel_algo::packet::{self, Kind, Packet};
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, SockaddrLike, recvfrom, setsockopt, socket, sockopt,
};

/// Size of the socket's receive buffer.
const BUFFER_BYTES: usize = 256 << 20;
/// A TCP packet at a device.
#[derive(Debug, Clone, Copy)]
struct Seen {
    device: u32,
    is_leaving: bool,
    packet: Packet,
    wscale: Option<u8>,
}

/// A running watch.
#[derive(Debug)]
pub struct Watch {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<(Vec<Seen>, u32)>,
}

/// What was found right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Proof {
    /// ACKs that left for a sender.
    pub acks: usize,
    /// Of these, how many came before the VM's own for that number.
    pub early: usize,
}

impl Watch {
    /// Everything in this thread's namespace, from now on.
    pub fn start() -> Self {
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), SockProtocol::EthAll).unwrap();
        // SAFETY: an int, as the option wants it.
        let set = unsafe {
            let bytes = BUFFER_BYTES as libc::c_int;
            let value = std::ptr::from_ref(&bytes).cast();
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value, 4)
        };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        setsockopt(&socket, sockopt::ReceiveTimeout, &nix::sys::time::TimeVal::new(0, 50_000)).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let must_end = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            let mut buffer = vec![0; 70_000];
            loop {
                match recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut buffer) {
                    Ok((length, Some(address))) => seen.extend(tcp(&buffer[..length], &address)),
                    // Packets that were there when the end came are read first.
                    _ if must_end.load(Ordering::SeqCst) => break,
                    _ => {}
                }
            }
            (seen, lost(socket.as_raw_fd()))
        });
        Self { ends, thread }
    }

    /// Ends it. Panics if an ACK for a sender at `wire` said more than was delivered to `port`, or offered a window
    /// beyond those of the VM behind it.
    pub fn judge(self, port: u32, wire: u32) -> Proof {
        self.ends.store(true, Ordering::SeqCst);
        let (seen, lost) = self.thread.join().unwrap();
        assert_eq!(lost, 0, "packets were not seen");
        judge(&seen, port, wire)
    }
}

fn tcp(frame: &[u8], address: &LinkAddr) -> Option<Seen> {
    // SAFETY: a LinkAddr is a sockaddr_ll.
    let raw = unsafe { *address.as_ptr().cast::<libc::sockaddr_ll>() };
    match packet::parse(frame) {
        Kind::Tcp(packet, options) => Some(Seen {
            device: raw.sll_ifindex as u32,
            is_leaving: raw.sll_pkttype == libc::PACKET_OUTGOING,
            packet,
            wscale: options.and_then(|o| o.wscale),
        }),
        _ => None,
    }
}

/// Packets that found no room in the socket.
fn lost(socket: i32) -> u32 {
    const PACKET_STATISTICS: libc::c_int = 6;
    let mut numbers = [0u32; 2];
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the buffer is as long as it is said to be.
    let got = unsafe {
        libc::getsockopt(socket, libc::SOL_PACKET, PACKET_STATISTICS, numbers.as_mut_ptr().cast(), &mut length)
    };
    assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
    numbers[1]
}

/// One direction of a connection: data for the VM.
#[derive(Debug, Default)]
struct Flow {
    first: Option<u32>,
    /// Up to where all data is at the port or beyond.
    delivered: u32,
    /// Further data, by where it begins.
    apart: Vec<(u32, u32)>,
    scale: u8,
    /// The VM's own highest ACK.
    vm_ack: u32,
    vm_edge: u32,
    /// The highest ACK for a sender. It is judged at the end: another CPU may still be handling the data, but
    /// acknowledged data is never sent again.
    told: u32,
}

impl Flow {
    fn offset(&self, seq: u32) -> u32 {
        seq.wrapping_sub(self.first.unwrap_or(seq))
    }

    fn deliver(&mut self, start: u32, end: u32) {
        self.apart.push((start, end));
        while let Some(at) = self.apart.iter().position(|range| range.0 <= self.delivered) {
            self.delivered = self.delivered.max(self.apart.swap_remove(at).1);
        }
    }
}

fn judge(seen: &[Seen], port: u32, wire: u32) -> Proof {
    let mut flows: HashMap<_, Flow> = HashMap::new();
    let mut proof = Proof::default();
    for (number, Seen { device, is_leaving, packet: p, wscale }) in seen.iter().enumerate() {
        let (to_vm, from_vm) =
            ((p.source, p.source_port, p.destination_port), (p.destination, p.destination_port, p.source_port));
        let fin = u32::from(p.flags & FIN != 0);
        if *device == port && *is_leaving {
            let flow = flows.entry(to_vm).or_default();
            if p.flags & SYN != 0 {
                flow.first = Some(p.seq.wrapping_add(1));
                continue;
            }
            let start = flow.offset(p.seq);
            flow.deliver(start, start + p.payload_bytes + fin);
        } else if *device == port && p.flags & SYN != 0 {
            let flow = flows.entry(from_vm).or_default();
            flow.scale = wscale.unwrap_or(0);
            flow.vm_edge = u32::from(p.window);
        } else if *device == port && p.flags & ACK != 0 && flows.contains_key(&from_vm) {
            // The VM's own; a copy that is to become an early ACK still has the sender's addresses.
            let flow = flows.entry(from_vm).or_default();
            flow.vm_ack = flow.vm_ack.max(flow.offset(p.ack));
            flow.vm_edge = flow.vm_edge.max(flow.offset(p.ack) + (u32::from(p.window) << flow.scale));
        } else if *device == wire && *is_leaving && p.flags & ACK != 0 && p.flags & SYN == 0 {
            let Some(flow) = flows.get_mut(&from_vm) else { continue };
            let ack = flow.offset(p.ack);
            let edge = ack + (u32::from(p.window) << flow.scale);
            assert!(edge <= flow.vm_edge, "packet {number}: a window to {edge}, the VM's own are to {}", flow.vm_edge);
            proof.acks += 1;
            proof.early += usize::from(ack > flow.vm_ack);
            flow.told = flow.told.max(ack);
        }
    }
    for Flow { told, delivered, .. } in flows.values() {
        assert!(told <= delivered, "{told} acknowledged, {delivered} delivered to the port");
    }
    proof
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u32 = 1;
    const WIRE: u32 = 2;

    fn seen(device: u32, is_leaving: bool, to_vm: bool, flags: u8, numbers: (u32, u32, u32), window: u16) -> Seen {
        let (seq, ack, payload_bytes) = numbers;
        let (sender, vm) = (([1; 16], 10), ([2; 16], 20));
        let ((source, source_port), (destination, destination_port)) = if to_vm { (sender, vm) } else { (vm, sender) };
        let packet = Packet {
            source,
            destination,
            source_port,
            destination_port,
            seq,
            ack,
            payload_bytes,
            window,
            l3: 14,
            l4: 34,
            tcp_bytes: 20,
            flags,
            ecn: 0,
            version: 4,
        };
        Seen { device, is_leaving, packet, wscale: Some(0) }
    }

    /// A handshake, the VM's offer of 1000 bytes and `delivered` bytes at its port; then an ACK for the sender.
    fn judged(delivered: u32, ack: u32, window: u16) -> Proof {
        let all = [
            seen(PORT, true, true, SYN, (99, 0, 0), 500),
            seen(PORT, false, false, SYN | ACK, (7, 100, 0), 500),
            seen(PORT, false, false, ACK, (8, 100, 0), 1000),
            seen(WIRE, true, false, ACK, (8, ack, 0), window),
            seen(PORT, true, true, ACK, (100, 8, delivered), 500),
        ];
        judge(&all, PORT, WIRE)
    }

    #[test]
    fn a_promise_that_was_kept() {
        assert_eq!(judged(300, 400, 700), Proof { acks: 1, early: 1 });
        assert_eq!(judged(300, 100, 1000), Proof { acks: 1, early: 0 });
    }

    #[test]
    #[should_panic(expected = "301 acknowledged, 300 delivered")]
    fn data_that_the_port_never_had() {
        judged(300, 401, 0);
    }

    #[test]
    #[should_panic(expected = "a window to 1001")]
    fn a_window_beyond_the_vms() {
        judged(300, 400, 701);
    }
}
