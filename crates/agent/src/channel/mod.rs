//! The channel between a guest's agent and its host's: a small message protocol over virtio-serial, vsock or TCP.
//!
//! [`wire`] is the bytes, [`HostEnd`] and [`GuestEnd`] are the two ends without any I/O, [`Channels`] are all channels
//! of a host.

mod budget;
mod endpoint;
mod guest;
mod host;
mod lines;
mod log;
mod peer;
mod pipe;
mod switchboard;
pub mod wire;

pub use endpoint::{Reason, Reasons};
pub use guest::{Effect, GuestEnd};
pub use host::{Change, Guest, HostEnd};
pub use lines::LineStatus;
pub use log::ChannelLog;
pub use peer::{Counts, MISSED_HEARTBEATS, REST, Why};
pub use pipe::{Listener, Pipe, Target, Who, open_device};
pub use switchboard::Channels;

/// A number for a session.
///
/// # Errors
/// The system's.
pub fn session() -> std::io::Result<u32> {
    let mut bytes = [0; 4];
    // SAFETY: the kernel writes at most as many bytes as the array has; a request this short is answered whole.
    let length = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if length == 4 { Ok(u32::from_ne_bytes(bytes)) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
