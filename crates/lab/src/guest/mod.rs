//! The runner inside a VM or a network namespace: takes [`crate::proto`] calls, runs programs and workloads, samples
//! sockets.
//!
//! Everything is blocking threads: a VM has one slow virtual CPU, and a thread that sleeps in the kernel costs it
//! nothing.

mod block_server;
mod counters;
mod http;
mod lines;
mod namespace;
mod postgres;
mod program;
mod recording;
mod sampler;
mod serve;
mod sink;
mod socket;
mod system;
mod tasks;
#[cfg(test)]
mod tests;
mod workload;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;

use crate::proto::{Call, Op, Reply, WORKLOAD_PORT};
use lines::{Line, Lines};
use tasks::Tasks;

/// How long to wait before looking again whether the host has opened its end of the port.
const HOST_ABSENT_PAUSE: Duration = Duration::from_millis(50);

/// What a read of zero bytes means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtEof {
    /// A virtio port whose other end nobody holds: look again later.
    Retry,
    /// The peer is gone for good.
    End,
}

/// Why the loop returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The peer is gone.
    Closed,
    /// The host asked for [`Op::PowerOff`].
    PowerOff,
}

/// Answers calls from `control`, a virtio-serial port, until the host has the VM switched off.
///
/// # Errors
/// When the port cannot be opened or breaks. A call that fails is answered with the reason and ends nothing.
pub fn run(control: &Path) -> anyhow::Result<()> {
    let open = || OpenOptions::new().read(true).write(true).open(control);
    let reader = open().with_context(|| format!("cannot open {}", control.display()))?;
    // One descriptor for both directions: a virtio port can be opened only once.
    let writer = reader.try_clone().context("cannot duplicate the control port")?;
    match answer(reader, writer, WORKLOAD_PORT, AtEof::Retry)? {
        End::PowerOff => system::power_off(),
        End::Closed => Ok(()),
    }
}

/// Answers calls in a network namespace of the lab's machine: listens at the Unix socket `control` for the lab, with
/// `root` as its root. Returns when the lab has gone.
///
/// # Errors
/// When the socket or the root cannot be made, or the connection breaks.
pub fn run_in_namespace(control: &Path, root: &Path) -> anyhow::Result<()> {
    let listener = UnixListener::bind(control).with_context(|| format!("cannot listen at {}", control.display()))?;
    namespace::enter(root)?;
    let (stream, _) = listener.accept().context("cannot accept the lab")?;
    let writer = stream.try_clone().context("cannot duplicate the connection")?;
    answer(stream, writer, WORKLOAD_PORT, AtEof::End).map(drop)
}

/// The loop behind [`run`], over any pair of byte streams. `port` is the first workload's TCP port; with 0 each takes a
/// free one for its server.
fn answer(mut reader: impl Read, writer: impl Write + Send + 'static, port: u16, at_eof: AtEof) -> anyhow::Result<End> {
    let writer = Arc::new(Mutex::new(writer));
    let mut tasks = Tasks::new(port);
    let mut lines = Lines::new();
    loop {
        let call = match lines.next(&mut reader) {
            Ok(Line::Text(text)) => match parse(&text) {
                Ok(call) => call,
                Err(refusal) => {
                    send(&writer, &refusal)?;
                    continue;
                }
            },
            Ok(Line::TooLong) => {
                let limit = lines::MAX_LINE_BYTES;
                send(&writer, &Reply { id: 0, result: Err(format!("the call is longer than {limit} bytes")) })?;
                continue;
            }
            Ok(Line::Eof) if at_eof == AtEof::Retry => {
                thread::sleep(HOST_ABSENT_PAUSE);
                continue;
            }
            Ok(Line::Eof) => return Ok(End::Closed),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("cannot read the control port"),
        };
        match call.op {
            Op::PowerOff => return Ok(End::PowerOff),
            // A program may take long: a thread waits for its end, so that the host can still kill it.
            Op::Wait { task } => {
                let id = call.id;
                match tasks.program(task) {
                    Ok(program) => {
                        let writer = Arc::clone(&writer);
                        thread::Builder::new()
                            .name("wait".into())
                            .spawn(move || {
                                // A broken port ends the main loop as well; nothing is lost by not reporting it here.
                                let _ = send(&writer, &Reply { id, result: Ok(program.wait()) });
                            })
                            .context("cannot start a thread")?;
                    }
                    Err(error) => send(&writer, &Reply { id, result: Err(format!("{error:#}")) })?,
                }
            }
            op => {
                let result = catch_unwind(AssertUnwindSafe(|| tasks.perform(op)))
                    .unwrap_or_else(|panic| Err(anyhow::anyhow!("panic: {}", panic_text(panic.as_ref()))))
                    .map_err(|error| format!("{error:#}"));
                send(&writer, &Reply { id: call.id, result })?;
            }
        }
    }
}

/// Reads a call. A line that is none is refused under its number if it has one, else under 0.
fn parse(text: &[u8]) -> Result<Call, Box<Reply>> {
    serde_json::from_slice(text).map_err(|error| {
        let value: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
        let id = value.get("id").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let result = Err(format!("not a call: {error}"));
        Box::new(Reply { id, result })
    })
}

/// Writes one reply as one line.
fn send(writer: &Mutex<impl Write>, reply: &Reply) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(reply).context("cannot encode a reply")?;
    line.push(b'\n');
    let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
    writer.write_all(&line).and_then(|()| writer.flush()).context("cannot write to the control port")
}

/// What a panic said.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
