//! Data that is damaged on its way is not acknowledged for the VM, which drops it: the sender sends it again.

use evenkeel_testbed::tap::{Kind, TapVm};
use evenkeel_testbed::vm::tcp_counter;

use crate::bed::{Host, METRICS, counter, wait_until};
use crate::netfilter::sysctl;
use crate::upload::{Load, VSNOOP, add_v6, server, upload};

const LOAD: Load = Load { rounds: 100, bulk_bytes: 1 << 20, ..Load::USUAL };
/// Which of the frames with data is damaged: one in the middle of a round.
const DAMAGED: usize = 202;

/// What of a frame is damaged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Damage {
    /// A byte of the data, which TCP's checksum is over.
    Data,
    /// The type of service in IPv4's header, which has a checksum of its own.
    Ip,
}

/// On a wire into the host, where GRO may join segments before they come to the port.
fn a_damaged_segment(kind: Kind, address: &str, damage: Damage) {
    let mut host = Host::new();
    host.configure("off", METRICS, VSNOOP);
    // The bridge would look at IPv4's header, too.
    sysctl("bridge/bridge-nf-call-iptables", "0");
    let vm = TapVm::new("vp1", false, "10.9.0.1");
    let mut frames = 0;
    let sender = TapVm::through("wire", kind, "10.9.0.2", move |frame| {
        if frame.len() < 1000 {
            return;
        }
        frames += 1;
        if frames == DAMAGED {
            let at = match damage {
                Damage::Data => 900,
                Damage::Ip => 15,
            };
            frame[at] ^= 0x20;
        }
    });
    add_v6(&vm.vm, "fd09::1");
    add_v6(&sender.vm, "fd09::2");
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    upload(&vm.vm, &sender.vm, server(address), LOAD);
    let status = host.status();
    let dropped = vm.vm.spawn(|| tcp_counter("InCsumErrors")).join().unwrap();
    assert_eq!(dropped, u64::from(damage == Damage::Data), "what the VM's TCP has dropped");
    let early = counter(&status, "vp1", "vsnoop_early_acks");
    assert!(early > LOAD.rounds as u64 / 2, "{early} acknowledged early");
    let segments = (LOAD.rounds * LOAD.round_bytes.div_ceil(1448) + LOAD.bulk_bytes / 1448) as u64;
    let packets = counter(&status, "vp1", "packets_to_vm");
    assert_eq!(packets < segments, kind == Kind::Gro, "{packets} packets of {segments} segments: GRO joins them");
}

#[test]
fn damaged_data_is_sent_again() {
    for kind in [Kind::Plain, Kind::Gro] {
        a_damaged_segment(kind, "10.9.0.1", Damage::Data);
        a_damaged_segment(kind, "10.9.0.1", Damage::Ip);
        a_damaged_segment(kind, "fd09::1", Damage::Data);
    }
}
