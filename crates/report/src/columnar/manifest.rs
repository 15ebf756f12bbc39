//! What was written: name, size and checksum of every file of a set. Written last, so that its presence says that all
//! of them are there.
//!
//! Parquet's own page checksums would not do: the writer of the parquet crate has none, and they leave out the footer.
//! Its reader panics at some damaged pages, so files are held against the manifest before it sees them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use evenkeel_quote::quoted;
use evenkeel_scenario::ScenarioError;
use evenkeel_scenario::result::{META_FILE, PARQUET_FILES, PARQUET_MANIFEST};
use serde::{Deserialize, Serialize};

use crate::ReportError;

/// Version of the tables' format.
const SCHEMA: u32 = 1;

/// The files of a set.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    schema: u32,
    files: BTreeMap<String, Content>,
}

/// What a file has in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Content {
    bytes: u64,
    /// IEEE 802.3, as gzip and PNG have it.
    crc32: u32,
}

impl Content {
    /// Of bytes in memory.
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes) }
    }

    fn of_file(path: &Path) -> io::Result<Self> {
        let (mut file, mut measured) = (File::open(path)?, Measured::new(io::sink()));
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(measured.content()),
                count => measured.write_all(&buffer[..count])?,
            }
        }
    }
}

/// Passes bytes on and keeps account of them.
pub(super) struct Measured<W> {
    inner: W,
    bytes: u64,
    crc32: crc32fast::Hasher,
}

impl<W> Measured<W> {
    pub fn new(inner: W) -> Self {
        Self { inner, bytes: 0, crc32: crc32fast::Hasher::new() }
    }

    pub fn content(&self) -> Content {
        Content { bytes: self.bytes, crc32: self.crc32.clone().finalize() }
    }
}

impl<W: Write> Write for Measured<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.bytes += count as u64;
        self.crc32.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Manifest {
    /// Of [`META_FILE`] and [`PARQUET_FILES`].
    pub fn new(files: impl IntoIterator<Item = (&'static str, Content)>) -> Self {
        Self { schema: SCHEMA, files: files.into_iter().map(|(name, content)| (name.to_owned(), content)).collect() }
    }

    /// As a file has it.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Reads the directory's manifest and holds every file against it.
    ///
    /// # Errors
    /// [`ReportError::Results`], [`ReportError::Manifest`], [`ReportError::Damaged`].
    pub fn check(directory: &Path) -> Result<(), ReportError> {
        let path = directory.join(PARQUET_MANIFEST);
        let text = std::fs::read(&path).map_err(|source| ScenarioError::Read { file: path.clone(), source })?;
        let bad = |why: String| ReportError::Manifest { file: path.clone(), why };
        let manifest: Self = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        if manifest.schema != SCHEMA {
            return Err(bad(format!("tables of schema {}; this evenkeel reads schema {SCHEMA}", manifest.schema)));
        }
        let names = || PARQUET_FILES.into_iter().chain([META_FILE]);
        if let Some(other) = manifest.files.keys().find(|name| !names().any(|known| known == name.as_str())) {
            return Err(bad(format!("{} is not a file of evenkeel's results", quoted(other))));
        }
        for name in names() {
            let file = directory.join(name);
            let wanted = manifest.files.get(name).ok_or_else(|| bad(format!("{} is not in it", quoted(name))))?;
            let found = Content::of_file(&file).map_err(|source| ScenarioError::Read { file: file.clone(), source })?;
            if found.bytes != wanted.bytes {
                let why = format!("it has {} bytes of {}", found.bytes, wanted.bytes);
                return Err(ReportError::Damaged { file, why });
            }
            if found != *wanted {
                return Err(ReportError::Damaged { file, why: "its checksum is another".to_owned() });
            }
        }
        Ok(())
    }
}
