//! What libvirt notes of its running domains, in a file each (`/run/libvirt/qemu/NAME.xml`). libvirt itself is not
//! asked.
//!
//! The files are root's, but what they contain is untrusted text all the same: a name may be anything, and a file may
//! be half written when it is read.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use evenkeel_settings::address::PORT_NAME;
use roxmltree::{Document, Node, ParsingOptions};

use crate::file;

/// Where libvirt notes what runs.
pub(in crate::host) const DIRECTORY: &str = "/run/libvirt/qemu";
/// More than libvirt writes of the largest VM.
const MOST_BYTES: u64 = 2 << 20;
/// Elements and texts of such a file, at most.
const MOST_NODES: u32 = 200_000;
/// Longest name of a domain: libvirt names a file after it, and no file's name is longer.
const MOST_NAME_BYTES: usize = 255;

/// A running domain, as far as its ports are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Domain {
    /// What it is called.
    pub name: String,
    /// QEMU's process.
    pub process: u32,
    /// Names of its network devices on the host.
    pub taps: Vec<String>,
    /// The Unix socket of the virtio port that the guest's agent has.
    pub channel: Option<PathBuf>,
}

/// Reads what libvirt has written.
///
/// # Errors
/// What is wrong with it; half a file is an error, too.
pub(super) fn parse(text: &str) -> Result<Domain, String> {
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| error.to_string())?;
    let status = document.root_element();
    if !status.has_tag_name("domstatus") {
        return Err("it is no status of a domain (domstatus)".to_owned());
    }
    let process = status.attribute("pid").and_then(|pid| pid.parse().ok()).filter(|pid| *pid > 0);
    let domain = child(status, "domain").ok_or("it has no domain")?;
    let name = child(domain, "name").and_then(|name| name.text()).filter(|name| !name.is_empty());
    let name = name.ok_or("its domain has no name")?;
    if name.len() > MOST_NAME_BYTES {
        return Err(format!("its domain's name is longer than {MOST_NAME_BYTES} bytes"));
    }
    let devices = || child(domain, "devices").into_iter().flat_map(|devices| devices.children());
    let interfaces = devices().filter(|device| device.has_tag_name("interface"));
    let target = |interface: Node<'_, '_>| child(interface, "target")?.attribute("dev").map(str::to_owned);
    Ok(Domain {
        name: name.to_owned(),
        process: process.ok_or("it does not say which process runs the domain (pid)")?,
        taps: interfaces.filter_map(target).collect(),
        channel: devices().find_map(channel),
    })
}

fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.has_tag_name(name))
}

/// The Unix socket of a device, if the device is the agent's channel and QEMU listens there.
fn channel(device: Node<'_, '_>) -> Option<PathBuf> {
    let is_unix = device.has_tag_name("channel") && device.attribute("type") == Some("unix");
    let target = child(device, "target").filter(|_| is_unix)?;
    let is_ours = target.attribute("type") == Some("virtio") && target.attribute("name") == Some(PORT_NAME);
    let source = child(device, "source").filter(|_| is_ours)?;
    let path = source.attribute("path").filter(|path| path.starts_with('/'))?;
    (source.attribute("mode") != Some("connect")).then(|| path.into())
}

/// Identifies a file as it was when it was read: one that libvirt rewrites has another inode, size or time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self { inode: metadata.ino(), bytes: metadata.len(), changed: (metadata.ctime(), metadata.ctime_nsec()) }
    }
}

#[derive(Debug)]
struct Known {
    stamp: Stamp,
    /// The domain as it was last read.
    domain: Option<Domain>,
    /// Why the file as it is now could not be read.
    trouble: Option<String>,
}

/// All files of a directory, each read when it has changed.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    known: BTreeMap<PathBuf, Known>,
    /// Why the directory is not read.
    trouble: Option<String>,
}

impl Files {
    /// None is read yet.
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), known: BTreeMap::new(), trouble: None }
    }

    /// The domains that were there at the last look.
    pub(super) fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.known.values().filter_map(|known| known.domain.as_ref())
    }

    /// Whether some file could not be read, so that it is worth another look.
    pub(super) fn is_partial(&self) -> bool {
        self.trouble.is_some() || self.known.values().any(|known| known.trouble.is_some())
    }

    /// Reads what has changed.
    pub(super) fn look(&mut self) {
        let outcome = self.list();
        let paths = match outcome {
            Ok(paths) => paths,
            // A host without libvirt.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                let why = error.to_string();
                if self.trouble.as_ref() != Some(&why) {
                    tracing::warn!(directory = %self.directory.display(), "libvirt's domains are not known: {why}");
                }
                self.trouble = Some(why);
                self.known.clear();
                return;
            }
        };
        self.trouble = None;
        self.known.retain(|path, _| paths.contains(path));
        for path in paths {
            self.read(path);
        }
    }

    /// The files, if nobody but root can have put them there.
    fn list(&self) -> io::Result<Vec<PathBuf>> {
        let own = fs::metadata(&self.directory)?;
        trusted(&own).map_err(io::Error::other)?;
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "xml") {
                paths.push(path);
            }
        }
        paths.sort_unstable();
        Ok(paths)
    }

    fn read(&mut self, path: PathBuf) {
        // A file that has gone meanwhile is not there at the next look.
        let Ok(metadata) = fs::symlink_metadata(&path) else { return };
        let stamp = Stamp::of(&metadata);
        let before = self.known.remove(&path);
        if before.as_ref().is_some_and(|known| known.stamp == stamp && known.trouble.is_none()) {
            self.known.extend(before.map(|known| (path, known)));
            return;
        }
        let (domain, trouble) = match read(&path, &metadata) {
            Ok(domain) => (Some(domain), None),
            Err(why) => {
                if before.as_ref().and_then(|known| known.trouble.as_ref()) != Some(&why) {
                    tracing::debug!(file = %path.display(), "a domain's file cannot be read: {why}");
                }
                // The file may be half written: what it said before is the best that is known.
                (before.and_then(|known| known.domain), Some(why))
            }
        };
        self.known.insert(path, Known { stamp, domain, trouble });
    }
}

fn read(path: &Path, metadata: &Metadata) -> Result<Domain, String> {
    if metadata.len() > MOST_BYTES {
        return Err(format!("it is longer than {MOST_BYTES} bytes"));
    }
    let (text, metadata) = file::read(path).map_err(|error| error.to_string())?;
    trusted(&metadata)?;
    parse(&text)
}

/// Whether only root, or the user who runs this, can have written it.
fn trusted(metadata: &Metadata) -> Result<(), String> {
    let own = nix::unistd::geteuid().as_raw();
    if metadata.uid() != 0 && metadata.uid() != own {
        return Err(format!("it belongs to user {}; only root's is believed", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(format!("others than its owner may write it (mode {:o})", metadata.mode() & 0o7777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    /// The file as libvirt 9.0 has left it, but for most of QEMU's capabilities.
    const WEB1: &str = include_str!("fixtures/web1.xml");
    const PATH: &str = "/var/lib/libvirt/qemu/channel/target/domain-1-web1/org.evenkeel.0";

    fn web1() -> Domain {
        let taps = ["vnet0", "vnet1"].map(str::to_owned).into();
        Domain { name: "web1".to_owned(), process: 23659, taps, channel: Some(PATH.into()) }
    }

    #[test]
    fn a_domain_of_libvirt_is_read() {
        assert_eq!(parse(WEB1), Ok(web1()));
    }

    #[test]
    fn only_a_channel_that_qemu_listens_at_is_one() {
        for (from, to) in [
            ("org.evenkeel.0'", "org.qemu.guest_agent.0'"),
            ("mode='bind'", "mode='connect'"),
            ("<channel type='unix'", "<channel type='pty'"),
            ("path='/var/lib/libvirt/qemu/channel", "path='var"),
        ] {
            let text = WEB1.replace(from, to);
            assert_ne!(text, WEB1);
            assert_eq!(parse(&text), Ok(Domain { channel: None, ..web1() }), "{to}");
        }
    }

    #[test]
    fn a_name_may_be_anything() {
        let text = WEB1.replace("<name>web1</name>", "<name>&lt;a&gt;\"&#10;{}\u{202e}\\ é</name>");
        assert_eq!(parse(&text).unwrap().name, "<a>\"\n{}\u{202e}\\ é");
        for (name, why) in [("", "no name"), (&"x".repeat(256), "longer than 255 bytes")] {
            let text = WEB1.replace("<name>web1</name>", &format!("<name>{name}</name>"));
            assert!(parse(&text).unwrap_err().contains(why), "{name}");
        }
    }

    #[test]
    fn what_is_no_status_says_so() {
        let bomb = "<!DOCTYPE d [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><domstatus>&b;</domstatus>";
        for (text, why) in [
            ("<domain/>", "no status of a domain"),
            ("<domstatus pid='7'/>", "no domain"),
            (&WEB1.replace("pid='23659'", "pid='0'"), "which process"),
            (&WEB1.replace("pid='23659'", "pid='-1'"), "which process"),
            (bomb, "DTD"),
            ("", "root"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn depth_and_width_are_bounded() {
        let room = MOST_BYTES as usize;
        let deep = "<a>".repeat(room / 3);
        assert!(parse(&deep).is_err());
        let closed = format!("{}{}", "<a>".repeat(room / 7), "</a>".repeat(room / 7));
        assert!(parse(&closed).is_err());
        let wide = format!("<domstatus>{}</domstatus>", "<a/>".repeat(MOST_NODES as usize + 1));
        assert!(parse(&wide).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,300}", cut in 0usize..6000, byte in proptest::num::u8::ANY) {
            let _ = parse(&text);
            // A file that is half written, and one with a damaged byte.
            let half = WEB1.get(..cut).unwrap_or(WEB1);
            prop_assert!(half.len() == WEB1.len() || parse(half).is_err());
            let mut damaged = WEB1.as_bytes().to_vec();
            damaged[cut % WEB1.len()] = byte;
            if let Ok(text) = String::from_utf8(damaged) {
                let _ = parse(&text);
            }
        }
    }

    fn names(files: &Files) -> Vec<&str> {
        files.domains().map(|domain| domain.name.as_str()).collect()
    }

    #[test]
    fn files_come_are_half_written_and_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("web1.xml");
        let mut files = Files::new(&directory.path().join("absent"));
        files.look();
        assert!(names(&files).is_empty() && !files.is_partial());

        let mut files = Files::new(directory.path());
        files.look();
        fs::write(directory.path().join("web1.pid"), "23659").unwrap();
        fs::write(&path, &WEB1[..700]).unwrap();
        files.look();
        assert!(names(&files).is_empty() && files.is_partial());
        fs::write(&path, WEB1).unwrap();
        files.look();
        assert!(names(&files) == ["web1"] && !files.is_partial());
        // What was known stays while the file is written anew.
        fs::write(&path, &WEB1[..900]).unwrap();
        files.look();
        assert!(names(&files) == ["web1"] && files.is_partial());
        fs::write(directory.path().join("new.xml"), WEB1.replace("web1", "web2")).unwrap();
        fs::rename(directory.path().join("new.xml"), &path).unwrap();
        files.look();
        assert!(names(&files) == ["web2"] && !files.is_partial());
        fs::remove_file(&path).unwrap();
        files.look();
        assert!(names(&files).is_empty() && !files.is_partial());
    }

    #[test]
    fn what_others_can_write_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("web1.xml");
        fs::write(&path, WEB1).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let seen = || {
            let mut files = Files::new(directory.path());
            files.look();
            (files.domains().count(), files.is_partial())
        };
        assert_eq!(seen(), (1, false));
        mode(&path, 0o620);
        assert_eq!(seen(), (0, true));
        mode(&path, 0o600);
        mode(directory.path(), 0o777);
        assert_eq!(seen(), (0, true));
        mode(directory.path(), 0o755);
        std::os::unix::fs::chown(&path, Some(64055), None).expect("this test needs root");
        assert_eq!(seen(), (0, true));
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        fs::File::create(&path).unwrap().set_len(MOST_BYTES + 1).unwrap();
        assert_eq!(seen(), (0, true));
    }
}
