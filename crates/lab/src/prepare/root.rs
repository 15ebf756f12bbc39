//! The Debian root that builds the module and gives the guests their programs.

use std::path::{Path, PathBuf};

use super::cache::{self, Cache};
use super::error::PrepareError;
use super::run::Run;

const MAKE_ROOT: &str = include_str!("../../../../packaging/lab/make-root.sh");
const IN_ROOT: &str = include_str!("../../../../packaging/lab/in-root.sh");

/// The build root in the cache.
pub(super) struct Root {
    dir: PathBuf,
    make_script: PathBuf,
    enter_script: PathBuf,
    log: PathBuf,
}

impl Root {
    /// Where the root is or will be.
    pub(super) fn new(cache: &Cache) -> Result<Self, PrepareError> {
        let scripts = cache.path("scripts");
        cache::make_dir(&scripts)?;
        let place = |name: &str, text: &str| {
            let path = scripts.join(name);
            cache::write(&path, text).map(|()| path)
        };
        Ok(Self {
            dir: cache.path(super::ROOT),
            make_script: place("make-root.sh", MAKE_ROOT)?,
            enter_script: place("in-root.sh", IN_ROOT)?,
            log: cache.log(),
        })
    }

    /// Whether a root is there; [`Root::make`] sees whether it is the right one.
    pub(super) fn exists(&self) -> bool {
        self.dir.join("etc/evenkeel-root").exists()
    }

    /// The folder.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the root unless it is there.
    pub(super) fn make(&self) -> Result<(), PrepareError> {
        Run::new("sh", "make the build root").arg(&self.make_script).arg(&self.dir).output(&self.log).map(drop)
    }

    /// Adds PostgreSQL to it unless it is there.
    pub(super) fn add_database(&self) -> Result<(), PrepareError> {
        let run = Run::new("sh", "add PostgreSQL to the build root").arg(&self.make_script);
        run.arg("--with-database").arg(&self.dir).output(&self.log).map(drop)
    }

    /// Runs a shell command inside, with folders of this machine mounted at paths inside, and empty folders.
    pub(super) fn shell(
        &self,
        script: &str,
        mounts: &[(PathBuf, String)],
        empty: &[&str],
        what: impl Into<String>,
    ) -> Result<String, PrepareError> {
        let mut run = Run::new("sh", what).arg(&self.enter_script).arg(&self.dir);
        for dir in empty {
            run = run.args(["-t", dir]);
        }
        for (source, target) in mounts {
            run = run.arg("-b").arg(format!("{}:{target}", source.display()));
        }
        run.args(["--", "/bin/sh", "-euc", script]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output(&self.log)
    }

    /// What identifies the programs in the root.
    pub(super) fn key(&self) -> Result<String, PrepareError> {
        Ok(cache::key([cache::read(&self.dir.join("var/lib/dpkg/status"))?]))
    }
}

/// The Debian archives of this machine.
pub(super) struct Mirrors {
    /// The archive proper.
    pub(super) archive: String,
    /// The security archive, if apt knows one.
    pub(super) security: Option<String>,
}

impl Mirrors {
    /// Asks apt through the script that makes the root, so that both agree.
    pub(super) fn find(log: &Path) -> Result<Self, PrepareError> {
        let said = Run::new("sh", "find a Debian archive").args(["-c", MAKE_ROOT, "make-root.sh", "--print-mirrors"]);
        let said = said.output(log)?;
        let mut lines = said.lines().map(str::trim);
        Ok(Self {
            archive: lines.next().unwrap_or_default().to_owned(),
            security: lines.next().filter(|line| !line.is_empty()).map(str::to_owned),
        })
    }
}
