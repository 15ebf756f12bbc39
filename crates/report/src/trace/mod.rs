//! What happened in a run, for programs that show it: packets as pcapng for Wireshark, all of it as Chrome's JSON for
//! Perfetto, and rates, RTTs and windows as flent's data for its plots.
//!
//! A traced run writes as it goes ([`Pcapng`], [`Perfetto`]); what the records of finished runs have is written
//! afterwards ([`write_records`], [`write_flent`]). Perfetto also has a format of its own, in protobuf. JSON says the
//! same here, is read by other viewers too, and can be read without any.

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
