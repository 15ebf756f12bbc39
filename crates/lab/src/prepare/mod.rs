//! Makes what the lab's VMs boot: stock Debian kernels, the guest module built for each of them, and an initramfs.
//!
//! Kernels come from Debian's suites by package name through an apt state of the lab's own, so the machine's sources
//! stay as they are; apt checks the signatures. The module is built by dkms in a small Debian root ([`root`]), which
//! also gives the programs for the initramfs. Everything is kept in [`cache_dir`], keyed by what it was made from, and
//! is made again only when that changed. Nothing has its final name before it is complete.

mod apt;
mod cache;
mod cpio;
mod error;
mod initramfs;
mod kernel;
mod module;
mod root;
mod run;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;

pub use cache::cache_dir;
pub use error::PrepareError;
pub use module::{SOURCES as MODULE_FILES, Sources as ModuleSources};

use cache::Cache;
use root::Root;

/// The build root in the cache.
const ROOT: &str = "root";

/// Which of Debian's kernels to boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelSeries {
    /// Debian 12's kernel.
    V6_1,
    /// Debian 13's kernel.
    V6_12,
    /// The newest kernel that Debian's backports carry.
    Newest,
}

impl KernelSeries {
    /// All of them, oldest first.
    pub const ALL: [Self; 3] = [Self::V6_1, Self::V6_12, Self::Newest];
}

impl fmt::Display for KernelSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::Newest => "newest",
        })
    }
}

impl FromStr for KernelSeries {
    type Err = PrepareError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|series| series.to_string() == text)
            .ok_or_else(|| PrepareError::UnknownSeries { text: text.to_owned() })
    }
}

impl From<evenkeel_scenario::format::Kernel> for KernelSeries {
    fn from(kernel: evenkeel_scenario::format::Kernel) -> Self {
        match kernel {
            evenkeel_scenario::format::Kernel::V6_1 => Self::V6_1,
            evenkeel_scenario::format::Kernel::V6_12 => Self::V6_12,
            evenkeel_scenario::format::Kernel::Newest => Self::Newest,
        }
    }
}

/// What one VM boots.
#[derive(Debug, Clone)]
pub struct GuestImage {
    /// Which kernel was asked for.
    pub series: KernelSeries,
    /// The kernel's release, as `uname -r` says it.
    pub release: String,
    /// The kernel.
    pub vmlinuz: PathBuf,
    /// The initramfs, with `evenkeel` and the guest module inside.
    pub initramfs: PathBuf,
}

/// Makes the images for `series`, one each and in that order, with `evenkeel_binary` inside.
///
/// The first time this takes a minute or two and the network; afterwards it is nearly free. The newest patch release is
/// looked for at most once a day; when that fails, a kernel that was fetched before will do, and `progress` gets a
/// line that starts with "warning". Only one preparation runs at a time: a second one waits.
pub fn prepare(
    series: &[KernelSeries],
    evenkeel_binary: &Path,
    progress: &dyn Fn(&str),
) -> Result<Vec<GuestImage>, PrepareError> {
    run::check_machine()?;
    initramfs::check_static(evenkeel_binary)?;
    let cache = Cache::open(progress)?;
    let root = Root::new(&cache)?;
    // The root needs the processor and kernels need the network, so both are made at once.
    let has_root = root.exists();
    cache.check_room(has_root)?;
    if !has_root {
        progress("making the build root (once, about a minute)");
    }
    let kernels = thread::scope(|scope| {
        let made = scope.spawn(|| root.make());
        let kernels = kernel::fetch_all(&cache, series, progress);
        if !has_root && !made.is_finished() {
            progress("waiting for the build root");
        }
        made.join().expect("making the root does not panic")?;
        kernels
    })?;

    let modules = module::build_all(&cache, &root, &kernels, progress)?;
    let mut images = Vec::with_capacity(kernels.len());
    for (kernel, module) in kernels.iter().zip(&modules) {
        let parts = initramfs::Parts { kernel, module, evenkeel: evenkeel_binary };
        let initramfs = initramfs::build(&cache, &root, &parts, progress)?;
        images.push(GuestImage {
            series: kernel.series,
            release: kernel.release.clone(),
            vmlinuz: kernel.vmlinuz(),
            initramfs,
        });
    }
    cache.prune();
    Ok(images)
}

/// The root that the programs of guests come from, which [`prepare`] makes.
pub fn root_dir() -> PathBuf {
    cache_dir().join(ROOT)
}

/// The same image with PostgreSQL in it. The first time this takes a minute and the network.
///
/// # Errors
/// [`PrepareError`], with what to do next.
pub fn with_database(image: &GuestImage, progress: &dyn Fn(&str)) -> Result<GuestImage, PrepareError> {
    let cache = Cache::open(progress)?;
    let root = Root::new(&cache)?;
    root.add_database()?;
    let initramfs = initramfs::with_database(&cache, &root, &image.initramfs, progress)?;
    Ok(GuestImage { initramfs, ..image.clone() })
}
