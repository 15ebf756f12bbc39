//! The guest module, built by dkms for each kernel from the sources in this binary.

use std::fs;
use std::path::PathBuf;
use std::thread;

use super::cache::{self, Cache};
use super::error::PrepareError;
use super::kernel::Kernel;
use super::root::Root;

/// Names of the module's files with their texts, as dkms wants them under `/usr/src`.
pub static SOURCES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/module_sources.rs"));

/// The module's name as the kernel has it.
pub(super) const MODULE: &str = "evenkeel_pvtcp";

/// The module for each kernel, in that order, built if need be.
pub(super) fn build_all(
    cache: &Cache,
    root: &Root,
    kernels: &[Kernel],
    progress: &dyn Fn(&str),
) -> Result<Vec<PathBuf>, PrepareError> {
    let sources = Sources::embedded()?;
    let wanted: Vec<_> = kernels
        .iter()
        .map(|kernel| {
            let id = kernel.dir.file_name().unwrap_or_default().to_string_lossy();
            (kernel, cache.path("modules").join(format!("{id}-{}", sources.key)))
        })
        .collect();
    for (kernel, dir) in &wanted {
        if !dir.is_dir() {
            progress(&format!("building {} for {}", sources.name, kernel.release));
        }
    }
    // At once: a build alone leaves processors idle much of its time, and there are only three kernels.
    thread::scope(|scope| {
        let builds: Vec<_> = wanted
            .into_iter()
            .map(|(kernel, dir)| {
                let sources = &sources;
                scope.spawn(move || {
                    if dir.is_dir() {
                        cache::touch(&dir);
                    } else {
                        sources.build(cache, root, kernel, &dir)?;
                    }
                    Ok(dir.join(format!("{MODULE}.ko")))
                })
            })
            .collect();
        builds.into_iter().map(|build| build.join().expect("building a module does not panic")).collect()
    })
}

/// What dkms.conf says of the module.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Name of the DKMS package.
    pub name: String,
    /// Its version.
    pub version: String,
    key: String,
}

impl Sources {
    /// Of the sources in this binary.
    ///
    /// # Errors
    /// [`PrepareError::NoModule`] if it was built without them.
    pub fn embedded() -> Result<Self, PrepareError> {
        let conf = SOURCES.iter().find(|(name, _)| *name == "dkms.conf").map(|(_, text)| *text);
        let conf = conf.ok_or(PrepareError::NoModule { what: "kernel/guest/pvtcp/dkms.conf" })?;
        let value = |key| setting(conf, key).map(str::to_owned);
        Ok(Self {
            name: value("PACKAGE_NAME").ok_or(PrepareError::NoModule { what: "PACKAGE_NAME in dkms.conf" })?,
            version: value("PACKAGE_VERSION").ok_or(PrepareError::NoModule { what: "PACKAGE_VERSION in dkms.conf" })?,
            key: cache::key(SOURCES.iter().flat_map(|(name, text)| [*name, *text])),
        })
    }

    fn build(&self, cache: &Cache, root: &Root, kernel: &Kernel, target: &std::path::Path) -> Result<(), PrepareError> {
        let scratch = cache.scratch(&format!("module-{}", kernel.release))?;
        let (source, out) = (scratch.join("source"), scratch.join("out"));
        cache::make_dir(&out)?;
        for (name, text) in SOURCES {
            let path = source.join(name);
            cache::make_dir(path.parent().unwrap_or(&source))?;
            cache::write(&path, text)?;
        }
        let (name, version, release) = (&self.name, &self.version, &kernel.release);
        let mut mounts = kernel.build_mounts()?;
        mounts.push((source, format!("/usr/src/{name}-{version}")));
        mounts.push((out.clone(), "/mnt".to_owned()));
        // dkms compresses modules where the kernel's own are; the initramfs wants them plain.
        let script = format!(
            "cd /var/lib/dkms
            dkms build {name}/{version} -k {release} || {{ cat {name}/{version}/build/make.log; exit 1; }}
            cp {name}/{version}/{release}/*/module/{MODULE}.ko* /mnt
            [ ! -e /mnt/{MODULE}.ko.xz ] || xz -d /mnt/{MODULE}.ko.xz"
        );
        root.shell(&script, &mounts, &["/var/lib/dkms", "/tmp"], format!("build {name} for kernel {release}"))?;
        cache.publish(&out, target)?;
        let _ = fs::remove_dir_all(scratch);
        Ok(())
    }
}

/// A value of dkms.conf, which is a shell script of assignments.
fn setting<'a>(conf: &'a str, key: &str) -> Option<&'a str> {
    conf.lines().find_map(|line| Some(line.trim().strip_prefix(key)?.strip_prefix('=')?.trim().trim_matches('"')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_with_and_without_quotes() {
        let conf = "# PACKAGE_NAME=no\nPACKAGE_NAME=\"evenkeel-pvtcp\"\nPACKAGE_VERSION=0.1.0\n";
        assert_eq!(setting(conf, "PACKAGE_NAME"), Some("evenkeel-pvtcp"));
        assert_eq!(setting(conf, "PACKAGE_VERSION"), Some("0.1.0"));
        assert_eq!(setting(conf, "CLEAN"), None);
    }
}
