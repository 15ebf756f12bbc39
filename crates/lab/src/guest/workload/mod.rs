//! The guests' part of each workload, in files named like the host's parts in [`crate::workload`]. iperf3 has none: it
//! is a program.

pub mod bulk;
pub mod memcached;
pub mod ping;
pub mod poisson;
pub mod request_response;
pub mod strobe;
pub mod three_tier;
pub mod transfers;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::recording::Recording;
use super::sampler::Sampler;
use super::serve;
use crate::host::cores::monotonic_ns;
use crate::host::load::Load;
use crate::proto::{
    APPLICATION_PORT, Answer, HTTP_PORT, MEMCACHED_PORT, POSTGRES_PORT, Recorded, ServeRole, SocketSettings, Task,
    port_of,
};

/// All tasks of a workload between two [`crate::proto::Op::Stop`].
#[derive(Debug)]
pub struct Workload {
    /// Its place among those of the run.
    place: u8,
    /// Port of the runner's own servers.
    port: u16,
    recording: Arc<Recording>,
    threads: Vec<JoinHandle<()>>,
    strobes: Vec<Arc<strobe::Progress>>,
    sampler: Option<Sampler>,
    /// What was recorded, once the measured time has ended.
    recorded: Option<Recorded>,
}

impl Workload {
    /// Without tasks. `first_port` is that of the first workload's servers; 0 takes a free one at the first
    /// [`Task::Serve`].
    pub fn new(place: u8, first_port: u16) -> Self {
        let port = if first_port == 0 { 0 } else { port_of(first_port, place) };
        let recording = Arc::new(Recording::new());
        Self { place, port, recording, threads: Vec::new(), strobes: Vec::new(), sampler: None, recorded: None }
    }

    /// Starts a task.
    pub fn start(&mut self, task: Task) -> anyhow::Result<()> {
        let recording = &self.recording;
        match task {
            Task::Serve { role, sockets } => self.serve(role, sockets)?,
            Task::Bulk { to, flows, sockets } => {
                let to = SocketAddr::new(address(&to)?, self.port);
                self.threads.extend(bulk::start(recording, to, flows, sockets)?);
            }
            Task::Strobe { from, bytes_per_server, requests, sockets } => {
                let servers = addresses(&from, self.port)?;
                let request = strobe::Request { bytes_per_server, limit: requests };
                let (progress, thread) = strobe::start(recording, &servers, request, sockets)?;
                self.strobes.push(progress);
                self.threads.push(thread);
            }
            Task::Requests { start_ns, servers, plan, request_bytes, sockets } => {
                let asks = poisson::Asks { request_bytes: request_bytes as usize, settings: sockets };
                self.request_at_times(start_ns, &servers, &plan, asks)?;
            }
            Task::Transfers { to, bytes, concurrent, pause_ms, sockets } => {
                let pause = Duration::from_millis(pause_ms.into());
                let plan = transfers::Plan { servers: addresses(&to, self.port)?, bytes, concurrent, pause };
                self.threads.push(transfers::start(recording, plan, sockets)?);
            }
            Task::KeyValue { servers, outstanding, gets_permille, value_bytes, sockets } => {
                let servers = addresses(&servers, port_of(MEMCACHED_PORT, self.place))?;
                let plan = memcached::Plan { servers, outstanding, gets_permille, value_bytes: value_bytes as usize };
                self.threads.push(memcached::start(recording, plan, sockets)?);
            }
            Task::Fetch { servers, outstanding, request_bytes, response_bytes, think_time_us, sockets } => {
                let plan = request_response::Plan {
                    servers: addresses(&servers, port_of(HTTP_PORT, self.place))?,
                    outstanding,
                    request_bytes: request_bytes as usize,
                    response_bytes: response_bytes.into(),
                    think_time: Duration::from_micros(think_time_us.into()),
                };
                self.threads.extend(request_response::start(recording, &plan, sockets)?);
            }
            Task::Web { database, cache, files, keep_alive, operations } => {
                let at = |text: &str, first| {
                    Ok::<_, anyhow::Error>(SocketAddr::new(address(text)?, port_of(first, self.place)))
                };
                let stores = three_tier::Stores {
                    database: at(&database, POSTGRES_PORT)?,
                    cache: at(&cache, MEMCACHED_PORT)?,
                    files: at(&files, HTTP_PORT)?,
                };
                let own = SocketAddr::from((Ipv4Addr::LOCALHOST, port_of(APPLICATION_PORT, self.place)));
                let (_, thread) = three_tier::serve(recording, own, stores, keep_alive, operations)?;
                self.threads.push(thread);
            }
            Task::Users { to, users, think_time_ms, keep_alive, operations, seed } => {
                let server = SocketAddr::new(address(&to)?, port_of(HTTP_PORT, self.place));
                let think_time = Duration::from_millis(think_time_ms.into());
                let plan = three_tier::Plan { server, users, think_time, keep_alive, operations, seed };
                self.threads.extend(three_tier::start(recording, &plan)?);
            }
            Task::Ping { to, interval_ms } => {
                let interval = Duration::from_millis(interval_ms.into());
                self.threads.push(ping::start(recording, address(&to)?, interval)?);
            }
        }
        Ok(())
    }

    fn serve(&mut self, role: ServeRole, sockets: SocketSettings) -> anyhow::Result<()> {
        let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.port));
        let (at, thread) = match role {
            ServeRole::Transfers => transfers::serve(&self.recording, at, sockets)?,
            _ => serve::start(&self.recording, at, role, sockets)?,
        };
        self.port = at.port();
        self.threads.push(thread);
        Ok(())
    }

    fn request_at_times(
        &mut self,
        start_ns: u64,
        servers: &[String],
        plan: &[(u64, u16, u64)],
        asks: poisson::Asks,
    ) -> anyhow::Result<()> {
        let servers = addresses(servers, port_of(HTTP_PORT, self.place))?;
        let planned = |&(at_us, server, bytes): &(u64, u16, u64)| {
            let to = *servers.get(usize::from(server)).with_context(|| format!("no server {server}"))?;
            Ok(poisson::Planned { at: Duration::from_micros(at_us), to, bytes })
        };
        let plan = plan.iter().map(planned).collect::<anyhow::Result<Vec<_>>>()?;
        let lead = start_ns.checked_sub(monotonic_ns()).context("the start has passed already")?;
        let start = Instant::now() + Duration::from_nanos(lead);
        self.threads.push(poisson::start(&self.recording, start, plan, asks)?);
        Ok(())
    }

    /// Computes beside the traffic.
    pub fn compute(&mut self, load: Load) -> anyhow::Result<()> {
        let compute = move |recording: &Arc<Recording>| {
            load.compute(|| recording.stopping());
            Ok(())
        };
        self.threads.push(self.recording.spawn("load", compute)?);
        Ok(())
    }

    /// Begins the measured time, and samples all sockets unless `period` is zero.
    pub fn mark(&mut self, period: Duration) -> anyhow::Result<()> {
        if let Some(sampler) = self.sampler.take() {
            sampler.stop();
        }
        self.recorded = None;
        let mark = self.recording.mark();
        if !period.is_zero() {
            self.sampler = Some(Sampler::start(&self.recording, mark, period)?);
        }
        Ok(())
    }

    /// Ends the measured time.
    pub fn end(&mut self) -> anyhow::Result<()> {
        let recorded = self.recording.end();
        let sockets = self.sampler.take().map(Sampler::stop).unwrap_or_default();
        let recorded = recorded.context("the measured time has not begun")?;
        self.recorded = Some(Recorded { sockets, ..recorded });
        Ok(())
    }

    /// What was recorded in the measured time, once.
    pub fn collect(&mut self) -> anyhow::Result<Recorded> {
        self.recorded.take().context("the measured time has not ended")
    }

    /// The slowest of several strobes counts. A VM has either strobes or transfers.
    pub fn progress(&self) -> Answer {
        let strobes = &self.strobes;
        let transfers = self.recording.transfers_done();
        Answer::Progress {
            requests: strobes.iter().map(|strobe| strobe.requests()).min().unwrap_or(transfers),
            ended: !strobes.is_empty() && strobes.iter().all(|strobe| strobe.ended()),
            error: self.recording.first_error(),
        }
    }

    /// Tells all threads to end, and shuts all sockets.
    pub fn stop(&self) {
        self.recording.stop();
    }

    /// Waits until all threads have ended.
    pub fn join(self) {
        if let Some(sampler) = self.sampler {
            sampler.stop();
        }
        for thread in self.threads {
            // Panics are caught inside.
            let _ = thread.join();
        }
    }
}

fn addresses(texts: &[String], port: u16) -> anyhow::Result<Vec<SocketAddr>> {
    texts.iter().map(|text| Ok(SocketAddr::new(address(text)?, port))).collect()
}

/// Parses an IP address.
pub fn address(text: &str) -> anyhow::Result<IpAddr> {
    text.parse().with_context(|| format!("{text:?} is no IP address"))
}
