//! Whether data may be acknowledged for a VM before the VM has it. The configuration and the VM's own agent decide
//! together.

use std::fmt;

use evenkeel_settings::vsnoop::Proof;
use serde::{Deserialize, Serialize};

use crate::channel::Reasons;
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
    /// What follows from the proof that is enough and from what the VM's agent says.
    pub(super) fn of(proof: Proof, said: Option<Reasons>) -> Self {
        match (said, proof) {
            (Some(reasons), _) if !reasons.is_empty() => Self::Unfit,
            (Some(_), _) => Self::Attested,
            (None, Proof::Attested) => Self::Unknown,
            (None, Proof::Observed) => Self::Observed,
        }
    }

    /// From the datapath.
    pub(super) fn from_intf(endpoint: u32) -> Self {
        match endpoint {
            intf::EK_VSNOOP_ENDPOINT_UNFIT => Self::Unfit,
            intf::EK_VSNOOP_ENDPOINT_OBSERVED => Self::Observed,
            intf::EK_VSNOOP_ENDPOINT_ATTESTED => Self::Attested,
            _ => Self::Unknown,
        }
    }

    /// As the datapath has it.
    pub(super) fn to_intf(self) -> u32 {
        match self {
            Self::Unknown => intf::EK_VSNOOP_ENDPOINT_UNKNOWN,
            Self::Unfit => intf::EK_VSNOOP_ENDPOINT_UNFIT,
            Self::Observed => intf::EK_VSNOOP_ENDPOINT_OBSERVED,
            Self::Attested => intf::EK_VSNOOP_ENDPOINT_ATTESTED,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Reason;

    #[test]
    fn a_guest_that_says_no_is_never_acknowledged_for() {
        let no = Some(Reasons::from_iter([Reason::Rps]));
        let yes = Some(Reasons::default());
        for (proof, said, expected) in [
            (Proof::Attested, None, Endpoint::Unknown),
            (Proof::Attested, yes, Endpoint::Attested),
            (Proof::Attested, no, Endpoint::Unfit),
            (Proof::Observed, None, Endpoint::Observed),
            (Proof::Observed, yes, Endpoint::Attested),
            (Proof::Observed, no, Endpoint::Unfit),
        ] {
            assert_eq!(Endpoint::of(proof, said), expected, "{proof:?}, {said:?}");
        }
    }
}
