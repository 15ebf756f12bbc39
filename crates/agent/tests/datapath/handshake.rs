//! Probes before a SYN, their reception, and the window of the SYN-ACK.

use evenkeel_agent::datapath::intf;
use evenkeel_algo::frames::{ACK, CWR, ECE, LINUX_OPTIONS, RST, SYN, Segment, assert_sound, ecn, set_ecn};
use evenkeel_testbed::place::Tap;

use crate::conversation::{connect, probes_of, syn, synack};
use crate::ports::{A, B, Bed, DROP, KEY, NEXT, REDIRECT, settings};

fn probes_are_sound(syn: &Segment) {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let probes = probes_of(&mut place, syn);
    assert_eq!(probes.len(), 10);
    for (i, probe) in probes.iter().enumerate() {
        assert_sound(probe);
        let l4 = syn.l4();
        assert_eq!(probe.len(), l4 + 40);
        assert_eq!(probe[l4 + 13], RST, "nothing answers a RST");
        assert_eq!(probe[l4 + 4..l4 + 8], (syn.seq ^ 1 << 31).to_be_bytes());
        let option = [254, 20, b'E', b'V', b'K', b'L', 0x11, 0, i as u8, 10, 0, 0];
        assert_eq!(probe[l4 + 20..l4 + 32], option);
        if syn.vlan.is_none() {
            assert_eq!(ecn(probe), 2, "ECT(0)");
        }
    }
    assert_eq!(place.count(place.pa, intf::EK_COUNT_PROBES_SENT), 10);
    assert_eq!(place.count(place.pa, intf::EK_COUNT_PROBES_FAILED), 0);
}

#[test]
fn probes_before_a_syn_ipv4() {
    probes_are_sound(&syn());
}

#[test]
fn probes_before_a_syn_ipv6() {
    probes_are_sound(&Segment { options: LINUX_OPTIONS.to_vec(), ..Segment::new(("fd00::1", 1), ("fd00::2", 2), SYN) });
}

#[test]
fn probes_before_a_syn_without_options() {
    probes_are_sound(&Segment::new((A, 1), (B, 2), SYN));
}

#[test]
fn probes_before_a_syn_with_all_the_options_there_is_room_for() {
    let mut options = LINUX_OPTIONS.to_vec();
    options.resize(40, 1);
    probes_are_sound(&Segment { options, ..syn() });
}

#[test]
fn probes_before_a_syn_in_a_vlan() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let tagged = Segment { vlan: Some(42), ..syn() };
    // The kernel takes the tag out of the frame before a program sees it; a packet socket shows the rest.
    let probes = probes_of(&mut place, &tagged);
    assert_eq!(probes.len(), 10);
}

#[test]
fn a_host_without_a_key_sends_no_probes_and_takes_none() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let probes = probes_of(&mut place, &syn());
    let keyless = intf::ek_host { version: intf::EK_INTF_VERSION, ..Default::default() };
    place.datapath.set_host(&keyless).unwrap();
    assert_eq!(place.run_to_vm(place.pb, &probes[0]).verdict, NEXT);
    let other = Segment { seq: 77, ..syn() }.frame();
    assert_eq!(place.run_from_vm(place.pa, &other).verdict, NEXT);
}

#[test]
fn a_flood_of_syns_gets_probes_within_its_budget() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let mut port = settings(intf::EK_MODE_ENFORCE);
    // One probe per second: next to no refill while this runs.
    port.proboscis.settings.budget_probes_per_s = 1;
    port.proboscis.settings.budget_burst_probes = 1000;
    place.datapath.attach(place.pa, &port).unwrap();
    for i in 0..2000u16 {
        let outcome = place.run_from_vm(place.pa, &Segment { source: (A.parse().unwrap(), 1000 + i), ..syn() }.frame());
        assert!([NEXT, REDIRECT].contains(&outcome.verdict));
    }
    let sent = place.count(place.pa, intf::EK_COUNT_PROBES_SENT) + place.count(place.pa, intf::EK_COUNT_PROBES_FAILED);
    assert!((1000..1100).contains(&sent), "{sent}");
    assert!(place.count(place.pa, intf::EK_COUNT_PROBES_REFUSED) >= 1890);
    // Another VM's budget is its own.
    let other = Segment { source: (B.parse().unwrap(), 5), destination: (A.parse().unwrap(), 6), ..syn() };
    assert_eq!(place.run_from_vm(place.pb, &other.frame()).verdict, REDIRECT);
}

#[test]
fn connections_of_one_moment_share_their_probes() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let mut port = settings(intf::EK_MODE_ENFORCE);
    // More than an hour: the time that this takes is nothing beside it.
    port.proboscis.settings.b1_us = u32::MAX;
    place.datapath.attach(place.pa, &port).unwrap();
    let mut syns = (0..6u16).map(|i| Segment { source: (A.parse().unwrap(), 2000 + i), ..syn() });
    let trains: Vec<usize> = syns.by_ref().map(|syn| probes_of(&mut place, &syn).len()).collect();
    assert_eq!(trains[..2], [10, 5]);
    // Half of five, and a little more once some time has passed.
    assert!([2, 3].contains(&trains[2]) && trains[3..] == [2; 3], "{trains:?}");
}

/// The agent is told of SYNs to send again: to peers that have answered probes, and to those that never had any.
#[test]
fn a_syn_to_a_stranger_is_told_as_such() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let mut host =
        intf::ek_host { version: intf::EK_INTF_VERSION, keys: 1, agent_until_ns: u64::MAX, ..Default::default() };
    host.key[0] = KEY;
    place.datapath.set_host(&host).unwrap();
    place.run_from_vm(place.pa, &syn().frame());
    let event = place.datapath.events().unwrap().events.remove(0);
    assert_eq!((event.type_, event.iss), (intf::EK_EVENT_SYN_STRANGER, syn().seq));
    // It answers, and its host leaves the probes unanswered: nothing is sent again from now on.
    place.run_to_vm(place.pa, &synack().frame());
    let second = Segment { source: (A.parse().unwrap(), 40001), ..syn() };
    place.run_from_vm(place.pa, &second.frame());
    assert!(place.datapath.events().unwrap().events.is_empty());
}

/// Lets `seen` probes of ten come to `pb`, `marked` of them with a mark, then a SYN and its SYN-ACK. Returns the
/// SYN-ACK's window.
fn first_window(place: &mut Bed, seen: usize, marked: usize) -> u16 {
    let mut probes = probes_of(place, &syn());
    for (i, probe) in probes.iter_mut().take(seen).enumerate() {
        if i < marked {
            set_ecn(probe, 3);
        }
        assert_eq!(place.run_to_vm(place.pb, probe).verdict, DROP);
        assert_eq!(place.run_to_vm(place.pb, probe).verdict, DROP, "a copy is not for the VM either");
    }
    let frame = syn().frame();
    assert_eq!(place.run_to_vm(place.pb, &frame).frame, frame);
    let outcome = place.run_from_vm(place.pb, &synack().frame());
    assert_sound(&outcome.frame);
    u16::from_be_bytes([outcome.frame[48], outcome.frame[49]])
}

#[test]
fn the_first_window_follows_the_probes() {
    // Timestamps leave 1448 bytes of an MSS of 1460.
    let cases = [
        (10, 0, 14480),
        (10, 3, 7 * 1448),
        (10, 5, 5 * 1448),
        (10, 6, 1448),
        (5, 0, 14480),
        (4, 0, 1448),
        (0, 0, 65160),
    ];
    for (seen, marked, window) in cases {
        let window_is = std::thread::spawn(move || first_window(&mut Bed::new(intf::EK_MODE_ENFORCE), seen, marked));
        assert_eq!(window_is.join().unwrap(), window, "{seen} probes came, {marked} with a mark");
    }
}

#[test]
fn a_window_smaller_than_the_probes_allow_stays() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let probes = probes_of(&mut place, &syn());
    for probe in &probes {
        place.run_to_vm(place.pb, probe);
    }
    place.run_to_vm(place.pb, &syn().frame());
    let small = Segment { window: 700, ..synack() };
    let left = Segment { ecn: 2, ..small.clone() }.frame();
    assert_eq!(place.run_from_vm(place.pb, &small.frame()).frame, left);
}

#[test]
fn forged_and_replayed_probes_change_nothing() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let probes = probes_of(&mut place, &syn());
    for byte in 26..74 {
        // Addresses, ports, sequence number and option; the acknowledgement, window and checksum say nothing.
        if (42..54).contains(&byte) {
            continue;
        }
        let mut forged = probes[0].clone();
        forged[byte] ^= 1;
        let outcome = place.run_to_vm(place.pb, &forged);
        assert_eq!((outcome.verdict, outcome.frame), (NEXT, forged), "byte {byte}");
    }
    assert_eq!(place.count(place.pb, intf::EK_COUNT_PROBES_SEEN), 0);
    // Probes of an old connection say nothing about one with another sequence number.
    for probe in &probes {
        assert_eq!(place.run_to_vm(place.pb, probe).verdict, DROP);
    }
    place.run_to_vm(place.pb, &Segment { seq: 9000, ..syn() }.frame());
    let answer = Segment { ack: 9001, ..synack() }.frame();
    let outcome = place.run_from_vm(place.pb, &answer);
    assert_eq!((outcome.verdict, outcome.frame), (NEXT, answer));
}

/// The option of a probe, out of its frame.
fn option_of(probe: &[u8]) -> Vec<u8> {
    probe[54..74].to_vec()
}

fn probe_with(options: Vec<u8>, seq: u32) -> Segment {
    Segment { seq, options, ecn: 2, ..Segment::new((A, 40000), (B, 80), RST) }
}

#[test]
fn a_tag_is_good_for_one_flow_and_one_key() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let probes = probes_of(&mut place, &syn());
    let option = option_of(&probes[0]);
    let iss = 1000 ^ 1 << 31;
    // Sound otherwise, but of a flow, a direction or a SYN that the tag was not made for.
    let whole = probe_with(option.clone(), iss);
    let strange = [
        Segment { source: (A.parse().unwrap(), 40001), ..whole.clone() },
        Segment { destination: (B.parse().unwrap(), 81), ..whole.clone() },
        Segment { source: whole.destination, destination: whole.source, ..whole.clone() },
        Segment { seq: iss + 1, ..whole.clone() },
        Segment {
            source: ("fd00::1".parse().unwrap(), 40000),
            destination: ("fd00::2".parse().unwrap(), 80),
            ..whole.clone()
        },
    ];
    for (i, segment) in strange.iter().enumerate() {
        let frame = segment.frame();
        let outcome = place.run_to_vm(place.pb, &frame);
        assert_eq!((outcome.verdict, outcome.frame), (NEXT, frame), "case {i}");
    }
    assert_eq!(place.count(place.pb, intf::EK_COUNT_PROBES_INVALID), strange.len() as u64);
    // With another cluster's key, and then with this one's as the older of two.
    let mut host = intf::ek_host { version: intf::EK_INTF_VERSION, keys: 1, ..Default::default() };
    host.key[0] = intf::siphash_key { k0: KEY.k0, k1: KEY.k1 ^ 1 };
    place.datapath.set_host(&host).unwrap();
    assert_eq!(place.run_to_vm(place.pb, &probes[0]).verdict, NEXT);
    host.key[1] = KEY;
    place.datapath.set_host(&host).unwrap();
    assert_eq!(place.run_to_vm(place.pb, &probes[0]).verdict, NEXT, "the second key is not in use");
    host.keys = 2;
    place.datapath.set_host(&host).unwrap();
    assert_eq!(place.run_to_vm(place.pb, &probes[0]).verdict, DROP);
    assert_eq!(place.count(place.pb, intf::EK_COUNT_PROBES_SEEN), 1);
}

#[test]
fn options_of_other_versions_and_lengths_are_left_alone() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let probes = probes_of(&mut place, &syn());
    let option = option_of(&probes[0]);
    let changed = |at: usize, value: u8| {
        let mut option = option.clone();
        option[at] = value;
        option
    };
    let mut padded = vec![1, 1, 1, 1];
    padded.extend(&option);
    // Later and earlier versions, unknown types, lengths that are not this option's, cut short, and not at its place.
    let strange = [
        changed(6, 0x21),
        changed(6, 0x01),
        changed(6, 0x13),
        changed(6, 0x14),
        changed(6, 0x10),
        changed(1, 12),
        changed(1, 40),
        changed(1, 0),
        option[..8].to_vec(),
        option[..16].to_vec(),
        padded,
    ];
    for options in strange {
        let frame = probe_with(options.clone(), 1000 ^ 1 << 31).frame();
        let outcome = place.run_to_vm(place.pb, &frame);
        assert_eq!((outcome.verdict, outcome.frame), (NEXT, frame), "{options:02x?}");
    }
    assert_eq!(place.count(place.pb, intf::EK_COUNT_PROBES_SEEN), 0);
    // The connection begins as if nothing had come.
    place.run_to_vm(place.pb, &syn().frame());
    let answer = synack().frame();
    let outcome = place.run_from_vm(place.pb, &answer);
    assert_eq!((outcome.verdict, outcome.frame), (NEXT, answer));
}

#[test]
fn a_replayed_train_counts_once() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let mut probes = probes_of(&mut place, &syn());
    for probe in &probes {
        place.run_to_vm(place.pb, probe);
    }
    // Somebody sends them again with marks, to make the window small.
    for probe in &mut probes {
        set_ecn(probe, 3);
        assert_eq!(place.run_to_vm(place.pb, probe).verdict, DROP);
    }
    place.run_to_vm(place.pb, &syn().frame());
    let outcome = place.run_from_vm(place.pb, &synack().frame());
    assert_eq!(outcome.frame[48..50], 14480u16.to_be_bytes());
    // And once more when the connection is there.
    let flow = place.only_flow(place.pb);
    for probe in &probes {
        assert_eq!(place.run_to_vm(place.pb, probe).verdict, DROP);
    }
    assert_eq!(place.only_flow(place.pb), flow);
}

/// What the agent sends again: probes out of the VM's budget, and a SYN that marking ports let through.
#[test]
fn a_syn_is_sent_again_as_it_was_sent() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    let mut host =
        intf::ek_host { version: intf::EK_INTF_VERSION, keys: 1, agent_until_ns: u64::MAX, ..Default::default() };
    host.key[0] = KEY;
    place.datapath.set_host(&host).unwrap();
    let mut port = settings(intf::EK_MODE_ENFORCE);
    (port.proboscis.settings.budget_probes_per_s, port.proboscis.settings.budget_burst_probes) = (1, 20);
    place.datapath.attach(place.pa, &port).unwrap();
    let second = Segment { source: (A.parse().unwrap(), 40001), ..syn() };
    assert_eq!(probes_of(&mut place, &second).len(), 10);
    let event = place.datapath.events().unwrap().events.remove(0);
    assert_eq!(event.type_, intf::EK_EVENT_SYN_PROBED);
    for (train, probes) in [(1, 10), (2, 0)] {
        let tap = Tap::new(place.pa);
        place.datapath.inject(&event, 10, train, true).unwrap();
        let frames = tap.tcp(11);
        assert_eq!(frames.len(), probes + 1, "train {train}");
        // Behind the SYN: a RST would end the connection for firewalls on the way.
        assert!(frames[..probes].iter().all(|probe| probe[47] == 0));
        let again = Segment { ecn: 2, ..second.clone() }.frame();
        assert_eq!(frames[probes], again, "ECT(0), and no other change");
    }
    assert_eq!(place.count(place.pa, intf::EK_COUNT_PROBES_REFUSED), 1);
}

#[test]
fn observing_changes_no_packet_and_counts() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let probes = probes_of(&mut place, &syn());
    place.datapath.attach(place.pa, &settings(intf::EK_MODE_OBSERVE)).unwrap();
    place.datapath.attach(place.pb, &settings(intf::EK_MODE_OBSERVE)).unwrap();
    for probe in &probes {
        assert_eq!(place.run_to_vm(place.pb, probe).verdict, DROP, "nobody else has a use for it");
    }
    let again = Segment { seq: 3, ..syn() }.frame();
    let outcome = place.run_from_vm(place.pa, &again);
    assert_eq!((outcome.verdict, outcome.frame), (NEXT, again));
    assert_eq!(place.count(place.pa, intf::EK_COUNT_PROBES_SENT), 20, "ten sent and ten that would have been");
    place.run_to_vm(place.pb, &syn().frame());
    let answer = synack().frame();
    let outcome = place.run_from_vm(place.pb, &answer);
    assert_eq!((outcome.verdict, outcome.frame), (NEXT, answer));
    assert_eq!(place.count(place.pb, intf::EK_COUNT_SYNACKS_SCALED), 1);
    assert_eq!(place.only_flow(place.pb).synack_window_bytes, 14480);
}

#[test]
fn guests_that_agree_on_ecn_are_seen() {
    let mut place = Bed::new(intf::EK_MODE_OBSERVE);
    place.run_from_vm(place.pa, &Segment { flags: SYN | ECE | CWR, ..syn() }.frame());
    place.run_to_vm(place.pa, &Segment { flags: SYN | ACK | ECE, ..synack() }.frame());
    let flow = place.only_flow(place.pa);
    assert_ne!(flow.flags & intf::EK_FLOW_NATIVE_ECN, 0);
    assert_eq!((flow.vm.wscale, flow.remote.wscale, flow.vm.mss), (7, 7, 1460));
}

/// A path may drop SYNs that are ECN-capable, or what follows probes: the VM's own repetition is neither.
#[test]
fn a_syn_that_a_vm_repeats_to_a_stranger_leaves_as_it_came() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    assert_eq!(probes_of(&mut place, &syn()).len(), 10);
    let frame = syn().frame();
    for repetition in 1..4 {
        let outcome = place.run_from_vm(place.pa, &frame);
        assert_eq!((outcome.verdict, &outcome.frame), (NEXT, &frame));
        assert_eq!(place.count(place.pa, intf::EK_COUNT_PROBES_SPARED), repetition);
    }
    assert_eq!(place.count(place.pa, intf::EK_COUNT_PROBES_SENT), 10);
}

#[test]
fn a_syn_that_a_vm_repeats_to_a_host_with_evenkeel_has_probes_again() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    let second = Segment { source: (A.parse().unwrap(), 40001), ..syn() };
    // In the window of a TCP that has the SYN, which drops what has no flag; and no more than its ISS was sent, so that
    // a closed port's RST is not acceptable.
    let trains = [(RST, second.seq ^ 1 << 31), (0, second.seq + 2), (0, second.seq + 2)];
    for (number, (flags, seq)) in trains.into_iter().enumerate() {
        let probes = probes_of(&mut place, &second);
        assert!(!probes.is_empty());
        for probe in &probes {
            assert_sound(probe);
            assert_eq!((probe[47], &probe[38..42], probe[61]), (flags, &seq.to_be_bytes()[..], number as u8));
            let taken = place.count(place.pb, intf::EK_COUNT_PROBES_SEEN);
            assert_eq!(place.run_to_vm(place.pb, probe).verdict, DROP);
            assert_eq!(place.count(place.pb, intf::EK_COUNT_PROBES_SEEN), taken + 1);
        }
        place.run_to_vm(place.pb, &second.frame());
    }
    assert_eq!(place.count(place.pa, intf::EK_COUNT_PROBES_SPARED), 0);
    assert_eq!(place.count(place.pb, intf::EK_COUNT_PROBES_INVALID), 0);
}

/// A RST or a SYN-ACK of several paths with the SYN's number ends the wait for an answer; another number does not.
#[test]
fn a_syn_that_is_refused_or_let_go_is_not_sent_again() {
    const CAPABLE: [u8; 12] = [30, 12, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8];
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    let (open, _) = place.datapath.noted_flows().unwrap().into_iter().find(|(key, _)| key.ifindex == place.pa).unwrap();
    let to = (A.parse().unwrap(), 40001);
    let refused = Segment { destination: to, options: Vec::new(), flags: RST | ACK, ..synack() };
    let several = Segment { destination: to, options: [LINUX_OPTIONS, &CAPABLE].concat(), ..synack() };
    let key = intf::ek_flow_key { local_port: 40001, ..open };
    for answer in [refused, several] {
        place.run_from_vm(place.pa, &Segment { source: to, ..syn() }.frame());
        for (number, is_known) in [(answer.ack + 1, true), (answer.ack, false)] {
            let frame = Segment { ack: number, ..answer.clone() }.frame();
            let outcome = place.run_to_vm(place.pa, &frame);
            assert_eq!((outcome.verdict, outcome.frame), (NEXT, frame));
            assert_eq!(place.datapath.handshake(&key).unwrap().is_some(), is_known);
        }
    }
}
