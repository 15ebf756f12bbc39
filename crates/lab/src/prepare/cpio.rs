//! Writes cpio archives in the `newc` form, the one that the kernel unpacks.

use std::collections::BTreeSet;

/// An archive that is being written. Folders above an entry are added automatically. Several archives one after the
/// other make one initramfs.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    inode: u32,
}

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHAR_DEVICE: u32 = 0o020_000;

impl Archive {
    /// A folder.
    pub(super) fn folder(&mut self, path: &str, mode: u32) {
        self.folders_above(path);
        if self.folders.insert(path.to_owned()) {
            self.entry(path, FOLDER | mode, (0, 0), &[]);
        }
    }

    /// A file.
    pub(super) fn file(&mut self, path: &str, mode: u32, data: &[u8]) {
        self.folders_above(path);
        self.entry(path, FILE | mode, (0, 0), data);
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.folders_above(path);
        self.entry(path, LINK | 0o777, (0, 0), target.as_bytes());
    }

    /// A character device.
    pub(super) fn device(&mut self, path: &str, mode: u32, number: (u32, u32)) {
        self.folders_above(path);
        self.entry(path, CHAR_DEVICE | mode, number, &[]);
    }

    /// The finished archive, padded so that another one can follow.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.pad();
        self.bytes
    }

    fn folders_above(&mut self, path: &str) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above, 0o755);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.inode += 1;
        let links = 1;
        let length = |bytes: usize| u32::try_from(bytes).expect("an entry of an initramfs is smaller than 4 GB");
        // ino, mode, uid, gid, nlink, mtime, filesize, dev (2), rdev (2), namesize with its NUL, check
        let header =
            [self.inode, mode, 0, 0, links, 0, length(data.len()), 0, 0, device.0, device.1, length(path.len() + 1), 0];
        self.bytes.extend_from_slice(b"070701");
        for field in header {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_once_and_before_what_they_hold() {
        let mut archive = Archive::default();
        archive.file("a/b/c", 0o644, b"see");
        archive.link("a/b/d", "c");
        let bytes = archive.finish();
        let names: Vec<_> = bytes.split(|byte| *byte == 0).filter(|part| part.starts_with(b"070701")).collect();
        let names: Vec<_> = names.iter().map(|part| String::from_utf8_lossy(&part[110..]).into_owned()).collect();
        // The link's header follows the file's data in the same run of bytes that are not NUL only if unpadded.
        assert_eq!(names[..3], ["a", "a/b", "a/b/c"]);
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn every_entry_starts_on_a_multiple_of_four() {
        let mut archive = Archive::default();
        for length in 0..9 {
            archive.file(&"x".repeat(length + 1), 0o644, &vec![b'.'; length]);
        }
        let bytes = archive.finish();
        let starts: Vec<_> =
            bytes.windows(6).enumerate().filter(|(_, six)| six == b"070701").map(|(at, _)| at).collect();
        assert_eq!(starts.len(), 10);
        assert!(starts.iter().all(|at| at % 4 == 0), "{starts:?}");
    }
}
