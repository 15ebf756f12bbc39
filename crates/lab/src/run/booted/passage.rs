//! Checks before each run whether packets pass. A dead network gives runs with nothing in them, not errors: a reader of
//! the results would take them for a mechanism's doing.

use std::collections::BTreeSet;
use std::fmt::{Display, Write};
use std::io::ErrorKind;
use std::path::Path;

use evenkeel_scenario::format::Scenario;

use super::BootedLab;
use crate::error::LabError;
use crate::host::net;
use crate::host::vm::Vm;
use crate::proto::{Answer, Op};
use crate::workload::Roles;

/// An idle network answers within milliseconds, one with leftovers of an earlier run within seconds.
const TIMEOUT_MS: u32 = 20_000;
/// The file beside the results with what each device has counted when nothing passes.
const FILE: &str = "nothing-passes.txt";
const COUNTS: [&[&str]; 3] = [&["ip", "-s", "link"], &["tc", "-s", "qdisc"], &["bridge", "fdb"]];
const COUNTS_SCRIPT: &str = "/bin/ip -s link\n/bin/tc -s qdisc\ndmesg | tail -n 40";

/// Removes what an earlier lab has left in the directory of its results.
pub fn remove_counts(results: &Path) -> Result<(), LabError> {
    let file = results.join(FILE);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(LabError::io(format!("removing {}", file.display()), error))
        }
        _ => Ok(()),
    }
}

impl BootedLab {
    /// An error if, in any workload, the first machine that receives does not answer all the others. What devices have
    /// counted then goes to a file in `results`.
    pub(super) fn check_passage(&self, scenario: &Scenario, results: &Path) -> Result<(), LabError> {
        let receiving: BTreeSet<&str> = Roles::of_all(scenario).iter().map(|roles| roles.to).collect();
        receiving.into_iter().try_for_each(|group| self.check_passage_to(self.first(group)?, results))
    }

    fn check_passage_to(&self, to: &Vm, results: &Path) -> Result<(), LabError> {
        let answered = self.in_all(|vm| if vm.spec.name == to.spec.name { Ok(true) } else { is_answered(vm, to) })?;
        let unanswered = self.vms.iter().zip(answered).filter(|(_, answered)| !answered);
        let unanswered: Vec<&str> = unanswered.map(|(vm, _)| vm.spec.name.as_str()).collect();
        if unanswered.is_empty() {
            return Ok(());
        }
        let (from, file) = (unanswered.join(", "), results.join(FILE));
        let text =
            format!("Nothing passes from {from} to {}, {}.\n\n{}", to.spec.name, jiff::Timestamp::now(), self.counts());
        std::fs::write(&file, text).map_err(|e| LabError::io(format!("writing {}", file.display()), e))?;
        Err(LabError::NothingPasses { from, to: to.spec.name.clone(), file })
    }

    /// What each device has counted, in words of the tools that read it.
    fn counts(&self) -> String {
        let mut text = String::new();
        for argv in COUNTS {
            add(&mut text, &format!("the lab's network: {}", argv.join(" ")), net::command(argv));
        }
        for vm in self.vms.iter().chain(self.domains()) {
            add(&mut text, &vm.spec.name, vm.shell(COUNTS_SCRIPT));
            if !vm.spec.is_namespace() {
                add(&mut text, &format!("{}: rings of its network cards (QEMU)", vm.spec.name), vm.rings());
            }
        }
        text
    }
}

fn is_answered(vm: &Vm, to: &Vm) -> Result<bool, LabError> {
    match vm.call(Op::Echo { to: to.spec.address.to_string(), patience_ms: TIMEOUT_MS })? {
        Answer::Echo { answered } => Ok(answered),
        other => {
            Err(LabError::Vm { name: vm.spec.name.clone(), why: format!("unexpected answer to an echo: {other:?}") })
        }
    }
}

/// Adds counts, or why they cannot be read.
fn add(text: &mut String, title: &str, counts: Result<String, impl Display>) {
    let counts = counts.unwrap_or_else(|error| format!("cannot be read: {error}"));
    // Writing to a String cannot fail.
    let _ = writeln!(text, "== {title}\n{}\n", counts.trim_end());
}
