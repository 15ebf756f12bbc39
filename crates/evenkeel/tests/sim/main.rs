//! `evenkeel sim` and `evenkeel sweep` as a user types them.

mod bed;
mod shards;
mod traces;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bed::{Bed, SMALL};

#[test]
fn a_simulation_prints_a_table_and_leaves_a_report() {
    let place = Bed::new(SMALL);
    let (code, out, err) = place.run(&["sim", "s.toml"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("small: Two machines\n") && out.contains("goodput"), "{out}");
    assert!(!out.contains("TCG"), "{out}");
    assert!(err.contains("small: 16 runs, ") && err.contains(" M events/s, in "), "{err}");
    let results = place.path("results/sim/small");
    let page = fs::read_to_string(results.join("report.html")).unwrap();
    assert!(page.contains("Simulated, ") && page.contains("evenkeel sim s.toml"));
    let meta: serde_json::Value = serde_json::from_slice(&fs::read(results.join("meta.json")).unwrap()).unwrap();
    assert_eq!((meta["engine"].as_str(), meta["command"].as_str()), (Some("sim"), Some("evenkeel sim s.toml")));
    assert_eq!(meta["versions"]["evenkeel"], env!("CARGO_PKG_VERSION"));
    assert!(!results.join("unfinished").exists());
    let markdown = place.good(&["report", "results/sim/small", "--markdown"]);
    assert!(markdown.contains("| 40 | cubic |") && markdown.contains("- Simulated: "), "{markdown}");
}

#[test]
fn results_say_what_made_them_and_pages_when_they_are_old() {
    let place = Bed::new(SMALL);
    place.good(&["sim", "s.toml", "--quiet", "--out", "r"]);
    let meta: serde_json::Value = serde_json::from_slice(&fs::read(place.path("r/meta.json")).unwrap()).unwrap();
    let made = &meta["provenance"];
    for digest in [&made["program"]["code"], &made["settings"]] {
        let digest = digest.as_str().unwrap();
        assert!(digest.len() == 16 && digest.chars().all(|c| c.is_ascii_hexdigit()), "{made}");
    }
    assert!(made["host"].as_str().unwrap().contains(", Linux "), "{made}");
    fs::create_dir_all(place.path("scenarios")).unwrap();
    fs::create_dir_all(place.path("pages")).unwrap();
    fs::write(place.path("scenarios/small.toml"), SMALL).unwrap();
    let out = place.good(&["report", "r", "--page", "pages/small.md", "--keep", "kept/small"]);
    assert!(out.starts_with("pages/small.md\nkept/small: ") && out.ends_with(" KB\n"), "{out}");
    let check = || place.good(&["report", "pages", "--check"]);
    assert_eq!(check(), "pages/small.md: current\n1 of 1 pages are current\n");
    let kept = place.good(&["report", "kept/small", "--markdown"]);
    assert_eq!(kept, fs::read_to_string(place.path("pages/small.md")).unwrap());
    fs::write(place.path("scenarios/small.toml"), SMALL.replace("[10, 20, 30, 40]", "[10, 20, 30, 41]")).unwrap();
    assert_eq!(check(), "pages/small.md: old: the scenario has changed since\n0 of 1 pages are current\n");
    let json = place.good(&["report", "pages", "--check", "--mark", "--json"]);
    assert!(json.contains("\"scenario\": \"small\""), "{json}");
    assert!(fs::read_to_string(place.path("pages/small.md")).unwrap().contains("**Old**: the scenario has changed"));
}

#[test]
fn kept_runs_are_run_again_and_compared() {
    let place = Bed::new(SMALL);
    fs::create_dir_all(place.path("scenarios")).unwrap();
    fs::create_dir_all(place.path("pages")).unwrap();
    fs::write(place.path("scenarios/small.toml"), SMALL).unwrap();
    place.good(&["sim", "s.toml", "--quiet", "--out", "r"]);
    place.good(&["report", "r", "--page", "pages/small.md", "--keep", "kept/small"]);
    let verify = |set: &str| place.run(&["verify", set, "--pages", "pages"]);
    let sample = |set: &str| place.run(&["verify", set, "--pages", "pages", "--runs", "2"]);
    let equal = "16 of 16 runs, equal to the last digit";
    let (code, out, err) = verify("kept");
    assert_eq!((code, out), (0, format!("kept/small: {equal}\n1 sets are equal, 0 differ, 0 were not run\n")), "{err}");
    // As if other code had made them.
    let meta = fs::read_to_string(place.path("r/meta.json")).unwrap();
    let code_of = |text: &str| text.split("\"code\": \"").nth(1).unwrap()[..16].to_owned();
    let now = code_of(&meta);
    let older = |file: &str| {
        let text = fs::read_to_string(place.path(file)).unwrap();
        assert!(text.contains(&now), "{file}");
        fs::write(place.path(file), text.replace(&now, "0123456789abcdef")).unwrap();
    };
    older("r/meta.json");
    older("pages/small.md");
    // A page of another scenario that was begun in the same second.
    let other = fs::read_to_string(place.path("pages/small.md")).unwrap().replace("`small`", "`other`");
    fs::write(place.path("pages/other.md"), &other).unwrap();
    let check = || place.good(&["report", "pages", "--check"]);
    assert!(check().contains("pages/small.md: old: the code has changed since"), "{}", check());
    let unmarked = fs::read_to_string(place.path("pages/small.md")).unwrap();
    let (code, out, err) = sample("r");
    let seen = "r: 2 of 16 runs, equal to the last digit; a sample, nothing is noted\n";
    assert!(code == 0 && out.starts_with(seen), "{out}{err}");
    assert_eq!(fs::read_to_string(place.path("pages/small.md")).unwrap(), unmarked);
    let (code, out, err) = verify("r");
    let noted = format!("r: {equal}; noted in pages/small.md\n1 sets are equal, 0 differ, 0 were not run\n");
    assert_eq!((code, out), (0, noted), "{err}");
    assert_eq!(fs::read_to_string(place.path("pages/other.md")).unwrap(), other);
    fs::remove_file(place.path("pages/other.md")).unwrap();
    assert_eq!(check(), "pages/small.md: current\n1 of 1 pages are current\n");
    let page = fs::read_to_string(place.path("pages/small.md")).unwrap();
    assert!(page.contains("Run again by commit ") && page.contains(": all 16 runs, equal to the last digit"), "{page}");
    assert_eq!(place.good(&["report", "r", "--markdown"]), page);
    // Other results, as if they were of this scenario.
    fs::write(place.path("s.toml"), SMALL.replace("rate_mbit = 100", "rate_mbit = 100\ndelay_us = 70")).unwrap();
    place.good(&["sim", "s.toml", "--quiet", "--out", "other"]);
    let text = fs::read_to_string(place.path("other/meta.json")).unwrap();
    fs::write(place.path("other/meta.json"), text.replace("\\ndelay_us = 70", "")).unwrap();
    let (code, out, err) = place.run(&["verify", "other", "--pages", "pages"]);
    assert!(code == 1 && out.contains("other: differs: rate=10, cc=reno (0): "), "{out}{err}");
    assert!(err.contains("error: runs of now differ from those that are kept"), "{err}");
}

#[test]
fn a_scorecard_is_made_of_what_is_kept() {
    let place = Bed::new(SMALL);
    let paper = "[[paper]]\nsource = \"CERA Fig. 2\"\ncell = { cc = \"reno\" }\n\
        ratios = [{ metric = \"goodput_mbit\", of = { rate = \"20\" }, to = { rate = \"10\" }, value = 2 }]\n";
    let named = SMALL.replace("name = \"small\"", "name = \"sim/small\"") + paper;
    fs::create_dir_all(place.path("scenarios/sim")).unwrap();
    fs::write(place.path("scenarios/sim/small.toml"), named).unwrap();
    fs::write(
        place.path("rows.toml"),
        "claims = []\npages = [{ name = \"cera\", title = \"CERA\", intro = \"Shares.\", papers = [\"CERA\"] }]\n\
         [[figures]]\ncite = \"CERA Fig. 2\"\nshows = \"twice the rate\"\nscenarios = [\"sim/small\"]\n",
    )
    .unwrap();
    let scorecard = || place.good(&["scorecard", "kept", "results", "--rows", "rows.toml"]);
    assert!(scorecard().contains("| **CERA Fig. 2**: twice the rate | *not measured*: "), "{}", scorecard());
    place.good(&["sim", "scenarios/sim/small.toml", "--quiet"]);
    assert!(
        scorecard().contains("<br>sizes 1 of 1, directions 1 of 1 | \u{2013} | **comes out** |"),
        "{}",
        scorecard()
    );
    place.good(&["scorecard", "results", "--rows", "rows.toml", "--page", "card.md"]);
    assert_eq!(fs::read_to_string(place.path("card.md")).unwrap(), scorecard());
    let page = fs::read_to_string(place.path("cera.md")).unwrap();
    assert!(page.contains("| goodput: 20 / 10 (cc: reno) | 2\\.00\u{d7} | ") && page.contains(" | holds |"), "{page}");
    let (code, _, err) = place.run(&["scorecard", "results", "--rows", "none.toml"]);
    assert!(code == 2 && err.contains("none.toml"), "{code}: {err}");
}

#[test]
fn results_are_the_same_bytes_whatever_the_number_of_jobs() {
    let place = Bed::new(SMALL);
    for (jobs, out) in [("1", "one"), ("2", "two"), ("7", "seven")] {
        place.good(&["sim", "s.toml", "--quiet", "--jobs", jobs, "--out", out]);
    }
    place.good(&["sweep", "s.toml", "--quiet", "--out", "sweep"]);
    let one = place.lines("one");
    for out in ["two", "seven", "sweep"] {
        assert!(one == place.lines(out), "{out}");
    }
    let records: Vec<serde_json::Value> =
        String::from_utf8(one).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let order: Vec<(u64, &str, &str)> = records
        .iter()
        .map(|r| {
            (r["repetition"].as_u64().unwrap(), r["cell"][0][1].as_str().unwrap(), r["cell"][1][1].as_str().unwrap())
        })
        .collect();
    let cells = ["10", "20", "30", "40"].map(|rate| [(rate, "reno"), (rate, "cubic")]).concat();
    let expected: Vec<_> =
        (0..2).flat_map(|repetition| cells.iter().map(move |(rate, cc)| (repetition, *rate, *cc))).collect();
    assert_eq!(order, expected);
}

#[test]
fn some_cells_and_json() {
    let place = Bed::new(SMALL);
    let out = place.good(&[
        "sim",
        "s.toml",
        "--json",
        "--quiet",
        "--only",
        "cc=reno",
        "--only",
        "rate=20",
        "--repetitions",
        "3",
    ]);
    let shown: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(shown["runs"].as_array().unwrap().len(), 3);
    assert_eq!(shown["set"]["engine"], "sim");
    let (code, _, err) = place.run(&["sim", "s.toml", "--only", "cc=vegas"]);
    assert_eq!(
        (code, err.lines().next()),
        (2, Some("error: s.toml: axes: axis `cc` has no label `vegas`; must be `cubic` or `reno`"))
    );
}

#[test]
fn tables_and_lines_are_the_same_runs() {
    let place = Bed::new(SMALL);
    let runs = |arguments: &[&str]| {
        let out: serde_json::Value = serde_json::from_str(&place.good(arguments)).unwrap();
        out["runs"].clone()
    };
    let lines = runs(&["sim", "s.toml", "--quiet", "--json", "--out", "lines"]);
    let tables = runs(&["sim", "s.toml", "--quiet", "--json", "--out", "tables", "--format", "parquet"]);
    assert_eq!(lines, tables);
    assert_eq!(runs(&["report", "--json", "tables"]), lines);
    assert!(place.path("tables/flows.parquet").exists() && !place.path("tables/runs.jsonl").exists());
    // What is complete is not run again for another format.
    let (code, _, err) = place.run(&["sweep", "s.toml", "--out", "tables", "--format", "jsonl"]);
    assert_eq!((code, err.as_str()), (0, "tables: all 16 runs are there already; --restart runs them again\n"));
    assert!(place.lines("tables") == place.lines("lines") && !place.path("tables/runs.parquet").exists());
}

#[test]
fn tables_that_were_not_written_to_their_end_are_no_results() {
    let place = Bed::new(SMALL);
    let arguments = ["sim", "s.toml", "--quiet", "--out", "out", "--format", "parquet"];
    place.good(&arguments);
    // As a kill leaves the tables before the last of them is there.
    fs::remove_file(place.path("out/tables.json")).unwrap();
    let (code, out, err) = place.run(&["report", "out"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.starts_with("error: out/tables.json is missing: the tables beside it were not written to their end"),
        "{err}"
    );
    let (code, _, err) = place.run(&["sweep", "s.toml", "--out", "out"]);
    assert!(code == 1 && err.contains("--restart runs the sweep again"), "{err}");
    place.good(&arguments);
    place.good(&["report", "out"]);
}

/// Waits until some runs are finished, then does something to the process.
fn after_some_runs(place: &Bed, arguments: &[&str], then: impl Fn(u32)) -> (Option<i32>, String) {
    let mut child = place.command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let finished = || fs::read_dir(place.path("out/unfinished")).map_or(0, |entries| entries.count());
    while finished() < 3 {
        assert!(
            begun.elapsed() < Duration::from_secs(120) && child.try_wait().unwrap().is_none(),
            "no run was finished"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    then(child.id());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Runs of some tenths of a second, so that there is time to interrupt.
fn long() -> Bed {
    Bed::new(
        &SMALL.replace("duration_ms = 100", "duration_ms = 2000").replace("[10, 20, 30, 40]", "[100, 150, 200, 250]"),
    )
}

fn signal(signal: i32) -> impl Fn(u32) {
    // SAFETY: kill takes numbers; the process is a child that has not been waited for.
    move |process| assert_eq!(unsafe { libc::kill(process as i32, signal) }, 0)
}

#[test]
fn ctrl_c_ends_cleanly_and_says_how_to_go_on() {
    let place = long();
    let arguments = ["sim", "s.toml", "--quiet", "--out", "out", "--only", "cc=reno", "--jobs", "1"];
    let (code, err) = after_some_runs(&place, &arguments, signal(libc::SIGINT));
    assert_eq!(code, Some(130), "{err}");
    let (first, help) = err.trim_end().split_once('\n').unwrap();
    assert!(first.starts_with("error: interrupted; ") && first.ends_with(" finished runs are kept"), "{err}");
    let again = help.strip_prefix("help: `evenkeel ").unwrap().strip_suffix("` goes on with the rest").unwrap();
    place.good(&again.split(' ').collect::<Vec<_>>());
    place.good(&["sim", "s.toml", "--quiet", "--out", "at-once", "--only", "cc=reno"]);
    assert!(place.lines("out") == place.lines("at-once"));
}

#[test]
fn a_killed_sweep_goes_on_and_ends_with_the_same_bytes() {
    let place = long();
    let arguments = ["sweep", "s.toml", "--quiet", "--out", "out", "--jobs", "2"];
    let (code, _) = after_some_runs(&place, &arguments, signal(libc::SIGKILL));
    assert_eq!(code, None);
    let first = place.path("out/unfinished/000000.json");
    let kept = first.exists().then(|| modified(&first));
    // What is finished is not run again, and survives another kill.
    let (_, _) = after_some_runs(&place, &arguments, signal(libc::SIGKILL));
    assert!(kept.is_none_or(|kept| kept == modified(&first)));
    place.good(&arguments);
    place.good(&["sim", "s.toml", "--quiet", "--out", "at-once"]);
    assert!(place.lines("out") == place.lines("at-once"));
}

/// `--resume` is what `sweep` does; the results say how they were begun.
#[test]
fn a_simulation_goes_on_with_resume() {
    let place = long();
    let arguments = ["sim", "s.toml", "--quiet", "--out", "out", "--jobs", "1"];
    let (code, _) = after_some_runs(&place, &arguments, signal(libc::SIGKILL));
    assert_eq!(code, None);
    let first = modified(&place.path("out/unfinished/000000.json"));
    let again = [&arguments[..], &["--resume"]].concat();
    let (_, err) = after_some_runs(&place, &again, signal(libc::SIGKILL));
    assert!(modified(&place.path("out/unfinished/000000.json")) == first, "{err}");
    let shown: serde_json::Value = serde_json::from_str(&place.good(&[&again[..], &["--json"]].concat())).unwrap();
    assert_eq!(shown["set"]["command"], "evenkeel sim s.toml --jobs 1");
    place.good(&["sim", "s.toml", "--quiet", "--out", "at-once"]);
    assert!(place.lines("out") == place.lines("at-once"));
    let (code, _, err) = place.run(&["sim", "s.toml", "--out", "out", "--resume"]);
    let all = "out: all 16 runs are there already; the same without --resume runs them again\n";
    assert_eq!((code, err.as_str()), (0, all));
}

#[test]
fn of_three_sweeps_in_one_directory_one_runs_and_the_others_say_who_has_it() {
    let place = long();
    let arguments = ["sweep", "s.toml", "--quiet", "--out", "out", "--jobs", "1"];
    let (code, err) = after_some_runs(&place, &arguments, |process| {
        for other in [
            &arguments[..],
            &["sim", "s.toml", "--quiet", "--out", "out"],
            &["sweep", "s.toml", "--out", "out", "--restart"],
        ] {
            let (code, out, err) = place.run(other);
            assert_eq!((code, out.as_str()), (1, ""), "{err}");
            let first = format!("error: out is in use: process {process} on ");
            assert!(err.starts_with(&first) && err.contains("\nhelp: wait until it has ended, "), "{err}");
        }
    });
    assert_eq!(code, Some(0), "{err}");
    place.good(&["sim", "s.toml", "--quiet", "--out", "at-once"]);
    assert!(place.lines("out") == place.lines("at-once"));
}

fn modified(path: &Path) -> std::time::SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn runs_of_another_sweep_are_not_mixed_with() {
    let place = Bed::new(SMALL);
    place.good(&["sweep", "s.toml", "--quiet", "--out", "out"]);
    let refused = |arguments: &[&str], why: &str| {
        let (code, out, err) = place.run(arguments);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        let first = format!("error: out holds the runs of another sweep: {why}");
        assert_eq!(err.lines().next(), Some(first.as_str()));
        assert!(err.lines().nth(1).is_some_and(|help| help.starts_with("help: --restart begins again")), "{err}");
    };
    refused(&["sweep", "s.toml", "--out", "out", "--repetitions", "3"], "with another number of repetitions");
    refused(&["sweep", "s.toml", "--out", "out", "--only", "cc=reno"], "with other cells (`--only`)");
    fs::write(place.path("s.toml"), SMALL.replace("duration_ms = 100", "duration_ms = 200")).unwrap();
    refused(&["sweep", "s.toml", "--out", "out"], "the scenario file has changed since");
    let sweep = fs::read_to_string(place.path("out/sweep.json")).unwrap();
    fs::write(place.path("out/sweep.json"), sweep.replace(env!("CARGO_PKG_VERSION"), "0.0.1")).unwrap();
    refused(&["sweep", "s.toml", "--out", "out"], "another version of evenkeel made them");
    place.good(&["sweep", "s.toml", "--quiet", "--out", "out", "--restart"]);
    place.good(&["sim", "s.toml", "--quiet", "--out", "at-once"]);
    assert!(place.lines("out") == place.lines("at-once"));
}

#[test]
fn a_complete_sweep_that_lost_its_results_says_what_to_do() {
    let place = Bed::new(SMALL);
    place.good(&["sweep", "s.toml", "--quiet", "--out", "out"]);
    fs::remove_file(place.path("out/runs.jsonl")).unwrap();
    let (code, _, err) = place.run(&["sweep", "s.toml", "--out", "out"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.starts_with("error: cannot read out/runs.jsonl: ") && err.contains("\nhelp: --restart "), "{err}");
}

#[test]
fn what_the_simulator_cannot_do_is_refused_with_file_and_key() {
    let place = Bed::new(&SMALL.replace("[vms.b]", "[vms.b]\nvcpus = 2"));
    let (code, out, err) = place.run(&["sim", "s.toml"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.starts_with("error: s.toml: vms.b.vcpus: ") && !err.contains("(in the cell"), "{err}");
    assert!(!place.path("results").exists());
    // If an axis sets the key, its cell is named.
    let place = Bed::new(&SMALL.replace("values = [10, 20, 30, 40]", "values = [10, 0]"));
    let (code, _, err) = place.run(&["sweep", "s.toml"]);
    assert_eq!(code, 2);
    assert!(
        err.starts_with("error: s.toml: network.rate_mbit: ") && err.contains("(in the cell rate = 0, cc = reno)"),
        "{err}"
    );
    assert!(!place.path("results").exists());
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let place = Bed::new(SMALL);
    fs::write(place.path("file"), "").unwrap();
    let (code, _, err) = place.run(&["sim", "s.toml", "--out", "file/below"]);
    assert_eq!(code, 1);
    assert!(err.starts_with("error: cannot ") && err.contains("file/below") && err.lines().count() == 1, "{err}");
}
