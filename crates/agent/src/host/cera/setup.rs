//! What CERA's controller is to do, and for whom.

use evenkeel_settings::Mode;
use evenkeel_settings::cera::Cera;

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
