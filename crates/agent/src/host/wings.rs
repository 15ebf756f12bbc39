//! All mechanisms, in the order in which they speak: the list that another one is added to.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::control::proto::Status;
use super::mechanism::Mechanism;
use super::{cera, proboscis, vflood};

/// Writes what a mechanism has to say in metrics, out of what `status` says.
pub(super) type Encode = fn(&mut DescriptorEncoder<'_>, &Status) -> Result<(), Error>;

/// Metrics of those that have any beside the datapath's counters.
pub(super) const METRICS: [Encode; 3] = [cera::metrics::encode, proboscis::metrics::encode, vflood::metrics::encode];

macro_rules! wings {
    ($($name:ident,)+) => {
        /// How many wings there are.
        const WINGS: usize = [$(stringify!($name)),+].len();

        /// The wings.
        #[derive(Debug, Default)]
        pub(super) struct Wings {
            $(pub $name: super::$name::Wing,)+
        }

        impl Wings {
            pub fn all(&self) -> [&dyn Mechanism; WINGS] {
                [$(&self.$name),+]
            }

            pub fn all_mut(&mut self) -> [&mut dyn Mechanism; WINGS] {
                [$(&mut self.$name),+]
            }
        }
    };
}

wings! {
    cera,
    proboscis,
    vsnoop,
    vflood,
}
