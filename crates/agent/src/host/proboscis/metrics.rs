//! ProBoSCIS's metrics.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use crate::host::control::proto::Status;
use crate::host::metrics::encode::gauge;

/// What waits for timers.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> Result<(), Error> {
    gauge(encoder, "syns_pending", "SYNs without an answer that are cared for", status.syns_pending)?;
    gauge(encoder, "synacks_held_now", "SYN-ACKs that wait for late probes", status.synacks_held)?;
    let help = "Keys that verify probes; 0 is none, and no probes";
    gauge(encoder, "probe_keys", help, u64::from(status.probe_keys))
}
