//! What the VM is, its files, and switching it off.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::Context;
use base64::Engine;
use nix::sys::reboot::{RebootMode, reboot};

use crate::host::cores::hz;
use crate::proto::{Answer, READ_CHUNK_BYTES};

/// Release of the running kernel and its tick rate.
pub fn hello() -> anyhow::Result<Answer> {
    let release = nix::sys::utsname::uname().context("uname")?.release().to_string_lossy().into_owned();
    Ok(Answer::Hello { release, hz: hz().context("the coarse clock has no resolution that makes sense")? })
}

/// A piece of a file from `offset` on.
pub fn read_file(path: &Path, offset: u64) -> anyhow::Result<Answer> {
    let context = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(context)?;
    if offset > 0 {
        file.seek(SeekFrom::Start(offset)).with_context(context)?;
    }
    let mut piece = Vec::with_capacity(READ_CHUNK_BYTES);
    // Files of /proc tell no size and give short reads: only a read of nothing is their end.
    file.take(READ_CHUNK_BYTES as u64).read_to_end(&mut piece).with_context(context)?;
    let eof = piece.len() < READ_CHUNK_BYTES;
    Ok(Answer::Bytes { base64: base64::engine::general_purpose::STANDARD.encode(piece), eof })
}

/// Writes a file, sysctls included.
pub fn write_file(path: &Path, text: &str) -> anyhow::Result<Answer> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Answer::Done)
}

/// Switches the VM off.
pub fn power_off() -> anyhow::Result<()> {
    nix::unistd::sync();
    reboot(RebootMode::RB_POWER_OFF).context("cannot switch off")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_in_pieces() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        write_file(file.path(), &"x".repeat(READ_CHUNK_BYTES + 5)).expect("written");
        let Answer::Bytes { eof, .. } = read_file(file.path(), 0).expect("read") else { panic!("bytes") };
        assert!(!eof);
        let Answer::Bytes { base64, eof } = read_file(file.path(), READ_CHUNK_BYTES as u64).expect("read") else {
            panic!("bytes")
        };
        assert_eq!((base64.as_str(), eof), ("eHh4eHg=", true));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read_file(Path::new("/nowhere/to/be/found"), 0).expect_err("no such file");
        assert!(error.to_string().contains("/nowhere/to/be/found"));
    }
}
