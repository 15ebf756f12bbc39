//! Runs shell commands in a VM with the newest kernel, one after the other, and prints what they print: for benchmarks
//! that need what this machine's kernel may not have. The folder is at /bench in the VM. The first command that fails
//! ends it.
//!
//! in_vm EVENKEEL_BINARY FOLDER CPUS MEMORY_MIB COMMAND...

use std::error::Error;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use evenkeel_lab::host::vm::{Accelerator, System, Vm, VmSpec};
use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::{KernelSeries, prepare};
use evenkeel_lab::proto::{Answer, Op};

const BOOT_LIMIT: Duration = Duration::from_secs(180);
const COMMAND_LIMIT: Duration = Duration::from_secs(1800);
/// Of a file, in one message.
const PIECE_BYTES: usize = 512 << 10;
const USAGE: &str = "usage: in_vm EVENKEEL_BINARY FOLDER CPUS MEMORY_MIB COMMAND...";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [binary, folder, cpus, memory_mib, commands @ ..] = args.as_slice() else { return Err(USAGE.into()) };
    let (vcpus, memory_mib) = (cpus.parse()?, memory_mib.parse()?);
    let interrupt = Interrupt::install()?;
    let images = prepare(&[KernelSeries::Newest], Path::new(binary), &|line| eprintln!("{line}"))?;
    let image = images.into_iter().next().ok_or("no image was made")?;
    let spec = VmSpec {
        name: "bench".into(),
        group: String::new(),
        number: 0,
        system: System::Booted(image),
        vcpus,
        vcpu_threads: 1,
        memory_mib,
        nics: Vec::new(),
        address: Ipv4Addr::UNSPECIFIED,
        channels: Vec::new(),
        accelerator: Accelerator::Tcg,
    };
    let directory = tempfile::tempdir()?;
    let vm = Vm::spawn(spec, directory.path(), interrupt)?;
    vm.wait_ready(BOOT_LIMIT)?;

    let packed = Command::new("tar").args(["--dereference", "-cC", folder, "."]).output()?;
    if !packed.status.success() {
        return Err(format!("tar of {folder}: {}", String::from_utf8_lossy(&packed.stderr)).into());
    }
    vm.shell("mkdir /bench")?;
    for piece in packed.stdout.chunks(PIECE_BYTES) {
        let text = base64::engine::general_purpose::STANDARD.encode(piece);
        vm.call(Op::WriteFile { path: "/tmp/piece".into(), text })?;
        vm.shell("base64 -d /tmp/piece >> /tmp/bench.tar")?;
    }
    vm.shell("tar -xC /bench -f /tmp/bench.tar && rm /tmp/bench.tar /tmp/piece")?;
    for command in commands {
        let argv = ["/bin/sh", "-c", command].map(str::to_owned).to_vec();
        match vm.call_within(Op::Exec { argv }, COMMAND_LIMIT)? {
            Answer::Exec { status, stdout, stderr } => {
                print!("{stdout}");
                std::io::stdout().flush()?;
                eprint!("{stderr}");
                if status != 0 {
                    return Err(format!("exit code {status} from `{command}`").into());
                }
            }
            other => return Err(format!("unexpected answer to `{command}`: {other:?}").into()),
        }
    }
    Ok(())
}
