//! The packets around one wake-up, for the sequence plot, chosen as the lab chooses them.

use std::collections::BTreeMap;

use evenkeel_scenario::result::{PacketRecord, SeenAt};

use super::recorder::Seen;
use crate::time::{Duration, Instant};

/// Time shown before the VM goes off its core.
const BEFORE: Duration = Duration::from_ms(20);
/// Time shown after it comes back.
const AFTER: Duration = Duration::from_ms(30);

/// Picks a wake-up out of `off`, the times in which the VM was off its core: the first that a retransmission follows,
/// or else the first before which data was sent. Empty if the packets cover none in full.
pub(super) fn pick(packets: &[Seen], off: &[(Instant, Instant)]) -> Vec<PacketRecord> {
    let again = retransmissions(packets);
    let Some((first, last)) = packets.first().zip(packets.last()).map(|(f, l)| (f.at, l.at)) else { return Vec::new() };
    let sent = |from: Instant, to: Instant, only_again: bool| {
        let begin = packets.partition_point(|p| p.at < from);
        let within = packets.iter().enumerate().skip(begin).take_while(|(_, p)| p.at <= to);
        let mut data = within.filter(|(_, p)| p.data && p.place == SeenAt::Sender);
        data.any(|(index, _)| again[index] || !only_again)
    };
    let before = |start: Instant| Instant::from_ps(start.ps().saturating_sub(BEFORE.ps()));
    let whole = |(start, end): &&(Instant, Instant)| start.ps() >= BEFORE.ps() + first.ps() && *end + AFTER <= last;
    let picked = off
        .iter()
        .filter(whole)
        .find(|(_, end)| sent(*end, *end + AFTER, true))
        .or_else(|| off.iter().filter(whole).find(|(start, _)| sent(before(*start), *start, false)));
    let Some(&(start, end)) = picked else { return Vec::new() };
    let (from, to) = (before(start), end + AFTER);
    let shown = packets.iter().zip(again).filter(|(p, _)| (from..=to).contains(&p.at));
    shown
        .map(|(packet, retransmission)| PacketRecord {
            t_us: packet.at.since(from).us() as i64,
            at: packet.place,
            data: packet.data,
            seq: packet.seq,
            len: packet.len,
            retransmission,
            descheduled: off.iter().any(|(start, end)| (*start..*end).contains(&packet.at)),
        })
        .collect()
}

/// For each packet, whether its bytes had been sent before. If a place has seen a segment less often than it was sent,
/// the earliest copies count as lost.
fn retransmissions(packets: &[Seen]) -> Vec<bool> {
    let number = |place: SeenAt| match place {
        SeenAt::Sender => 0_u8,
        SeenAt::SenderPort => 1,
        SeenAt::ReceiverPort => 2,
    };
    let mut copies: BTreeMap<(u8, u64), u32> = BTreeMap::new();
    for packet in packets.iter().filter(|p| p.data) {
        *copies.entry((number(packet.place), packet.seq)).or_default() += 1;
    }
    let count = |place, seq| copies.get(&(place, seq)).copied().unwrap_or(0);
    let mut seen: BTreeMap<(u8, u64), u32> = BTreeMap::new();
    let judge = |packet: &Seen| {
        let place = number(packet.place);
        let before = seen.entry((place, packet.seq)).or_default();
        let again = packet.data && (*before > 0 || count(0, packet.seq) > count(place, packet.seq));
        *before += u32::from(packet.data);
        again
    };
    packets.iter().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::START + Duration::from_ms(ms)
    }

    fn data(ms: u64, place: SeenAt, seq: u64) -> Seen {
        Seen { at: at(ms), place, data: true, seq, len: 100 }
    }

    /// Off its core from 100 to 160 and from 300 to 360; after the second time it sends again what was lost behind its
    /// port.
    fn packets() -> Vec<Seen> {
        let mut packets = Vec::new();
        for step in (0..45_u64).filter(|n| !(10..16).contains(n) && !(30..36).contains(n)) {
            packets.push(data(step * 10, SeenAt::Sender, step * 100));
            packets.push(data(step * 10, SeenAt::SenderPort, step * 100));
            if step != 29 {
                packets.push(data(step * 10 + 1, SeenAt::ReceiverPort, step * 100));
            }
        }
        packets.push(data(361, SeenAt::Sender, 2900));
        packets.push(data(361, SeenAt::SenderPort, 2900));
        packets.push(data(362, SeenAt::ReceiverPort, 2900));
        packets.push(Seen { data: false, len: 0, ..data(330, SeenAt::SenderPort, 2900) });
        packets.sort_by_key(|p| p.at);
        packets
    }

    const OFF: fn() -> Vec<(Instant, Instant)> = || vec![(at(0), at(5)), (at(100), at(160)), (at(300), at(360))];

    #[test]
    fn a_wake_up_with_a_retransmission_is_preferred() {
        let picked = pick(&packets(), &OFF());
        let again: Vec<_> = picked.iter().filter(|p| p.retransmission).map(|p| (p.at, p.t_us, p.seq)).collect();
        assert_eq!(
            again,
            [(SeenAt::Sender, 81_000, 2900), (SeenAt::SenderPort, 81_000, 2900), (SeenAt::ReceiverPort, 82_000, 2900)]
        );
        let off: Vec<_> = picked.iter().filter(|p| p.descheduled).map(|p| (p.at, p.t_us, p.data)).collect();
        assert_eq!(off, [(SeenAt::SenderPort, 50_000, false)]);
    }

    #[test]
    fn without_a_retransmission_the_first_full_window_is_taken() {
        let picked = pick(&packets(), &OFF()[..2]);
        assert_eq!(picked.first().map(|p| (p.t_us, p.seq)), Some((0, 800)));
        assert!(pick(&packets(), &OFF()[..1]).is_empty());
        assert!(pick(&[], &OFF()).is_empty());
    }
}
