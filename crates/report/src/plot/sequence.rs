//! Sequence numbers over time around one wake-up, as in PVTCP Fig. 8 and PVTCP-slides 15.

use evenkeel_scenario::result::{PacketRecord, SeenAt};

use super::canvas::{Canvas, no_data};
use super::scale::Scale;
use super::style::{Key, Look, SHADE, Shape, Swatch, UNIT};
use super::{About, Figure, Panel, full_title};
use crate::view::View;

const KIND: &str = "sequence";
const DATA: Look = Look(0);
const RETRANSMISSION: Look = Look(1);
// Looks 4 and 2: a solid line, and a dotted one that still shows where both run together.
const ACK_AT_PORT: Look = Look(4);
const ACK_IN_VM: Look = Look(2);

/// Draws the plot: one panel per cell, of the first run that has a capture.
pub(super) fn figure(view: &View<'_>, position: usize, title: &str) -> Figure {
    let mut panels = Vec::new();
    for (index, cell) in view.cells.iter().enumerate() {
        let heading = view.cell_title(cell);
        let title = full_title(title, &heading);
        let about = About::new(position, index, KIND, &title);
        let packets = cell.runs.iter().map(|run| run.packets.as_slice()).find(|packets| !packets.is_empty());
        let svg = packets.map_or_else(|| no_data(true, &about), |packets| draw(packets, &about));
        panels.push(Panel { title: heading, svg, wide: true });
    }
    let key = |label: &str, swatch| Key { label: label.to_owned(), swatch };
    Figure {
        title: title.to_owned(),
        note: "Each tick is a segment, from its first byte to its last. Shaded: the VM was off its core, from the \
            first packet seen then to the first seen after."
            .to_owned(),
        keys: vec![
            key("segment", Swatch::Tick(DATA)),
            key("retransmission", Swatch::CrossedTick(RETRANSMISSION)),
            key("acknowledged, at the host", Swatch::Plain(ACK_AT_PORT)),
            key("acknowledged, inside the VM", Swatch::Plain(ACK_IN_VM)),
            key("VM off its core", Swatch::Shade),
        ],
        panels,
    }
}

/// The packets of one kind at the first of these places that has any.
fn seen<'p>(packets: &'p [PacketRecord], data: bool, places: &[SeenAt]) -> Vec<&'p PacketRecord> {
    for &place in places {
        let found: Vec<&PacketRecord> =
            packets.iter().filter(|packet| packet.at == place && packet.data == data).collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// Times between which the VM was off its core.
fn absences(packets: &[PacketRecord]) -> Vec<(i64, i64)> {
    let mut sorted: Vec<&PacketRecord> = packets.iter().collect();
    sorted.sort_by_key(|packet| packet.t_us);
    let mut absences = Vec::new();
    let mut since = None;
    for packet in &sorted {
        match (packet.descheduled, since) {
            (true, None) => since = Some(packet.t_us),
            (false, Some(start)) => {
                absences.push((start, packet.t_us));
                since = None;
            }
            _ => {}
        }
    }
    if let (Some(start), Some(last)) = (since, sorted.last()) {
        absences.push((start, last.t_us));
    }
    absences
}

fn draw(packets: &[PacketRecord], about: &About<'_>) -> String {
    let data = seen(packets, true, &[SeenAt::Sender, SeenAt::SenderPort, SeenAt::ReceiverPort]);
    let at_port = seen(packets, false, &[SeenAt::SenderPort, SeenAt::ReceiverPort]);
    let in_vm = seen(packets, false, &[SeenAt::Sender]);
    let drawn = || data.iter().chain(&at_port).chain(&in_vm);
    let (Some(base), Some(top)) =
        (drawn().map(|packet| packet.seq).min(), drawn().map(|packet| packet.seq + u64::from(packet.len)).max())
    else {
        return no_data(true, about);
    };
    let time = |packet: &PacketRecord| packet.t_us as f64 / 1e3;
    let kilobytes = |seq: u64| (seq - base) as f64 / 1e3;
    let first = drawn().map(|packet| time(packet)).fold(f64::INFINITY, f64::min).min(0.0);
    let last = drawn().map(|packet| time(packet)).fold(f64::NEG_INFINITY, f64::max);
    let mut canvas = Canvas::new(
        true,
        Scale::exact("time (ms)", first, last + (last - first) * 0.01, 8),
        Scale::linear("sequence number (kB, from the first shown)", 0.0, kilobytes(top), 5),
    );
    let absences = absences(packets);
    let shades: Vec<(i32, i32)> =
        absences.iter().map(|&(from, to)| (canvas.x_unit(from as f64 / 1e3), canvas.x_unit(to as f64 / 1e3))).collect();
    let (above, below) = canvas.span();
    canvas.backdrop("shade", |pen| {
        shades.iter().for_each(|&(from, to)| pen.bar((from, above), (to.max(from + UNIT), below), SHADE));
    });
    for (acks, look) in [(&at_port, ACK_AT_PORT), (&in_vm, ACK_IN_VM)] {
        let points = acks.iter().filter_map(|ack| canvas.point(time(ack), kilobytes(ack.seq)));
        let mut steps: Vec<(i32, i32)> = Vec::new();
        for at in points {
            if let Some(&(_, height)) = steps.last() {
                steps.push((at.0, height));
            }
            steps.push(at);
        }
        let right = canvas.x_unit(last);
        steps.extend(steps.last().map(|&(_, height)| (right, height)).filter(|_| !acks.is_empty()));
        canvas.marks(&look.class(), &look.dashes(), acks.len(), |pen| {
            if steps.len() > 1 {
                pen.path(&steps, look.colour(), 1.75);
            }
        });
    }
    for (again, look) in [(false, DATA), (true, RETRANSMISSION)] {
        let ticks: Vec<_> = data
            .iter()
            .filter(|packet| packet.retransmission == again)
            .filter_map(|packet| {
                let end = packet.seq + u64::from(packet.len);
                Some((canvas.point(time(packet), kilobytes(packet.seq))?, canvas.point(time(packet), kilobytes(end))?))
            })
            .collect();
        canvas.marks(&look.class(), "", ticks.len(), |pen| {
            for &((x, low), (_, high)) in &ticks {
                // At least as high as it is wide, however many bytes the panel spans.
                pen.path(&[(x, low), (x, high.min(low - 3 * UNIT))], look.colour(), 2.25);
                if again {
                    pen.mark(Shape::Cross, (x, (low + high) / 2), 4.5, look.colour());
                }
            }
        });
    }
    let again = data.iter().filter(|packet| packet.retransmission).count();
    let away: i64 = absences.iter().map(|(from, to)| to - from).sum();
    canvas.finish(
        about,
        &format!(
            "{} segments, {again} of them retransmissions; {} ACKs at the host, {} inside the VM; the VM was off its \
             core {} times, {:.1} ms in all.",
            data.len(),
            at_port.len(),
            in_vm.len(),
            absences.len(),
            away as f64 / 1e3,
        ),
    )
}
