//! Whether data may be acknowledged for a VM before it has it: the configuration and the word of the VM's own agent together.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::config::Proof;
use crate::datapath::intf;

/// What is known of a VM as the end of its connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// Nobody has vouched for it.
    #[default]
    Unknown,
    /// Its own agent says that it may drop what it has offered room for.
    Unfit,
    /// What its port sees of it is enough.
    Observed,
    /// Its agent vouches for it.
    Attested,
}

impl Endpoint {
    /// Of a VM whose agent says nothing.
    pub(super) fn unheard(proof: Proof) -> Self {
        match proof {
            Proof::Attested => Self::Unknown,
            Proof::Observed => Self::Observed,
        }
    }

    /// As the datapath has it.
    pub(super) fn to_intf(self) -> u32 {
        match self {
            Self::Unknown => intf::EK_ENDPOINT_UNKNOWN,
            Self::Unfit => intf::EK_ENDPOINT_UNFIT,
            Self::Observed => intf::EK_ENDPOINT_OBSERVED,
            Self::Attested => intf::EK_ENDPOINT_ATTESTED,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unknown => "unknown",
            Self::Unfit => "unfit",
            Self::Observed => "observed",
            Self::Attested => "attested",
        })
    }
}
