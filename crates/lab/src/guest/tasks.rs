//! What runs in this VM at the host's behest: programs by number, and the workload.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::program::Program;
use super::recording::Recording;
use super::sampler::Sampler;
use super::workload::{bulk, memcached, ping, poisson, request_response, strobe, three_tier, transfers};
use super::{counters, serve, system};
use crate::ask::ask;
use crate::host::cores::monotonic_ns;
use crate::host::load::Load;
use crate::host::qdisc::BacklogSampler;
use crate::proto::{APPLICATION_PORT, Answer, HTTP_PORT, MEMCACHED_PORT, Op, POSTGRES_PORT, ServeRole, SocketSettings};

/// All tasks between two [`Op::Stop`].
#[derive(Debug)]
struct Workload {
    recording: Arc<Recording>,
    threads: Vec<JoinHandle<()>>,
    strobes: Vec<Arc<strobe::Progress>>,
    sampler: Option<Sampler>,
}

impl Workload {
    fn new() -> Self {
        Self { recording: Arc::new(Recording::new()), threads: Vec::new(), strobes: Vec::new(), sampler: None }
    }

    /// Ends all threads and closes all sockets.
    fn stop(self) {
        self.recording.stop();
        if let Some(sampler) = self.sampler {
            sampler.stop();
        }
        for thread in self.threads {
            // Panics are caught inside.
            let _ = thread.join();
        }
    }
}

/// Programs and workload.
#[derive(Debug)]
pub struct Tasks {
    port: u16,
    numbered: u64,
    programs: BTreeMap<u64, Arc<Program>>,
    queue: Option<BacklogSampler>,
    workload: Workload,
}

impl Tasks {
    /// None running. `port` is the workload's; 0 takes a free one at the first [`Op::Serve`].
    pub fn new(port: u16) -> Self {
        Self { port, numbered: 0, programs: BTreeMap::new(), queue: None, workload: Workload::new() }
    }

    /// Does what is asked. [`Op::Wait`] and [`Op::PowerOff`] are the loop's.
    pub fn perform(&mut self, op: Op) -> anyhow::Result<Answer> {
        match op {
            Op::Hello => system::hello(),
            Op::Exec { argv } => Ok(Program::start(&argv)?.wait()),
            Op::Spawn { argv } => {
                let program = Program::start(&argv)?;
                self.programs.retain(|_, program| !program.answered());
                let task = self.number();
                self.programs.insert(task, program);
                Ok(Answer::Started { task })
            }
            Op::Kill { task } => Ok(self.program(task)?.kill()),
            Op::WriteFile { path, text } => system::write_file(Path::new(&path), &text),
            Op::ReadFile { path, offset } => system::read_file(Path::new(&path), offset),
            Op::Counters => Ok(Answer::Counters { values: counters::read()? }),
            Op::Serve { role, sockets } => {
                let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.port));
                let (at, thread) = match role {
                    ServeRole::Transfers => transfers::serve(&self.workload.recording, at, sockets)?,
                    _ => serve::start(&self.workload.recording, at, role, sockets)?,
                };
                self.port = at.port();
                self.workload.threads.push(thread);
                Ok(Answer::Started { task: self.number() })
            }
            Op::Bulk { to, flows, sockets } => {
                let to = SocketAddr::new(address(&to)?, self.port);
                self.workload.threads.extend(bulk::start(&self.workload.recording, to, flows, sockets)?);
                Ok(Answer::Started { task: self.number() })
            }
            Op::Strobe { from, bytes_per_server, requests, sockets } => {
                let servers = addresses(&from, self.port)?;
                let request = strobe::Request { bytes_per_server, limit: requests };
                let (progress, thread) = strobe::start(&self.workload.recording, &servers, request, sockets)?;
                self.workload.strobes.push(progress);
                self.workload.threads.push(thread);
                Ok(Answer::Started { task: self.number() })
            }
            Op::Now => Ok(Answer::Now { monotonic_ns: monotonic_ns() }),
            Op::Requests { start_ns, servers, plan, sockets } => self.requests(start_ns, &servers, &plan, sockets),
            Op::Transfers { to, bytes, concurrent, pause_ms, sockets } => {
                let pause = Duration::from_millis(pause_ms.into());
                let plan = transfers::Plan { servers: addresses(&to, self.port)?, bytes, concurrent, pause };
                self.workload.threads.push(transfers::start(&self.workload.recording, plan, sockets)?);
                Ok(Answer::Started { task: self.number() })
            }
            Op::KeyValue { servers, outstanding, gets_permille, value_bytes, sockets } => {
                let (servers, value_bytes) = (addresses(&servers, MEMCACHED_PORT)?, value_bytes as usize);
                let plan = memcached::Plan { servers, outstanding, gets_permille, value_bytes };
                self.workload.threads.push(memcached::start(&self.workload.recording, plan, sockets)?);
                Ok(Answer::Started { task: self.number() })
            }
            Op::Fetch { servers, outstanding, request_bytes, response_bytes, think_time_us, sockets } => {
                let plan = request_response::Plan {
                    servers: addresses(&servers, HTTP_PORT)?,
                    outstanding,
                    request_bytes: request_bytes as usize,
                    response_bytes: response_bytes.into(),
                    think_time: Duration::from_micros(think_time_us.into()),
                };
                self.workload.threads.extend(request_response::start(&self.workload.recording, &plan, sockets)?);
                Ok(Answer::Started { task: self.number() })
            }
            Op::Web { database, cache, files, keep_alive, operations } => {
                let at = |text: &str, port| Ok::<_, anyhow::Error>(SocketAddr::new(address(text)?, port));
                let stores = three_tier::Stores {
                    database: at(&database, POSTGRES_PORT)?,
                    cache: at(&cache, MEMCACHED_PORT)?,
                    files: at(&files, HTTP_PORT)?,
                };
                let own = SocketAddr::from((Ipv4Addr::LOCALHOST, APPLICATION_PORT));
                let (_, thread) = three_tier::serve(&self.workload.recording, own, stores, keep_alive, operations)?;
                self.workload.threads.push(thread);
                Ok(Answer::Started { task: self.number() })
            }
            Op::Users { to, users, think_time_ms, keep_alive, operations, seed } => {
                let server = SocketAddr::new(address(&to)?, HTTP_PORT);
                let think_time = Duration::from_millis(think_time_ms.into());
                let plan = three_tier::Plan { server, users, think_time, keep_alive, operations, seed };
                self.workload.threads.extend(three_tier::start(&self.workload.recording, &plan)?);
                Ok(Answer::Started { task: self.number() })
            }
            Op::Echo { to, patience_ms } => {
                let patience = Duration::from_millis(patience_ms.into());
                Ok(Answer::Echo { answered: ping::is_answered(address(&to)?, patience)? })
            }
            Op::Ask { socket, line } => Ok(Answer::Line { text: ask(Path::new(&socket), &line)? }),
            Op::Ping { to, interval_ms } => {
                let interval = Duration::from_millis(interval_ms.into());
                self.workload.threads.push(ping::start(&self.workload.recording, address(&to)?, interval)?);
                Ok(Answer::Started { task: self.number() })
            }
            Op::Load { share, duty_us, phase_us } => {
                let (duty, phase) = (Duration::from_micros(duty_us), Duration::from_micros(phase_us));
                let compute = move |recording: &Arc<Recording>| {
                    Load { share, duty, phase }.compute(|| recording.stopping());
                    Ok(())
                };
                self.workload.threads.push(self.workload.recording.spawn("load", compute)?);
                Ok(Answer::Started { task: self.number() })
            }
            Op::Mark { tcp_info_period_ms } => self.mark(Duration::from_millis(tcp_info_period_ms.into())),
            Op::Collect => self.collect(),
            Op::WatchQueue { device, kind, period_ms } => {
                self.queue = Some(BacklogSampler::start(&device, &kind, period_ms)?);
                Ok(Answer::Done)
            }
            Op::Queue => Ok(Answer::Queue(self.queue.take().context("no queue is watched")?.stop())),
            Op::Progress => Ok(self.progress()),
            Op::Stop => {
                std::mem::replace(&mut self.workload, Workload::new()).stop();
                Ok(Answer::Done)
            }
            Op::Wait { .. } | Op::PowerOff => anyhow::bail!("not a task's matter"),
        }
    }

    fn requests(
        &mut self,
        start_ns: u64,
        servers: &[String],
        plan: &[(u64, u16, u64)],
        sockets: SocketSettings,
    ) -> anyhow::Result<Answer> {
        let servers = addresses(servers, HTTP_PORT)?;
        let planned = |&(at_us, server, bytes): &(u64, u16, u64)| {
            let to = *servers.get(usize::from(server)).with_context(|| format!("no server {server}"))?;
            Ok(poisson::Planned { at: Duration::from_micros(at_us), to, bytes })
        };
        let plan = plan.iter().map(planned).collect::<anyhow::Result<Vec<_>>>()?;
        let lead = start_ns.checked_sub(monotonic_ns()).context("the start has passed already")?;
        let start = Instant::now() + Duration::from_nanos(lead);
        self.workload.threads.push(poisson::start(&self.workload.recording, start, plan, sockets)?);
        Ok(Answer::Started { task: self.number() })
    }

    /// A spawned program. It is kept until its end has been told and another is spawned.
    pub fn program(&self, task: u64) -> anyhow::Result<Arc<Program>> {
        self.programs.get(&task).cloned().with_context(|| format!("no program runs under number {task}"))
    }

    fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    fn mark(&mut self, period: Duration) -> anyhow::Result<Answer> {
        if let Some(sampler) = self.workload.sampler.take() {
            sampler.stop();
        }
        let mark = self.workload.recording.mark();
        if !period.is_zero() {
            self.workload.sampler = Some(Sampler::start(&self.workload.recording, mark, period)?);
        }
        Ok(Answer::Done)
    }

    fn collect(&mut self) -> anyhow::Result<Answer> {
        let recorded = self.workload.recording.collect();
        let sockets = self.workload.sampler.take().map(Sampler::stop).unwrap_or_default();
        let recorded = recorded.context("the measured time has not begun")?;
        Ok(Answer::Recorded(crate::proto::Recorded { sockets, ..recorded }))
    }

    /// Of several strobes the slowest counts. A VM has strobes or transfers.
    fn progress(&self) -> Answer {
        let strobes = &self.workload.strobes;
        let transfers = self.workload.recording.transfers_done();
        Answer::Progress {
            requests: strobes.iter().map(|strobe| strobe.requests()).min().unwrap_or(transfers),
            ended: !strobes.is_empty() && strobes.iter().all(|strobe| strobe.ended()),
            error: self.workload.recording.first_error(),
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        std::mem::replace(&mut self.workload, Workload::new()).stop();
        for program in self.programs.values() {
            program.kill();
        }
    }
}

fn addresses(texts: &[String], port: u16) -> anyhow::Result<Vec<SocketAddr>> {
    texts.iter().map(|text| Ok(SocketAddr::new(address(text)?, port))).collect()
}

fn address(text: &str) -> anyhow::Result<IpAddr> {
    text.parse().with_context(|| format!("{text:?} is no IP address"))
}
