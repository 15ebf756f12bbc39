//! What happened in a run, for programs that show it: packets as pcapng for Wireshark, all of it as Chrome's JSON for
//! Perfetto, and rates, RTTs and windows as flent's data for its plots.
//!
//! A run that is traced writes as it goes ([`Pcapng`], [`Perfetto`]); what records have is written of finished runs
//! ([`write_records`], [`write_flent`]). Perfetto also has a format of its own, in protobuf. JSON says the same here,
//! is read by other viewers too, and can be looked at without any.

mod flent;
mod frame;
mod json;
mod pcapng;
mod perfetto;
mod ports;
mod records;

use evenkeel_scenario::result::RunRecord;

pub use flent::write_flent;
pub use pcapng::{Captured, Pcapng};
pub use perfetto::Perfetto;
pub use records::write_records;

/// A run among others.
fn run_name(record: &RunRecord) -> String {
    let labels = record.cell.iter().map(|(axis, label)| format!("{axis}={label} "));
    format!("{}#{}", labels.collect::<String>(), record.repetition)
}
