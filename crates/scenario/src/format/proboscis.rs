//! ProBoSCIS on the hosts of a group.

pub use evenkeel_settings::proboscis::ProboscisOverride as Proboscis;
