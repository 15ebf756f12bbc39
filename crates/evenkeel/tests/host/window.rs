//! `evenkeel doctor --for` beside VMs: one under a quota, one that takes its packets too late, one alone. Needs QEMU,
//! clang and a cgroup hierarchy with the processor's controller, of either version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_testbed::place::{Tap, index, ip};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::bed::wait_until;

/// What the processor runs after a reset: `jmp` to itself.
const SPINS: &[u8] = &[0xeb, 0xfe];
/// `cli`, `hlt`, and back.
const HALTS: &[u8] = &[0xfa, 0xf4, 0xeb, 0xfd];
/// Where an x86 begins, in a ROM of 64 KB.
const RESET: usize = 0xfff0;

/// A VM with its tap; it has no driver, so nothing is taken from the tap's ring.
struct Qemu {
    process: Child,
}

impl Qemu {
    fn new(port: &str, code: &[u8], directory: &Path) -> Self {
        ip(&format!("tuntap add {port} mode tap"));
        ip(&format!("link set {port} txqueuelen 500 up"));
        let mut rom = vec![0xf4; 0x10000];
        rom[RESET..RESET + code.len()].copy_from_slice(code);
        let bios = directory.join(port);
        fs::write(&bios, rom).unwrap();
        let netdev = format!("tap,id=net,ifname={port},script=no,downscript=no");
        let process = Command::new("qemu-system-x86_64")
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg", "-m", "16"])
            .args(["-name", &format!("{port},debug-threads=on"), "-bios", bios.to_str().unwrap()])
            .args(["-netdev", &netdev, "-device", "virtio-net-pci,netdev=net,romfile="])
            .stdin(Stdio::null())
            .spawn()
            .expect("QEMU is installed");
        let vm = Self { process };
        wait_until("a virtual CPU", || vm.has_vcpu());
        vm
    }

    fn has_vcpu(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.process.id())).into_iter().flatten().flatten();
        let mut names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
        names.any(|name| name.starts_with("CPU ") || name.starts_with("ALL CPUs"))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A VM that is on its core for short times only, and takes what its tap holds then.
struct Slow(Child);

impl Slow {
    fn new(port: &str, directory: &Path) -> Self {
        let program = directory.join("tap_vm");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/host/tap_vm.c");
        let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
        let made = Command::new(&clang).args(["-O2", "-o"]).arg(&program).arg(source).output().unwrap();
        assert!(made.status.success(), "{clang}: {}", String::from_utf8_lossy(&made.stderr));
        // Its other end is in the same network, and down: nobody waits for what it takes.
        fs::create_dir_all("/run/netns").unwrap();
        let vm = Self(Command::new(program).args([port, "../../proc/self/ns/net"]).spawn().unwrap());
        wait_until("the tap", || Path::new("/sys/class/net").join(port).exists());
        ip(&format!("link set {port} txqueuelen 500 up"));
        vm
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A control group with 30 ms of a core in each 100, and the highest weight.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Self {
        let first = Path::new("/sys/fs/cgroup/cpu");
        let (root, files): (&Path, &[(&str, &str)]) = if first.join("cpu.cfs_quota_us").exists() {
            (first, &[("cpu.shares", "262144"), ("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "30000")])
        } else {
            let root = Path::new("/sys/fs/cgroup");
            fs::write(root.join("cgroup.subtree_control"), "+cpu").expect("a hierarchy with the controller `cpu`");
            (root, &[("cpu.weight", "10000"), ("cpu.max", "30000 100000")])
        };
        let group = Self(root.join(name));
        fs::create_dir(&group.0).unwrap();
        files.iter().for_each(|(file, value)| fs::write(group.0.join(file), value).unwrap());
        group
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What was in it has ended, and leaves a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Takes this thread into a network of its own, whose devices `/sys` shows.
fn leave(directory: &Path) {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("this test needs root");
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    let (groups, kept) = (Path::new("/sys/fs/cgroup"), directory.join("cgroup"));
    fs::create_dir(&kept).unwrap();
    mount(Some(groups), &kept, none, MsFlags::MS_BIND | MsFlags::MS_REC, none).unwrap();
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none).unwrap();
    mount(Some(&kept), groups, none, MsFlags::MS_BIND | MsFlags::MS_REC, none).unwrap();
    ip("link set lo up");
}

/// Watches while more frames go to a VM than its tap holds.
fn watch(vm: &Slow, port: &str) -> Value {
    let (device, ends) = (Tap::new(index(port)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                vm.signal(Signal::SIGSTOP);
                (0..1000).for_each(|_| device.send(&[0xff; 100]));
                vm.signal(Signal::SIGCONT);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let output = Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(["doctor", "--for", "5", "--json"]).output();
        ends.store(true, Ordering::SeqCst);
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    })
}

/// What is said of a process and its port.
fn advice<'a>(report: &'a Value, process: u32, port: &str) -> Vec<&'a Value> {
    let process = format!("(process {process})");
    let is_its = |subject: &str| subject == port || subject.ends_with(&process);
    let all = report["advice"].as_array().unwrap().iter();
    all.filter(|advice| is_its(advice["subject"].as_str().unwrap())).collect()
}

#[test]
fn the_cheapest_cure_is_named_for_each_cause() {
    let directory = tempfile::tempdir().unwrap();
    leave(directory.path());
    let group = Group::new(&format!("ek-window-{}", std::process::id()));
    let throttled = Qemu::new("ekquota", SPINS, directory.path());
    let alone = Qemu::new("ekalone", HALTS, directory.path());
    let slow = Slow::new("ekdrop", directory.path());
    fs::write(group.0.join("cgroup.procs"), throttled.process.id().to_string()).unwrap();
    let report = watch(&slow, "ekdrop");
    let find = |list: &str, key: &str, value: Value| -> Value {
        let mut all = report[list].as_array().unwrap().iter();
        all.find(|entry| entry[key] == value).unwrap_or_else(|| panic!("no {key} {value}: {report:#}")).clone()
    };

    let process = throttled.process.id();
    let said = advice(&report, process, "ekquota");
    assert_eq!(said[0]["cure"], "quota_period", "{report:#}");
    assert!(said[0]["why"].as_str().unwrap().starts_with("its quota of 30 ms in every 100 ms was used up in "));
    let how = said[0]["how"].as_str().unwrap();
    assert!(how.contains("3000") && how.contains("10000") && how.contains(group.0.to_str().unwrap()), "{how}");
    let vm = find("vms", "process", process.into());
    assert_eq!((&vm["ports"][0], &vm["groups"][0]["quota_us"]), (&"ekquota".into(), &30_000.into()), "{vm:#}");
    assert!(vm["groups"][0]["nr_throttled"].as_u64() >= Some(2), "{vm:#}");

    let said = advice(&report, slow.0.id(), "ekdrop");
    assert_eq!(said[0]["cure"], "queue_length", "{report:#}");
    assert_eq!(said[0]["how"], "ip link set ekdrop txqueuelen 2000");
    let port = find("ports", "name", "ekdrop".into());
    assert!(port["drops"]["to_vm_ring"].as_u64() > Some(0), "{port:#}");
    assert_eq!(port["process"], slow.0.id());

    assert_eq!(advice(&report, alone.process.id(), "ekalone"), Vec::<&Value>::new(), "{report:#}");
    assert_eq!(find("vms", "process", alone.process.id().into())["vcpus"].as_array().map(Vec::len), Some(1));
}
