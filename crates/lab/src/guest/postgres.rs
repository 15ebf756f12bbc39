//! As much of PostgreSQL's protocol (version 3.0) as the web application needs: simple queries, to a server that asks
//! for no password.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Context;

use super::socket;
use crate::proto::SocketSettings;

const VERSION: i32 = 3 << 16;
/// Longest message that is read.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection.
#[derive(Debug)]
pub struct Postgres {
    reader: BufReader<TcpStream>,
}

impl Postgres {
    /// Connects as the server's superuser.
    pub fn connect(to: SocketAddr) -> anyhow::Result<Self> {
        let stream = socket::connect(to, SocketSettings::default())?;
        stream.set_nodelay(true).context("TCP_NODELAY")?;
        stream.set_read_timeout(Some(TIMEOUT)).context("SO_RCVTIMEO")?;
        let mut postgres = Self { reader: BufReader::new(stream) };
        let mut start = VERSION.to_be_bytes().to_vec();
        start.extend(b"user\0postgres\0database\0postgres\0\0");
        postgres.send(&start, None)?;
        postgres.until_ready()?;
        Ok(postgres)
    }

    /// Runs a query and returns how many bytes of rows came.
    pub fn query(&mut self, text: &str) -> anyhow::Result<usize> {
        self.send(&[text.as_bytes(), &[0]].concat(), Some(b'Q'))?;
        self.until_ready().with_context(|| format!("`{}`", &text[..text.len().min(80)]))
    }

    fn send(&mut self, body: &[u8], kind: Option<u8>) -> anyhow::Result<()> {
        let length = i32::try_from(body.len() + 4)?.to_be_bytes();
        let message: Vec<u8> = kind.into_iter().chain(length).chain(body.iter().copied()).collect();
        self.reader.get_mut().write_all(&message).context("telling PostgreSQL")
    }

    /// Reads until the server is ready for the next query.
    fn until_ready(&mut self) -> anyhow::Result<usize> {
        let (mut row_bytes, mut error) = (0, None);
        loop {
            let mut head = [0; 5];
            self.reader.read_exact(&mut head).context("reading PostgreSQL's answer")?;
            let length = i32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let length = usize::try_from(length).ok().and_then(|length| length.checked_sub(4));
            let length = length.filter(|length| *length <= MAX_MESSAGE_BYTES).context("a message of no length")?;
            let mut body = vec![0; length];
            self.reader.read_exact(&mut body).context("reading PostgreSQL's answer")?;
            match head[0] {
                b'Z' => return error.map_or(Ok(row_bytes), Err),
                b'D' => row_bytes += length,
                b'E' => {
                    let text = String::from_utf8_lossy(&body).replace('\0', " ");
                    // After a fatal error nothing more comes.
                    if text.contains("FATAL") {
                        anyhow::bail!("PostgreSQL refuses: {text}");
                    }
                    error = Some(anyhow::anyhow!("PostgreSQL refuses: {text}"));
                }
                b'R' if body != [0; 4] => anyhow::bail!("PostgreSQL asks for a password"),
                _ => {}
            }
        }
    }
}
