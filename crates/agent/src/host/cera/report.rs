//! What `evenkeel status` and metrics say of the controller.

use evenkeel_settings::Mode;
use evenkeel_settings::cera::CeraPort;
use serde::{Deserialize, Serialize};

use super::thread::View;

/// The controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Why it does nothing.
    pub error: Option<String>,
    /// The uplinks.
    pub uplinks: Vec<UplinkReport>,
    /// What waits at them.
    pub queue_bytes: u64,
    /// Sum of that over all epochs: divided by them it is the mean.
    pub queue_bytes_sum: u64,
    /// What waits, in full segments.
    pub queue_segments: u64,
    /// W: CERA eq. 1, and what was added to it since the last cut; 0: nobody is limited.
    pub window_segments: u32,
    /// d.
    pub rtt_us: u32,
    /// Delta.
    pub epoch_us: u32,
    /// Epochs at whose end the queue was looked at.
    pub epochs: u64,
    /// Epochs that ended without a look, because the controller was late.
    pub epochs_missed: u64,
    /// Epochs at whose end windows were cut.
    pub cuts: u64,
    /// Time of a CPU that the controller has used.
    pub cpu_us: u64,
}

/// An uplink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UplinkReport {
    /// Its name.
    pub name: String,
    /// Kind of its root qdisc.
    pub qdisc: String,
    /// C.
    pub bytes_per_s: u64,
    /// Where that is known from: `shaper`, `link` or `configured`.
    pub rate_from: String,
}

/// A VM's port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// What CERA may do there.
    pub mode: Mode,
    /// mu.
    pub weight: u32,
    /// w_k; 0: no limit.
    pub window_segments: u32,
    /// Flows with data in the last two RTTs.
    pub flows: u32,
    /// What the VM sends to the uplink, and what stays on the host without being TCP, smoothed over some hundred
    /// epochs.
    pub bytes_per_s: u64,
    /// d_k.
    pub rtt_us: u32,
    /// How much longer than its RTT the VM's loop is, because the VM or its peer waits for a core.
    #[serde(default)]
    pub pause_us: u32,
    /// Whether an agent in the VM sets its windows; the datapath limits them in any case.
    pub has_client: bool,
}

/// The controller's report; `None` if none runs and none failed to start.
pub fn report(view: Option<&View>, error: Option<&str>) -> Option<Report> {
    let Some(view) = view else {
        return error.map(|error| Report { error: Some(error.to_owned()), ..Report::default() });
    };
    let uplink = |uplink: &super::uplink::Uplink| UplinkReport {
        name: uplink.name.clone(),
        qdisc: uplink.qdisc.clone(),
        bytes_per_s: uplink.bytes_per_s,
        rate_from: uplink.rate_from.name().to_owned(),
    };
    Some(Report {
        error: view.error.clone(),
        uplinks: view.uplinks.iter().map(uplink).collect(),
        queue_bytes: view.look.queue_bytes,
        queue_bytes_sum: view.look.queue_bytes_sum,
        queue_segments: view.look.queue_bytes / u64::from(view.segment_bytes.max(1)),
        window_segments: view.look.window_segments,
        rtt_us: view.look.rtt_us,
        epoch_us: view.epoch_us,
        epochs: view.look.epochs,
        epochs_missed: view.look.missed,
        cuts: view.look.cuts,
        cpu_us: view.cpu.as_micros().try_into().unwrap_or(u64::MAX),
    })
}

/// The report of a port with these settings.
pub fn report_port(settings: &CeraPort, view: Option<&View>, ifindex: u32) -> PortReport {
    // A controller that does nothing has lifted all limits, and looks at no VM.
    let working = view.filter(|view| view.error.is_none());
    let found = working.and_then(|view| view.vms.iter().find(|(of, _)| *of == ifindex));
    let share = found.map(|(_, share)| *share).unwrap_or_default();
    PortReport {
        mode: settings.mode,
        weight: settings.weight.get(),
        window_segments: share.window_segments,
        flows: share.flows,
        bytes_per_s: share.bytes_per_s,
        rtt_us: share.rtt_us,
        pause_us: share.pause_us,
        has_client: share.has_client,
    }
}

impl PortReport {
    /// What holds for a connection of the port, in a sentence or two; `failure` is why the controller does nothing.
    pub(super) fn explain(&self, is_local: bool, failure: Option<&str>) -> String {
        let PortReport { weight, window_segments, flows, rtt_us, pause_us, .. } = self;
        let does = if self.mode == Mode::Observe { "would have" } else { "has" };
        if is_local {
            return "CERA: the other end is on this host, so this connection does not pass the uplink and has no part \
                in its window."
                .to_owned();
        }
        if let Some(why) = failure {
            return format!("CERA: the VM has no limit, because the controller does nothing: {why}.");
        }
        if *window_segments == 0 {
            return "CERA: the VM has no limit, because less than T_u (high_segments) waits at the uplink.".to_owned();
        }
        let how = if self.has_client {
            "its agent divides it among them, and the host limits each in the ACKs that pass"
        } else {
            "the host limits each in the ACKs that pass"
        };
        let pauses = if *pause_us > 0 { format!(", pauses of {pause_us} us") } else { String::new() };
        format!(
            "CERA: the VM {does} a window of {window_segments} segments (weight {weight}, RTT {rtt_us} us{pauses}) for \
             {flows} active connections; {how}."
        )
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_settings::host::Config;

    use super::super::epoch::Share;
    use super::*;

    #[test]
    fn a_controller_that_does_nothing_limits_nobody() {
        let limited = Share { window_segments: 12, flows: 3, ..Share::default() };
        let settings = CeraPort { mode: Mode::Enforce, ..Config::default().settings("vp1").cera };
        let mut view = View { vms: vec![(7, limited)], ..View::default() };
        let said = |view: &View| {
            let report = report_port(&settings, Some(view), 7);
            (report.window_segments, report.explain(false, view.error.as_deref()))
        };
        let (window_segments, words) = said(&view);
        assert!(window_segments == 12 && words.contains("a window of 12 segments"), "{words}");
        view.error = Some("up1 is down".to_owned());
        let (window_segments, words) = said(&view);
        assert!(window_segments == 0 && words.ends_with("does nothing: up1 is down."), "{words}");
    }
}
