//! ACKs that carry nothing else.

use super::flow::{Event, Flow, Span};

/// Counts of a flow's ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckCounts {
    /// Without data.
    pub pure: u64,
    /// Of these, duplicates: they repeat the highest number acknowledged and the window (RFC 5681 §2) while data is
    /// under way.
    pub duplicate: u64,
}

/// Counts ACKs in a span of time.
#[must_use]
pub fn count(flow: &Flow, span: Span) -> AckCounts {
    let mut counts = AckCounts::default();
    let mut snd_nxt = i64::MIN;
    let mut highest: Option<(i64, u16)> = None;
    for (event, is_in) in span.events(flow) {
        match event {
            Event::Data(segment) => snd_nxt = snd_nxt.max(segment.end()),
            Event::Ack(ack) => {
                counts.pure += u64::from(is_in && ack.pure);
                let repeats = highest == Some((ack.ack, ack.window));
                counts.duplicate += u64::from(is_in && ack.pure && repeats && snd_nxt > ack.ack);
                if highest.is_none_or(|(highest, _)| ack.ack >= highest) {
                    highest = Some((ack.ack, ack.window));
                }
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::analyze::build::{ack, data, flow};
    use crate::capture::analyze::flow::Ack;

    #[test]
    fn a_duplicate_repeats_number_and_window_while_data_is_under_way() {
        let Event::Ack(first) = ack(1, 100) else { panic!("an ACK") };
        let update = Event::Ack(Ack { window: 2000, ..first.clone() });
        let with_data = Event::Ack(Ack { pure: false, ..first });
        let counted = count(
            &flow([data(0, 0, 100), data(0, 100, 100), ack(1, 100), ack(2, 100), ack(3, 100), with_data]),
            Span::ALL,
        );
        assert_eq!(counted, AckCounts { pure: 3, duplicate: 2 });
        let counted = count(&flow([data(0, 0, 200), ack(1, 100), update]), Span::ALL);
        assert_eq!(counted, AckCounts { pure: 2, duplicate: 0 });
        // Nothing is under way: a keepalive's answer.
        let counted = count(&flow([data(0, 0, 100), ack(1, 100), ack(2, 100)]), Span::ALL);
        assert_eq!(counted, AckCounts { pure: 2, duplicate: 0 });
    }

    #[test]
    fn an_ack_repeats_one_from_before_the_span() {
        let flow = flow([data(0, 0, 200), ack(1, 100), ack(2, 100), ack(3, 100), ack(4, 100)]);
        let counted = count(&flow, Span { from_ns: 2_000_000, to_ns: 3_000_000 });
        assert_eq!(counted, AckCounts { pure: 2, duplicate: 2 });
    }
}
