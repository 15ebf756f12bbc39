//! Sends a one-line question to a program at a Unix socket: the lab on its own machine, the runner in a VM.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// How long a program may take to answer: a host's agent is scheduled late when packets keep the processor busy.
const TIMEOUT: Duration = Duration::from_secs(50);

/// Sends a line and returns the answer without its newline.
pub fn ask(socket: &Path, line: &str) -> anyhow::Result<String> {
    let at = || format!("at {}", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(at)?;
    stream.set_read_timeout(Some(TIMEOUT)).with_context(at)?;
    stream.write_all(format!("{line}\n").as_bytes()).with_context(at)?;
    let mut text = String::new();
    BufReader::new(stream).read_line(&mut text).with_context(at)?;
    anyhow::ensure!(text.ends_with('\n'), "{}: it ended before it had answered", at());
    text.pop();
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_answer_is_a_whole_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let program = std::thread::spawn(move || {
            for answer in ["one\ntwo\n", "on"] {
                let (stream, _) = listener.accept().expect("someone");
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).expect("a line");
                assert_eq!(line, "how many?\n");
                (&stream).write_all(answer.as_bytes()).expect("listens");
            }
        });
        assert_eq!(ask(&socket, "how many?").expect("answered"), "one");
        let error = ask(&socket, "how many?").expect_err("half a line");
        assert!(error.to_string().contains("ended before"), "{error}");
        program.join().expect("asked as expected");
    }
}
