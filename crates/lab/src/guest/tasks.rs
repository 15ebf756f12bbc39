//! What runs in this VM for the host: programs by number, and the workloads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::program::Program;
use super::workload::{Workload, address, ping};
use super::{counters, system};
use crate::ask::ask;
use crate::host::cores::monotonic_ns;
use crate::host::load::Load;
use crate::host::qdisc::BacklogSampler;
use crate::proto::{Answer, Op};

/// Programs and workloads.
#[derive(Debug)]
pub struct Tasks {
    port: u16,
    numbered: u64,
    programs: BTreeMap<u64, Arc<Program>>,
    queue: Option<BacklogSampler>,
    /// Indexed by place.
    workloads: Vec<Workload>,
}

impl Tasks {
    /// No tasks yet. `port` is the first workload's; with 0, each workload takes a free one for its server.
    pub fn new(port: u16) -> Self {
        Self { port, numbered: 0, programs: BTreeMap::new(), queue: None, workloads: Vec::new() }
    }

    /// Performs an operation, but for [`Op::Wait`] and [`Op::PowerOff`], which the serving loop handles.
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
            Op::Start { place, task } => {
                self.workload(place).start(task)?;
                Ok(Answer::Started { task: self.number() })
            }
            Op::Now => Ok(Answer::Now { monotonic_ns: monotonic_ns() }),
            Op::Echo { to, patience_ms } => {
                let patience = Duration::from_millis(patience_ms.into());
                Ok(Answer::Echo { answered: ping::is_answered(address(&to)?, patience)? })
            }
            Op::Ask { socket, line } => Ok(Answer::Line { text: ask(Path::new(&socket), &line)? }),
            Op::Load { share, duty_us, phase_us } => {
                let (duty, phase) = (Duration::from_micros(duty_us), Duration::from_micros(phase_us));
                self.workload(0).compute(Load { share, duty, phase })?;
                Ok(Answer::Started { task: self.number() })
            }
            Op::Mark { workloads, tcp_info_period_ms } => {
                self.mark(workloads, Duration::from_millis(tcp_info_period_ms.into()))
            }
            Op::End => self.end(),
            Op::Collect => self.collect(),
            Op::WatchQueue { device, kind, period_ms } => {
                self.queue = Some(BacklogSampler::start(&device, &kind, period_ms)?);
                Ok(Answer::Done)
            }
            Op::Queue => Ok(Answer::Queue(self.queue.take().context("no queue is watched")?.stop())),
            Op::Progress => Ok(self.workload(0).progress()),
            Op::Stop => {
                self.stop();
                Ok(Answer::Done)
            }
            Op::Wait { .. } | Op::PowerOff => anyhow::bail!("not a task's matter"),
        }
    }

    /// The workload at this place.
    fn workload(&mut self, place: u8) -> &mut Workload {
        let place = usize::from(place);
        for place in self.workloads.len()..=place {
            self.workloads.push(Workload::new(place as u8, self.port));
        }
        &mut self.workloads[place]
    }

    /// A spawned program. It is kept until its end has been reported and another is spawned.
    pub fn program(&self, task: u64) -> anyhow::Result<Arc<Program>> {
        self.programs.get(&task).cloned().with_context(|| format!("no program runs under number {task}"))
    }

    fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    /// Ends all workloads at once.
    fn stop(&mut self) {
        self.workloads.iter().for_each(Workload::stop);
        self.workloads.drain(..).for_each(Workload::join);
    }

    /// Begins the measured time. Only the first workload's sockets are sampled.
    fn mark(&mut self, workloads: u8, period: Duration) -> anyhow::Result<Answer> {
        for place in 0..workloads {
            self.workload(place).mark(if place == 0 { period } else { Duration::ZERO })?;
        }
        Ok(Answer::Counters { values: counters::read()? })
    }

    /// Ends the measured time.
    fn end(&mut self) -> anyhow::Result<Answer> {
        anyhow::ensure!(!self.workloads.is_empty(), "the measured time has not begun");
        self.workloads.iter_mut().try_for_each(Workload::end)?;
        Ok(Answer::Counters { values: counters::read()? })
    }

    fn collect(&mut self) -> anyhow::Result<Answer> {
        anyhow::ensure!(!self.workloads.is_empty(), "the measured time has not begun");
        let workloads = self.workloads.iter_mut().map(Workload::collect).collect::<anyhow::Result<_>>()?;
        Ok(Answer::Recorded { workloads })
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop();
        for program in self.programs.values() {
            program.kill();
        }
    }
}
