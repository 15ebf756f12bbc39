//! Ticks and the retransmission timeout's floor.

use std::time::Duration;

use super::finding::{Finding, Level};
use super::machine::{Machine, advise_pvtcp};
use super::readings::Readings;

/// TCP_RTO_MIN of kernels without a sysctl for it.
const BUILT_IN_FLOOR: Duration = Duration::from_millis(200);
/// A floor below this is shorter than a VM's usual absence from its core.
const SHORT_FLOOR: Duration = Duration::from_millis(100);

/// HZ and the floor.
pub(super) fn findings(readings: &Readings, machine: &Machine) -> Vec<Finding> {
    let Some(tick) = readings.tick.filter(|t| !t.is_zero()) else { return Vec::new() };
    let sysctl =
        readings.sysctls.get("tcp_rto_min_us").and_then(|text| text.trim().parse().ok()).map(Duration::from_micros);
    let routes = readings.routes.as_deref().map(route_floors).unwrap_or_default();
    vec![hz(tick), floor(tick, sysctl, &routes, machine)]
}

fn ms(duration: Duration) -> String {
    let value = duration.as_secs_f64() * 1e3;
    if value.fract() < 0.05 { format!("{value:.0} ms") } else { format!("{value:.1} ms") }
}

/// The shortest retransmission timeout for a floor and a tick: the kernel rounds the floor up to ticks and adds the
/// smoothed round-trip time, which after rounding is at least a tick.
fn effective(floor: Duration, tick: Duration) -> Duration {
    let ticks = floor.as_nanos().div_ceil(tick.as_nanos()).max(1) as u32;
    tick * (ticks + 1)
}

fn hz(tick: Duration) -> Finding {
    let hz = (1.0 / tick.as_secs_f64()).round();
    Finding::new(
        "HZ",
        Level::Ok,
        format!("{hz} ticks per second"),
        format!(
            "TCP's timers go by ticks of {}: no retransmission timeout can be below {}, two ticks.",
            ms(tick),
            ms(tick * 2)
        ),
    )
}

/// Routes with a floor of their own: what the route leads to, and the floor.
fn route_floors(routes: &str) -> Vec<(String, Duration)> {
    let floor = |line: &str| {
        let mut words = line.split_whitespace().peekable();
        let to = words.peek()?.to_string();
        let mut words = words.skip_while(|word| *word != "rto_min").skip(1);
        let value = words.find(|word| *word != "lock")?;
        Some((to, parse_time(value)?))
    };
    routes.lines().filter_map(floor).collect()
}

/// Times as iproute2 prints them: `8ms`, `1s`, `250us`; a bare number is in milliseconds.
fn parse_time(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "us" | "usec" | "usecs" => 1.0,
        "ms" | "msec" | "msecs" | "" => 1e3,
        "s" | "sec" | "secs" => 1e6,
        _ => return None,
    };
    let value: f64 = digits.parse().ok()?;
    Duration::try_from_secs_f64(value * unit / 1e6).ok()
}

fn floor(tick: Duration, sysctl: Option<Duration>, routes: &[(String, Duration)], machine: &Machine) -> Finding {
    let general = sysctl.unwrap_or(BUILT_IN_FLOOR);
    let smallest = routes.iter().map(|(_, floor)| *floor).chain([general]).min().unwrap_or(general);
    let mut fact = format!("a timeout takes {} at least", ms(effective(general, tick)));
    for (to, floor) in routes {
        fact.push_str(&format!(", {} on the route to {to}", ms(effective(*floor, tick))));
    }
    if smallest < SHORT_FLOOR {
        let finding = Finding::new(
            "RTO floor",
            if machine.is_guest() { Level::Problem } else { Level::Ok },
            fact,
            "Losses are repaired soon, as incast needs it. But an absence from the core that is longer than this looks \
             like a loss, and a VM's usual absences are 30 ms and more.",
        );
        return advise_pvtcp(finding, machine);
    }
    let how = match sysctl {
        Some(_) => format!(
            "sysctl net.ipv4.tcp_rto_min_us={} sets the smallest, for connections made from then on",
            tick.as_micros()
        ),
        None => format!("ip route change ROUTE rto_min {} sets the smallest on a route", ms(tick).replace(' ', "")),
    };
    let safe = match (machine.is_guest(), machine.is_protected()) {
        (true, false) => " A lower floor is safe in a VM only with PVTCP.",
        (true, true) => " With PVTCP loaded, a lower one is safe.",
        (false, _) => "",
    };
    let meaning = format!(
        "In a data centre, where round trips take less than a millisecond, one timeout stalls a connection for \
         hundreds of them: that is what collapses in incast.{safe}"
    );
    Finding::new("RTO floor", Level::Note, fact, meaning).next(how)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(4);
    const ROUTES: &str = "default via 192.0.2.1 dev eth0\n\
        10.0.0.0/24 dev eth1 proto kernel scope link src 10.0.0.2 rto_min lock 1ms quickack 1\n\
        10.1.0.0/24 dev eth1 rto_min 10ms\n";

    fn guest() -> Machine {
        Machine { hypervisor: Some("KVM".into()), steal_clock: None, pvtcp_mode: None, takes_pvtcp: true }
    }

    #[test]
    fn the_smallest_timeout_is_two_ticks() {
        assert_eq!(effective(Duration::from_micros(1), TICK), Duration::from_millis(8));
        assert_eq!(effective(Duration::from_millis(4), TICK), Duration::from_millis(8));
        assert_eq!(effective(Duration::from_millis(200), TICK), Duration::from_millis(204));
        assert_eq!(effective(Duration::ZERO, Duration::from_millis(1)), Duration::from_millis(2));
    }

    #[test]
    fn routes_may_have_floors() {
        let floors = route_floors(ROUTES);
        assert_eq!(
            floors,
            [
                ("10.0.0.0/24".to_owned(), Duration::from_millis(1)),
                ("10.1.0.0/24".to_owned(), Duration::from_millis(10))
            ]
        );
    }

    #[test]
    fn times_as_iproute2_prints_them() {
        assert_eq!(parse_time("8ms"), Some(Duration::from_millis(8)));
        assert_eq!(parse_time("0.5s"), Some(Duration::from_millis(500)));
        assert_eq!(parse_time("250us"), Some(Duration::from_micros(250)));
        assert_eq!(parse_time("200"), Some(Duration::from_millis(200)));
        assert_eq!(parse_time("8jiffies"), None);
        assert_eq!(parse_time(""), None);
    }

    #[test]
    fn a_short_floor_is_a_problem_in_a_guest_without_pvtcp_only() {
        let short = Some(Duration::from_millis(4));
        assert_eq!(floor(TICK, short, &[], &guest()).level, Level::Problem);
        assert_eq!(floor(TICK, None, &route_floors(ROUTES), &guest()).level, Level::Problem);
        let safe = Machine { pvtcp_mode: Some("enforce".into()), ..guest() };
        assert_eq!(floor(TICK, short, &[], &safe).level, Level::Ok);
        let host = Machine { hypervisor: None, ..guest() };
        assert_eq!(floor(TICK, short, &[], &host).level, Level::Ok);
    }

    #[test]
    fn the_default_floor_is_a_note_with_the_way_to_lower_it() {
        let finding = floor(TICK, Some(BUILT_IN_FLOOR), &[], &guest());
        assert_eq!((finding.level, finding.fact.as_str()), (Level::Note, "a timeout takes 204 ms at least"));
        assert!(finding.next.unwrap().contains("tcp_rto_min_us=4000"));
        assert!(floor(TICK, None, &[], &guest()).next.unwrap().contains("rto_min 4ms"));
    }
}
