//! Which group of VMs does what in a workload.

use evenkeel_scenario::format::{Scenario, Workload};

/// Which group does what.
#[derive(Debug, Clone, Copy)]
pub struct Roles<'a> {
    /// The group that sends.
    pub from: &'a str,
    /// The group that receives.
    pub to: &'a str,
}

impl<'a> Roles<'a> {
    /// Roles in a workload.
    pub fn of(workload: &'a Workload) -> Self {
        let (from, to) = workload.roles();
        Self { from, to }
    }

    /// Roles in each workload, in the order of their names.
    pub fn of_all(scenario: &'a Scenario) -> Vec<Self> {
        scenario.workloads.values().map(Self::of).collect()
    }
}
