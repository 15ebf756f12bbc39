//! A connection whose data is read and counted.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;

use anyhow::Context;

use super::recording::Connection;
use super::socket::is_hangup;

/// Size of the buffer that reads go to.
pub const READ_BYTES: usize = 256 * 1024;

/// Reads until the other end closes.
pub fn run(connection: &Connection) -> anyhow::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut stream = &connection.stream;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => connection.count(n),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_hangup(&error) => break,
            Err(error) => {
                return Err(error).with_context(|| format!("reading from {}", connection.peer));
            }
        }
    }
    // The descriptor stays with the recording: the other end must see the close all the same.
    let _ = stream.shutdown(Shutdown::Both);
    Ok(())
}
