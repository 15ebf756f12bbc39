//! Tells the program which code it is made of: the commit, and digests of the sources that decide an engine's figures.
//!
//! It is run again when one of these sources or the commit changes; away from a repository the commit is unknown.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use sha2::{Digest, Sha256};

/// What both engines have: what is drawn and placed, how measurements become metrics, what settings come to.
const SHARED: &[&str] = &[
    "crates/scenario/data",
    "crates/scenario/src/arrivals.rs",
    "crates/scenario/src/metric",
    "crates/scenario/src/placement.rs",
    "crates/scenario/src/random.rs",
    "crates/scenario/src/sizes.rs",
    "crates/scenario/src/slices.rs",
    "crates/scenario/src/sweep.rs",
    "crates/settings/src/cera.rs",
    "crates/settings/src/proboscis.rs",
    "crates/settings/src/pvtcp.rs",
    "crates/settings/src/vflood.rs",
    "crates/settings/src/vsnoop.rs",
];
/// The simulator has all mechanisms.
const OF_SIM: &[&str] = &["algo", "crates/algo/src", "crates/sim/src"];
const OF_LAB: &[&str] = &["kernel/lab", "crates/lab/src"];
/// What a lab's run has besides where PVTCP acts, and where another mechanism does.
const OF_PVTCP: &[&str] = &["algo/base/types.h", "algo/pvtcp", "kernel/guest/pvtcp"];
const OF_AGENTS: &[&str] = &[
    "algo",
    "crates/agent/src",
    "crates/algo/src",
    "kernel/guest/intf.h",
    "kernel/guest/kernel.h",
    "kernel/guest/socket.h",
    "kernel/host",
];
/// What only CERA runs, and what only vFlood does. The others of a host share code with each other, and are one part.
const OF_CERA: &[&str] = &[
    "algo/cera",
    "crates/agent/src/datapath/cera.rs",
    "crates/agent/src/host/cera",
    "crates/algo/src/cera",
    "crates/algo/src/cera.rs",
    "kernel/guest/cera",
    "kernel/host/cera",
];
const OF_VFLOOD: &[&str] = &[
    "algo/vflood",
    "crates/agent/src/datapath/vflood",
    "crates/agent/src/host/vflood",
    "crates/algo/src/vflood.rs",
    "kernel/guest/vflood",
    "kernel/host/vflood",
];
/// What goes into the program, whatever it decides, as git takes it.
const PROGRAM: &[&str] = &[
    "algo",
    "crates/*/src/*",
    "crates/*/build.rs",
    "crates/*/Cargo.toml",
    "crates/scenario/data",
    "kernel",
    "Cargo.toml",
    "Cargo.lock",
];
/// Digits of a digest.
const DIGITS: usize = 16;

fn main() {
    let top = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    // Of crates/python, too.
    println!("cargo::rerun-if-changed={}", top.join("crates/evenkeel/build.rs").display());
    let alone = [OF_CERA, OF_VFLOOD, &["algo/pvtcp"]].concat();
    for (name, paths, others) in [
        ("SIM", [SHARED, OF_SIM].concat(), vec![]),
        ("LAB", [SHARED, OF_LAB].concat(), vec![]),
        ("PVTCP", OF_PVTCP.to_vec(), vec![]),
        ("AGENTS", OF_AGENTS.to_vec(), alone),
        ("CERA", OF_CERA.to_vec(), vec![]),
        ("VFLOOD", OF_VFLOOD.to_vec(), vec![]),
    ] {
        println!("cargo::rustc-env=EVENKEEL_CODE_{name}={}", digest(&top, &paths, &others));
    }
    let git = Git::of(&top);
    let commit = git.as_ref().and_then(|git| git.says(&["rev-parse", "HEAD"])).unwrap_or_default();
    let changes = git.as_ref().and_then(|git| git.says(&[&["status", "--porcelain", "--"], PROGRAM].concat()));
    let clean = changes.map_or("", |changes| if changes.is_empty() { "true" } else { "false" });
    println!("cargo::rustc-env=EVENKEEL_COMMIT={commit}");
    println!("cargo::rustc-env=EVENKEEL_CLEAN={clean}");
    if let Some(git) = git {
        git.watch();
    }
}

/// The digest of all files below these paths but not below the others, in the order of their names.
fn digest(top: &Path, paths: &[&str], others: &[&str]) -> String {
    let mut files = Vec::new();
    for path in paths {
        println!("cargo::rerun-if-changed={}", top.join(path).display());
        collect(&top.join(path), &mut files);
    }
    files.retain(|file| !others.iter().any(|other| file.starts_with(top.join(other))));
    files.sort();
    let mut digest = Sha256::new();
    for file in files {
        let name = file.strip_prefix(top).expect("it is below the top").to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("cannot read {name}: {error}"));
        digest.update(format!("{name}\n{}\n", without_comments(&name, &text)));
    }
    format!("{:x}", digest.finalize())[..DIGITS].to_owned()
}

/// Sources and data; tests decide nothing.
fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    let name = path.file_stem().unwrap_or_default();
    if name == "tests" || name == "vmlinux" {
        return;
    }
    if !path.is_dir() {
        let kept = path.extension().is_some_and(|end| ["c", "csv", "h", "rs"].iter().any(|kept| end == *kept));
        return files.extend(kept.then(|| path.to_owned()));
    }
    for entry in fs::read_dir(path).expect("the sources are readable") {
        collect(&entry.expect("the sources are readable").path(), files);
    }
}

/// A text without the comments that have lines of their own, and without indentation.
fn without_comments(name: &str, text: &str) -> String {
    let mut inside = false;
    let is_code = |line: &&str| match line {
        line if name.ends_with(".rs") => !line.starts_with("//"),
        line if inside => {
            inside = !line.ends_with("*/");
            false
        }
        line if line.starts_with("/*") => {
            inside = !line.contains("*/");
            !inside && !line.ends_with("*/")
        }
        _ => true,
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).filter(is_code);
    lines.collect::<Vec<_>>().join("\n")
}

/// The repository that the sources are in.
struct Git<'a>(&'a Path);

impl<'a> Git<'a> {
    /// None in an archive that was unpacked, even below another repository, and without git.
    fn of(top: &'a Path) -> Option<Self> {
        let git = Self(top);
        let its_top = git.says(&["rev-parse", "--show-toplevel"])?;
        (fs::canonicalize(its_top).ok()? == fs::canonicalize(top).ok()?).then_some(git)
    }

    /// What git answers; none if it fails.
    fn says(&self, arguments: &[&str]) -> Option<String> {
        // Whoever owns the tree, reading it runs nothing of it.
        let any_owner = ["-c", "safe.directory=*", "-c", "core.fsmonitor=false"];
        let output = Command::new("git").arg("-C").arg(self.0).args(any_owner).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim_end().to_owned())
    }

    /// Has this run again when another commit is checked out or made, or the program's sources change.
    fn watch(&self) {
        let path = |name| self.says(&["rev-parse", "--git-path", name]).map(|path| self.0.join(path));
        let log = path("logs/HEAD").filter(|log| log.exists());
        if let Some(file) = log.or_else(|| path("HEAD")) {
            println!("cargo::rerun-if-changed={}", file.display());
        }
        for source in fs::read_dir(self.0.join("crates")).into_iter().flatten().flatten() {
            for part in ["src", "Cargo.toml", "build.rs"] {
                let path = source.path().join(part);
                if path.exists() {
                    println!("cargo::rerun-if-changed={}", path.display());
                }
            }
        }
        for part in ["kernel", "Cargo.toml", "Cargo.lock"] {
            println!("cargo::rerun-if-changed={}", self.0.join(part).display());
        }
    }
}
