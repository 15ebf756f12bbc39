//! Exchanges at a port: when one begins, when it is over, and what of it was sent again.

use evenkeel_algo::exchange::{Done, Exchange, IDLE_NS, Segment, TIMEOUT_NS, Way};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// Both ends of a connection, whose opener is the other end, with a clock.
struct Ends {
    exchange: Exchange,
    now_ns: u64,
    /// Next number of the VM, and of the other end.
    next: [u32; 2],
}

impl Ends {
    fn new(syn_ns: Option<u64>, next: [u32; 2]) -> Self {
        let first = Segment { now_ns: 5 * MS, from_vm: false, is_opener: true, seq: next[1], ack: next[0], bytes: 0 };
        Self { exchange: Exchange::open(first, syn_ns), now_ns: 5 * MS, next }
    }

    fn segment(&mut self, from_vm: bool, seq: u32, bytes: u32, ms: u64) -> Option<Done> {
        self.now_ns += ms * MS;
        let ack = self.next[usize::from(from_vm)];
        self.exchange.passes(Segment { now_ns: self.now_ns, from_vm, is_opener: !from_vm, seq, ack, bytes })
    }

    /// After `ms` milliseconds an end sends data and acknowledges all.
    fn sends(&mut self, from_vm: bool, bytes: u32, ms: u64) -> Option<Done> {
        let own = usize::from(!from_vm);
        let seq = self.next[own];
        self.next[own] = seq.wrapping_add(bytes);
        self.segment(from_vm, seq, bytes, ms)
    }

    fn again(&mut self, from_vm: bool, bytes: u32, ms: u64) {
        let seq = self.next[usize::from(!from_vm)].wrapping_sub(bytes);
        assert_eq!(self.segment(from_vm, seq, bytes, ms), None);
    }
}

fn sent(bytes: u64) -> Way {
    Way { bytes, ..Way::default() }
}

#[test]
fn a_short_connection_is_one_exchange_from_its_syn_to_the_last_ack() {
    let mut ends = Ends::new(Some(2 * MS), [u32::MAX - 500, 7]);
    assert_eq!(ends.exchange.done(), None);
    ends.sends(false, 100, 1);
    ends.sends(true, 1000, 3);
    ends.sends(true, 1000, 0);
    assert!(ends.exchange.is_cut());
    ends.sends(false, 0, 4);
    let done = Done { begin_ns: 2 * MS, end_ns: 13 * MS, handshake_us: 3000, vm: sent(2000), remote: sent(100) };
    assert_eq!(ends.exchange.done(), Some(done));
    // ACKs that say nothing new, and those of FINs, change nothing.
    ends.sends(false, 0, 10);
    ends.next[0] += 1;
    ends.sends(false, 0, 10);
    assert_eq!(ends.exchange.done(), Some(done));
}

#[test]
fn requests_on_a_kept_connection_are_exchanges_of_their_own() {
    let mut ends = Ends::new(Some(2 * MS), [1, 1]);
    let mut done = Vec::new();
    for _ in 0..3 {
        // The next request has the answer's ACK with it.
        done.extend(ends.sends(false, 100, 10));
        done.extend(ends.sends(true, 1000, 2));
    }
    ends.sends(false, 0, 7);
    done.extend(ends.exchange.done());
    let took: Vec<_> = done.iter().map(|done| (done.end_ns - done.begin_ns) / MS).collect();
    assert_eq!(took, [25, 12, 9]);
    assert!(done.iter().all(|done| (done.vm, done.remote) == (sent(1000), sent(100))), "{done:?}");
    assert_eq!(done.iter().map(|done| done.handshake_us).collect::<Vec<_>>(), [3000, 0, 0]);
}

#[test]
fn what_waits_for_a_server_or_comes_late_is_no_exchange_of_its_own() {
    let mut ends = Ends::new(None, [1, 1]);
    assert_eq!(ends.sends(true, 10, IDLE_NS / MS + 1), None);
    // The server goes on while nothing is outstanding, but not for long.
    ends.sends(false, 0, 1);
    assert_eq!(ends.sends(true, 10, IDLE_NS / MS), None);
    ends.sends(false, 0, 1);
    let done = ends.sends(true, 10, IDLE_NS / MS + 1).unwrap();
    assert_eq!((done.vm.bytes, (done.end_ns - done.begin_ns) / MS), (20, IDLE_NS / MS + 2));
}

#[test]
fn of_a_connection_that_is_met_on_its_way_nothing_counts_before_a_sign() {
    let mut ends = Ends::new(None, [1, 1]);
    assert_eq!(ends.sends(true, 1000, 1), None);
    assert_eq!(ends.sends(false, 0, 1), None);
    assert_eq!(ends.exchange.done(), None);
    // The opener speaks after it was answered.
    assert_eq!(ends.sends(false, 100, 1), None);
    assert_eq!(ends.sends(true, 1000, 1), None);
    ends.sends(false, 0, 1);
    assert_eq!(ends.exchange.done().map(|done| done.end_ns - done.begin_ns), Some(2 * MS));
}

#[test]
fn data_that_comes_again_counts_and_timers_show_by_silence() {
    let mut ends = Ends::new(Some(2 * MS), [1, 1]);
    ends.sends(true, 1000, 1);
    ends.again(true, 1000, 20);
    ends.again(true, 1000, TIMEOUT_NS / MS);
    ends.sends(false, 0, 1);
    // A keepalive asks by a byte that was acknowledged.
    ends.again(true, 1, 1000);
    let vm = Way { bytes: 1000, again: 2, timeouts: 1 };
    assert_eq!(ends.exchange.done().map(|done| done.vm), Some(vm));
}

proptest! {
    /// Whatever passes in order, each byte of a connection's data is in exactly one exchange.
    #[test]
    fn nothing_is_lost_or_counted_twice(
        start in any::<[u32; 2]>(),
        segments in prop::collection::vec((any::<bool>(), 0u32..2000, 0u64..500, any::<bool>()), 1..200),
    ) {
        let mut ends = Ends::new(Some(2 * MS), start);
        let (mut done, mut sent) = (Vec::new(), 0);
        for (from_vm, bytes, ms, again) in segments {
            done.extend(ends.sends(from_vm, bytes, ms));
            sent += u64::from(bytes);
            if again && bytes > 1 {
                ends.again(from_vm, bytes, ms);
            }
        }
        ends.sends(true, 0, 1);
        ends.sends(false, 0, 1);
        done.extend(ends.exchange.done());
        prop_assert_eq!(done.iter().map(|done| done.vm.bytes + done.remote.bytes).sum::<u64>(), sent);
        prop_assert!(done.iter().all(|done| done.begin_ns < done.end_ns));
        prop_assert!(done.windows(2).all(|two| two[0].end_ns <= two[1].begin_ns));
    }
}
