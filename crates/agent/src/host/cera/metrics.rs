//! CERA's metrics.

use std::fmt::Error;

use evenkeel_settings::Mode;
use prometheus_client::encoding::DescriptorEncoder;

use super::report::PortReport;
use crate::host::control::proto::{Port, Status};
use crate::host::metrics::encode::{counter, gauge, port_gauge};

/// What CERA's controller sees.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> Result<(), Error> {
    let Some(cera) = &status.cera else { return Ok(()) };
    type PortGauge = (&'static str, &'static str, fn(&PortReport) -> u64);
    const PORT_GAUGES: [PortGauge; 5] = [
        ("port_cera_window_segments", "The VM's window; 0 is no limit", |cera| u64::from(cera.window_segments)),
        ("port_cera_flows", "Connections of the VM that send", |cera| u64::from(cera.flows)),
        ("port_cera_rate", "What the VM sends, in bytes per second", |cera| cera.bytes_per_s),
        ("port_cera_pause_us", "By how much the VM's loop is longer than its RTT, in pauses", |cera| {
            u64::from(cera.pause_us)
        }),
        ("port_cera_client", "Whether an agent in the VM sets its windows (1)", |cera| u64::from(cera.has_client)),
    ];
    for (name, help, of) in PORT_GAUGES {
        let value = |port: &Port| (port.cera.mode != Mode::Off).then(|| of(&port.cera));
        port_gauge(encoder, status, name, help, value)?;
    }
    let failed = u64::from(cera.error.is_some());
    gauge(encoder, "cera_failed", "Whether CERA does nothing because something is wrong (1)", failed)?;
    gauge(encoder, "cera_queue_bytes", "What waits at the uplinks", cera.queue_bytes)?;
    let help = "Sum over all epochs of what waits: divided by the epochs it is the mean";
    counter(encoder, "cera_queue_bytes_epochs", help, cera.queue_bytes_sum)?;
    let window = u64::from(cera.window_segments);
    gauge(encoder, "cera_window_segments", "The host's window; 0 while nobody is limited", window)?;
    gauge(encoder, "cera_rtt_us", "Round-trip time without the time in the queue", u64::from(cera.rtt_us))?;
    counter(encoder, "cera_cuts", "Times that windows were cut", cera.cuts)?;
    counter(encoder, "cera_epochs", "Times that the queue was looked at", cera.epochs)?;
    counter(
        encoder,
        "cera_epochs_missed",
        "Epochs that ended unseen because the controller was late",
        cera.epochs_missed,
    )?;
    counter(encoder, "cera_cpu_us", "Microseconds of a CPU that the controller has used", cera.cpu_us)
}
