//! Serves blocks on a connection.

use std::io::{self, Read};
use std::net::Shutdown;

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};

use super::recording::Connection;
use super::socket::is_hangup;

/// Bytes of one write.
pub const PIECE_BYTES: usize = 64 * 1024;
/// More of the same block follows: wait for a full segment.
const MORE: MsgFlags = MsgFlags::from_bits_retain(libc::MSG_MORE);
/// What blocks and bulk data consist of.
pub static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// Answers requests until the other end closes.
pub fn run(connection: &Connection) -> anyhow::Result<()> {
    let result = match requests(connection) {
        Err(error) if is_hangup(&error) => Ok(()),
        result => result.with_context(|| format!("serving {}", connection.peer)),
    };
    // The descriptor stays with the recording: the other end must see the close all the same.
    let _ = connection.stream.shutdown(Shutdown::Both);
    result
}

fn requests(connection: &Connection) -> io::Result<()> {
    let mut stream = &connection.stream;
    // The last segment of a block must not wait for the ACK of an earlier short one.
    stream.set_nodelay(true)?;
    loop {
        let mut request = [0; 8];
        stream.read_exact(&mut request)?;
        write_block(connection, u64::from_be_bytes(request))?;
    }
}

/// Writes `left` bytes, in full segments but for the last, as one large write would.
fn write_block(connection: &Connection, mut left: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    while left > 0 {
        let piece = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        let more = if left > piece as u64 { MORE } else { MsgFlags::empty() };
        match send(connection.stream.as_raw_fd(), &ZEROS[..piece], more | MsgFlags::MSG_NOSIGNAL) {
            Ok(n) => left -= n as u64,
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
