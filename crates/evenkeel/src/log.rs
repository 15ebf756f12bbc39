//! The log on standard error.

use std::fmt;
use std::io::{self, IsTerminal};

use evenkeel_quote::shown;
use tracing::field::{Field, Visit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

use crate::cli::{Command, LogFormat, Sim, Sweep};

/// The environment variable that says what to log, if not the default.
const VARIABLE: &str = "EVENKEEL_LOG";

/// Starts logging.
pub fn init(command: &Command, format: LogFormat) {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(default_level(command)));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    match format {
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).fmt_fields(OnOneLine).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// Writes an event on one line: names and text of other programs cannot look like another event, nor steer a terminal.
struct OnOneLine;

impl<'w> FormatFields<'w> for OnOneLine {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut words = Message { writer, outcome: Ok(()), is_first: true };
        fields.record(&mut words);
        words.outcome
    }
}

struct Message<'w> {
    writer: Writer<'w>,
    outcome: fmt::Result,
    is_first: bool,
}

impl Message<'_> {
    fn write(&mut self, field: &Field, value: &str) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        match field.name() {
            "message" => write!(self.writer, "{}", shown(value)),
            name => write!(self.writer, "{name}={}", shown(value)),
        }
    }
}

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Not `log.*`, which says where in its code a library was that logs by the crate `log`.
        if self.outcome.is_ok() && !field.name().starts_with("log.") {
            self.outcome = self.write(field, &format!("{value:?}"));
        }
    }
}

/// Where there is no terminal for a progress bar, the log tells of progress.
fn default_level(command: &Command) -> &'static str {
    match command {
        Command::Lab(lab) if !lab.is_quiet() && !io::stderr().is_terminal() => "info",
        Command::Sim(Sim { run, .. }) | Command::Sweep(Sweep { run, .. })
            if !run.quiet && !io::stderr().is_terminal() =>
        {
            "info"
        }
        // The netlink library warns of every attribute that a newer kernel has grown.
        Command::Host(host) if !host.stop => "info,netlink_packet_route=error",
        Command::Host(_) => "warn,netlink_packet_route=error",
        _ => "warn",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_writer(move || writer.clone())
            .fmt_fields(OnOneLine)
            .finish();
        let (name, error) = ("vp\n1", "no\n ERROR such\u{1b}[31m\u{202e}thing\r");
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(port = name, number = 7, %error, "cannot {error}");
            tracing::info!("the next");
        });
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let shown = r"no\n ERROR such\u{1b}[31m\u{202e}thing\r";
        let first = format!(" WARN cannot {shown} port=\"vp\\n1\" number=7 error={shown}");
        assert_eq!(text.lines().collect::<Vec<_>>(), [first.as_str(), " INFO the next"]);
    }
}
