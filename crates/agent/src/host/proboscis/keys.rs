//! The keys that sign and verify probes: hosts that have one in common believe each other's.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use evenkeel_settings::ConfigError;

use crate::datapath::intf::siphash_key;

/// Digits of a key: 16 bytes.
const DIGITS: usize = 32;
/// The newest, and one that is being replaced.
const MAX_KEYS: usize = 2;

/// Reads the keys; nothing if there is no file.
///
/// # Errors
/// [`ConfigError`] if the file cannot be read, may be read by everybody, or does not hold one or two keys.
pub fn load(file: &Path) -> Result<Option<Vec<siphash_key>>, ConfigError> {
    let failed = |source| ConfigError::Read { file: file.to_owned(), source };
    if !crate::file::is_there(file).map_err(failed)? {
        return Ok(None);
    }
    let (text, metadata) = crate::file::read(file).map_err(failed)?;
    let invalid = |line, message: String| ConfigError::Invalid {
        file: file.to_owned(),
        line,
        key: "probe_key_file".to_owned(),
        message,
    };
    let mode = metadata.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(invalid(
            None,
            format!(
                "everybody may open it (mode {:o}); allowed are 600 and 640: chmod 600 {}",
                mode & 0o777,
                file.display()
            ),
        ));
    }
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let mut keys = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let key = parse(line).ok_or_else(|| {
            invalid(
                Some(number),
                format!("a line of {DIGITS} hexadecimal digits is allowed; `openssl rand -hex 16` makes one"),
            )
        })?;
        if keys.len() == MAX_KEYS {
            return Err(invalid(
                Some(number),
                format!("{MAX_KEYS} keys are allowed: the one to sign with, and an older one"),
            ));
        }
        keys.push(key);
    }
    if keys.is_empty() {
        return Err(invalid(
            None,
            "it is empty; without the file no probes are sent, with it at least one key is needed".to_owned(),
        ));
    }
    Ok(Some(keys))
}

/// SipHash's key: its 16 bytes as two little-endian words.
fn parse(line: &str) -> Option<siphash_key> {
    if line.len() != DIGITS || !line.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let number = u128::from_str_radix(line, 16).ok()?;
    let bytes = number.to_be_bytes();
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    Some(siphash_key { k0: word(0), k1: word(8) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn loaded(text: &str, mode: u32) -> Result<Vec<siphash_key>, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("probe.key");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        load(&file).map(Option::unwrap).map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_is_read_as_siphash_has_it() {
        // The key of the reference test vectors: bytes 00 to 0f.
        let key = siphash_key { k0: 0x0706_0504_0302_0100, k1: 0x0f0e_0d0c_0b0a_0908 };
        assert_eq!(loaded("000102030405060708090a0b0c0d0e0f\n", 0o600).unwrap(), [key]);
        let two = loaded("000102030405060708090a0b0c0d0e0f\n\nffffffffffffffffffffffffffffffff\n", 0o640).unwrap();
        assert_eq!(two.len(), 2);
    }

    #[test]
    fn a_bad_file_is_refused_with_what_is_allowed() {
        for (text, mode, why) in [
            ("", 0o600, "at least one key"),
            ("00", 0o600, ":1: probe_key_file: a line of 32 hexadecimal digits"),
            ("+0010203040506070809 0a0b0c0d0e0\n", 0o600, "32 hexadecimal digits"),
            ("000102030405060708090a0b0c0d0e0f", 0o644, "chmod 600"),
        ] {
            let error = loaded(text, mode).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let three = "000102030405060708090a0b0c0d0e0f\n".repeat(3);
        assert!(loaded(&three, 0o600).unwrap_err().contains(":3: probe_key_file: 2 keys"));
    }

    #[test]
    fn without_a_file_there_are_no_keys() {
        assert_eq!(load(Path::new("/nonexistent/probe.key")).unwrap(), None);
        // A link that leads nowhere is a mistake.
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("probe.key");
        std::os::unix::fs::symlink("/nonexistent/probe.key", &link).unwrap();
        assert!(matches!(load(&link), Err(ConfigError::Read { .. })));
    }
}
