//! On devices of a network namespace of the test's own; needs root.

use std::io::Read as _;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};

use super::*;

/// A command that must succeed.
fn run(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs `test` in a thread of its own with a veth pair, and gives it the index of one of the two.
fn beside_a_veth(test: impl FnOnce(u32) + Send + 'static) {
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("this test needs root");
        run("ip link add card0 type veth peer name peer0");
        for device in ["card0", "peer0"] {
            run(&format!("ip link set {device} up"));
        }
        test(nix::net::if_::if_nametoindex("card0").unwrap());
    });
    thread.join().unwrap();
}

fn nothing() -> Attached {
    Attached { xdp: Ok(Some(false)), filter: Ok(Some(false)), tcx: Ok(Some(false)), addresses: Ok(Some(false)) }
}

#[test]
fn nothing_is_attached_to_a_new_device() {
    beside_a_veth(|card| assert_eq!(look(card), nothing()));
}

#[test]
fn filters_are_found_at_ingress_alone() {
    beside_a_veth(|card| {
        run("tc qdisc add dev card0 clsact");
        run("tc filter add dev card0 egress protocol ip u32 match u32 0 0 flowid 1:1");
        assert_eq!(look(card), nothing());
        run("tc filter add dev card0 ingress protocol ip u32 match u32 0 0 flowid 1:1");
        assert_eq!(look(card), Attached { filter: Ok(Some(true)), ..nothing() });
        run("tc qdisc del dev card0 clsact");
        run("tc qdisc add dev card0 ingress");
        assert_eq!(look(card), nothing());
        run("tc filter add dev card0 parent ffff: protocol all u32 match u32 0 0 flowid 1:1");
        assert_eq!(look(card), Attached { filter: Ok(Some(true)), ..nothing() });
    });
}

#[test]
fn a_macvlan_in_another_namespace_is_found_by_its_address() {
    beside_a_veth(|card| {
        run("ip link add link card0 name macvlan0 type macvlan mode bridge");
        let mut other = Command::new("unshare");
        other.args(["-n", "sh", "-c", "echo; read _"]);
        let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        other.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        run(&format!("ip link set macvlan0 netns {}", other.id()));
        assert_eq!(look(card), nothing());
        run(&format!("nsenter -n -t {} ip link set macvlan0 up", other.id()));
        assert_eq!(look(card), Attached { addresses: Ok(Some(true)), ..nothing() });
        drop(other.stdin.take());
        other.wait().unwrap();
    });
}

#[test]
fn programs_are_found() {
    beside_a_veth(|card| {
        let xdp = load(libbpf_sys::BPF_PROG_TYPE_XDP);
        // SAFETY: the program is loaded, and the options may be left out.
        let attached = unsafe { libbpf_sys::bpf_xdp_attach(index(card).unwrap(), xdp, 1 << 1, std::ptr::null()) };
        assert_eq!(attached, 0);
        assert_eq!(look(card), Attached { xdp: Ok(Some(true)), ..nothing() });
        // SAFETY: as above.
        unsafe { libbpf_sys::bpf_xdp_detach(index(card).unwrap(), 1 << 1, std::ptr::null()) };
        assert_eq!(look(card), nothing());
        let tcx = load(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS);
        // SAFETY: as above.
        let attached = unsafe {
            libbpf_sys::bpf_prog_attach_opts(tcx, index(card).unwrap(), libbpf_sys::BPF_TCX_INGRESS, std::ptr::null())
        };
        assert_eq!(attached, 0);
        assert_eq!(look(card), Attached { tcx: Ok(Some(true)), ..nothing() });
    });
}

#[test]
fn a_device_that_is_gone_speaks_for_nothing() {
    beside_a_veth(|card| {
        run("ip link del card0");
        assert!(look(card).tcx.is_err(), "{:?}", look(card));
    });
}

/// Loads a program of two instructions, which returns 2 (`XDP_PASS`, `TCX_DROP`); its descriptor.
fn load(kind: libbpf_sys::bpf_prog_type) -> i32 {
    // r0 = 2; exit
    let instructions = [0x0000_0002_0000_00b7_u64, 0x95];
    // SAFETY: the instructions are two, and all else may be left out.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            std::ptr::null(),
            c"GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as libbpf_sys::size_t,
            std::ptr::null_mut(),
        )
    };
    assert!(fd >= 0, "{}", io::Error::from_raw_os_error(-fd));
    fd
}
