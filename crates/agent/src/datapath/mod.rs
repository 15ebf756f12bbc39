//! The packet path: loading, attaching and pinning the eBPF programs of `kernel/host`, and their maps.

pub mod intf;

/// Name and help text of each counter, in the order of `ek_counter`.
pub const COUNTERS: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/counters.rs"));

mod cera;
mod clsact;
mod error;
mod exchanges;
mod hook;
mod load;
mod map;
mod pins;
mod processes;
mod ring;
mod skb;
mod tcx;
mod trial;
mod vflood;
mod vsnoop;

pub use cera::{Limit, Share, Shares};
pub use error::DatapathError;
pub use exchanges::Exchanges;
pub use load::{Datapath, Removed};
pub use pins::are_there as pins_are_there;
pub use processes::{Holder, Processes, Seen, thread_name};
pub use ring::Events;
pub use tcx::{Beside, Others};
pub use trial::{Gso, Outcome};
pub use vflood::qdisc::is_own_device;
