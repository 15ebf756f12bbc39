//! The agent's end of the control socket.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use nix::unistd::{Gid, Group};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};

use super::proto::{Ask, Request, Response, VERSION};
use crate::host::crowd::{Admission, Crowd};
use crate::host::error::HostError;

/// Connections at once.
const CONNECTIONS: usize = 64;
/// The longest line that a client may send.
const LINE_BYTES: u64 = 4096;
/// How long a client may take to read what it asked for.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Root and the group may ask; nobody else.
const MODE: u32 = 0o660;

/// What the agent answers.
pub trait Service {
    /// The answer's lines, in order; the last one is of a kind that ends an answer.
    fn answer(&self, ask: Ask) -> impl Future<Output = Box<dyn Iterator<Item = Response>>>;
}

/// The socket in the file system, removed when the agent ends in good order.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    /// Where it is to be.
    path: PathBuf,
    /// Where it is.
    at: PathBuf,
    /// Device and number of its file: another socket may be in its place by now.
    file: (u64, u64),
}

impl Listener {
    /// Makes the socket beside its place, as an earlier one may still be answered there.
    ///
    /// # Errors
    /// [`HostError::Io`], or [`HostError::Missing`] if there is no such group.
    pub fn bind(path: &Path, group: &str) -> Result<Self, HostError> {
        let failed = |error: io::Error| cannot_make(path, error);
        let gid = group_id(group)?;
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        // Made under another name, so that at its own it is never open to others.
        let new = path.with_extension("new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&new).map_err(failed)?;
        let metadata = fs::symlink_metadata(&new).map_err(failed)?;
        let made = Self { listener, path: path.to_owned(), at: new.clone(), file: (metadata.dev(), metadata.ino()) };
        // Giving a file to a group that this process is not in takes a privilege (CAP_CHOWN); mostly it is its own
        // group.
        if Gid::effective() != gid {
            nix::unistd::chown(&new, None, Some(gid)).map_err(|errno| failed(errno.into()))?;
        }
        fs::set_permissions(&new, Permissions::from_mode(MODE)).map_err(failed)?;
        Ok(made)
    }

    /// Moves the socket to its place, where it replaces an earlier one.
    ///
    /// # Errors
    /// [`HostError::Io`]: then the earlier one is still there.
    pub fn show(&mut self) -> Result<(), HostError> {
        fs::rename(&self.at, &self.path).map_err(|error| cannot_make(&self.path, error))?;
        self.at.clone_from(&self.path);
        Ok(())
    }

    /// Where it is to be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Answers until it is dropped.
    pub async fn serve<S: Service + 'static>(&self, service: Rc<S>) {
        let crowd = Crowd::new(CONNECTIONS);
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let service = Rc::clone(&service);
                    crowd.admit(|place| async move {
                        if let Err(error) = talk(stream, &*service, &place).await {
                            tracing::debug!(%error, "a control connection ended");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot take a control connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let is_own = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == self.file;
        if fs::symlink_metadata(&self.at).is_ok_and(is_own) {
            // A socket left behind only answers "connection refused", which is as clear.
            let _ = fs::remove_file(&self.at);
        }
    }
}

fn cannot_make(path: &Path, error: io::Error) -> HostError {
    HostError::io(format!("cannot make the control socket {}", path.display()), error)
}

fn group_id(name: &str) -> Result<Gid, HostError> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid),
        // A static binary reads no name service but the file; a number always works.
        _ if name == "root" => Ok(Gid::from_raw(0)),
        _ => name.parse().map(Gid::from_raw).map_err(|_| HostError::Missing {
            what: format!("control.group: there is no group `{name}`"),
            help: format!("make it with `groupadd --system {name}`, or name another (a number will do)"),
        }),
    }
}

async fn talk<S: Service>(stream: UnixStream, service: &S, place: &Admission) -> io::Result<()> {
    let (read, write) = stream.into_split();
    let mut write = BufWriter::new(write);
    let mut read = BufReader::new(read);
    loop {
        let mut line = Vec::new();
        let length = (&mut read).take(LINE_BYTES).read_until(b'\n', &mut line).await?;
        if length == 0 {
            return Ok(());
        }
        place.is_heard();
        match understand(&line) {
            Ok(ask) => {
                let answer = service.answer(ask).await;
                tokio::time::timeout(TIMEOUT, send_all(&mut write, answer)).await??;
                place.is_silent();
            }
            Err(why) => {
                send(&mut write, &Response::Refused { why }).await?;
                write.flush().await?;
                // After a line that was not understood, the next byte need not begin a line.
                return Ok(());
            }
        }
    }
}

fn understand(line: &[u8]) -> Result<Ask, String> {
    let value: serde_json::Value =
        serde_json::from_slice(line).map_err(|error| format!("could not read the request: {error}"))?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            return Err(format!("was asked in version {version} of the protocol and speaks version {VERSION}"));
        }
        None => return Err(format!("was asked without a version; it speaks version {VERSION}")),
    }
    let request: Request =
        serde_json::from_value(value).map_err(|error| format!("could not read the request: {error}"))?;
    Ok(request.ask)
}

async fn send_all(write: &mut BufWriter<OwnedWriteHalf>, lines: impl Iterator<Item = Response>) -> io::Result<()> {
    for line in lines {
        send(write, &line).await?;
    }
    write.flush().await
}

async fn send(write: &mut BufWriter<OwnedWriteHalf>, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    write.write_all(&line).await
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn whatever_is_sent_is_refused_or_understood(
            line in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        ) {
            if let Err(why) = understand(&line) {
                proptest::prop_assert!(!why.is_empty());
            }
        }
    }

    #[test]
    fn requests_are_understood_by_version() {
        assert_eq!(understand(br#"{"version":1,"ask":{"what":"status"}}"#), Ok(Ask::Status));
        for (line, why) in [
            (&br#"{"version":2,"ask":{"what":"status"}}"#[..], "version 2"),
            (br#"{"ask":{"what":"status"}}"#, "without a version"),
            (br#"{"version":1,"ask":{"what":"dance"}}"#, "unknown variant `dance`"),
            (br#"{"version":1,"ask":{"what":"flows","colour":1}}"#, "unknown field `colour`"),
            (b"GET / HTTP/1.1", "could not read"),
        ] {
            let error = understand(line).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
