//! What captures tell of a TCP flow.
//!
//! [`flow`] makes a flow out of packets. Inside the sending VM it gives RTT samples ([`rtt`]), runs of timeouts
//! ([`timeouts`]) and duplicate ACKs ([`acks`]). With a capture on the host, whose clock [`clock`] aligns with the
//! VM's, it gives needless retransmissions ([`needless`]) and the picture of a wake-up ([`wakeup`]). Beyond the
//! sender's host it shows how a flow fills the wire ([`bursts`]).
//!
//! All figures count bytes of the sequence space and not packets, because segmentation offload cuts packets differently
//! at different places.

pub mod acks;
pub mod bursts;
pub mod clock;
pub mod flow;
mod intervals;
pub mod needless;
pub mod rtt;
pub mod timeouts;
pub mod wakeup;

#[cfg(test)]
mod build;
#[cfg(test)]
mod fuzz;
