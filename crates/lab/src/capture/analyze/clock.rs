//! The clock of a VM against the host's.
//!
//! A data segment is seen inside the VM first and at its port a little later. The smallest difference over all segments
//! is the offset of the clocks plus the shortest delay on the way out. ACKs, which pass the port first, bound that
//! delay: the bound is the error. The clocks may also run at slightly different speeds; the smallest difference is then
//! a line below all points and not a number.

use std::collections::HashMap;

use super::flow::Flow;

/// Over a shorter span, a difference in speed cannot be told from chance.
const DRIFT_SPAN_NS: i64 = 1_000_000_000;
/// A larger difference in speed is no drift of a clock (500 parts per million).
const MAX_DRIFT: f64 = 500e-6;

/// Converts between the VM's clock and the host's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockMap {
    /// A time of the VM's clock at which `offset_ns` holds.
    pub origin_ns: i64,
    /// Host time less VM time, at `origin_ns`.
    pub offset_ns: i64,
    /// Nanoseconds that the host's clock gains per nanosecond of the VM's.
    pub drift: f64,
    /// How much too large the host times can be: they are never too small. None when the captures share no ACK.
    pub error_ns: Option<i64>,
    /// How many segments it is computed from.
    pub segments: usize,
}

impl ClockMap {
    /// The host's time at a time of the VM.
    #[must_use]
    pub fn to_host(&self, vm_ns: i64) -> i64 {
        let gained = (vm_ns.saturating_sub(self.origin_ns) as f64 * self.drift) as i64;
        vm_ns.saturating_add(self.offset_ns).saturating_add(gained)
    }

    /// The VM's time at a time of the host.
    #[must_use]
    pub fn to_vm(&self, host_ns: i64) -> i64 {
        let without_drift = host_ns.saturating_sub(self.offset_ns);
        let gained = without_drift.saturating_sub(self.origin_ns) as f64 * self.drift / (1.0 + self.drift);
        without_drift.saturating_sub(gained as i64)
    }
}

/// Aligns the clock of a capture inside the sending VM with that of one at its port. None when they share no segment
/// that was sent once.
#[must_use]
pub fn align(vm: &Flow, port: &Flow) -> Option<ClockMap> {
    let mut points = pairs(vm.segments().map(|s| (s.seq, s.t_ns)), port.segments().map(|s| (s.seq, s.t_ns)));
    points.sort_unstable();
    let (first, last) = (points.first()?.0, points.last()?.0);
    let least = points.iter().map(|&(_, delay)| delay).min()?;
    let mut clock = ClockMap { origin_ns: first, offset_ns: least, drift: 0.0, error_ns: None, segments: points.len() };
    if last.saturating_sub(first) >= DRIFT_SPAN_NS {
        if let Some((origin_ns, offset_ns, drift)) =
            line_below(&points).filter(|&(_, _, drift)| drift.abs() <= MAX_DRIFT)
        {
            clock = ClockMap { origin_ns, offset_ns, drift, ..clock };
        }
    }
    let acks = pairs(vm.acks().map(|a| (a.ack, a.t_ns)), port.acks().map(|a| (a.ack, a.t_ns)));
    clock.error_ns =
        acks.iter().map(|&(vm_ns, delay)| clock.to_host(vm_ns).saturating_sub(vm_ns.saturating_add(delay))).min();
    // Below zero only by the drift's rounding, or if the clock was set in between: it is an error in either case.
    clock.error_ns = clock.error_ns.map(i64::abs);
    Some(clock)
}

/// VM time, and port time less VM time, of what both show exactly once.
fn pairs(vm: impl Iterator<Item = (i64, i64)>, port: impl Iterator<Item = (i64, i64)>) -> Vec<(i64, i64)> {
    let once = |seen: &mut HashMap<i64, Option<i64>>, (number, t_ns)| {
        seen.entry(number).and_modify(|t_ns| *t_ns = None).or_insert(Some(t_ns));
    };
    let (mut at_vm, mut at_port) = (HashMap::new(), HashMap::new());
    vm.for_each(|seen| once(&mut at_vm, seen));
    port.for_each(|seen| once(&mut at_port, seen));
    at_vm
        .into_iter()
        .filter_map(|(number, vm_ns)| {
            let (vm_ns, port_ns) = (vm_ns?, (*at_port.get(&number)?)?);
            Some((vm_ns, port_ns.saturating_sub(vm_ns)))
        })
        .collect()
}

/// The line below all points that is closest to them in sum, as a point on it and a slope: the edge of their lower
/// convex hull over their mean time (Moon99). `points` are sorted by time.
fn line_below(points: &[(i64, i64)]) -> Option<(i64, i64, f64)> {
    let mut hull: Vec<(i64, i64)> = Vec::new();
    for &point in points {
        while let [.., a, b] = hull[..] {
            if turns_left(a, b, point) {
                break;
            }
            hull.pop();
        }
        if hull.last().is_none_or(|last| last.0 < point.0) {
            hull.push(point);
        }
    }
    let sum: i128 = points.iter().map(|&(t, _)| i128::from(t)).sum();
    let mean = i64::try_from(sum / i128::try_from(points.len()).ok()?).ok()?;
    let (a, b) = hull.iter().zip(hull.iter().skip(1)).find(|(_, b)| b.0 >= mean)?;
    Some((a.0, a.1, (b.1 as f64 - a.1 as f64) / (b.0 as f64 - a.0 as f64)))
}

/// Whether the way a, b, c bends to the left.
fn turns_left(a: (i64, i64), b: (i64, i64), c: (i64, i64)) -> bool {
    let wide = |x: i64, y: i64| i128::from(x) - i128::from(y);
    // Products of differences below 2^64 may exceed 128 bits: only nonsense times get there, and saturate.
    let product = |x: i128, y: i128| x.checked_mul(y).unwrap_or(if (x < 0) == (y < 0) { i128::MAX } else { i128::MIN });
    product(wide(b.0, a.0), wide(c.1, a.1)) > product(wide(b.1, a.1), wide(c.0, a.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::capture::analyze::build::{MS, ack, data, flow, shifted};
    use crate::capture::analyze::flow::{Ack, Event, Segment};

    #[test]
    fn the_offset_is_that_of_the_fastest_segment() {
        let vm = flow([data(0, 0, 100), data(10, 100, 100), data(20, 200, 100), ack(25, 300)]);
        let port = flow([data(1007, 0, 100), data(1012, 100, 100), data(1060, 200, 100), ack(1024, 300)]);
        let clock = align(&vm, &port).expect("aligned");
        assert_eq!((clock.offset_ns, clock.segments), (1002 * MS, 3));
        // The ACK was at the port at 1024 and in the VM at 25 + 1002 = 1027.
        assert_eq!(clock.error_ns, Some(3 * MS));
    }

    #[test]
    fn retransmitted_segments_are_left_out() {
        let vm = flow([data(0, 0, 100), data(10, 100, 100), data(50, 0, 100)]);
        let port = flow([data(50, 0, 100), data(11, 100, 100)]);
        let clock = align(&vm, &port).expect("aligned");
        assert_eq!((clock.offset_ns, clock.segments, clock.error_ns), (MS, 1, None));
        assert_eq!(align(&vm, &flow([data(0, 700, 100)])), None);
        assert_eq!(align(&flow([]), &flow([])), None);
    }

    #[test]
    fn a_clock_that_runs_slow_is_followed() {
        // 100 ppm, delays of 10 us to 5 ms, descheduled now and then.
        let vm: Vec<Event> = (0..2000).map(|n| data(n * 5, n * 100, 100)).collect();
        let port = vm.iter().enumerate().map(|(n, event)| {
            let Event::Data(segment) = event else { panic!("data") };
            let delay = 10_000 + (n as i64 * 7919 % 101) * 50_000 + if n % 40 < 10 { 30 * MS } else { 0 };
            Event::Data(Segment { t_ns: segment.t_ns + segment.t_ns / 10_000 + 77 * MS + delay, ..*segment })
        });
        let clock = align(&flow(vm.clone()), &flow(port.collect::<Vec<_>>())).expect("aligned");
        assert!((clock.drift - 100e-6).abs() < 5e-6, "{clock:?}");
        for t_ms in [0, 3000, 9000] {
            let error = clock.to_host(t_ms * MS) - (t_ms * MS + t_ms * 100 + 77 * MS);
            assert!((0..200_000).contains(&error), "{error} ns at {t_ms} ms");
            let there_and_back = clock.to_vm(clock.to_host(t_ms * MS)) - t_ms * MS;
            assert!(there_and_back.abs() <= 1, "{there_and_back} ns at {t_ms} ms");
        }
    }

    proptest! {
        #[test]
        fn the_true_offset_lies_within_the_error(
            offset in -5_000_000_000i64..5_000_000_000,
            delays in prop::collection::vec((1i64..90_000_000, 1i64..90_000_000), 2..100),
        ) {
            let mut vm = Vec::new();
            let mut port = Vec::new();
            for (n, &(out, back)) in delays.iter().enumerate() {
                let (n, t_ns) = (n as i64, n as i64 * 5 * MS);
                vm.push(Event::Data(Segment { t_ns, seq: n * 10, len: 10 }));
                port.push(Event::Data(Segment { t_ns: t_ns + out, seq: n * 10, len: 10 }));
                let ack = Ack { t_ns: t_ns + back, ack: n * 10, window: 1, sack: vec![], pure: true };
                vm.push(Event::Ack(ack.clone()));
                port.push(Event::Ack(Ack { t_ns, ..ack }));
            }
            let clock = align(&flow(vm), &shifted(&flow(port), offset)).expect("aligned");
            let error = clock.error_ns.expect("ACKs");
            prop_assert!(clock.offset_ns >= offset && clock.offset_ns - offset <= error);
        }
    }
}
