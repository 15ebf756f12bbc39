//! A run that is traced.

use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::format::Scenario;
use evenkeel_scenario::trace::{Machine, Port, Sink};

use super::setup::{self, PlacedVm};
use super::{Finished, Go, Progress, RunError, simulate};
use crate::record::Tracer;
use crate::refuse;

/// Runs a repetition of a cell as [`super::run`] does, and tells a sink all that happens. The run's record is the same
/// to the byte.
///
/// # Errors
/// Those of [`super::run`].
pub fn trace(
    cell: &Cell,
    repetition: u32,
    sink: &mut dyn Sink,
    report: &mut dyn FnMut(Progress) -> Go,
) -> Result<Finished, RunError> {
    let scenario = &cell.scenario;
    refuse::check(scenario)?;
    let tracer = Tracer::new(sink, machines(scenario), scenario.network.mtu_bytes);
    simulate(cell, repetition, tracer, report)
}

fn machines(scenario: &Scenario) -> Vec<Machine> {
    let machine = |place: &PlacedVm| {
        let group = scenario.vms.get(&place.group)?;
        let port = match (group.hypervisor, setup::has_mechanisms(scenario, group)) {
            (false, _) => Port::None,
            (true, false) => Port::Plain,
            (true, true) => Port::Mechanisms,
        };
        Some(Machine { name: place.name.clone(), port })
    };
    setup::placed_vms(scenario).iter().filter_map(machine).collect()
}
