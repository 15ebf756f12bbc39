//! A machine's files before and after a window, from one text: `@@ before` and `@@ after` begin a snapshot,
//! `@ PATH` a file, `@ PATH -> TARGET` is a link, and `@ qdiscs` what netlink has answered, as hexadecimal digits.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::super::figures::{Figures, Watched, diff};
use super::super::files::Files;
use super::super::qdisc::Qdiscs;
use super::super::snapshot::Snapshot;

/// Lays a snapshot's files below a directory, and gives the hexadecimal digits.
fn unpack(text: &str, root: &Path) -> Option<String> {
    let mut qdiscs = None;
    for entry in text.split("\n@ ").skip(1) {
        let (head, body) = entry.split_once('\n').unwrap_or((entry, ""));
        if head == "qdiscs" {
            qdiscs = Some(body.trim().to_owned());
            continue;
        }
        let (path, target) = head.split_once(" -> ").unwrap_or((head, ""));
        let path = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if target.is_empty() {
            fs::write(path, format!("{body}\n")).unwrap();
        } else {
            std::os::unix::fs::symlink(target, path).unwrap();
        }
    }
    qdiscs
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Both snapshots of a fixture.
pub(super) fn snapshots(text: &str) -> [Snapshot; 2] {
    let (before, after) = text.split_once("\n@@ after").unwrap();
    [before, after].map(|text| {
        let root: TempDir = tempfile::tempdir().unwrap();
        let digits = unpack(text, root.path());
        let mut qdiscs = Qdiscs::default();
        let asked = match &digits {
            Some(digits) => {
                qdiscs.take(&bytes(digits)).map(|is_whole| assert!(is_whole)).map_err(|error| error.to_string())
            }
            None => Err("not recorded".to_owned()),
        };
        let qdiscs = asked.as_ref().map(|()| &qdiscs).map_err(String::as_str);
        Snapshot::read(Files::below(root.path()), qdiscs)
    })
}

/// What happened in a fixture.
pub(super) fn figures(text: &str, time: Duration) -> Figures {
    let [before, after] = snapshots(text);
    diff(&before, &after, &Watched { time, ..Watched::default() })
}
