//! Two ports with the programs, in a network namespace of the test's own.

use std::path::PathBuf;

use evenkeel_agent::datapath::{Datapath, Outcome, intf};
use evenkeel_algo::frames::SYN;
use evenkeel_algo::packet::{self, Kind};
use evenkeel_testbed::place::{index, ip, leave};

/// TCX_NEXT: the packet passes.
pub const NEXT: i32 = -1;
/// TCX_DROP
pub const DROP: i32 = 2;
/// TCX_REDIRECT: the packet goes into the port once more.
pub const REDIRECT: i32 = 7;
/// Another program's packet mark.
pub const MARK: u32 = 0xa00;
/// Address of the end that opens connections.
pub const A: &str = "10.0.0.1";
/// Address of the end that accepts them.
pub const B: &str = "10.0.0.2";
/// Signs the probes.
pub const KEY: intf::siphash_key = intf::siphash_key { k0: 0x0706_0504_0302_0100, k1: 0x0f0e_0d0c_0b0a_0908 };

/// Below the place's directory.
const PINS: &str = "evenkeel";

/// A port's settings: the defaults, with times that suit tests.
pub fn settings(mode: u32) -> intf::ek_port {
    intf::ek_port {
        proboscis: intf::ek_proboscis_settings {
            mode,
            ecn_for_guests: 1,
            settings: intf::proboscis_settings {
                probes: 10,
                k1_permille: 50,
                k2_permille: 500,
                k_percent: 50,
                // Trains do not share probes, so the time that a test takes decides nothing.
                b1_us: 0,
                b2_us: 40_000,
                b3_us: 1000,
                max_time_us: 200_000,
                icwnd_segments: 10,
                budget_probes_per_s: 10_000,
                budget_burst_probes: 2000,
                ..Default::default()
            },
        },
        ..Default::default()
    }
}

/// This process's threads as a VM's virtual CPUs.
pub fn vcpus(threads: &[u32]) -> intf::ek_vsnoop_vcpus {
    let mut vcpus = intf::ek_vsnoop_vcpus { process: std::process::id(), ..Default::default() };
    vcpus.count = threads.len() as u32;
    vcpus.threads[..threads.len()].copy_from_slice(threads);
    vcpus
}

/// Ports `pa` and `pb`; what the programs send into `pa` and `pb` is seen there.
#[derive(Debug)]
pub struct Bed {
    /// The programs, on both ports.
    pub datapath: Datapath,
    /// Index of a port.
    pub pa: u32,
    /// Index of the other.
    pub pb: u32,
    directory: tempfile::TempDir,
}

impl Bed {
    /// Both ports in this mode.
    pub fn new(mode: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path());
        for port in ["pa", "pb"] {
            ip(&format!("link add {port} type veth peer name vm-{port}"));
            ip(&format!("link set {port} up"));
            ip(&format!("link set vm-{port} up"));
        }
        let mut datapath = Datapath::open(&directory.path().join(PINS)).unwrap();
        let (pa, pb) = (index("pa"), index("pb"));
        datapath.attach(pa, &settings(mode)).unwrap();
        datapath.attach(pb, &settings(mode)).unwrap();
        let mut host = intf::ek_host { version: intf::EK_INTF_VERSION, keys: 1, ..Default::default() };
        host.key[0] = KEY;
        datapath.set_host(&host).unwrap();
        Self { datapath, pa, pb, directory }
    }

    /// Where the datapath's maps are pinned.
    pub fn pins(&self) -> PathBuf {
        self.directory.path().join(PINS)
    }

    /// What the program makes of a frame that the VM sends. If it redirects a SYN or SYN-ACK, it sees that again, and
    /// must let it pass.
    pub fn run_from_vm(&mut self, port: u32, frame: &[u8]) -> Outcome {
        let outcome = self.datapath.trial("from_vm", port, MARK, frame, 1).unwrap();
        assert_eq!(outcome.mark, MARK, "another program's mark was changed");
        let is_handshake = matches!(packet::parse(frame), Kind::Tcp(header, _) if header.flags & SYN != 0);
        if outcome.verdict == REDIRECT && is_handshake {
            let again = self.datapath.trial("from_vm", port, 0, &outcome.frame, 1).unwrap();
            assert!((again.verdict, &again.frame) == (NEXT, &outcome.frame), "it goes round");
        }
        outcome
    }

    /// What the program makes of a frame for the VM.
    pub fn run_to_vm(&mut self, port: u32, frame: &[u8]) -> Outcome {
        let outcome = self.datapath.trial("to_vm", port, MARK, frame, 1).unwrap();
        assert_eq!(outcome.mark, MARK, "another program's mark was changed");
        outcome
    }

    /// A counter of a port.
    pub fn count(&self, port: u32, which: u32) -> u64 {
        self.datapath.counters(port).unwrap().value[which as usize]
    }

    /// The one flow that a port has.
    pub fn only_flow(&self, port: u32) -> intf::ek_flow {
        let flows: Vec<_> = self.datapath.flows().unwrap().into_iter().filter(|(k, _)| k.ifindex == port).collect();
        assert_eq!(flows.len(), 1);
        flows[0].1
    }
}
