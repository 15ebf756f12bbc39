//! What it costs to hold packets (vFlood): throughput beside `fq`, how soon an ACK lets data out, and each program's
//! time. Runs in a guest with the newest kernel, because a host's may have no qdiscs in BPF; under TCG, where times are
//! many times those of a machine. `make bench-hold`, as root. With the argument `policies`: what flows of low and of
//! high RTT get under each policy instead; with `throughput`, `release`, `messages` or `programs`, only that.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use evenkeel_lab::host::vm::{Accelerator, System, Vm, VmSpec};
use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::{self, KernelSeries};
use evenkeel_lab::proto::{Answer, Op};

const BED: &str = include_str!("../tests/host/hold.sh");
const COST: &str = include_str!("hold_cost.sh");
/// All parts of [`COST`].
const PARTS: &str = "throughput release messages programs";
const POLICIES: &str = include_str!("hold_policies.sh");
const START: &str = r#"
cat >/tmp/host.toml <<'END'
ports = ["vp*"]
port_queue_segments = 0
[proboscis]
mode = "off"
[vflood]
mode = "enforce"
[metrics]
enabled = false
END
setsid evenkeel host --config /tmp/host.toml >/tmp/host.log 2>&1 </dev/null &
echo $! >/tmp/agent.pid
for i in $(seq 40); do evenkeel status --json 2>/dev/null | grep -q vp0 && exit 0; sleep 0.5; done
cat /tmp/host.log
exit 1
"#;
/// The limit for booting, and for all of the measurement.
const LIMIT: Duration = Duration::from_secs(540);

fn main() {
    let interrupt = Interrupt::install().expect("signals can be handled");
    let binary = Path::new(env!("CARGO_BIN_EXE_evenkeel"));
    let images = prepare::prepare(&[KernelSeries::Newest], binary, &|line| println!("{line}")).expect("a kernel");
    let directory = tempfile::tempdir().expect("a directory");
    let spec = VmSpec {
        name: "hold".into(),
        group: "guest".into(),
        number: 0,
        system: System::Booted(images[0].clone()),
        vcpus: 1,
        vcpu_threads: 1,
        memory_mib: 512,
        nics: Vec::new(),
        address: Ipv4Addr::LOCALHOST,
        channels: Vec::new(),
        accelerator: Accelerator::Tcg,
    };
    let machine = Vm::spawn(spec, directory.path(), interrupt).expect("a guest boots");
    machine.wait_ready(LIMIT).expect("it is ready");
    machine.shell(BED).expect("namespaces for a VM and its peer");
    machine.shell(START).expect("the agent starts");
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let parts = if asked.is_empty() { PARTS.into() } else { asked.join(" ") };
    let script = if parts == "policies" { POLICIES.into() } else { format!("parts='{parts}'\n{COST}") };
    let argv = ["/bin/sh", "-e", "-c", &script].map(str::to_owned).to_vec();
    match machine.call_within(Op::Exec { argv }, LIMIT).expect("the guest answers") {
        Answer::Exec { status: 0, stdout, .. } => println!("{stdout}"),
        other => panic!("the measurement failed: {other:?}"),
    }
}
