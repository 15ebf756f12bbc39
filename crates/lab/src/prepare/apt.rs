//! An apt state of the lab's own: it reads any suite and leaves the machine's sources and lists alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cache::{self, Cache};
use super::error::PrepareError;
use super::root::Mirrors;
use super::run::Run;

/// How often to look for a newer kernel, and how soon again when that failed.
const REFRESH_EVERY: Duration = Duration::from_secs(24 * 3600);
const RETRY_AFTER: Duration = Duration::from_secs(3600);

/// A Debian release with the suites that belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    Bookworm,
    Trixie,
}

impl Release {
    fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }

    /// The suites to read besides security.
    fn suites(self) -> &'static [&'static str] {
        match self {
            Self::Bookworm => &["bookworm", "bookworm-updates"],
            Self::Trixie => &["trixie", "trixie-updates", "trixie-backports"],
        }
    }
}

/// A package in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
}

/// One release's private apt state.
pub(super) struct Apt {
    release: Release,
    dir: PathBuf,
    log: PathBuf,
}

impl Apt {
    /// The state in the cache; [`Apt::refresh`] fills it.
    pub(super) fn new(cache: &Cache, release: Release) -> Self {
        Self { release, dir: cache.path("apt").join(release.name()), log: cache.log() }
    }

    /// The suites, for messages.
    pub(super) fn suites(&self) -> String {
        format!("{} and {}-security", self.release.suites().join(", "), self.release.name())
    }

    /// What apt said.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// The file whose time says when the lists were fetched.
    pub(super) fn stamp(&self) -> PathBuf {
        self.dir.join("refreshed")
    }

    /// Whether the lists are recent enough, or were asked for in vain so recently that it makes no sense to ask again.
    pub(super) fn is_fresh(&self) -> bool {
        let within = |name: &str, limit| cache::age(&self.dir.join(name)).is_some_and(|age| age < limit);
        within("refreshed", REFRESH_EVERY) || (within("failed", RETRY_AFTER) && self.stamp().exists())
    }

    /// Fetches the lists.
    pub(super) fn refresh(&self) -> Result<(), PrepareError> {
        let result = self.write_config().and_then(|()| {
            self.run("apt-get", format!("fetch Debian's package lists for {}", self.release.name()))
                .args(["-q", "update"])
                .output(&self.log)
        });
        let stamp = if result.is_ok() { "refreshed" } else { "failed" };
        let _ = fs::write(self.dir.join(stamp), "");
        result.map(drop)
    }

    /// The packages named `linux-...` that installing `names` would bring, in the newest version there is, from
    /// `suite` if given.
    pub(super) fn resolve(&self, names: &[&str], suite: Option<&str>) -> Result<Vec<Package>, PrepareError> {
        let mut run = self.run("apt-get", format!("resolve {}", names.join(" and ")));
        if let Some(suite) = suite {
            run = run.args(["-t", suite]);
        }
        let said = run.args(["-s", "install"]).args(names).output(&self.log)?;
        Ok(parse_simulation(&said))
    }

    /// Fetches packages into `dir`. apt checks them against the signed lists.
    pub(super) fn download(&self, packages: &[Package], dir: &Path) -> Result<(), PrepareError> {
        self.run("apt-get", "download kernel packages")
            .args(["-q", "download"])
            .args(packages.iter().map(|package| format!("{}={}", package.name, package.version)))
            .dir(dir)
            .output(&self.log)
            .map(drop)
    }

    fn run(&self, program: &str, what: impl Into<String>) -> Run {
        Run::new(program, what).env("APT_CONFIG", self.dir.join("apt.conf"))
    }

    /// Writes the sources and a configuration that replaces the machine's, except for how to reach an archive
    /// (proxies, certificates), which is taken over. The machine's hooks must not run for our lists.
    fn write_config(&self) -> Result<(), PrepareError> {
        cache::make_dir(&self.dir.join("lists/partial"))?;
        cache::make_dir(&self.dir.join("cache/archives/partial"))?;
        cache::make_dir(&self.dir.join("state"))?;
        cache::write(&self.dir.join("state/status"), "")?;

        let mirrors = Mirrors::find(&self.log)?;
        let keys = ["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"];
        let keyring = keys.into_iter().find(|path| Path::new(path).exists()).ok_or(PrepareError::MissingProgram {
            program: "Debian's archive keyring",
            package: "debian-archive-keyring",
        })?;
        let mut sources = String::new();
        let security = format!("{}-security", self.release.name());
        let suites = self.release.suites().iter().map(|suite| (&mirrors.archive, *suite));
        for (uri, suite) in suites.chain(mirrors.security.iter().map(|uri| (uri, security.as_str()))) {
            sources += &format!("deb [signed-by={keyring}] {uri} {suite} main\n");
        }
        cache::write(&self.dir.join("sources.list"), sources)?;

        let dump = Run::new("apt-config", "read apt's settings").args(["dump", "Acquire"]).output(&self.log)?;
        let mut config: String =
            dump.lines().filter(|line| is_access_setting(line)).map(|line| format!("{line}\n")).collect();
        let dir = self.dir.display();
        config += &format!(
            r#"Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourcelist "{dir}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "{dir}/state";
Dir::State::lists "{dir}/lists";
Dir::State::status "{dir}/state/status";
Dir::Cache "{dir}/cache";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Log "{dir}/state";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::GzipIndexes "true";
Acquire::Retries "0";
APT::Update::Error-Mode "any";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
"#
        );
        cache::write(&self.dir.join("apt.conf"), config)
    }
}

/// Whether a line of `apt-config dump` says how to reach an archive.
fn is_access_setting(line: &str) -> bool {
    let proto = ["Acquire::http::", "Acquire::https::", "Acquire::ftp::", "Acquire::ForceIPv", "Acquire::Check-"];
    proto.iter().any(|prefix| line.starts_with(prefix)) && !line.contains("::Timeout")
}

/// The `linux-...` packages of `apt-get -s install`.
fn parse_simulation(said: &str) -> Vec<Package> {
    said.lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
            let version = rest.trim_start().strip_prefix('(')?.split_whitespace().next()?;
            // linux-base and linux-libc-dev are for a system that boots from disk, or for user space.
            let wanted = name.starts_with("linux-") && name != "linux-base" && name != "linux-libc-dev";
            wanted.then(|| Package { name: name.to_owned(), version: version.to_owned() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_names_kernel_packages_with_versions() {
        let said = "Reading package lists...\n\
            Inst libc6 (2.41-12 Debian:13.7/stable [amd64])\n\
            Inst linux-base (4.12.1 Debian:13.7/stable [all])\n\
            Inst linux-image-6.12.117+deb13-cloud-amd64 (6.12.117-1 Debian-Security:13/stable-security [amd64])\n\
            Conf linux-image-6.12.117+deb13-cloud-amd64 (6.12.117-1 Debian-Security:13/stable-security [amd64])\n";
        let package =
            Package { name: "linux-image-6.12.117+deb13-cloud-amd64".to_owned(), version: "6.12.117-1".to_owned() };
        assert_eq!(parse_simulation(said), [package]);
    }

    #[test]
    fn proxies_are_taken_over_and_hooks_are_not() {
        assert!(is_access_setting(r#"Acquire::http::Proxy "http://proxy:3128";"#));
        assert!(!is_access_setting(r#"APT::Update::Post-Invoke:: "rm -f x";"#));
        assert!(!is_access_setting(r#"Acquire::IndexTargets::deb::Packages::Optional "0";"#));
    }
}
