//! A trial for a terminal.

use std::fmt::Write as _;

use super::{Trial, change, left_out, others, time};

pub(super) fn render(trial: &Trial) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out, trial);
    out
}

fn write(out: &mut String, trial: &Trial) -> std::fmt::Result {
    writeln!(out, "{}", trial.sentence())?;
    let ports = trial.ports.join(", ");
    writeln!(out, "{:.0} s on {ports}, {} pairs of slots, seed {}", trial.seconds, trial.judgement.pairs, trial.seed)?;
    for note in &trial.notes {
        writeln!(out, "note: {note}")?;
    }
    if !trial.judgement.rows.is_empty() {
        let head = ("the VM", "size", "exchanges", "observe", "enforce");
        writeln!(out, "\n{:<9} {:<11} {:>15} {:>9} {:>9}  ratio", head.0, head.1, head.2, head.3, head.4)?;
    }
    for row in &trial.judgement.rows {
        let [observe, enforce] = row.exchanges;
        let times = row.geometric.as_ref().map(|c| [time(c.observe), time(c.enforce)]).unwrap_or_default();
        let ratio = change(row.geometric.as_ref().and_then(|c| c.change.as_ref()), true);
        let mark = if row.in_primary { " *" } else { "" };
        writeln!(
            out,
            "{:<9} {:<11} {:>15} {:>9} {:>9}  {ratio}{mark}",
            row.direction.word(),
            row.class,
            format!("{observe} / {enforce}"),
            times[0],
            times[1]
        )?;
    }
    if trial.judgement.rows.iter().any(|row| row.in_primary) {
        writeln!(
            out,
            "Times are geometric means, until the last of it was acknowledged; * is what the verdict is of."
        )?;
    }
    writeln!(out)?;
    for [name, observe, enforce, change] in others(&trial.judgement) {
        writeln!(out, "{name:<42} {observe:>9} {enforce:>9}  {change}")?;
    }
    writeln!(out, "{}", left_out(&trial.judgement.left_out))
}
