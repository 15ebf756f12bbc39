//! Bulk data to a sink.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;

use crate::guest::block_server::ZEROS;
use crate::guest::recording::Recording;
use crate::guest::socket;
use crate::proto::SocketSettings;

/// Opens all connections, then sends on each in a thread of its own.
pub fn start(
    recording: &Arc<Recording>,
    to: SocketAddr,
    flows: u32,
    settings: SocketSettings,
) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let connections = (0..flows)
        .map(|_| recording.add_connection(socket::connect(to, settings)?, to, false))
        .collect::<anyhow::Result<Vec<_>>>()?;
    connections
        .into_iter()
        .map(|connection| {
            recording.spawn("bulk", move |_| {
                let mut stream = &connection.stream;
                loop {
                    stream.write_all(&ZEROS).with_context(|| format!("sending to {}", connection.peer))?;
                }
            })
        })
        .collect()
}
