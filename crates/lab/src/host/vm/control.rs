//! The connection to a machine's runner.

use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::error::LabError;

/// The control port.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) reader: BufReader<UnixStream>,
    pub(super) writer: UnixStream,
    pub(super) next_id: u64,
}

impl Control {
    /// Over a connection; the first call has the number after `next_id`.
    pub(super) fn new(stream: UnixStream, next_id: u64) -> Result<Self, LabError> {
        let writer = stream.try_clone().map_err(|e| LabError::io("sharing a control socket", e))?;
        let limit = Some(Duration::from_millis(500));
        stream.set_read_timeout(limit).map_err(|e| LabError::io("setting a time limit", e))?;
        Ok(Self { reader: BufReader::new(stream), writer, next_id })
    }
}
