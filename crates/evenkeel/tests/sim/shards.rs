//! Sweeps that several machines divide.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::bed::{Bed, SMALL};

/// Runs all shards, one after the other.
fn shards(place: &Bed, of: u32, out: &str) {
    for number in 1..=of {
        let shard = format!("{number}/{of}");
        let said = place.good(&["sweep", "s.toml", "--quiet", "--out", out, "--shard", &shard]);
        let directory = format!("{out}/shard-{number}-of-{of}");
        assert!(said.contains(&directory) && said.contains(&format!("`evenkeel sweep --merge {out}`")), "{said}");
    }
}

fn meta(place: &Bed, out: &str) -> serde_json::Value {
    let mut meta: serde_json::Value =
        serde_json::from_slice(&fs::read(place.path(out).join("meta.json")).unwrap()).unwrap();
    meta["started"] = serde_json::Value::Null;
    meta
}

#[test]
fn shards_put_together_are_the_sweep_that_was_not_divided() {
    let place = Bed::new(SMALL);
    place.good(&["sweep", "s.toml", "--quiet", "--out", "whole"]);
    // More shards than runs: some have none.
    for of in [1, 3, 20] {
        let out = format!("by-{of}");
        shards(&place, of, &out);
        let table = place.good(&["sweep", "--merge", &out]);
        assert!(table.contains("goodput"), "{table}");
        assert!(place.lines(&out) == place.lines("whole"), "{of}");
        assert_eq!(meta(&place, &out), meta(&place, "whole"));
        // It is the sweep: there is nothing left to do, and it can be put together again.
        let (code, _, err) = place.run(&["sweep", "s.toml", "--out", &out]);
        assert!(code == 0 && err.contains("all 16 runs are there already"), "{err}");
        place.good(&["sweep", "--merge", &out]);
    }
    // By the shards' own names, into another place, as tables.
    let directories = ["by-3/shard-2-of-3", "by-3/shard-1-of-3", "by-3/shard-3-of-3"];
    place.good(&[&["sweep", "--out", "tables", "--format", "parquet", "--merge"], &directories[..]].concat());
    place.good(&["sweep", "s.toml", "--quiet", "--out", "whole-tables", "--format", "parquet"]);
    let runs = |out: &str| fs::read(place.path(out).join("runs.parquet")).unwrap();
    assert!(runs("tables") == runs("whole-tables"));
}

#[test]
fn what_is_missing_of_shards_is_said() {
    let place = Bed::new(SMALL);
    shards(&place, 4, "out");
    fs::remove_dir_all(place.path("out/shard-2-of-4")).unwrap();
    // As a kill leaves it: two of four runs are there.
    let third = place.path("out/shard-3-of-4");
    let lines = String::from_utf8(place.lines("out/shard-3-of-4")).unwrap();
    fs::create_dir(third.join("unfinished")).unwrap();
    for (index, line) in [2, 6, 10, 14].into_iter().zip(lines.lines()).take(2) {
        fs::write(third.join(format!("unfinished/{index:06}.json")), line).unwrap();
    }
    // As nothing of evenkeel's leaves a shard.
    let lines = String::from_utf8(place.lines("out/shard-4-of-4")).unwrap();
    fs::write(place.path("out/shard-4-of-4/runs.jsonl"), lines.lines().next().unwrap().to_owned() + "\n").unwrap();
    let (code, out, err) = place.run(&["sweep", "--merge", "out"]);
    assert_eq!((code, out.as_str()), (1, ""));
    let said: Vec<&str> = err.lines().collect();
    assert_eq!(
        said,
        [
            "error: shard 2/4 is not there",
            "error: shard 3/4: 2 of 4 runs are not in out/shard-3-of-4/unfinished",
            "error: shard 3/4: missing: rate = 20, cc = reno, repetition 2",
            "error: shard 3/4: missing: rate = 40, cc = reno, repetition 2",
            "error: shard 4/4: 3 of 4 runs are not in out/shard-4-of-4/runs.jsonl",
            "error: shard 4/4: missing: rate = 40, cc = cubic, repetition 1",
            "error: shard 4/4: missing: rate = 20, cc = cubic, repetition 2",
            "error: shard 4/4: missing: rate = 40, cc = cubic, repetition 2",
            "help: `evenkeel sweep FILE --shard I/N` runs what is missing of a shard, and keeps the rest",
        ]
    );
    assert!(!place.path("out/runs.jsonl").exists());
    // The help is true, but for what was changed by hand.
    fs::remove_dir_all(place.path("out/shard-4-of-4")).unwrap();
    shards(&place, 4, "out");
    place.good(&["sweep", "--merge", "out"]);
    place.good(&["sim", "s.toml", "--quiet", "--out", "whole"]);
    assert!(place.lines("out") == place.lines("whole"));
}

#[test]
fn shards_of_two_sweeps_are_not_put_together() {
    let place = Bed::new(SMALL);
    shards(&place, 2, "one");
    let refused = |arguments: &[&str], why: &str| {
        let (code, _, err) = place.run(&[&["sweep", "--out", "all", "--merge"], arguments].concat());
        assert!(code != 0 && err.contains(why), "{arguments:?}: {err}");
        assert!(!place.path("all/runs.jsonl").exists());
    };
    place.good(&["sweep", "s.toml", "--quiet", "--out", "more", "--shard", "2/2", "--repetitions", "3"]);
    let more = "more/shard-2-of-2";
    refused(&["one/shard-1-of-2", more], "are not of one sweep: with another number of repetitions");
    place.good(&["sweep", "s.toml", "--quiet", "--out", "three", "--shard", "2/3"]);
    refused(&["one/shard-1-of-2", "three"], "are not of one sweep: they are shards 1/2 and 2/3");
    refused(&["one/shard-1-of-2", "one/shard-1-of-2"], "in use");
    fs::create_dir(place.path("copy")).unwrap();
    for file in ["sweep.json", "meta.json", "runs.jsonl"] {
        fs::copy(place.path("one/shard-1-of-2").join(file), place.path("copy").join(file)).unwrap();
    }
    refused(&["one", "copy"], "shard 1/2 is there twice: one/shard-1-of-2 and copy");
    // Of another version.
    let file = place.path("copy/sweep.json");
    let text = fs::read_to_string(&file).unwrap();
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version));
    fs::write(&file, text.replace(&version, "\"version\":\"0.0.9\"")).unwrap();
    refused(&["one/shard-2-of-2", "copy"], "are not of one sweep: another version of evenkeel made them");
    fs::create_dir(place.path("empty")).unwrap();
    refused(&["empty"], "there is no shard in empty");
    place.good(&["sweep", "s.toml", "--quiet", "--out", "whole"]);
    refused(&["whole"], "whole is no shard of a sweep");
    let (code, _, err) = place.run(&["sweep", "--merge", "one/shard-1-of-2", more]);
    assert!(code == 2 && err.contains("--out says where the results go"), "{err}");
    // Results of another sweep stay, unless they may go.
    place.good(&["sweep", "s.toml", "--quiet", "--out", "all", "--repetitions", "1"]);
    let (code, _, err) = place.run(&["sweep", "--merge", "one", "--out", "all"]);
    assert!(code == 1 && err.contains("another number of repetitions") && err.contains("--restart"), "{err}");
    place.good(&["sweep", "--merge", "one", "--out", "all", "--restart"]);
    assert!(place.lines("all") == place.lines("whole"));
}

#[test]
fn a_shard_that_is_being_run_has_its_directory_to_itself() {
    let place = Bed::new(&SMALL.replace("duration_ms = 100", "duration_ms = 2000000"));
    let command = ["sweep", "s.toml", "--quiet", "--jobs", "1", "--out", "out", "--shard", "2/3"];
    let mut child = place.command(&command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !place.path("out/shard-2-of-3/sweep.json").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(2));
    }
    for arguments in [&command[..], &["sweep", "--merge", "out"]] {
        let (code, _, err) = place.run(arguments);
        let holder = format!("process {}", child.id());
        assert!(code == 1 && err.contains("out/shard-2-of-3 is in use") && err.contains(&holder), "{err}");
    }
    // Another shard is free.
    let short = ["sweep", "s.toml", "--quiet", "--out", "out", "--shard", "40/40"];
    place.good(&short);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn shards_are_said_as_they_are() {
    let place = Bed::new(SMALL);
    for shard in ["0/3", "4/3", "1", "a/b"] {
        let (code, _, err) = place.run(&["sweep", "s.toml", "--shard", shard]);
        assert!(code == 2 && err.contains("as in 3/16"), "{err}");
    }
    for arguments in [&["s.toml", "--merge", "x"][..], &["--merge", "x", "--shard", "1/2"], &[]] {
        assert_eq!(place.run(&[&["sweep"], arguments].concat()).0, 2, "{arguments:?}");
    }
}
