//! Ports that go, and others that get their indexes.

use evenkeel_agent::datapath::{Datapath, intf};
use evenkeel_algo::frames::{LINUX_OPTIONS, SYN, Segment};
use evenkeel_testbed::place::ip;

use crate::conversation::{connect, probes_of};
use crate::ports::{A, B, Bed, settings};

/// Connections that the tables have of a device.
fn flows(datapath: &Datapath, ifindex: u32) -> Vec<intf::ek_flow_key> {
    let all = datapath.noted_flows().unwrap().into_iter();
    all.map(|(key, _)| key).filter(|key| key.ifindex == ifindex).collect()
}

/// A bed with a connection between `pa` and `pb`, and the key of a SYN of `pa` that waits for its answer.
fn busy() -> (Bed, intf::ek_flow_key) {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    let unanswered = Segment { options: LINUX_OPTIONS.to_vec(), ..Segment::new((A, 40001), (B, 80), SYN) };
    let probes = probes_of(&mut place, &unanswered);
    place.run_to_vm(place.pb, &probes[0]);
    let key = intf::ek_flow_key { local_port: 40001, ..flows(&place.datapath, place.pa)[0] };
    assert!(place.datapath.handshake(&key).unwrap().is_some());
    (place, key)
}

#[test]
fn tables_forget_a_port_that_is_gone_and_no_other() {
    let (mut place, key) = busy();
    let of_the_other = flows(&place.datapath, place.pb).len();
    assert!(of_the_other > 0);
    ip("link del pa");
    place.datapath.detach(place.pa).unwrap();
    assert!(place.datapath.knows_gone());
    place.datapath.forget_gone().unwrap();
    assert!(!place.datapath.knows_gone());
    assert_eq!(flows(&place.datapath, place.pa).len(), 0);
    assert!(place.datapath.handshake(&key).unwrap().is_none());
    assert_eq!(flows(&place.datapath, place.pb).len(), of_the_other);
}

#[test]
fn a_device_with_the_index_of_one_that_is_gone_begins_without_its_connections() {
    let (mut place, key) = busy();
    ip("link del pa");
    place.datapath.detach(place.pa).unwrap();
    ip(&format!("link add new index {} type veth peer name vm-new", place.pa));
    place.datapath.attach(place.pa, &settings(intf::EK_MODE_ENFORCE)).unwrap();
    assert_eq!(flows(&place.datapath, place.pa).len(), 0);
    assert!(place.datapath.handshake(&key).unwrap().is_none());
}

#[test]
fn an_agent_that_starts_forgets_what_went_while_nobody_looked() {
    let (place, key) = busy();
    let (pa, pb) = (place.pa, place.pb);
    ip("link del pa");
    ip(&format!("link add new index {pa} type veth peer name vm-new"));
    let datapath = Datapath::open(&place.pins()).unwrap();
    assert!(datapath.took_over());
    assert_eq!(flows(&datapath, pa).len(), 0);
    assert!(datapath.handshake(&key).unwrap().is_none());
    assert!(!flows(&datapath, pb).is_empty(), "a port that has its programs keeps its connections");
}
