//! Debian's kernels: which one is the newest of its series, fetched and unpacked with its headers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::KernelSeries;
use super::apt::{Apt, Package, Release};
use super::cache::{self, Cache};
use super::error::{PrepareError, Trying};
use super::run::Run;

const IMAGE: &str = "linux-image-cloud-amd64";
const HEADERS: &str = "linux-headers-cloud-amd64";

/// A kernel in the cache, with its modules and headers.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) series: KernelSeries,
    pub(super) release: String,
    /// The unpacked packages.
    pub(super) dir: PathBuf,
}

impl KernelSeries {
    fn debian(self) -> Release {
        match self {
            Self::V6_1 => Release::Bookworm,
            Self::V6_12 | Self::Newest => Release::Trixie,
        }
    }

    /// The suite to prefer. Backports are only taken when asked for by name.
    fn suite(self) -> Option<&'static str> {
        (self == Self::Newest).then_some("trixie-backports")
    }
}

impl Kernel {
    /// The kernel image: in `/boot` in older packages and beside the modules in newer ones.
    pub(super) fn vmlinuz(&self) -> PathBuf {
        let boot = self.dir.join(format!("boot/vmlinuz-{}", self.release));
        if boot.is_file() { boot } else { self.modules().join(&self.release).join("vmlinuz") }
    }

    /// The folder with a folder of modules per release: `/lib` in older packages and `/usr/lib` in newer ones.
    pub(super) fn modules(&self) -> PathBuf {
        modules(&self.dir)
    }

    /// What to mount where in the build root so that modules can be built for this kernel.
    pub(super) fn build_mounts(&self) -> Result<Vec<(PathBuf, String)>, PrepareError> {
        let mut mounts =
            vec![(self.dir.join("usr/src"), "/usr/src".to_owned()), (self.modules(), "/usr/lib/modules".to_owned())];
        let lib = self.dir.join("usr/lib");
        for entry in fs::read_dir(&lib).trying(|| format!("read the folder {}", lib.display()))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("linux-kbuild") {
                mounts.push((entry.path(), format!("/usr/lib/{name}")));
            }
        }
        Ok(mounts)
    }

    /// Looks at an unpacked kernel.
    fn open(series: KernelSeries, dir: &Path) -> Result<Self, PrepareError> {
        let bad = |what: &str| PrepareError::BadKernel { series, dir: dir.to_path_buf(), what: what.to_owned() };
        let release = fs::read_dir(modules(dir))
            .into_iter()
            .flatten()
            .flatten()
            .find(|entry| entry.path().join("kernel").is_dir())
            .ok_or_else(|| bad("modules"))?;
        let release = release.file_name().to_string_lossy().into_owned();
        let kernel = Self { series, release, dir: dir.to_path_buf() };
        if !kernel.vmlinuz().is_file() {
            return Err(bad("vmlinuz"));
        }
        let modules = kernel.modules().join(&kernel.release);
        if fs::symlink_metadata(modules.join("build")).is_err() {
            return Err(bad("headers for its release"));
        }
        Ok(kernel)
    }
}

/// The kernels for `series`, in that order, fetched if need be.
pub(super) fn fetch_all(
    cache: &Cache,
    series: &[KernelSeries],
    progress: &dyn Fn(&str),
) -> Result<Vec<Kernel>, PrepareError> {
    series.iter().map(|series| fetch(cache, *series, progress)).collect()
}

fn fetch(cache: &Cache, series: KernelSeries, progress: &dyn Fn(&str)) -> Result<Kernel, PrepareError> {
    let apt = Apt::new(cache, series.debian());
    let known_file = cache.path("kernels").join(format!("{series}.newest"));
    let known = fs::read_to_string(&known_file)
        .ok()
        .and_then(|id| Kernel::open(series, &cache.path("kernels").join(id.trim())).ok());
    if let Some(kernel) = &known {
        cache::touch(&kernel.dir);
    }

    if !apt.is_fresh() {
        progress(&format!("looking for the current kernel ({series})"));
        match (apt.refresh(), &known) {
            (Ok(()), _) => {}
            (Err(error), Some(kernel)) => {
                progress(&format!(
                    "warning: cannot look for a newer kernel than {} (is the network there?): {}",
                    kernel.release,
                    first_line(&error)
                ));
            }
            (Err(error), None) => return Err(error),
        }
    }
    // Nothing can have changed since the lists were resolved.
    if let Some(kernel) = known.as_ref().filter(|_| modified(&known_file) >= modified(&apt.stamp())) {
        return Ok(kernel.clone());
    }

    match fetch_newest(cache, &apt, series, progress) {
        Ok((id, kernel)) => {
            cache::write(&known_file, id)?;
            Ok(kernel)
        }
        Err(error) => {
            let Some(kernel) = known else { return Err(error) };
            progress(&format!("warning: staying with kernel {}: {}", kernel.release, first_line(&error)));
            Ok(kernel)
        }
    }
}

fn fetch_newest(
    cache: &Cache,
    apt: &Apt,
    series: KernelSeries,
    progress: &dyn Fn(&str),
) -> Result<(String, Kernel), PrepareError> {
    let packages = apt.resolve(&[IMAGE, HEADERS], series.suite())?;
    let image = packages.iter().find(|package| is_image(&package.name)).ok_or_else(|| PrepareError::NoKernel {
        series,
        package: IMAGE,
        suites: apt.suites(),
        log: apt.log().to_path_buf(),
    })?;
    let id = format!("{}_{}", image.name.trim_start_matches("linux-image-"), image.version.replace(':', "."));
    let dir = cache.path("kernels").join(&id);
    if let Ok(kernel) = Kernel::open(series, &dir) {
        return Ok((id, kernel));
    }

    progress(&format!("fetching kernel {} ({series})", image.name.trim_start_matches("linux-image-")));
    let debs = cache.path("debs").join(&id);
    download(apt, &packages, &debs)?;
    let scratch = cache.scratch(&id)?;
    for deb in list(&debs)?.into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "deb")) {
        Run::new("dpkg", format!("unpack {}", deb.display())).arg("-x").arg(&deb).arg(&scratch).output(apt.log())?;
    }
    let _ = fs::remove_dir_all(scratch.join("usr/share"));
    Kernel::open(series, &scratch)?;
    cache.publish(&scratch, &dir)?;
    cache::touch(&dir);
    Ok((id, Kernel::open(series, &dir)?))
}

/// The folder of modules in an unpacked kernel.
fn modules(dir: &Path) -> PathBuf {
    let merged = dir.join("usr/lib/modules");
    if merged.is_dir() { merged } else { dir.join("lib/modules") }
}

/// Fetches packages into `dir`, all or nothing.
fn download(apt: &Apt, packages: &[Package], dir: &Path) -> Result<(), PrepareError> {
    if dir.join("complete").exists() {
        return Ok(());
    }
    cache::make_dir(dir)?;
    apt.download(packages, dir)?;
    cache::write(&dir.join("complete"), "")
}

/// Whether a package is a kernel's own and not the meta package.
fn is_image(name: &str) -> bool {
    name.strip_prefix("linux-image-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// A warning has no room for all that a program printed; the log has it.
fn first_line(error: &PrepareError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

fn list(dir: &Path) -> Result<Vec<PathBuf>, PrepareError> {
    let entries = fs::read_dir(dir).trying(|| format!("read the folder {}", dir.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|meta| meta.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meta_package_is_no_image() {
        assert!(is_image("linux-image-6.1.0-56-cloud-amd64"));
        assert!(is_image("linux-image-7.2.12+deb13-cloud-amd64"));
        assert!(!is_image("linux-image-cloud-amd64"));
        assert!(!is_image("linux-headers-6.1.0-56-cloud-amd64"));
    }
}
