//! How a sample is written: for the host, or one for each port.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::common::openmetrics::escaped;
use crate::host::control::proto::{Port, Status};

/// One metric, a sample per port.
pub(in crate::host) struct PerPort<'a, F> {
    pub status: &'a Status,
    pub kind: MetricType,
    pub value: F,
}

impl<F: Fn(&Port) -> Option<u64>> EncodeMetric for PerPort<'_, F> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), Error> {
        for port in &self.status.ports {
            let Some(value) = (self.value)(port) else { continue };
            let mut labels = vec![("port", escaped(&port.name))];
            labels.extend(port.domain().map(|domain| ("domain", escaped(domain))));
            let family = encoder.encode_family(&labels)?;
            match self.kind {
                MetricType::Counter => ConstCounter::new(value).encode(family)?,
                _ => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(family)?,
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }
}

/// A count of the host's.
pub(in crate::host) fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), Error> {
    let metric = ConstCounter::new(value);
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// A value for each port that has one.
pub(in crate::host) fn port_gauge(
    encoder: &mut DescriptorEncoder<'_>,
    status: &Status,
    name: &str,
    help: &str,
    value: impl Fn(&Port) -> Option<u64>,
) -> Result<(), Error> {
    let metric = PerPort { status, kind: MetricType::Gauge, value };
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// A value of the host's.
pub(in crate::host) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), Error> {
    let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}
