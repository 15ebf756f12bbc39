//! vSnoop on the hosts of a group.

pub use evenkeel_settings::vsnoop::VsnoopOverride as Vsnoop;
