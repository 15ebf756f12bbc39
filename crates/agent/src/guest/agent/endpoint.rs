//! Whether this guest's own TCP takes all data that its windows have offered room for: the host may acknowledge data
//! before the guest has it, a promise that only the guest can keep.
//!
//! Linux keeps a window that it has offered, unless it is told not to, so what remains to be checked is the way from a
//! network card to TCP. If a card belongs to something else, or something may drop packets before TCP has them, the
//! guest does not vouch. Whether packets are routed on is for the host to see.

mod attached;
mod readings;

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use self::readings::{Device, Readings, Upper};
use crate::channel::{Reason, Reasons};

/// Time between two looks. People and their tools change what is looked at, and a look takes less than a millisecond.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What speaks against this guest, and where that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Objection {
    reason: Reason,
    seen: String,
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.seen)
    }
}

/// All that speaks against it.
fn objections(readings: &Readings) -> Vec<Objection> {
    let mut found = Found::default();
    if let Some(value) = found.read("net.ipv4.tcp_shrink_window", &readings.shrink_window) {
        found.add_if(value.trim() != "0", Reason::ShrinkWindow, || {
            format!("net.ipv4.tcp_shrink_window is {}", value.trim().escape_debug())
        });
    }
    if let Some(table) = found.read("IPVS", &readings.ip_vs) {
        found.add_if(has_services(table), Reason::IpVs, || "IPVS has services".to_owned());
    }
    match &readings.devices {
        Err(why) => found.add(Reason::Unreadable, format!("network devices: {why}")),
        // Nothing is known of the way that packets come.
        Ok(devices) if devices.is_empty() => found.add(Reason::Unreadable, "no network card that is up".to_owned()),
        Ok(devices) => devices.iter().for_each(|device| found.device(device)),
    }
    found.0
}

/// Whether IPVS's table has services: their lines begin with a protocol, those of servers with an arrow.
fn has_services(table: &str) -> bool {
    const PROTOCOLS: [&str; 4] = ["TCP ", "UDP ", "SCTP ", "FWM "];
    table.lines().any(|line| PROTOCOLS.iter().any(|protocol| line.starts_with(protocol)))
}

/// Objections so far.
#[derive(Default)]
struct Found(Vec<Objection>);

impl Found {
    fn add(&mut self, reason: Reason, seen: String) {
        self.0.push(Objection { reason, seen });
    }

    fn add_if(&mut self, speaks_against: bool, reason: Reason, seen: impl FnOnce() -> String) {
        if speaks_against {
            self.add(reason, seen());
        }
    }

    /// What was read; `None` if the kernel does not have it, or if it cannot be read, which speaks against the guest.
    fn read<'a, T>(&mut self, what: &str, reading: &'a readings::Reading<T>) -> Option<&'a T> {
        match reading {
            Ok(value) => value.as_ref(),
            Err(why) => {
                self.add(Reason::Unreadable, format!("{what}: {why}"));
                None
            }
        }
    }

    fn device(&mut self, device: &Device) {
        let name = device.name.escape_debug();
        if let Some(master) = self.read(&format!("{name}: master"), &device.master) {
            let master = master.escape_debug();
            self.add(Reason::Master, format!("{name} belongs to {master}"));
        }
        for Upper { name: upper, kind } in &device.uppers {
            let is_master = matches!(&device.master, Ok(Some(master)) if master == upper);
            let Some(kind) = self.read(&format!("{}: kind", upper.escape_debug()), kind) else { continue };
            // A VLAN takes packets with its tag in place, and is looked at itself; a VXLAN has its own from a socket.
            let is_harmless = [readings::VLAN, readings::VXLAN].contains(&kind.as_str());
            self.add_if(!is_master && !is_harmless, Reason::Upper, || {
                format!("{} takes packets of {name}", upper.escape_debug())
            });
        }
        if let Some(masks) = self.read(&format!("{name}: rps_cpus"), &device.rps) {
            let is_set = |mask: &String| mask.chars().any(|digit| !matches!(digit, '0' | ',' | '\n' | ' '));
            self.add_if(masks.iter().any(is_set), Reason::Rps, || format!("{name} has rps_cpus"));
        }
        let attached = &device.attached;
        for (what, reading, reason) in [
            ("XDP program", &attached.xdp, Reason::Xdp),
            ("tc filter at its ingress", &attached.filter, Reason::Tc),
            ("tcx program at its ingress", &attached.tcx, Reason::Tc),
            ("further link address that it takes packets for", &attached.addresses, Reason::Addresses),
        ] {
            let is_there = self.read(&format!("{name}: {what}"), reading) == Some(&true);
            self.add_if(is_there, reason, || format!("{name} has a {what}"));
        }
    }
}

/// How many network cards are up; `None` if that cannot be read.
fn cards(readings: &Readings) -> Option<usize> {
    let devices = readings.devices.as_ref().ok()?;
    Some(devices.iter().filter(|device| device.is_card).count())
}

/// Looks from time to time, and knows what it saw last.
pub(super) struct Watch {
    looked: Option<Instant>,
    objections: Vec<Objection>,
    cards: Option<usize>,
}

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    /// What speaks against this guest's TCP as the end of its connections.
    pub said: Reasons,
    /// How many network cards are up; `None` if that cannot be read.
    pub cards: Option<usize>,
}

impl Watch {
    /// Nothing was looked at yet.
    pub fn new() -> Self {
        Self { looked: None, objections: Vec::new(), cards: None }
    }

    /// What was seen now or a short while ago.
    pub fn look(&mut self, now: Instant) -> Look {
        if self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK_EVERY) {
            let readings = Readings::take(Path::new("/"), attached::look);
            let objections = objections(&readings);
            if self.looked.is_none() || objections != self.objections {
                tell(&objections);
            }
            self.objections = objections;
            self.cards = cards(&readings);
            self.looked = Some(now);
        }
        Look { said: self.objections.iter().map(|objection| objection.reason).collect(), cards: self.cards }
    }
}

fn tell(objections: &[Objection]) {
    if objections.is_empty() {
        tracing::info!("this guest vouches for its TCP: its host may acknowledge data early (vSnoop)");
    } else {
        let why: Vec<String> = objections.iter().map(ToString::to_string).collect();
        tracing::info!("this guest does not vouch for its TCP: {}", why.join("; "));
    }
}

#[cfg(test)]
mod tests;
