//! The host's agent on the guest's kernel: what the verifier says differs from one to the next.

use serde_json::Value;

use crate::bed::Bed;

const CONFIG: &str = r#"
ports = ["tap0"]
probe_key_file = "/tmp/host.key"
[control]
socket = "/tmp/host.socket"
[proboscis]
mode = "enforce"
answers = true
[vsnoop]
mode = "enforce"
endpoint = "observed"
[vflood]
mode = "enforce"
[metrics]
enabled = false
"#;

/// All programs load, go on a port, and are taken off.
pub fn runs(bed: &Bed) {
    bed.shell("modprobe tun && ip tuntap add dev tap0 mode tap && ip link set tap0 up");
    bed.shell(&format!("umask 077; echo {} >/tmp/host.key; cat >/tmp/host.toml <<'X'\n{CONFIG}\nX", "0f".repeat(16)));
    bed.shell(
        "EVENKEEL_LOG=info setsid evenkeel host --config /tmp/host.toml >/tmp/host.log 2>&1 </dev/null &
         echo $! >/tmp/host.pid",
    );
    bed.wait_until("the host's agent", || {
        let log = bed.shell("cat /tmp/host.log");
        assert!(bed.shell("kill -0 $(cat /tmp/host.pid) || echo ended").is_empty(), "{log}");
        log.contains(" ready ")
    });
    let status = bed.shell("evenkeel status --socket /tmp/host.socket --json");
    let status: Value = serde_json::from_str(&status).unwrap();
    let ports = status["ports"].as_array().unwrap();
    assert!(ports.len() == 1 && ports[0]["name"] == "tap0" && ports[0]["error"].is_null(), "{ports:?}");
    bed.shell("kill $(cat /tmp/host.pid)");
    bed.wait_until("its end", || bed.shell("kill -0 $(cat /tmp/host.pid) 2>/dev/null || echo ended").contains("ended"));
    bed.shell("evenkeel host --stop && ip link del tap0");
}
