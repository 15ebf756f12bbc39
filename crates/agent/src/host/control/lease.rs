//! What is said of leases: a mechanism has another mode than is configured, for as long as somebody asks for that.

use evenkeel_settings::Mode;
use evenkeel_settings::host::Mechanism;
use serde::{Deserialize, Serialize};

use crate::datapath::intf;

/// Completions in one line of an answer.
pub(in crate::host) const AT_ONCE: usize = 1000;

/// A lease that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Ports by name, each once.
    pub ports: Vec<String>,
    /// The mechanism whose mode is another.
    pub mechanism: Mechanism,
    /// The first mode.
    pub mode: Mode,
    /// Who asks, as others are told.
    pub who: String,
    /// How long it holds unless it is renewed, in milliseconds from now.
    pub for_ms: u32,
}

/// A lease that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// Its number.
    pub id: u64,
    /// When its ports began and finished taking this mode, in ns of CLOCK_MONOTONIC; the present if they had it
    /// already.
    pub changed_ns: (u64, u64),
    /// Exchanges that ended since it began, but were lost.
    pub lost: u64,
}

/// An exchange of a connection that is over: ten numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 10]", into = "[u64; 10]")]
pub struct Completion {
    /// When it began, in ns of CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// When the last of it was acknowledged; 0: the connection ended before that.
    pub end_ns: u64,
    /// Bytes that the VM sent in it.
    pub bytes_from_vm: u64,
    /// Bytes that the VM was sent.
    pub bytes_to_vm: u64,
    /// Index of the port.
    pub ifindex: u32,
    /// How long the handshake took, in microseconds, if it began with one; 0 otherwise.
    pub handshake_us: u32,
    /// Segments that the VM sent again.
    pub again_from_vm: u32,
    /// Segments that came again for the VM.
    pub again_to_vm: u32,
    /// Those of `again_from_vm` that the VM's timer sent.
    pub timeouts_from_vm: u32,
    /// Those of `again_to_vm` that the other end's timer sent.
    pub timeouts_to_vm: u32,
}

impl From<&intf::ek_completion> for Completion {
    fn from(c: &intf::ek_completion) -> Self {
        Self {
            begin_ns: c.begin_ns,
            end_ns: c.end_ns,
            bytes_from_vm: c.bytes_from_vm,
            bytes_to_vm: c.bytes_to_vm,
            ifindex: c.ifindex,
            handshake_us: c.handshake_us,
            again_from_vm: c.again_from_vm,
            again_to_vm: c.again_to_vm,
            timeouts_from_vm: c.timeouts_from_vm,
            timeouts_to_vm: c.timeouts_to_vm,
        }
    }
}

impl From<[u64; 10]> for Completion {
    fn from(numbers: [u64; 10]) -> Self {
        let [begin_ns, end_ns, bytes_from_vm, bytes_to_vm, small @ ..] = numbers;
        let [ifindex, handshake_us, again_from_vm, again_to_vm, timeouts_from_vm, timeouts_to_vm] =
            small.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        Self {
            begin_ns,
            end_ns,
            bytes_from_vm,
            bytes_to_vm,
            ifindex,
            handshake_us,
            again_from_vm,
            again_to_vm,
            timeouts_from_vm,
            timeouts_to_vm,
        }
    }
}

impl From<Completion> for [u64; 10] {
    fn from(c: Completion) -> Self {
        [
            c.begin_ns,
            c.end_ns,
            c.bytes_from_vm,
            c.bytes_to_vm,
            c.ifindex.into(),
            c.handshake_us.into(),
            c.again_from_vm.into(),
            c.again_to_vm.into(),
            c.timeouts_from_vm.into(),
            c.timeouts_to_vm.into(),
        ]
    }
}

/// A trial on a port, as `status` says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Which mechanism is tried.
    pub mechanism: Mechanism,
    /// Its mode now.
    pub mode: Mode,
    /// The mode that it goes back to.
    pub configured: Mode,
    /// Who tries it.
    pub who: String,
    /// When it ends unless it is renewed, in milliseconds from now.
    pub ends_in_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_is_ten_numbers() {
        let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!(<[u64; 10]>::from(Completion::from(numbers)), numbers);
        assert_eq!(serde_json::to_string(&Completion::from(numbers)).unwrap(), "[1,2,3,4,5,6,7,8,9,10]");
    }
}
