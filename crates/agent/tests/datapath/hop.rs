//! No probes for what this host routes: it may translate a VM's SYN, and probes ahead of that would leave untranslated.

use evenkeel_agent::datapath::intf;
use evenkeel_algo::frames::{SYN, Segment};
use evenkeel_testbed::place::ip;

use crate::conversation::{probes_of, syn, synack};
use crate::ports::{A, Bed, NEXT};

/// The address of a device.
fn mac(device: &str) -> Vec<u8> {
    let line = ip(&format!("-brief link show {device}"));
    let text = line.split_whitespace().nth(2).unwrap();
    text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn no_probes_for_what_this_host_routes() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    ip("link add br0 address 02:01:01:01:01:01 type bridge");
    for (name, last) in [("door", 7), ("gate", 9)] {
        ip(&format!("link add link br0 name {name} address 02:01:01:01:01:0{last} type macvlan mode bridge"));
    }
    let mut number = 100;
    let mut routed = 0;
    for is_in_bridge in [false, true] {
        if is_in_bridge {
            ip("link set pa master br0");
        }
        for device in ["pa", "br0", "door", "gate"] {
            for v6 in [false, true] {
                number += 1;
                let segment = if v6 {
                    Segment::new(("fd00::1", number), ("fd00::2", 80), SYN)
                } else {
                    Segment { source: (A.parse().unwrap(), number), ..syn() }
                };
                let mut frame = segment.frame();
                frame[..6].copy_from_slice(&mac(device));
                let outcome = place.run_from_vm(place.pa, &frame);
                let is_this_host = device == "pa" || is_in_bridge;
                assert_eq!((outcome.verdict == NEXT, outcome.frame == frame), (is_this_host, is_this_host), "{device}");
                routed += u64::from(is_this_host);
                assert_eq!(place.count(place.pa, intf::EK_COUNT_PROBES_ROUTED), routed);
            }
        }
        // A SYN to another machine has its probes, as ever.
        number += 1;
        let source = (A.parse().unwrap(), number);
        assert_eq!(probes_of(&mut place, &Segment { source, ..syn() }).len(), 10);
    }
    // The connection is known, with the reason.
    let mut frame = Segment { source: (A.parse().unwrap(), 9), ..syn() }.frame();
    frame[..6].copy_from_slice(&mac("br0"));
    place.run_from_vm(place.pa, &frame);
    place.run_to_vm(place.pa, &Segment { destination: (A.parse().unwrap(), 9), ..synack() }.frame());
    let flow = place.only_flow(place.pa);
    assert_eq!((flow.probes_sent, flow.flags & intf::EK_FLOW_ROUTED), (0, intf::EK_FLOW_ROUTED));
}
