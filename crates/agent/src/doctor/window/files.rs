//! Files of the machine, or of a fixture, below a root. What is not there or may not be read is `None`.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A root.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files<'a>(&'a Path);

impl<'a> Files<'a> {
    pub(super) fn below(root: &'a Path) -> Self {
        Self(root)
    }

    /// Paths of a machine begin with a slash.
    fn path(self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// What a file says, without the line's end.
    pub(super) fn text(self, path: &str) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    /// A file of one number.
    pub(super) fn number<T: FromStr>(self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// Where a link leads to.
    pub(super) fn link(self, path: &str) -> Option<String> {
        fs::read_link(self.path(path)).ok()?.into_os_string().into_string().ok()
    }

    /// Whether there is anything of that name.
    pub(super) fn has(self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Names in a directory, in order; `None` if it cannot be read.
    pub(super) fn names(self, path: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.path(path)).ok()?.flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Some(names)
    }

    /// Names in a directory that are numbers: processes, threads, descriptors.
    pub(super) fn numbers(self, path: &str) -> Option<Vec<u32>> {
        Some(self.names(path)?.iter().filter_map(|name| name.parse().ok()).collect())
    }
}

/// The number behind a name, in a text with a name and a number per line.
pub(super) fn value<T: FromStr>(text: &str, name: &str) -> Option<T> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}
