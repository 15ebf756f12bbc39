//! Round-trip times as the sender's TCP measures them, out of a capture inside its VM.

use std::collections::BTreeMap;

use super::flow::{Event, Flow, Segment};

/// Bytes under way.
#[derive(Debug, Clone, Copy)]
struct Sent {
    end: i64,
    t_ns: i64,
    retransmitted: bool,
}

/// For each ACK that advances `snd_una`: when it came, and the time since the newest segment that it newly acknowledges
/// was sent, both in nanoseconds of the capture's clock. Segments that were sent again do not count (Karn's rule).
///
/// Linux samples SACKed segments as well, and with timestamps retransmitted ones; the series leaves these out.
#[must_use]
pub fn samples(flow: &Flow) -> Vec<(i64, i64)> {
    let mut samples = Vec::new();
    let mut under_way: BTreeMap<i64, Sent> = BTreeMap::new();
    let (mut snd_una, mut snd_nxt) = (i64::MIN, i64::MIN);
    for event in &flow.events {
        match event {
            Event::Data(segment) => {
                mark_retransmitted(&mut under_way, *segment);
                let start = segment.seq.max(snd_nxt);
                if start < segment.end() {
                    under_way.insert(start, Sent { end: segment.end(), t_ns: segment.t_ns, retransmitted: false });
                    snd_nxt = segment.end();
                }
            }
            Event::Ack(ack) if ack.ack > snd_una => {
                snd_una = ack.ack;
                let mut newest = None;
                while let Some(first) = under_way.first_entry().filter(|first| *first.key() < snd_una) {
                    let sent = first.remove();
                    if !sent.retransmitted {
                        newest = newest.max(Some(sent.t_ns));
                    }
                    if sent.end > snd_una {
                        // The rest of a segment that offload made large.
                        under_way.insert(snd_una, sent);
                    }
                }
                if let Some(sent) = newest {
                    samples.push((ack.t_ns, ack.t_ns - sent));
                }
            }
            Event::Ack(_) => {}
        }
    }
    samples
}

/// Marks what `segment` sends again.
fn mark_retransmitted(under_way: &mut BTreeMap<i64, Sent>, segment: Segment) {
    let again = under_way.range_mut(..segment.end()).rev().take_while(|(_, sent)| sent.end > segment.seq);
    for (_, sent) in again {
        sent.retransmitted = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::analyze::build::{MS, ack, data, flow};

    fn ms(events: Vec<Event>) -> Vec<(i64, i64)> {
        samples(&flow(events)).into_iter().map(|(t, rtt)| (t / MS, rtt / MS)).collect()
    }

    #[test]
    fn each_ack_samples_the_newest_segment_it_acknowledges() {
        let events = vec![data(0, 0, 100), data(3, 100, 100), ack(10, 100), data(11, 200, 100), ack(15, 300)];
        assert_eq!(ms(events), [(10, 10), (15, 4)]);
    }

    #[test]
    fn a_retransmitted_segment_gives_no_sample() {
        assert_eq!(ms(vec![data(0, 0, 100), data(50, 0, 100), ack(55, 100)]), []);
        // The other one of the two does.
        assert_eq!(ms(vec![data(0, 0, 100), data(1, 100, 100), data(50, 100, 100), ack(55, 200)]), [(55, 55)]);
    }

    #[test]
    fn duplicate_acks_give_no_sample() {
        assert_eq!(ms(vec![data(0, 0, 100), data(0, 100, 100), ack(5, 100), ack(6, 100), ack(7, 100)]), [(5, 5)]);
    }

    #[test]
    fn a_large_segment_is_sampled_by_each_ack_of_a_part() {
        assert_eq!(ms(vec![data(0, 0, 300), ack(5, 100), ack(7, 200), ack(9, 300)]), [(5, 5), (7, 7), (9, 9)]);
        assert_eq!(ms(vec![data(0, 0, 300), ack(5, 100), data(6, 100, 100), ack(9, 300)]), [(5, 5)]);
    }
}
