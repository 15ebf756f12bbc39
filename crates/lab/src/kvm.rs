//! Whether KVM runs a guest here. That `/dev/kvm` exists says little: inside a VM it may be there and still fail to
//! boot any stock kernel. So a tiny guest is run, with the CPU model and machine that the lab's VMs have.

use std::fs::OpenOptions;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_quote::shown;

/// A few thousand instructions; hardware needs a tenth of a second, QEMU's start included.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// QEMU's exit code when the guest writes [`DONE`] to its exit port.
const EXIT_CODE: i32 = (DONE << 1) | 1;
const DONE: i32 = 0x21;
const DEVICE: &str = "/dev/kvm";

/// What came of trying KVM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvmVerdict {
    /// A guest ran.
    Works,
    /// There is no `/dev/kvm`.
    Absent,
    /// `/dev/kvm` cannot be opened: the system's answer.
    Denied(String),
    /// `/dev/kvm` opens, but a guest does not run: what happened.
    Broken(String),
    /// There is no QEMU to try it with.
    NoQemu,
}

impl KvmVerdict {
    /// Why VMs cannot use it and what to do about that, in one line; `None` if they can.
    pub fn obstacle(&self) -> Option<String> {
        let line = match self {
            Self::Works => return None,
            Self::Absent => format!(
                "there is no {DEVICE}: load kvm_intel or kvm_amd, switch virtualization on in the firmware, or allow \
                 nested virtualization where this machine is a VM itself"
            ),
            Self::Denied(why) => format!(
                "{DEVICE} cannot be opened ({}): run as root, or let this container have the device",
                shown(why)
            ),
            Self::Broken(why) => format!(
                "{DEVICE} opens, but a guest does not run ({}): inside a VM, take a machine whose host nests \
                 completely, or bare metal",
                shown(why)
            ),
            Self::NoQemu => "there is no QEMU to try it with: apt-get install qemu-system-x86".to_owned(),
        };
        Some(line)
    }
}

/// Runs a tiny guest under KVM; takes 10 s at most.
pub fn kvm_works() -> KvmVerdict {
    if !Path::new(DEVICE).exists() {
        return KvmVerdict::Absent;
    }
    if let Err(error) = OpenOptions::new().read(true).write(true).open(DEVICE) {
        return KvmVerdict::Denied(error.to_string());
    }
    match run_guest("kvm", TIME_LIMIT) {
        Ok(()) => KvmVerdict::Works,
        Err(Failure::NoQemu) => KvmVerdict::NoQemu,
        Err(Failure::Guest(why)) => KvmVerdict::Broken(why),
    }
}

#[derive(Debug)]
enum Failure {
    NoQemu,
    Guest(String),
}

fn run_guest(accelerator: &str, limit: Duration) -> Result<(), Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::Guest(format!("{what}: {error}"));
    // QEMU also works in this directory, so that the core dump of a QEMU that aborts is removed with it.
    let directory = tempfile::tempdir().map_err(|e| failed("cannot make a temporary directory", e))?;
    let firmware = directory.path().join("firmware");
    std::fs::write(&firmware, firmware::bytes()).map_err(|e| failed("cannot write a temporary file", e))?;
    let spawned = Command::new("qemu-system-x86_64")
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args(["-machine", "q35", "-accel", accelerator, "-cpu", "max", "-m", "16"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=1"])
        .arg("-bios")
        .arg(&firmware)
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut qemu = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Failure::NoQemu),
        Err(error) => return Err(failed("cannot start QEMU", error)),
    };
    let status = wait(&mut qemu, limit).map_err(|e| failed("cannot wait for QEMU", e))?;
    let mut said = String::new();
    if let Some(mut stderr) = qemu.stderr.take() {
        // What is not text is no message either.
        let _ = stderr.read_to_string(&mut said);
    }
    match status {
        Some(status) if status.code() == Some(EXIT_CODE) => Ok(()),
        Some(status) => Err(Failure::Guest(format!("QEMU ended with {status}{}", first_error(&said)))),
        None => Err(Failure::Guest(format!(
            "a test guest of a few instructions did not end within {} s{}",
            limit.as_secs(),
            first_error(&said)
        ))),
    }
}

/// Waits for the process, and kills it at the limit; None if it had to be killed.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<std::process::ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The first line of QEMU's that is more than a warning; what follows is mostly a consequence.
fn first_error(said: &str) -> String {
    let line = said.lines().find(|l| !l.contains("warning:") && !l.trim().is_empty());
    line.map(|l| format!(": {}", l.trim().trim_start_matches("qemu-system-x86_64: "))).unwrap_or_default()
}

/// The guest, as firmware of 64 KiB: from real mode to 64-bit mode, then what stock kernels do first and partial KVM
/// implementations fail at: page tables, a model-specific register, BMI2 where it is announced, an exception.
#[cfg(target_arch = "x86_64")]
mod firmware {
    std::arch::global_asm!(
        ".pushsection .rodata.evenkeel_kvm_firmware, \"a\"",
        ".balign 16",
        ".set evenkeel_kvm_base, 0xf0000", // where the machine shows the last 64 KiB of its firmware
        ".globl evenkeel_kvm_firmware", // seen from the crate's other object files
        ".hidden evenkeel_kvm_firmware",
        "evenkeel_kvm_firmware:",
        "5:",
        ".code16",
        "cli",
        "lgdtl %cs:(7f - 5b)",
        "mov %cr0, %eax",
        "or $1, %al",
        "mov %eax, %cr0",
        "ljmpl $8, $(evenkeel_kvm_base + 2f - 5b)",
        ".code32",
        "2:",
        "mov $16, %eax",
        "mov %eax, %ds",
        "mov %eax, %es",
        "mov %eax, %ss",
        "mov $0x9000, %esp",
        // Page tables at 0x1000 to 0x3fff: the first 2 MiB, as they are.
        "cld",
        "xor %eax, %eax",
        "mov $0x1000, %edi",
        "mov $0xc00, %ecx",
        "rep stosl",
        "movl $0x2003, 0x1000",
        "movl $0x3003, 0x2000",
        "movl $0x83, 0x3000",
        "mov %cr4, %eax",
        "or $0x20, %eax",
        "mov %eax, %cr4",
        "mov $0x1000, %eax",
        "mov %eax, %cr3",
        "mov $0xc0000080, %ecx", // EFER: long mode
        "rdmsr",
        "or $0x100, %eax",
        "wrmsr",
        "mov %cr0, %eax",
        "or $0x80000000, %eax",
        "mov %eax, %cr0",
        "ljmpl $24, $(evenkeel_kvm_base + 3f - 5b)",
        ".code64",
        "3:",
        // Kernel decompressors take BMI2 if the CPU says it has it.
        "mov $7, %eax",
        "xor %ecx, %ecx",
        "cpuid",
        "bt $8, %ebx",
        "jnc 4f",
        "mov $3, %ecx",
        "shlx %rcx, %rax, %rdx",
        "4:",
        // A gate for exception 6 at 0x4060, then an undefined instruction.
        "movl $(((evenkeel_kvm_base + 6f - 5b) & 0xffff) | (24 << 16)), 0x4060",
        "movl $(((evenkeel_kvm_base + 6f - 5b) & 0xffff0000) | 0x8e00), 0x4064",
        "movq $0, 0x4068",
        "movw $0x6f, 0x5000",
        "movq $0x4000, 0x5002",
        "lidt 0x5000",
        "ud2",
        "6:",
        "mov $0xf4, %dx",
        "mov ${done}, %al",
        "out %al, %dx",
        "9:",
        "hlt",
        "jmp 9b",
        ".balign 8",
        "8:",
        ".quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff, 0x00af9b000000ffff",
        "7:",
        ".word 31",
        ".long evenkeel_kvm_base + 8b - 5b",
        // The CPU starts 16 bytes before the end.
        ".org evenkeel_kvm_firmware + 0xfff0",
        ".code16",
        "ljmp $0xf000, $0",
        ".org evenkeel_kvm_firmware + 0x10000",
        ".code64",
        ".popsection",
        done = const super::DONE,
        options(att_syntax)
    );

    unsafe extern "C" {
        static evenkeel_kvm_firmware: [u8; 0x10000];
    }

    pub(super) fn bytes() -> &'static [u8] {
        // SAFETY: the symbol is defined above, as constant bytes of just that length.
        unsafe { &evenkeel_kvm_firmware }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod firmware {
    pub(super) fn bytes() -> &'static [u8] {
        // The lab refuses other machines; QEMU refuses an empty file.
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_guest_runs_to_its_end_under_tcg() {
        match run_guest("tcg", Duration::from_secs(30)) {
            Ok(()) => {}
            Err(Failure::NoQemu) => eprintln!("not tried: QEMU is not installed"),
            Err(Failure::Guest(why)) => panic!("{why}"),
        }
    }

    #[test]
    fn each_obstacle_is_one_line_that_says_what_to_do() {
        assert_eq!(KvmVerdict::Works.obstacle(), None);
        let cases = [
            (KvmVerdict::Absent, "there is no /dev/kvm", "load kvm_intel"),
            (KvmVerdict::Denied("Permission denied\n(os error 13)".into()), "Permission denied", "run as root"),
            (KvmVerdict::Broken("QEMU ended\nin MSR 0x10a".into()), "QEMU ended", "bare metal"),
            (KvmVerdict::NoQemu, "no QEMU", "apt-get install"),
        ];
        for (verdict, what, next) in cases {
            let line = verdict.obstacle().unwrap();
            assert!(line.contains(what) && line.contains(next), "{line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }

    #[test]
    fn the_first_error_is_quoted_without_warnings() {
        let said = "qemu-system-x86_64: warning: host doesn't support\n\
            qemu-system-x86_64: error: failed to set MSR 0x10a to 0x69\nAssertion";
        assert_eq!(first_error(said), ": error: failed to set MSR 0x10a to 0x69");
        assert_eq!(first_error(""), "");
    }
}
