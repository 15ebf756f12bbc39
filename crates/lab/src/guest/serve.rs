//! Accepting connections for a sink or a block server.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;

use super::recording::Recording;
use super::{block_server, sink, socket};
use crate::proto::{ServeRole, SocketSettings};

/// Listens at `at`; each connection gets a thread. Gives the address it listens on and the accepting thread.
pub fn start(
    recording: &Arc<Recording>,
    at: SocketAddr,
    role: ServeRole,
    settings: SocketSettings,
) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = socket::listen(at, settings)?;
    let address = listener.local_addr().context("no local address")?;
    recording.add_listener(listener.try_clone().context("cannot duplicate the listening socket")?);
    let thread = recording.spawn("serve", move |recording| {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        let result = loop {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(_) if recording.stopping() => break Ok(()),
                // The peer has given up before it was accepted, or a signal came.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {
                    continue;
                }
                Err(error) => break Err(error).context("cannot accept"),
            };
            threads.retain(|thread| !thread.is_finished());
            let receives = role == ServeRole::Sink;
            let served = recording.add_connection(stream, peer, receives).and_then(|connection| {
                recording.spawn("connection", move |_| match role {
                    ServeRole::Sink => sink::run(&connection),
                    ServeRole::BlockServer => block_server::run(&connection),
                    ServeRole::Transfers => anyhow::bail!("transfers have a thread of their own"),
                })
            });
            match served {
                Ok(thread) => threads.push(thread),
                Err(error) => break Err(error),
            }
        };
        for thread in threads {
            // Panics are caught inside.
            let _ = thread.join();
        }
        result
    })?;
    Ok((address, thread))
}
