//! As much of HTTP/1.1 as the web application needs: one request or response at a time on a connection, with bodies
//! whose length is announced.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Context;

use super::block_server::ZEROS;
use super::socket;
use crate::proto::SocketSettings;

/// Longest head that is read.
const MAX_HEAD_BYTES: u64 = 64 * 1024;
/// How long the other end may be silent.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The head of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The request's or the status line.
    pub first: String,
    /// Length of the body.
    pub body_bytes: u64,
    /// Whether the connection ends after it.
    pub closes: bool,
}

/// A connection.
#[derive(Debug)]
pub struct Http {
    reader: BufReader<TcpStream>,
}

impl Http {
    /// Wraps an established connection.
    pub fn new(stream: TcpStream) -> anyhow::Result<Self> {
        stream.set_nodelay(true).context("TCP_NODELAY")?;
        stream.set_read_timeout(Some(TIMEOUT)).context("SO_RCVTIMEO")?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Opens a new connection.
    pub fn connect(to: SocketAddr) -> anyhow::Result<Self> {
        Self::new(socket::connect(to, SocketSettings::default())?)
    }

    /// Its socket.
    pub fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    /// Reads a head; None if the other end has closed instead.
    pub fn head(&mut self) -> anyhow::Result<Option<Head>> {
        let mut lines = Vec::new();
        let mut limited = (&mut self.reader).take(MAX_HEAD_BYTES);
        loop {
            let mut line = String::new();
            if limited.read_line(&mut line).context("reading a head")? == 0 {
                anyhow::ensure!(lines.is_empty() && limited.limit() > 0, "the head ends in the middle");
                return Ok(None);
            }
            match line.trim_end() {
                "" if lines.is_empty() => {}
                "" => return Head::parse(&lines).map(Some),
                line => lines.push(line.to_owned()),
            }
        }
    }

    /// Reads and discards `bytes` bytes.
    pub fn skip(&mut self, bytes: u64) -> anyhow::Result<()> {
        let read =
            std::io::copy(&mut (&mut self.reader).take(bytes), &mut std::io::sink()).context("reading a body")?;
        anyhow::ensure!(read == bytes, "a body of {bytes} bytes ended after {read}");
        Ok(())
    }

    /// Sends a message; `head` lacks only the body's length.
    pub fn send(&mut self, head: &str, body_bytes: u64) -> anyhow::Result<()> {
        let mut stream = self.stream();
        let head = whole_head(head, body_bytes);
        // Head and body begin in one write, so that small messages fill their segments.
        let first = body_bytes.min(8192) as usize;
        let start = [head.as_bytes(), &ZEROS[..first]].concat();
        stream.write_all(&start).context("sending")?;
        let mut left = body_bytes - first as u64;
        while left > 0 {
            let piece = left.min(ZEROS.len() as u64) as usize;
            stream.write_all(&ZEROS[..piece]).context("sending a body")?;
            left -= piece as u64;
        }
        Ok(())
    }

    /// Sends a request and reads the whole answer, which must report success.
    pub fn request(&mut self, method: &str, path: &str, body_bytes: u64, keep: bool) -> anyhow::Result<Head> {
        self.send(&head_of_request(method, path, keep), body_bytes)?;
        let head = self.head()?.context("the server has closed the connection without an answer")?;
        let code = head.first.split(' ').nth(1).unwrap_or_default();
        anyhow::ensure!(code.len() == 3 && code.starts_with('2'), "{method} {path} is answered {}", head.first);
        self.skip(head.body_bytes)?;
        Ok(head)
    }
}

/// The whole head of a request.
pub fn request_head(method: &str, path: &str, keep: bool, body_bytes: u64) -> String {
    whole_head(&head_of_request(method, path, keep), body_bytes)
}

/// Padding that brings a request to `request_bytes`. It goes to the end of the path, where the server ignores it.
pub fn filler(bare_bytes: usize, request_bytes: usize) -> anyhow::Result<String> {
    let missing = request_bytes.checked_sub(bare_bytes);
    let missing = missing.with_context(|| format!("a request has {bare_bytes} bytes at least, not {request_bytes}"))?;
    Ok("q".repeat(missing))
}

fn head_of_request(method: &str, path: &str, keep: bool) -> String {
    let connection = if keep { "keep-alive" } else { "close" };
    format!("{method} {path} HTTP/1.1\r\nHost: lab\r\nConnection: {connection}\r\n")
}

fn whole_head(head: &str, body_bytes: u64) -> String {
    format!("{head}Content-Length: {body_bytes}\r\n\r\n")
}

impl Head {
    fn parse(lines: &[String]) -> anyhow::Result<Self> {
        let mut head = Self { first: lines[0].clone(), body_bytes: 0, closes: lines[0].starts_with("HTTP/1.0") };
        for line in &lines[1..] {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    head.body_bytes = value.parse().with_context(|| format!("a length of {value:?}"))?
                }
                "connection" => head.closes = value.eq_ignore_ascii_case("close"),
                "transfer-encoding" => anyhow::bail!("a body without a length"),
                _ => {}
            }
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn a_request_is_answered_on_a_connection_that_is_kept() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut http = Http::new(listener.accept().unwrap().0).unwrap();
            let mut seen = Vec::new();
            while let Some(head) = http.head().unwrap() {
                http.skip(head.body_bytes).unwrap();
                http.send("HTTP/1.1 200 OK\r\n", 3 * head.body_bytes).unwrap();
                seen.push((head.first, head.body_bytes, head.closes));
            }
            seen
        });
        let mut client = Http::connect(at).unwrap();
        assert_eq!(client.request("PUT", "/a", 100_000, true).unwrap().body_bytes, 300_000);
        client.request("GET", "/b", 0, false).unwrap();
        drop(client);
        let seen = server.join().unwrap();
        assert_eq!(seen, [("PUT /a HTTP/1.1".into(), 100_000, false), ("GET /b HTTP/1.1".into(), 0, true)]);
    }

    #[test]
    fn a_body_without_a_length_is_refused() {
        let lines = ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked"].map(str::to_owned);
        assert!(Head::parse(&lines).is_err());
    }
}
