//! All mechanisms, in the order in which they speak: the list that another one is added to.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::control::proto::Status;
use super::mechanism::Mechanism;
use super::{cera, proboscis, vflood, vsnoop};

/// Writes what a mechanism has to say in metrics, out of what `status` says.
pub(super) type Encode = fn(&mut DescriptorEncoder<'_>, &Status) -> Result<(), Error>;

/// Metrics of those that have any beside the datapath's counters.
pub(super) const METRICS: [Encode; 3] = [cera::metrics::encode, proboscis::metrics::encode, vflood::metrics::encode];

/// The wings.
#[derive(Debug, Default)]
pub(super) struct Wings {
    pub cera: cera::Wing,
    pub proboscis: proboscis::Wing,
    pub vsnoop: vsnoop::Wing,
    pub vflood: vflood::Wing,
}

impl Wings {
    pub fn all(&self) -> [&dyn Mechanism; 4] {
        [&self.cera, &self.proboscis, &self.vsnoop, &self.vflood]
    }

    pub fn all_mut(&mut self) -> [&mut dyn Mechanism; 4] {
        [&mut self.cera, &mut self.proboscis, &mut self.vsnoop, &mut self.vflood]
    }
}
