//! The kernel's log, read for what the module says while it is being loaded.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use super::MODULE;

/// The longest record the kernel gives.
const RECORD_BYTES: usize = 8192;

/// A place in the kernel's log.
#[derive(Debug)]
pub(super) struct Mark(Option<File>);

impl Mark {
    /// The log's present end. If the log cannot be read, there will be no messages, and loading goes on.
    pub fn now() -> Self {
        let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
        Self(open.and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file)).ok())
    }

    /// What was said of the module since.
    pub fn said(self) -> Vec<String> {
        let Some(mut file) = self.0 else { return Vec::new() };
        let mut said = Vec::new();
        let mut record = vec![0; RECORD_BYTES];
        // One read is one record; EAGAIN is the end.
        loop {
            match file.read(&mut record) {
                Ok(0) => return said,
                Ok(length) => said.extend(message(&String::from_utf8_lossy(&record[..length]))),
                // A record was overwritten before it was read.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) || error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return said,
            }
        }
    }
}

/// The text of a record `priority,sequence,time,flags;text`, if it is of the module.
fn message(record: &str) -> Option<String> {
    let (_, text) = record.split_once(';')?;
    let text = text.lines().next()?;
    // The kernel's own complaints about a module's file begin with that word.
    let text = text.strip_prefix("module ").unwrap_or(text).strip_prefix(MODULE)?.strip_prefix(": ")?;
    // Said of every module that is not part of the kernel.
    let is_reason = !text.contains("taints kernel") && !text.contains("tainting kernel");
    is_reason.then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_module_only() {
        let record =
            "3,512,99,-;evenkeel_pvtcp: cannot probe tcp_ack_update_rtt() of this kernel (error -2)\n SUBSYSTEM=x\n";
        assert_eq!(message(record).as_deref(), Some("cannot probe tcp_ack_update_rtt() of this kernel (error -2)"));
        let record = "3,9,9,-;module evenkeel_pvtcp: .gnu.linkonce.this_module section size must match\n";
        assert_eq!(message(record).as_deref(), Some(".gnu.linkonce.this_module section size must match"));
        assert_eq!(message("6,513,99,-;eth0: link up\n"), None);
        assert_eq!(message("4,1,2,-;evenkeel_pvtcp: loading out-of-tree module taints kernel.\n"), None);
        assert_eq!(message("nonsense"), None);
    }
}
