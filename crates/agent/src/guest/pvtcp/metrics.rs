//! The module's counters for Prometheus, as node_exporter's textfile collector reads them.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::status::{COUNTERS, Status};

/// A maximum, not a count.
const MAXIMUM: &str = "wakeup_max_us";

impl Status {
    /// The status in OpenMetrics form; without counters if the module is not loaded.
    ///
    /// # Errors
    /// Only a formatter's, which a string does not have.
    pub fn openmetrics(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Build));
        registry.sub_registry_with_prefix("evenkeel_pvtcp").register_collector(Box::new(Collector(self.clone())));
        let mut out = String::new();
        text::encode(&mut out, &registry)?;
        Ok(out)
    }
}

/// A gauge: the textfile collector knows no type `info`.
#[derive(Debug)]
struct Build;

impl prometheus_client::collector::Collector for Build {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauge = ConstGauge::new(1i64);
        let help = "The version of evenkeel";
        let mut encoder = encoder.encode_descriptor("evenkeel_build_info", help, None, gauge.metric_type())?;
        gauge.encode(encoder.encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?)
    }
}

#[derive(Debug)]
struct Collector(Status);

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(status) = self;
        gauge(&mut encoder, "loaded", "Whether the module is loaded (1)", status.loaded.into())?;
        let is_enforcing = status.parameters.get("mode").is_some_and(|mode| mode == "enforce");
        gauge(&mut encoder, "enforcing", "Whether its mode is enforce (1)", is_enforcing.into())?;
        for (name, help) in COUNTERS {
            let Some(value) = status.counters.get(*name).copied() else { continue };
            if *name == MAXIMUM {
                gauge(&mut encoder, name, help, i64::try_from(value).unwrap_or(i64::MAX))?;
            } else {
                let counter = ConstCounter::new(value);
                counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
            }
        }
        Ok(())
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn counters_are_counters_and_the_longest_is_none() {
        let status = Status {
            loaded: true,
            version: None,
            parameters: BTreeMap::from([("mode".to_owned(), "enforce".to_owned())]),
            counters: BTreeMap::from([("wakeups".to_owned(), 7), (MAXIMUM.to_owned(), 71_000)]),
            doubts: Vec::new(),
        };
        let text = status.openmetrics().unwrap();
        for line in [
            "evenkeel_pvtcp_loaded 1",
            "evenkeel_pvtcp_enforcing 1",
            "# TYPE evenkeel_pvtcp_wakeups counter",
            "evenkeel_pvtcp_wakeups_total 7",
            "# TYPE evenkeel_pvtcp_wakeup_max_us gauge",
            "evenkeel_pvtcp_wakeup_max_us 71000",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line}: {text}");
        }
        assert!(!text.contains("held_rto") && text.contains("\nevenkeel_build_info{version="), "{text}");
        let is_known = |line: &str| line.ends_with(" gauge") || line.ends_with(" counter");
        assert!(text.lines().filter(|line| line.starts_with("# TYPE ")).all(is_known), "{text}");
    }
}
