//! Files that somebody else writes: read at once or not at all.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use evenkeel_settings::ConfigError;

/// More than anybody writes by hand, or the agent notes of all its ports.
const MOST_BYTES: u64 = 16 << 20;

/// The text of a regular file, and its metadata. Waits for nothing, such as the other end of a FIFO.
///
/// # Errors
/// The system's, or what the file is instead of a regular one.
pub(crate) fn read(path: &Path) -> io::Result<(String, Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    if !kind.is_file() {
        let what = match kind {
            kind if kind.is_dir() => "a directory",
            kind if kind.is_fifo() => "a FIFO",
            kind if kind.is_char_device() || kind.is_block_device() => "a device",
            _ => "no regular file",
        };
        return Err(io::Error::other(format!("it is {what}; only a regular file, or a link to one, is allowed")));
    }
    let mut text = String::new();
    file.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::other(format!("it is longer than {MOST_BYTES} bytes, which is the most that is read")));
    }
    Ok((text, metadata))
}

/// Reads a file and checks it with `parse`.
///
/// # Errors
/// [`ConfigError`] with all that is needed to mend the file.
pub(crate) fn config<T>(
    file: &Path,
    parse: impl FnOnce(&str, &Path) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    let (text, _) = read(file).map_err(|source| ConfigError::Read { file: file.to_owned(), source })?;
    parse(&text, file)
}

/// Whether there is anything of this name, be it a link that leads nowhere.
///
/// # Errors
/// The system's, if it cannot be told.
pub(crate) fn is_there(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "text").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("nothing"), path("dangling")).unwrap();
        nix::unistd::mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        assert_eq!(read(&path("link")).unwrap().0, "text");
        for (name, why) in [("fifo", "it is a FIFO"), (".", "a directory"), ("/dev/zero", "a device")] {
            let error = read(&path(name)).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("regular file"), "{error}");
        }
        assert_eq!(read(&path("dangling")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(is_there(&path("dangling")).unwrap() && !is_there(&path("nothing")).unwrap());
        assert!(is_there(&path("file/below")).is_err());
        fs::File::create(path("long")).unwrap().set_len(MOST_BYTES + 1).unwrap();
        assert!(read(&path("long")).unwrap_err().to_string().contains("longer than"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named_and_what_to_do() {
        let error = config(Path::new("/nonexistent/host.toml"), evenkeel_settings::host::Config::parse).unwrap_err();
        assert!(error.to_string().starts_with("cannot read /nonexistent/host.toml: No such file"), "{error}");
        assert!(crate::host::HostError::from(error).help().unwrap().contains("--print-config"));
    }
}
