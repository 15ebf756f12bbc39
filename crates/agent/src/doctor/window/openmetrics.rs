//! The report for Prometheus, as node_exporter's textfile collector reads it: all are gauges, because they are of one
//! window.

use std::fmt;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde::Serialize;

use super::Report;
use super::figures::{Drops, Figures, GroupFigures, PortFigures, VmFigures};
use crate::common::openmetrics::escaped;

/// Labels, and a value.
type Sample = (Vec<(&'static str, String)>, f64);

/// A gauge with a sample for each set of labels.
#[derive(Debug)]
struct Gauge(Vec<Sample>);

impl EncodeMetric for Gauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, value) in &self.0 {
            let value = ConstGauge::new(*value);
            if labels.is_empty() {
                return value.encode(encoder);
            }
            value.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

/// The whole text.
pub(super) fn text(report: &Report, now: f64) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("evenkeel_doctor");
    let mut add = |name: &str, help: &str, samples: Vec<Sample>| {
        if !samples.is_empty() {
            registry.register(name, help, Gauge(samples));
        }
    };
    let figures = &report.figures;
    let one = |value: f64| vec![(Vec::new(), value)];
    let optional = |value: Option<f64>| value.map(one).unwrap_or_default();
    add("window_seconds", "Length of the window", one(figures.window_s));
    add("window_end_timestamp_seconds", "When the window ended", one(now));
    ports(figures, &mut add);
    vms(figures, &mut add);
    let dropped = figures.softnet_dropped.map(|count| count as f64);
    add("softnet_dropped_packets", "Packets dropped between devices and this machine's stack", optional(dropped));
    add(
        "steal_percent",
        "Of the core time that this machine wanted, what it did not get",
        optional(figures.steal_percent),
    );
    add("late_wakeups", "Naps of a millisecond that ended 8 ms late or later", one(figures.sleeper.late as f64));
    add("latest_wakeup_seconds", "How late the latest of them ended", one(figures.sleeper.longest_ms / 1e3));
    tcp(figures, &mut add);
    let pvtcp = figures.pvtcp.iter().flatten();
    let samples = pvtcp.map(|(name, value)| (vec![("counter", escaped(name))], *value as f64)).collect();
    add("pvtcp_events", "What PVTCP's module counted", samples);
    let advice = report.advice.iter().map(|advice| {
        let (cure, cost) = (word(advice.cure), word(advice.cost));
        (vec![("subject", escaped(&advice.subject)), ("cure", cure), ("cost", cost)], 1.0)
    });
    add("advice", "What would help (1)", advice.collect());
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn ports(figures: &Figures, add: &mut impl FnMut(&str, &str, Vec<Sample>)) {
    let mut each = |name: &str, help: &str, value: fn(&PortFigures) -> f64| {
        let samples = figures.ports.iter().map(|port| (vec![("port", escaped(&port.name))], value(port)));
        add(name, help, samples.collect());
    };
    each("port_to_vm_packets", "Packets that a port took for its VM", |port| port.to_vm_packets as f64);
    each("port_from_vm_packets", "Packets that a port's VM sent", |port| port.from_vm_packets as f64);
    each("port_queue_length_packets", "txqueuelen", |port| port.queue_length as f64);
    each("port_backlog_max_bytes", "The most that waited in front of the port", |port| port.backlog_max.bytes as f64);
    each("port_backlog_max_packets", "The same in packets", |port| port.backlog_max.packets as f64);
    let samples = figures.ports.iter().flat_map(|port| {
        let labels = |cause| vec![("port", escaped(&port.name)), ("cause", word(cause))];
        Drops::ALL.map(|cause| (labels(cause), port.dropped(cause) as f64))
    });
    add("port_dropped_packets", "Packets that were dropped at a port, by cause", samples.collect());
}

/// The word for a value, as in JSON.
fn word(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).ok();
    value.as_ref().and_then(|value| value.as_str()).unwrap_or_default().to_owned()
}

fn vms(figures: &Figures, add: &mut impl FnMut(&str, &str, Vec<Sample>)) {
    let labels = |vm: &VmFigures| {
        let (process, ports) = (vm.process.to_string(), escaped(&vm.ports.join(",")));
        vec![("process", process), ("command", escaped(&vm.command)), ("ports", ports)]
    };
    let mut each = |name: &str, help: &str, value: fn(&VmFigures) -> f64| {
        add(name, help, figures.vms.iter().map(|vm| (labels(vm), value(vm))).collect());
    };
    each("vm_vcpus", "Virtual CPUs", |vm| vm.vcpus.len() as f64);
    each("vm_off_core_percent", "Time that virtual CPUs were ready and had no core", |vm| vm.off_core_percent);
    each("vm_ran_percent", "Time that virtual CPUs ran", |vm| vm.ran_percent);
    let help = "Time that the kernel's threads for a VM's packets were ready and had no core, in all";
    each("vm_vhost_waited_seconds", help, |vm| vm.vhost.iter().map(|thread| thread.waited_ms).sum::<f64>() / 1e3);
    let mut each = |name: &str, help: &str, value: fn(&GroupFigures) -> f64| {
        let groups = |vm: &'_ VmFigures| -> Vec<Sample> {
            let labels = |group: &GroupFigures| [labels(vm), vec![("group", escaped(&group.path))]].concat();
            vm.groups.iter().map(|group| (labels(group), value(group))).collect()
        };
        add(name, help, figures.vms.iter().flat_map(groups).collect());
    };
    each("group_quota_seconds", "Cores' time in a period", |group| group.quota_us as f64 / 1e6);
    each("group_period_seconds", "Length of a period", |group| group.period_us as f64 / 1e6);
    each("group_periods", "Periods with something to do", |group| group.nr_periods as f64);
    each("group_throttled_periods", "Periods that used the quota up", |group| group.nr_throttled as f64);
    let help = "Cores' time refused for that, all cores together";
    each("group_throttled_seconds", help, |group| group.throttled_usec as f64 / 1e6);
}

fn tcp(figures: &Figures, add: &mut impl FnMut(&str, &str, Vec<Sample>)) {
    let Some(tcp) = &figures.tcp else { return };
    for (name, help, value) in [
        ("tcp_sent_segments", "Segments sent", tcp.sent),
        ("tcp_retransmitted_segments", "Segments sent again", tcp.retransmitted),
        ("tcp_needless_segments", "Segments sent again that the receivers had already", tcp.needless),
        ("tcp_timeouts", "Retransmission timeouts, without those of SYNs", tcp.timeouts),
        ("tcp_syn_timeouts", "Retransmission timeouts of SYNs", tcp.syn_timeouts),
        ("tcp_probes", "Tail-loss probes", tcp.probes),
        ("tcp_undone", "Timeouts and cuts of the window that were undone as needless", tcp.undone),
        ("tcp_spurious_timeouts", "Timeouts that F-RTO found to be needless", tcp.spurious),
    ] {
        add(name, help, vec![(Vec::new(), value as f64)]);
    }
}
