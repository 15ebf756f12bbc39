//! Runs a program on a single frame, without any device in the way: for tests and measurements.

use std::time::Duration;

use super::error::DatapathError;
use super::load::Datapath;
use super::skb::SkbContext;
use crate::common::bytes::{as_bytes, from_bytes};

/// The index of `lo`, in every network namespace.
const LOOPBACK: u32 = 1;

/// What a program did with a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its answer: TCX_NEXT (-1), TCX_DROP (2) or TCX_REDIRECT (7).
    pub verdict: i32,
    /// The frame afterwards.
    pub frame: Vec<u8>,
    /// The packet's mark afterwards.
    pub mark: u32,
    /// Mean time of one run.
    pub duration: Duration,
}

/// What a packet that stands for several segments says of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// How many, 0: it does not say (as packets from a tap).
    pub segments: u32,
    /// Payload of each, in bytes.
    pub segment_bytes: u32,
}

impl Datapath {
    /// Runs `to_vm` or `from_vm` on a frame as if it passed the device with this index and had come in at one that is
    /// no port. Copies that the program sends are really sent.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn trial(
        &mut self,
        name: &str,
        ifindex: u32,
        mark: u32,
        frame: &[u8],
        repeat: u32,
    ) -> Result<Outcome, DatapathError> {
        self.run(name, SkbContext { mark, ifindex, ingress_ifindex: LOOPBACK, ..SkbContext::default() }, frame, repeat)
    }

    /// As [`trial`](Self::trial), once, of a frame that has come in at another device of this host; 0: it is the host's
    /// own.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn trial_from(&mut self, name: &str, ifindex: u32, from: u32, frame: &[u8]) -> Result<Outcome, DatapathError> {
        self.run(name, SkbContext { ifindex, ingress_ifindex: from, ..SkbContext::default() }, frame, 1)
    }

    /// As [`trial`](Self::trial), once, of a packet that stands for several segments.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn trial_gso(&mut self, name: &str, ifindex: u32, frame: &[u8], gso: Gso) -> Result<Outcome, DatapathError> {
        let (gso_segs, gso_size) = (gso.segments, gso.segment_bytes);
        let context = SkbContext { ifindex, ingress_ifindex: LOOPBACK, gso_segs, gso_size, ..SkbContext::default() };
        self.run(name, context, frame, 1)
    }

    fn run(
        &mut self,
        name: &str,
        mut context: SkbContext,
        frame: &[u8],
        repeat: u32,
    ) -> Result<Outcome, DatapathError> {
        let failed = |error: libbpf_rs::Error| DatapathError::bpf(format!("cannot run {name}"), &error);
        let _there = context.enter()?;
        let mut context = as_bytes(&context).to_vec();
        // Room for the whole context of any kernel version: the kernel writes all of it or nothing.
        let mut context_out = vec![0; 1024];
        let mut frame_out = vec![0; frame.len() + 256];
        let output = self
            .program_mut(name)?
            .test_run(libbpf_rs::ProgramInput {
                context_in: Some(&mut context),
                context_out: Some(&mut context_out),
                data_in: Some(frame),
                data_out: Some(&mut frame_out),
                repeat,
                ..Default::default()
            })
            .map_err(failed)?;
        let mark = output.context.as_deref().and_then(from_bytes::<SkbContext>).map_or(0, |context| context.mark);
        Ok(Outcome {
            verdict: output.return_value as i32,
            frame: output.data.unwrap_or_default().to_vec(),
            mark,
            duration: output.duration,
        })
    }
}
