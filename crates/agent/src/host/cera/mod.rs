//! CERA's controller: a thread that looks at the uplink's queue every epoch and divides one window among the host's VMs (`algo/cera/cera.h`).
//!
//! A VM with a client is told its window over its channel; that of another is a limit in memory that the datapath reads, and that means nothing any
//! more soon after the controller has died.

mod epoch;
mod rate;
mod report;
mod thread;
mod uplink;

pub use report::{PortReport, Report, UplinkReport, report, report_port};
pub use thread::{Controller, View};

use super::config::{Cera, Mode};
use crate::channel::Channels;

/// A VM's port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Index of the device.
    pub ifindex: u32,
    /// Where its share is.
    pub slot: u32,
    /// Whether CERA acts there, or only observes.
    pub mode: Mode,
    /// mu.
    pub weight: u32,
}

/// What the controller is to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// The settings.
    pub config: Cera,
    /// The ports where CERA is not off.
    pub members: Vec<Member>,
}

impl epoch::Clients for Channels {
    fn tell(&self, ifindex: u32, epoch: u64, window_segments: u32) -> bool {
        self.window(ifindex, epoch, window_segments)
    }

    fn is_there(&self, ifindex: u32) -> bool {
        self.has_client(ifindex)
    }
}
