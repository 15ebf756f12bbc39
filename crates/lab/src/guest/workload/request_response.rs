//! Fetches files from web servers in a closed loop: one request after the other on each connection, which is kept.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::guest::http::{self, Http};
use crate::guest::recording::Recording;
use crate::guest::socket;
use crate::proto::{OBJECT_PATH, SocketSettings};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The web servers; connections take them in turn.
    pub servers: Vec<SocketAddr>,
    /// Connections, each with one request at a time.
    pub outstanding: u32,
    /// Size of a request.
    pub request_bytes: usize,
    /// Size of a file.
    pub response_bytes: u64,
    /// Time between a response and the next request.
    pub think_time: Duration,
}

/// Opens the connections, and asks on each in a thread until the workload ends.
pub fn start(recording: &Arc<Recording>, plan: &Plan, settings: SocketSettings) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let path = path(plan.request_bytes, plan.response_bytes)?;
    let ask = |server: &SocketAddr| {
        let stream = socket::connect(*server, settings)?;
        // Registered with the recording, so that the workload's end wakes a thread that waits for an answer.
        recording.add_connection(stream.try_clone().context("cannot duplicate the socket")?, *server, false)?;
        let mut http = Http::new(stream)?;
        let (plan, path, server) = (plan.clone(), path.clone(), *server);
        recording.spawn("request", move |recording| {
            while !recording.stopping() {
                let request = recording.request(server, plan.response_bytes, Instant::now());
                let answer = http.request("GET", &path, 0, true)?;
                recording.request_done(request, Instant::now());
                let came = answer.body_bytes;
                anyhow::ensure!(
                    came == plan.response_bytes,
                    "a file of {came} bytes, {} expected",
                    plan.response_bytes
                );
                anyhow::ensure!(!answer.closes, "{server} closes the connection");
                recording.sleep_until(Instant::now() + plan.think_time);
            }
            Ok(())
        })
    };
    plan.servers.iter().cycle().take(plan.outstanding as usize).map(ask).collect()
}

/// A path that makes a request `request_bytes` long, with padding at its end that the server ignores.
fn path(request_bytes: usize, response_bytes: u64) -> anyhow::Result<String> {
    let path = format!("{OBJECT_PATH}{response_bytes}?");
    let bare_bytes = http::request_head("GET", &path, true, 0).len();
    Ok(path + &http::filler(bare_bytes, request_bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_long_as_was_asked_for() {
        for bytes in [128, 200, 4096] {
            assert_eq!(http::request_head("GET", &path(bytes, 1 << 30).unwrap(), true, 0).len(), bytes);
        }
        assert!(path(20, 1000).is_err());
    }
}
