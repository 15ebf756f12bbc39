//! What is there in this guest, whether an agent runs or not.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::error::GuestError;
use super::intf;
use super::programs;
use super::state::State;
use super::supervisor::LOCK;
use crate::channel::Reasons;
use crate::common::clock::now_ns;
use crate::common::lock;

/// Counters of the programs, with what they count.
pub const COUNTERS: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/guest-counters.rs"));

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The process of the agent, if one runs and has said so.
    pub pid: Option<u32>,
    /// Whether one runs.
    pub is_running: bool,
    /// Congestion controls of ours that are registered.
    pub registered: Vec<String>,
    /// vFlood's mode: 0 off, 1 observe, 2 enforce.
    pub vflood_mode: u32,
    /// Whether a host's heartbeats come.
    pub has_host: bool,
    /// How long sockets may flood, should the host say nothing more; 0: they may not.
    pub attested_ms: u64,
    /// The share of the last seconds in which this guest had no core, while a host's heartbeats come; `None` if it is
    /// not known.
    pub off_core_permille: Option<u32>,
    /// What speaks against this guest's TCP as the end of its connections, in words; `None` if no agent runs or it has
    /// not looked yet. If the list is empty, the host may acknowledge data early.
    pub endpoint_objections: Option<Vec<String>>,
    /// How many network cards are up; `None` if no agent runs or that is not known. With several, CERA's client leaves
    /// its connections to the host.
    pub cards: Option<u32>,
    /// The window where the host has granted nothing, in segments; 0: the mechanism's own.
    pub flood_segments: u32,
    /// Settings of this guest that were changed, with what they were.
    pub settings_before: BTreeMap<String, String>,
    /// Counters since the programs were loaded.
    pub counters: BTreeMap<String, u64>,
}

/// Looks what is there.
///
/// # Errors
/// [`GuestError`]
pub fn status(run_dir: &Path, pin_dir: &Path) -> Result<Status, GuestError> {
    let lock = run_dir.join(LOCK);
    let holder =
        lock::holder(&lock).map_err(|error| GuestError::io(format!("cannot look at {}", lock.display()), error))?;
    let control = programs::read_control(pin_dir).unwrap_or_default();
    let left_ms = |until_ns: u64| Duration::from_nanos(until_ns.saturating_sub(now_ns())).as_millis() as u64;
    let counters = programs::read_counters(pin_dir).unwrap_or_default();
    Ok(Status {
        pid: holder.flatten(),
        is_running: holder.is_some(),
        registered: programs::registered(pin_dir).into_iter().map(str::to_owned).collect(),
        vflood_mode: control.mode,
        has_host: left_ms(control.host_until_ns) > 0,
        attested_ms: left_ms(control.attested_until_ns),
        off_core_permille: control.off_core.checked_sub(1).filter(|_| left_ms(control.host_until_ns) > 0),
        endpoint_objections: Reasons::from_bits(control.endpoint).filter(|_| holder.is_some()).map(Reasons::words),
        cards: control.cards.checked_sub(1).filter(|_| holder.is_some()),
        flood_segments: control.flood_segments,
        settings_before: State::load(run_dir)?.changed(),
        counters: COUNTERS.iter().zip(counters.value).map(|((name, _), value)| ((*name).to_owned(), value)).collect(),
    })
}

const _: () = assert!(COUNTERS.len() == intf::EK_GUEST_COUNTERS as usize);
