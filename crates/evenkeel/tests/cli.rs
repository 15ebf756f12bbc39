//! Commands as a user types them, as far as they need no privileges and no VMs.

use std::path::Path;
use std::process::{Command, Output};

fn evenkeel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(arguments).env_remove("EVENKEEL_LOG").output().unwrap()
}

/// Exit code, standard output, standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = evenkeel(arguments);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn scenarios() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

#[test]
fn help_lists_exit_codes_and_hides_the_runner() {
    let (code, out, _) = run(&["--help"]);
    assert_eq!(code, 0);
    assert!(out.contains("130  interrupted") && out.contains("EVENKEEL_LOG"), "{out}");
    assert!(!out.contains("lab-guest"), "{out}");
}

#[test]
fn the_version_names_the_commit() {
    let (code, out, _) = run(&["--version"]);
    let words = out.trim_end().strip_prefix(concat!("evenkeel ", env!("CARGO_PKG_VERSION"), " (")).expect(&out);
    let words = words.strip_suffix(')').expect(&out);
    let is_commit = words.strip_prefix("commit ").is_some_and(|rest| rest.as_bytes()[..12].is_ascii());
    assert!(code == 0 && (is_commit || words == "of no known commit"), "{out}");
}

#[test]
fn a_lab_leaves_the_directory_of_another_alone() {
    let out = tempfile::tempdir().unwrap();
    let _held = evenkeel_scenario::lock::Lock::take(out.path()).unwrap();
    let scenario = scenarios().join("demo.toml");
    let (code, _, err) = run(&["lab", scenario.to_str().unwrap(), "--out", out.path().to_str().unwrap()]);
    let who = format!("error: {} is in use: process {} on ", out.path().display(), std::process::id());
    assert!(code == 1 && err.starts_with(&who), "{err}");
}

#[test]
fn more_runs_than_memory_takes_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("s.toml");
    let values: Vec<_> = (0..101).collect();
    let text = std::fs::read_to_string(scenarios().join("sim/pvtcp/fig13a.toml")).unwrap();
    let (head, _) = text.split_once("[[axes]]").unwrap();
    let axis = format!("[[axes]]\nname = \"delay\"\nkey = \"network.delay_us\"\nvalues = {values:?}\n");
    std::fs::write(&file, head.to_owned() + &axis).unwrap();
    let (code, _, err) = run(&["sim", file.to_str().unwrap(), "--repetitions", "1000", "--out", "/nowhere"]);
    assert!(code == 2 && err.contains("repetitions: 101000 runs of 101 cells"), "{err}");
}

#[test]
fn unknown_arguments_are_usage_errors() {
    for arguments in
        [&["frobnicate"][..], &["lab"], &["lab", "x.toml", "--only", "axis"], &["lab", "prepare", "--kernel", "2.6"]]
    {
        let (code, out, err) = run(arguments);
        assert_eq!(code, 2, "{arguments:?}: {err}");
        assert!(out.is_empty() && err.starts_with("error: "), "{arguments:?}: {err}");
    }
}

#[test]
fn a_scenario_that_is_not_there_is_a_usage_error() {
    let (code, _, err) = run(&["lab", "no-such-file.toml"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("error: cannot read no-such-file.toml: No such file"), "{err}");
}

#[test]
fn a_bad_scenario_is_refused_with_file_line_and_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.toml");
    let text = std::fs::read_to_string(scenarios().join("smoke.toml")).unwrap();
    std::fs::write(&file, format!("no_such_key = 1\n{text}")).unwrap();
    for arguments in [["scenario", "check", file.to_str().unwrap()], ["lab", "--quiet", file.to_str().unwrap()]] {
        let (code, _, err) = run(&arguments);
        assert_eq!(code, 2, "{err}");
        assert!(err.starts_with(&format!("error: {}:1: no_such_key: unknown key", file.display())), "{err}");
    }
}

#[test]
fn every_scenario_in_the_repository_is_valid() {
    let mut files = Vec::new();
    for directory in [scenarios(), scenarios().join("pvtcp")] {
        let entries = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().path());
        files.extend(
            entries.filter(|p| p.extension().is_some_and(|e| e == "toml")).map(|p| p.to_str().unwrap().to_owned()),
        );
    }
    let mut arguments = vec!["scenario", "check", "--json"];
    arguments.extend(files.iter().map(String::as_str));
    let (code, out, err) = run(&arguments);
    assert_eq!(code, 0, "{err}");
    let checked: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(checked.as_array().unwrap().len(), files.len());
}

#[test]
fn the_schema_is_json_and_a_closed_pipe_is_no_error() {
    let (code, out, _) = run(&["scenario", "schema"]);
    assert_eq!(code, 0);
    assert!(serde_json::from_str::<serde_json::Value>(&out).unwrap().is_object());
    let piped = Command::new("sh")
        .args(["-c", "\"$1\" scenario schema | head -1", "sh", env!("CARGO_BIN_EXE_evenkeel")])
        .output()
        .unwrap();
    assert!(piped.stderr.is_empty(), "{}", String::from_utf8_lossy(&piped.stderr));
}

#[test]
fn the_doctor_lists_what_the_kernel_has() {
    let (code, out, err) = run(&["doctor", "--features"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("feature ") && out.contains("\nevenkeel host "), "{out}");
    let (code, json, err) = run(&["doctor", "--features", "--json"]);
    assert_eq!(code, 0, "{err}");
    let table: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = table["features"].as_array().unwrap();
    let named = |row: &&serde_json::Value| out.contains(row["name"].as_str().unwrap());
    assert!(rows.len() > 10 && rows.iter().all(|row| named(&row)), "{json}");
    // Each missing feature has a line, and no other has.
    let missing = rows.iter().filter(|row| row["has"] == false).count();
    assert_eq!(out.lines().filter(|line| line.starts_with("no ")).count(), missing, "{out}");
    assert!(rows.iter().all(|row| row["why"].is_string() == (row["has"] != true)), "{json}");
}

#[test]
fn the_doctor_answers_in_text_and_json() {
    let (code, out, err) = run(&["doctor"]);
    assert_eq!(code, 0, "{err}");
    for topic in ["machine", "kernel", "HZ", "RTO floor", "privileges", "QEMU"] {
        assert!(
            out.lines().any(|l| l.split_at_checked(9).is_some_and(|(_, rest)| rest.starts_with(topic))),
            "no {topic}: {out}"
        );
    }
    let (code, out, err) = run(&["doctor", "--json"]);
    assert_eq!(code, 0, "{err}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(report["findings"].as_array().unwrap().len() > 8, "{out}");
}

#[test]
fn the_doctor_watches_for_a_while() {
    let (code, out, err) = run(&["doctor", "--for", "1"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("this machine's own TCP\n  segments sent "), "{out}");
    let (code, out, err) = run(&["doctor", "--for", "1", "--json"]);
    assert_eq!(code, 0, "{err}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(report["window_s"].as_f64() >= Some(1.0) && report["advice"].is_array(), "{out}");
    let (code, out, err) = run(&["doctor", "--for", "1", "--openmetrics"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("\n# TYPE evenkeel_doctor_tcp_timeouts gauge\n") && out.ends_with("\n# EOF\n"), "{out}");
    for arguments in [&["doctor", "--for", "0"][..], &["doctor", "--openmetrics"]] {
        let (code, _, err) = run(arguments);
        assert_eq!(code, 2, "{err}");
    }
}

#[test]
fn the_log_can_be_for_programs() {
    for arguments in [
        ["--log", "json", "guest", "pvtcp", "load", "--late-us", "7"],
        ["guest", "pvtcp", "load", "--late-us", "7", "--log", "json"],
    ] {
        let (code, out, err) = run(&arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        let event: serde_json::Value = serde_json::from_str(&err).unwrap();
        assert_eq!(
            (&event["level"], &event["message"]),
            (&"ERROR".into(), &"late_us=7: 200-1000000 us is allowed".into())
        );
    }
    let (code, _, err) = run(&["--log", "xml", "doctor"]);
    assert_eq!(code, 2);
    assert!(err.contains("[possible values: text, json]"), "{err}");
}

#[test]
fn pvtcp_names_what_a_parameter_may_be() {
    let (code, _, err) = run(&["guest", "pvtcp", "load", "--late-us", "7"]);
    assert_eq!((code, err.as_str()), (2, "error: late_us=7: 200-1000000 us is allowed\n"));
    let (code, _, err) = run(&["guest", "pvtcp", "load", "--hold-rto", "maybe"]);
    assert_eq!((code, err.as_str()), (2, "error: hold_rto=maybe: on or off is allowed\n"));
}

#[test]
fn pvtcp_that_is_not_loaded_has_a_status() {
    if Path::new("/sys/module/evenkeel_pvtcp").exists() {
        return;
    }
    let (code, out, err) = run(&["guest", "pvtcp", "status", "--json"]);
    assert_eq!(code, 0, "{err}");
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status["loaded"], false);
    let (code, out, err) = run(&["guest", "pvtcp", "status", "--openmetrics"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("\nevenkeel_pvtcp_loaded 0\n") && out.ends_with("# EOF\n"), "{out}");
}

#[test]
fn the_guest_agents_configuration_is_printed_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("guest.toml");
    let name = file.to_str().unwrap();
    let (code, text, _) = run(&["guest", "--print-config"]);
    assert_eq!(code, 0);
    std::fs::write(&file, text).unwrap();
    assert_eq!(run(&["guest", "--check", "--config", name]), (0, format!("{name}: valid\n"), String::new()));
    std::fs::write(&file, "[cera]\nmax_core_percent = 0\n").unwrap();
    let (code, out, err) = run(&["guest", "--check", "--config", name]);
    assert_eq!((code, out.as_str()), (2, ""));
    let what = format!(
        "error: {name}:2: cera.max_core_percent: invalid value: integer `0`, expected a whole number from 1 to 100\n\
         help: "
    );
    assert!(err.starts_with(&what), "{err}");
}

#[test]
fn a_directory_without_results_is_a_usage_error() {
    let directory = tempfile::tempdir().unwrap();
    let (code, _, err) = run(&["report", directory.path().to_str().unwrap()]);
    assert_eq!(code, 2, "{err}");
    assert!(err.starts_with("error: cannot read ") && err.contains("\nhelp: "), "{err}");
}

#[test]
fn completions_know_the_commands() {
    let (code, out, _) = run(&["completions", "bash"]);
    assert_eq!(code, 0);
    assert!(out.contains("doctor") && out.contains("pvtcp"));
}

#[test]
fn where_nothing_is_pinned_an_agent_can_begin() {
    let place = tempfile::tempdir().unwrap();
    let pins = place.path().join("pins");
    let (code, out, err) = run(&["host", "--check-pins", "--pin-dir", pins.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (0, "nothing is pinned\n"), "{err}");
    let (code, _, err) = run(&["host", "--check-pins", "--stop"]);
    assert_eq!(code, 2, "{err}");
}
