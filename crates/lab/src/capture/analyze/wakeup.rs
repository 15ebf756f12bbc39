//! The packets around one wake-up of the sending VM, for the sequence plot (PVTCP Fig. 8).

use std::collections::HashMap;

use evenkeel_scenario::result::{PacketRecord, SeenAt};

use super::clock::ClockMap;
use super::flow::{Event, Flow};

/// What is shown before the VM goes off its core.
const BEFORE_NS: i64 = 20_000_000;
/// What is shown after it comes back.
const AFTER_NS: i64 = 30_000_000;
/// The clocks may be misaligned by this much.
const SLACK_NS: i64 = 1_000_000;

/// The captures of one flow. Those on the host share its clock.
#[derive(Debug, Clone, Copy)]
pub struct Views<'a> {
    /// Inside the sending VM.
    pub sender: &'a Flow,
    /// From the VM's clock to the host's.
    pub clock: &'a ClockMap,
    /// At the sending VM's port.
    pub sender_port: &'a Flow,
    /// At the receiver's port.
    pub receiver_port: Option<&'a Flow>,
}

/// A wake-up that was picked.
#[derive(Debug, Clone, PartialEq)]
pub struct WakeUp {
    /// Host time at which the window begins: the zero of the packets' times.
    pub start_ns: i64,
    /// Host time at which the VM went off its core.
    pub off_start_ns: i64,
    /// Host time at which it came back.
    pub off_end_ns: i64,
    /// Whether a retransmission follows the wake-up.
    pub retransmits: bool,
    /// All packets of the window in the order of time.
    pub packets: Vec<PacketRecord>,
}

/// Picks a wake-up out of `off`, the times in which the VM was off its core (host clock): the first that a
/// retransmission follows, else the first with data sent just before it. None when the captures cover none in full.
#[must_use]
pub fn pick(views: Views<'_>, off: &[(i64, i64)]) -> Option<WakeUp> {
    let to_host = |vm_ns| views.clock.to_host(vm_ns);
    let span = |flow: &Flow| Some((flow.events.first()?.t_ns(), flow.events.last()?.t_ns()));
    let (vm_first, vm_last) = span(views.sender)?;
    let (port_first, port_last) = span(views.sender_port)?;
    let first = to_host(vm_first).max(port_first);
    let last = to_host(vm_last).min(port_last);
    let sent: Vec<(i64, bool)> =
        views.sender.segments_seen_before().map(|(s, before)| (to_host(s.t_ns), before > 0)).collect();
    // Intervals that do not end after their start are skipped.
    let mut windows = off
        .iter()
        .copied()
        .filter(|(start, end)| start < end)
        .filter(|&(start, end)| start.saturating_sub(BEFORE_NS) >= first && end.saturating_add(AFTER_NS) <= last);
    let retransmits =
        |&(_, end): &(i64, i64)| any_in(&sent, end.saturating_sub(SLACK_NS), end.saturating_add(AFTER_NS), true);
    let sends = |&(start, _): &(i64, i64)| any_in(&sent, start.saturating_sub(BEFORE_NS), start, false);
    let picked = windows.clone().find(retransmits).or_else(|| windows.find(sends))?;
    let (off_start_ns, off_end_ns) = picked;
    let start_ns = off_start_ns - BEFORE_NS;
    let window = Window { start_ns, end_ns: off_end_ns + AFTER_NS, off };
    let mut packets = Vec::new();
    window.take(&mut packets, SeenAt::Sender, views.sender, views.sender, to_host);
    window.take(&mut packets, SeenAt::SenderPort, views.sender_port, views.sender, |t_ns| t_ns);
    if let Some(receiver_port) = views.receiver_port {
        window.take(&mut packets, SeenAt::ReceiverPort, receiver_port, views.sender, |t_ns| t_ns);
    }
    packets.sort_by_key(|packet| packet.t_us);
    Some(WakeUp { start_ns, off_start_ns, off_end_ns, retransmits: retransmits(&picked), packets })
}

/// Whether anything was sent (`again`: sent again) in a span of time. `sent` is in the order of time.
fn any_in(sent: &[(i64, bool)], from: i64, to: i64, again: bool) -> bool {
    let begin = sent.partition_point(|&(t_ns, _)| t_ns < from);
    sent[begin..].iter().take_while(|&&(t_ns, _)| t_ns <= to).any(|&(_, retransmission)| retransmission || !again)
}

/// What is shown.
#[derive(Debug)]
struct Window<'a> {
    start_ns: i64,
    end_ns: i64,
    off: &'a [(i64, i64)],
}

impl Window<'_> {
    /// Adds a view's packets. `sender` tells how often each was sent.
    fn take(
        &self,
        packets: &mut Vec<PacketRecord>,
        at: SeenAt,
        view: &Flow,
        sender: &Flow,
        to_host: impl Fn(i64) -> i64,
    ) {
        // Computed for the whole view: the first copy may lie before the window.
        let mut retransmissions = retransmissions(view, sender).into_iter();
        for event in &view.events {
            let host_ns = to_host(event.t_ns());
            let is_data = matches!(event, Event::Data(_));
            let retransmission = is_data && retransmissions.next().unwrap_or(false);
            if !(self.start_ns..=self.end_ns).contains(&host_ns) {
                continue;
            }
            let (number, len) = match event {
                Event::Data(segment) => (segment.seq, segment.len),
                Event::Ack(ack) => (ack.ack, 0),
            };
            // What lies before the flow's first byte is not the flow's.
            let Ok(seq) = u64::try_from(number) else {
                continue;
            };
            packets.push(PacketRecord {
                t_us: (host_ns - self.start_ns) / 1000,
                at,
                data: is_data,
                seq,
                len,
                retransmission,
                descheduled: self.off.iter().any(|&(start, end)| (start..end).contains(&host_ns)),
            });
        }
    }
}

/// For each data segment of a view, whether it had been sent before. If the sender sent a segment more often than the
/// view shows it, the earliest copies are taken to be lost.
fn retransmissions(view: &Flow, sender: &Flow) -> Vec<bool> {
    let count = |flow: &Flow| {
        let mut copies: HashMap<i64, usize> = HashMap::new();
        flow.segments().for_each(|segment| *copies.entry(segment.seq).or_default() += 1);
        copies
    };
    let (sent, shown) = (count(sender), count(view));
    let copies = |of: &HashMap<i64, usize>, seq| of.get(&seq).copied().unwrap_or(0);
    let lost_before = |seq| copies(&sent, seq) > copies(&shown, seq);
    view.segments_seen_before().map(|(segment, before)| before > 0 || lost_before(segment.seq)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::analyze::build::{MS, ack, data, flow, shifted};

    const CLOCK: ClockMap = ClockMap { origin_ns: 0, offset_ns: 1000 * MS, drift: 0.0, error_ns: Some(0), segments: 1 };

    /// The VM is off its core from 1100 to 1160 and from 1300 to 1360 (host); after the second time it retransmits.
    fn sender() -> Flow {
        let mut events: Vec<Event> = (0..40).map(|n| data(n * 10, n * 100, 100)).collect();
        events.retain(|event| {
            !(100 * MS..160 * MS).contains(&event.t_ns()) && !(300 * MS..360 * MS).contains(&event.t_ns())
        });
        events.push(data(361, 2900, 100));
        events.push(ack(362, 3000));
        events.push(data(500, 9000, 100));
        events.sort_by_key(Event::t_ns);
        flow(events)
    }

    const OFF: [(i64, i64); 3] = [(-50 * MS, 50 * MS), (1100 * MS, 1160 * MS), (1300 * MS, 1360 * MS)];

    #[test]
    fn a_wake_up_with_a_retransmission_is_preferred() {
        let sender = sender();
        let port = shifted(&sender, 1000 * MS + 100_000);
        let views = Views { sender: &sender, clock: &CLOCK, sender_port: &port, receiver_port: None };
        let picked = pick(views, &OFF).expect("picked");
        assert_eq!((picked.start_ns, picked.retransmits), (1280 * MS, true));
        assert_eq!((picked.off_start_ns, picked.off_end_ns), OFF[2]);
        let again: Vec<_> =
            picked.packets.iter().filter(|packet| packet.retransmission).map(|p| (p.at, p.t_us, p.seq)).collect();
        assert_eq!(again, [(SeenAt::Sender, 81_000, 2900), (SeenAt::SenderPort, 81_100, 2900)]);
        assert!(picked.packets.iter().any(|packet| !packet.data && packet.seq == 3000 && packet.len == 0));
        assert!(picked.packets.windows(2).all(|pair| pair[0].t_us <= pair[1].t_us));
        assert!(picked.packets.iter().all(|p| !p.descheduled));
    }

    #[test]
    fn without_a_retransmission_the_first_full_window_is_taken() {
        let sender = sender();
        let port = shifted(&sender, 1000 * MS);
        let views = Views { sender: &sender, clock: &CLOCK, sender_port: &port, receiver_port: None };
        let picked = pick(views, &OFF[..2]).expect("picked");
        assert_eq!((picked.start_ns, picked.retransmits), (1080 * MS, false));
        assert_eq!(pick(views, &OFF[..1]), None);
        assert_eq!(pick(views, &[(1490 * MS, 1500 * MS), (1400 * MS, 1300 * MS)]), None);
    }

    #[test]
    fn packets_while_the_vm_is_off_are_marked() {
        let sender = sender();
        let mut port = shifted(&sender, 1000 * MS);
        port.events.push(ack(1330, 2900));
        port.events.sort_by_key(Event::t_ns);
        let views = Views { sender: &sender, clock: &CLOCK, sender_port: &port, receiver_port: None };
        let picked = pick(views, &OFF).expect("picked");
        let marked: Vec<_> =
            picked.packets.iter().filter(|packet| packet.descheduled).map(|p| (p.at, p.t_us, p.seq)).collect();
        assert_eq!(marked, [(SeenAt::SenderPort, 50_000, 2900)]);
    }

    #[test]
    fn behind_a_loss_the_only_copy_is_the_retransmission() {
        let sender = sender();
        let port = shifted(&sender, 1000 * MS);
        let mut receiver_port = shifted(&sender, 1001 * MS);
        // The first copy of 2900 is lost on the way.
        let first =
            receiver_port.events.iter().position(|e| matches!(e, Event::Data(s) if s.seq == 2900)).expect("there");
        receiver_port.events.remove(first);
        let views = Views { sender: &sender, clock: &CLOCK, sender_port: &port, receiver_port: Some(&receiver_port) };
        let picked = pick(views, &OFF).expect("picked");
        let there: Vec<_> =
            picked.packets.iter().filter(|p| p.at == SeenAt::ReceiverPort && p.seq == 2900 && p.data).collect();
        assert!(there.len() == 1 && there[0].retransmission);
    }
}
