//! vFlood rests while a VM has its core, and acts while the VM waits for it: the real host agent on the newest kernel.
//! The test plays the guest's end of the channel, and makes up what it says of its core.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_agent::channel::wire::Capabilities;
use evenkeel_agent::channel::{Effect, GuestEnd, session};
use evenkeel_lab::host::vm::Vm as Machine;
use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::KernelSeries;
use serde_json::Value;

use crate::bed::wait_until;
use crate::vflood::{CHANNEL, bed, configure, count, fetch, status};

/// The agent in the VM, as far as its host knows.
struct Guest {
    says_permille: Arc<AtomicU16>,
    may_flood: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Guest {
    /// At the other end of QEMU's socket.
    fn new(socket: &Path, says_permille: u16) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut guest = Self {
            says_permille: Arc::new(AtomicU16::new(says_permille)),
            may_flood: Arc::default(),
            ends: Arc::default(),
            thread: None,
        };
        let (says, may_flood, ends) = (guest.says_permille.clone(), guest.may_flood.clone(), guest.ends.clone());
        guest.thread = Some(std::thread::spawn(move || {
            let mut end = GuestEnd::new(200, Capabilities::VFLOOD, session().unwrap(), Instant::now());
            end.connected(Instant::now());
            let mut buffer = [0; 4096];
            while !ends.load(Ordering::Relaxed) {
                end.off_core(Some(says.load(Ordering::Relaxed)));
                let mut out = Vec::new();
                end.outgoing(Instant::now(), &mut out);
                stream.write_all(&out).unwrap();
                let length = stream.read(&mut buffer).unwrap_or_default();
                let mut effects = end.received(&buffer[..length], Instant::now());
                effects.extend(end.expire(Instant::now()));
                for effect in effects {
                    match effect {
                        Effect::Attested { .. } => may_flood.store(true, Ordering::Relaxed),
                        Effect::Retracted => may_flood.store(false, Ordering::Relaxed),
                        _ => continue,
                    }
                    end.report_soon(Instant::now());
                }
            }
        }));
        guest
    }

    fn says(&self, permille: u16) {
        self.says_permille.store(permille, Ordering::Relaxed);
    }

    fn may_flood(&self) -> bool {
        self.may_flood.load(Ordering::Relaxed)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Both ends give up a connection in the middle of its data, and the host hears nothing of it. The other end has only
/// one port for connections from now on.
fn abandon_a_transfer(machine: &Machine) {
    // In one script, and the ACKs are cut first: they would let out all that is held in a few round trips.
    machine
        .shell(
            "ip netns exec peer sh -c 'echo 40000 40000 >/proc/sys/net/ipv4/ip_local_port_range'
             tc -n peer qdisc change dev eth1 root netem delay 800ms limit 10000
             ip netns exec peer setsid wget -q -O /dev/null http://10.8.0.1:8001/data >/dev/null 2>&1 &
             for i in $(seq 200); do
                 evenkeel status --json | grep -q 'held_segments\": *[1-9]' && break
                 sleep 0.05
             done
             for end in peer vm; do tc -n $end qdisc replace dev eth1 root blackhole; done
             ip netns exec vm ss -Kt dport = 40000 >/dev/null; ip netns exec peer ss -Kt sport = 40000 >/dev/null
             sleep 0.5
             tc -n vm qdisc replace dev eth1 root netem delay 10us limit 10000
             tc -n peer qdisc replace dev eth1 root netem delay 20ms limit 10000
             ! ip netns exec vm ss -tnH dport = 40000 | grep 40000",
        )
        .unwrap();
    let held = status(machine)["ports"][0]["vflood"]["held_segments"].as_u64().unwrap();
    assert!(held > 0, "what the host holds of it stays");
}

#[test]
fn connections_are_passed_over_while_the_vm_has_its_core() {
    let interrupt = Interrupt::install().unwrap();
    let (_host, directory, machine) = bed(KernelSeries::Newest, &interrupt);
    let port = || -> Value { status(&machine)["ports"][0].clone() };
    let rests = || port()["vflood"]["rests"].as_bool().unwrap();
    let counts = || ["vflood_flows", "vflood_held"].map(|name| count(&machine, name));
    let device = machine.shell("grep -l org.evenkeel /sys/class/virtio-ports/*/name | cut -d/ -f5").unwrap();
    let channel = format!("[[port]]\nmatch = \"vp0\"\nchannel = \"/dev/{}\"", device.trim());
    let reload = || machine.shell("kill -HUP $(cat /tmp/agent.pid)").unwrap();
    configure(&machine, "enforce", &channel);
    reload();

    let guest = Guest::new(&directory.path().join(CHANNEL), 0);
    wait_until("vFlood to rest", rests);
    assert!(!guest.may_flood());
    assert_eq!(port()["channel"]["guest"]["off_core_permille"], 0);
    let unread = || ["unknown_flow", "packets_from_vm"].map(|name| count(&machine, name));
    let (before, seen) = (counts(), unread());
    fetch(&machine, "true");
    assert_eq!(counts(), before, "it rests");
    let packets = unread();
    assert!(packets[0] == seen[0] && packets[1] > seen[1] + 20, "nothing is read: {seen:?}, then {packets:?}");

    guest.says(400);
    wait_until("the guest to have its host's word", || guest.may_flood());
    assert!(!rests());
    fetch(&machine, "true");
    let after = counts();
    assert!(after[0] > before[0] && after[1] > before[1] + 100, "{before:?}, then {after:?}");

    abandon_a_transfer(&machine);

    // vFlood has acted, so it waits for a while before it rests again; what is held then leaves all the same.
    guest.says(0);
    wait_until("vFlood to rest again", rests);
    assert!(!guest.may_flood());
    let before = counts();
    fetch(&machine, "true");
    assert_eq!(counts(), before, "the connection with the ports of the abandoned one is passed over, too");
    let left = port()["vflood"].clone();
    assert!(left["connections"] == 0 && left["held_segments"] == 0, "what is held of that one is for nobody: {left}");

    configure(&machine, "enforce", &format!("off_core_percent = 0\n{channel}"));
    reload();
    wait_until("the guest to have its host's word, whatever it says", || guest.may_flood());
    fetch(&machine, "true");
    assert!(counts()[1] > after[1] + 100, "{after:?}, then {:?}", counts());
}
