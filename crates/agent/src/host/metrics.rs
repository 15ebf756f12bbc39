//! What Prometheus reads.

pub(super) mod encode;

use std::collections::BTreeMap;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use self::encode::{PerPort, counter, gauge, port_gauge};
use super::control::proto::{Port, Status};
use super::wings::METRICS;
use crate::common::openmetrics::escaped;
use crate::datapath::COUNTERS;

/// The agent's own counters, with what they count.
pub const AGENT_COUNTERS: &[(&str, &str)] = &[
    ("probes_resent", "Times that the probes of an unanswered SYN were sent again"),
    ("syns_resent", "SYNs sent again on a VM's behalf"),
    ("syns_given_up", "SYNs that nobody had answered after max_time_us"),
    ("synacks_in_time", "Held SYN-ACKs let go because their probes were in"),
    ("synacks_late", "Held SYN-ACKs let go although probes were missing"),
    ("timers_refused", "SYNs that were not cared for because too many waited"),
    ("sends_failed", "Packets that the kernel did not take when they were sent again or let go"),
    ("events_unread", "Times that the datapath's events could not be read"),
    ("events_found_waiting", "Times that events of the datapath waited because nobody was woken up for them"),
    ("reloads", "Times that the configuration was read again"),
    ("reloads_refused", "Times that it was refused, and the settings before it stayed"),
    ("ports_seen", "Ports that appeared"),
    ("ports_gone", "Ports that went"),
    ("ports_failed", "Times that the datapath could not be put on a port, or taken off"),
    ("ports_bare", "Times that a port was found without its programs, and they were put on again"),
    ("lists_taken", "Times that devices were listed: at the start, where events were lost, and once a minute"),
    ("looks_failed", "Times that the kernel could not be asked for devices"),
    ("notes_failed", "Times that what was changed on this host could not be noted"),
];

/// All metrics of one moment, as Prometheus wants them.
///
/// # Errors
/// Only a formatter's, which a string does not have.
pub fn text(status: Status) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    let build = Info::new(vec![("version", escaped(&status.version))]);
    registry.register("evenkeel_build", "The agent's version", build);
    registry.sub_registry_with_prefix("evenkeel_host").register_collector(Box::new(Snapshot(status)));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Snapshot(Status);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let status = &self.0;
        for (name, help) in COUNTERS {
            let value = |port: &Port| port.counters.get(*name).copied();
            let metric = PerPort { status, kind: MetricType::Counter, value };
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        let queue = |port: &Port| Some(u64::from(port.queue_segments));
        port_gauge(&mut encoder, status, "port_queue_packets", "Length of a port's queue", queue)?;
        let help = "Whether the datapath is on the port (1) or could not be put there (0)";
        port_gauge(&mut encoder, status, "port_attached", help, |port| Some(u64::from(port.error.is_none())))?;
        for encode in METRICS {
            encode(&mut encoder, status)?;
        }
        for (name, help) in AGENT_COUNTERS {
            counter(&mut encoder, &format!("agent_{name}"), help, value(&status.agent, name))?;
        }
        gauge(&mut encoder, "connections", "Connections in the table", status.flows)?;
        gauge(&mut encoder, "connections_max", "Connections that fit into the table", status.flows_room)?;
        gauge(
            &mut encoder,
            "config_refused",
            "Whether the configuration was refused when it was last read again (1)",
            u64::from(status.config_refused.is_some()),
        )?;
        let uptime = ConstGauge::new(i64::try_from(status.uptime_s).unwrap_or(i64::MAX));
        uptime.encode(encoder.encode_descriptor(
            "agent_uptime",
            "Since the agent started; the datapath may be older",
            Some(&Unit::Seconds),
            uptime.metric_type(),
        )?)
    }
}

fn value(counters: &BTreeMap<String, u64>, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use super::super::cera::report as cera;
    use super::*;

    /// A sample: the metric, its labels, its value.
    type Sample = (String, BTreeMap<String, String>, String);

    /// Reads OpenMetrics 1.0 as far as it is written here, and refuses everything else.
    fn parse(text: &str) -> Result<Vec<Sample>, String> {
        let body = text.strip_suffix("# EOF\n").ok_or("no end")?;
        let lines = body.split_terminator('\n').filter(|line| !line.starts_with("# "));
        lines.map(|line| sample(line).ok_or_else(|| format!("no sample: {line:?}"))).collect()
    }

    fn sample(line: &str) -> Option<Sample> {
        let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
        let mut labels = BTreeMap::new();
        if let Some(inside) = rest.strip_prefix('{') {
            let (label, value) = inside.split_once("=\"")?;
            let mut value = value.chars();
            let mut text = String::new();
            loop {
                match value.next()? {
                    '"' => break,
                    '\\' => text.push(match value.next()? {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        _ => return None,
                    }),
                    c => text.push(c),
                }
            }
            labels.insert(label.to_owned(), text);
            rest = value.as_str().strip_prefix('}')?;
        }
        let value = rest.strip_prefix(' ')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        (name.chars().all(is_name) && value.parse::<f64>().is_ok()).then(|| (name.to_owned(), labels, value.to_owned()))
    }

    fn status(ports: &[String]) -> Status {
        let cera = cera::PortReport::default();
        let counters: BTreeMap<&str, u64> = COUNTERS.iter().map(|(name, _)| (*name, 1)).collect();
        let port = |name: &String| {
            json!({
                "name": name, "ifindex": 1, "mode": "observe", "cera": cera, "queue_segments": 4000,
                "counters": counters
            })
        };
        serde_json::from_value(json!({
            "version": "0", "pid": 1, "uptime_s": 1, "took_over": false, "config": "host.toml", "probe_keys": 0,
            "flows": 0, "flows_room": 1, "syns_pending": 0, "synacks_held": 0, "counters": {}, "agent": {},
            "ports": ports.iter().map(port).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    /// Names of metrics in a text that begin with `prefix`.
    fn names<'a>(text: &'a str, prefix: &'a str) -> BTreeSet<&'a str> {
        // Metrics that rules record have a colon in their names.
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c));
        words.filter(|word| word.starts_with(prefix)).collect()
    }

    #[test]
    fn rules_and_dashboard_ask_for_metrics_that_there_are() {
        let mut status = status(&["vp1".to_owned()]);
        status.cera = Some(cera::Report::default());
        let text = text(status).unwrap();
        let known = names(&text, "evenkeel_");
        for used in [
            include_str!("../../../../packaging/prometheus/evenkeel.rules.yml"),
            include_str!("../../../../packaging/grafana/evenkeel.json"),
        ] {
            let used: BTreeSet<&str> =
                names(used, "evenkeel_host_").union(&names(used, "evenkeel_build_")).copied().collect();
            assert!(used.len() > 10);
            assert_eq!(used.difference(&known).collect::<Vec<_>>(), Vec::<&&str>::new());
        }
    }

    #[test]
    fn the_version_is_a_metric() {
        let text = text(status(&[])).unwrap();
        assert!(text.contains("# TYPE evenkeel_build info\nevenkeel_build_info{version=\"0\"} 1\n"), "{text}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_name_of_a_port_is_read_back(names in prop::collection::vec("[a-z\"\\\\\n{},=# \u{e9}]{0,6}", 0..4)) {
            let samples = parse(&text(status(&names)).unwrap()).map_err(TestCaseError::fail)?;
            let attached: Vec<&String> = samples
                .iter()
                .filter(|(metric, ..)| metric == "evenkeel_host_port_attached")
                .map(|(_, labels, _)| &labels["port"])
                .collect();
            prop_assert_eq!(attached, names.iter().collect::<Vec<_>>());
        }
    }
}
