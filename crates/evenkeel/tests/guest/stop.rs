//! `evenkeel guest --stop` that cannot put everything back.

use std::fs;
use std::process::Command;

use serde_json::json;

/// One setting that cannot be read keeps no other, and the next `--stop` finds it noted.
#[test]
fn a_stop_that_fails_says_what_is_left_and_puts_all_else_back() {
    let directory = tempfile::tempdir().unwrap();
    let notes = directory.path().join("guest-state.json");
    let change = json!({ "before": "2", "set": "0" });
    let sysctls = json!({ "net.ipv4.no_such": change, "net.ipv4.tcp_frto": change });
    fs::write(&notes, json!({ "version": 1, "sysctls": sysctls }).to_string()).unwrap();
    let script = "echo 0 > /proc/sys/net/ipv4/tcp_frto; \"$0\" guest --stop --run-dir \"$1\" --pin-dir \"$1/pins\"; \
        code=$?; cat /proc/sys/net/ipv4/tcp_frto; exit $code";
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", script, env!("CARGO_BIN_EXE_evenkeel")])
        .arg(directory.path())
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(4), &b"2\n"[..]), "{error}");
    assert!(error.contains("cannot read net.ipv4.no_such") && error.contains("guest --stop` again"), "{error}");
    let left = fs::read_to_string(notes).unwrap();
    assert!(left.contains("no_such") && !left.contains("tcp_frto"), "{left}");
}
