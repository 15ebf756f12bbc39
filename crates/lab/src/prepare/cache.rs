//! The cache folder: where it is, who may write to it now, what may go.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, process};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::statvfs::statvfs;
use sha2::{Digest, Sha256};

use super::error::{PrepareError, Trying};

/// Room needed when the build root and three kernels have to be made, and when the root is there.
const NEED_ALL_MB: u64 = 4096;
const NEED_SOME_MB: u64 = 1536;

/// How long unused things are kept.
const KEEP_IMAGES: Duration = Duration::from_secs(24 * 3600);
const KEEP_REST: Duration = Duration::from_secs(14 * 24 * 3600);

/// Where kernels, the build root and images are kept: `$EVENKEEL_CACHE`, else `evenkeel` in `$XDG_CACHE_HOME`, else
/// `/var/cache/evenkeel`.
pub fn cache_dir() -> PathBuf {
    let folder = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = folder("EVENKEEL_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|dir| dir.join("evenkeel")))
        .unwrap_or_else(|| PathBuf::from("/var/cache/evenkeel"));
    std::path::absolute(&dir).unwrap_or(dir)
}

/// The cache, locked for us.
pub(super) struct Cache {
    dir: PathBuf,
    _lock: Flock<File>,
}

impl Cache {
    /// Makes the folder if need be and waits for its lock.
    pub(super) fn open(progress: &dyn Fn(&str)) -> Result<Self, PrepareError> {
        let dir = cache_dir();
        fs::create_dir_all(&dir).trying(|| format!("make the cache folder {}", dir.display()))?;
        let path = dir.join("lock");
        let open = || File::create(&path).trying(|| format!("open {}", path.display()));
        let lock = match Flock::lock(open()?, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err(_) => {
                progress("waiting for another evenkeel that prepares images");
                Flock::lock(open()?, FlockArg::LockExclusive)
                    .map_err(|(_, errno)| errno)
                    .trying(|| format!("lock {}", path.display()))?
            }
        };
        let cache = Self { dir, _lock: lock };
        // The lock is held, so whatever is in here was left by a run that did not end well.
        let _ = fs::remove_dir_all(cache.path("tmp"));
        // One log per run is enough.
        let _ = fs::remove_file(cache.log());
        Ok(cache)
    }

    /// A path in the cache.
    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// The output of the programs that are run.
    pub(super) fn log(&self) -> PathBuf {
        self.path("prepare.log")
    }

    /// Checks that there is room for what has to be made.
    pub(super) fn check_room(&self, has_root: bool) -> Result<(), PrepareError> {
        let need_mb = if has_root { NEED_SOME_MB } else { NEED_ALL_MB };
        let fs = statvfs(&self.dir).trying(|| format!("see how much room {} has", self.dir.display()))?;
        let have_mb = fs.blocks_available() * fs.fragment_size() / (1024 * 1024);
        if have_mb < need_mb {
            return Err(PrepareError::NoRoom { dir: self.dir.clone(), have_mb, need_mb });
        }
        Ok(())
    }

    /// An empty folder to make something in; see [`Cache::publish`].
    pub(super) fn scratch(&self, name: &str) -> Result<PathBuf, PrepareError> {
        let dir = self.path("tmp").join(format!("{name}-{}", process::id()));
        let _ = fs::remove_dir_all(&dir);
        make_dir(&dir)?;
        Ok(dir)
    }

    /// Gives what was made in the scratch folder its final name.
    pub(super) fn publish(&self, made: &Path, name: &Path) -> Result<(), PrepareError> {
        if let Some(parent) = name.parent() {
            make_dir(parent)?;
        }
        if name.is_dir() {
            fs::remove_dir_all(name).trying(|| format!("remove the old {}", name.display()))?;
        }
        fs::rename(made, name).trying(|| format!("rename {} to {}", made.display(), name.display()))
    }

    /// Removes what nobody used for a while.
    pub(super) fn prune(&self) {
        let images = ["images", "bases"].map(|folder| (folder, KEEP_IMAGES));
        let rest = ["modules", "kernels", "debs"].map(|folder| (folder, KEEP_REST));
        for (folder, keep) in images.into_iter().chain(rest) {
            let Ok(entries) = fs::read_dir(self.path(folder)) else { continue };
            for path in entries.flatten().map(|entry| entry.path()) {
                if age(&path).is_some_and(|age| age > keep) {
                    let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                }
            }
        }
        let _ = fs::remove_dir_all(self.path("tmp"));
    }
}

/// Makes a folder and those above it.
pub(super) fn make_dir(dir: &Path) -> Result<(), PrepareError> {
    fs::create_dir_all(dir).trying(|| format!("make the folder {}", dir.display()))
}

/// Writes a file.
pub(super) fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), PrepareError> {
    fs::write(path, text).trying(|| format!("write {}", path.display()))
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, PrepareError> {
    fs::read(path).trying(|| format!("read {}", path.display()))
}

/// Time since a file or folder was last touched; none if it is not there.
pub(super) fn age(path: &Path) -> Option<Duration> {
    let modified = fs::metadata(path).and_then(|meta| meta.modified()).ok()?;
    Some(SystemTime::now().duration_since(modified).unwrap_or_default())
}

/// Marks a file or folder as used now.
pub(super) fn touch(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// A short name for what something was made from.
pub(super) fn key<B: AsRef<[u8]>>(parts: impl IntoIterator<Item = B>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_depends_on_where_parts_end() {
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
        assert_eq!(key(["ab", "c"]), key(["ab", "c"]));
        assert_eq!(key(["ab"]).len(), 16);
    }
}
