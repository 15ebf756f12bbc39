//! A guest's agent from its start to its end, on each kernel.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::{self, KernelSeries};
use evenkeel_settings::address::PORT_NAME;

use crate::bed::{Bed, HEARTBEAT_MS, PORT, Socket};
use crate::endpoint;

/// More than any window here grows to without a flood.
const FLOOD: u32 = 4000;
const CONFIG: &str = "[vflood]\ndefault = true\n";
const CERA_ALONE: &str = "[vflood]\nmode = \"off\"\n";

fn flood_of(sockets: &[Socket]) -> bool {
    !sockets.is_empty() && sockets.iter().all(|socket| socket.cwnd >= FLOOD)
}

fn plain(sockets: &[Socket]) -> bool {
    !sockets.is_empty() && sockets.iter().all(|socket| socket.cwnd < FLOOD / 4)
}

/// Replaces all connections by two, slow enough that a window without a flood stays small. One has the default
/// algorithm, one chooses its own.
fn connect(bed: &Bed) {
    bed.end_connections();
    for (port, more) in [(5201, "-b 8M"), (5202, "-b 8M -C vflood")] {
        bed.send(port, more);
    }
}

/// Sockets flood only while a host attests, and only while it holds them.
fn floods(bed: &Bed) {
    connect(bed);
    let both = || [bed.sockets(5201), bed.sockets(5202)].concat();
    bed.wait_until("connections", || both().len() == 2);
    assert!(both().iter().all(|socket| socket.algorithm == "vflood"), "{:?}", both());
    assert!(plain(&both()), "nobody attests: {:?}", both());
    assert!(bed.channels.attest(PORT, Some(FLOOD)));
    bed.wait_until("the host's word to be heard", || bed.channels.is_obeyed(PORT));
    // By another card, through a tunnel, or with headers that others own.
    let unheld = bed.counter("unheld");
    connect(bed);
    bed.wait_until("connections", || both().len() == 2);
    assert!(bed.counter("unheld") > unheld && plain(&both()), "the host does not hold them: {:?}", both());
    bed.hold();
    connect(bed);
    let took = bed.wait_until("the flood", || both().len() == 2 && flood_of(&both()));
    assert!(bed.channels.is_obeyed(PORT) && bed.channels.guest(PORT).unwrap().is_flooding);
    println!("flooding {took:?} after they began: {:?}", both());
    // The default is a container's too, but what the host says is about the guest.
    bed.add_container();
    let theirs = bed.send_from_container(5203, "-b 8M");
    assert!(theirs.iter().all(|socket| socket.algorithm == "vflood") && plain(&theirs), "{theirs:?}");
    assert!(flood_of(&both()), "{:?}", both());
    bed.shell("kill -9 $(ip netns pids box)");
    bed.end_container();
    bed.channels.attest(PORT, None);
    bed.wait_until("plain windows", || plain(&both()));
    bed.channels.attest(PORT, Some(FLOOD));
    bed.wait_until("the flood again", || flood_of(&both()));
    // Its table is full, or it has forgotten them.
    bed.let_go();
    bed.wait_until("plain windows of what nobody holds", || plain(&both()));
    bed.hold();
    bed.wait_until("the flood once more", || flood_of(&both()));

    // The channel is cut without a word.
    bed.relay.freeze(true);
    let took = bed.wait_until("plain windows without a host", || plain(&both()));
    println!("plain {took:?} after the channel was cut (three heartbeats: {} ms)", 3 * HEARTBEAT_MS);
    assert_eq!(bed.status()["has_host"], false);
    bed.wait_until("the guest to be missed", || bed.channels.guest(PORT).is_none());
    bed.relay.freeze(false);
    bed.wait_until("the flood again", || flood_of(&both()));

    // Noise ends only the channel, and that for a second.
    bed.relay.noise(50_000);
    bed.wait_until("the noise to be heard", || bed.channels.status(PORT).unwrap().counts.rests > 0);
    bed.wait_until("the flood after the noise", || bed.channels.guest(PORT).is_some() && flood_of(&both()));

    // The agent is killed: nobody has to act.
    bed.shell("kill -9 $(cat /run/evenkeel/guest.lock)");
    let took = bed.wait_until("plain windows without an agent", || plain(&both()));
    println!("plain {took:?} after the agent was killed");
    assert!(bed.registered("vflood") && bed.sysctl("tcp_congestion_control") == "vflood");
    bed.start_agent(CONFIG);
    bed.wait_until("the flood of old connections under a new agent", || flood_of(&both()));
    // They go on to hear whether they are held.
    bed.let_go();
    bed.wait_until("plain windows of old connections that nobody holds", || plain(&both()));
    bed.hold();
    bed.wait_until("their flood again", || flood_of(&both()));
    // The agent is told to end.
    bed.shell("kill $(cat /run/evenkeel/guest.lock)");
    bed.wait_until("the agent to end", || bed.status()["is_running"] == false);
    bed.wait_until("plain windows after the agent", || plain(&both()));
    bed.start_agent(CONFIG);
    bed.wait_until("the flood once more", || flood_of(&both()));

    // The agent is told to observe, and then gets a mode that does not exist.
    bed.reload("[vflood]\nmode = \"observe\"\n");
    bed.wait_until("plain windows of a guest that observes", || bed.status()["vflood_mode"] == 1 && plain(&both()));
    bed.reload("[vflood]\nmode = \"on\"\n");
    bed.wait_until("the refusal", || {
        bed.shell("cat /tmp/guest.log").contains("guest.toml:2: vflood.mode: unknown variant `on`")
    });
    assert_eq!(bed.status()["vflood_mode"], 1);
    bed.reload(CONFIG);
    bed.wait_until("the flood of a guest that enforces again", || {
        bed.status()["vflood_mode"] == 2 && flood_of(&both())
    });
    keeps_what_it_has(bed, CERA_ALONE);
    bed.wait_until("the flood of a guest that stays as it was", || flood_of(&both()));

    // A loss: the shadow window takes over, and the flood goes on afterwards.
    let before = bed.counter("handovers");
    bed.shell("tc qdisc add dev eth0 root netem limit 100000 loss 2%");
    bed.wait_until("handovers", || bed.counter("handovers") > before + 3);
    bed.shell("tc qdisc del dev eth0 root");
    bed.wait_until("the flood after losses", || flood_of(&both()));
    assert!(bed.counter("retracts") > 0);
    bed.end_connections();
}

/// A configuration for which the agent cannot note what it changes is refused whole.
fn keeps_what_it_has(bed: &Bed, config: &str) {
    let all = || {
        let names = ["tcp_congestion_control", "tcp_frto"];
        (names.map(|name| bed.sysctl(name)), bed.status()["vflood_mode"].clone(), bed.registered("vflood"))
    };
    let refusals = || bed.shell("cat /tmp/guest.log").matches("the configuration is refused").count();
    let (before, refused) = (all(), refusals());
    // Where the file is written before it has its name.
    bed.shell("mkdir /run/evenkeel/guest-state.new");
    bed.reload(config);
    bed.wait_until("the refusal", || refusals() > refused);
    assert_eq!(all(), before);
    assert!(!bed.shell("cat /tmp/guest.log").contains("not all of those could be set again"));
    bed.shell("rmdir /run/evenkeel/guest-state.new");
}

/// A controller with a window for the guest in each epoch.
struct Controller {
    is_on: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Controller {
    fn start(bed: &Bed, window: u32) -> Self {
        let (is_on, channels) = (Arc::new(AtomicBool::new(true)), bed.channels.clone());
        let goes_on = Arc::clone(&is_on);
        let thread = std::thread::spawn(move || {
            let mut epoch = 0;
            while goes_on.load(Ordering::SeqCst) {
                epoch += 1;
                channels.window(PORT, epoch, window);
                std::thread::sleep(Duration::from_millis(2));
            }
            epoch
        });
        Self { is_on, thread: Some(thread) }
    }

    /// Ends it, and returns its last epoch.
    fn stop(mut self) -> u64 {
        self.is_on.store(false, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Windows are set on live sockets whose algorithms go on.
fn shares(bed: &Bed, algorithm: &str) {
    const WINDOW: u32 = 200;
    let flows = 4;
    // Where the peer is near, a window bounds nothing and need not grow.
    bed.shell("tc qdisc add dev eth0 root netem limit 100000 delay 20ms");
    bed.send(5203, &format!("-P {flows} -C {algorithm}"));
    let sockets = || bed.sockets(5203);
    let all = |wanted: &dyn Fn(&Socket) -> bool| {
        let sockets = sockets();
        sockets.len() == flows && sockets.iter().all(wanted)
    };
    bed.wait_until("large windows", || all(&|socket| socket.cwnd > WINDOW));
    for cut in [false, true] {
        let back = bed.counter("windows_back");
        let controller = Controller::start(bed, WINDOW);
        // Between two words each window grows by at most one segment in an RTT in which all of it is sent.
        bed.wait_until("small windows", || all(&|socket| socket.cwnd <= 2 * WINDOW / flows as u32));
        println!("{algorithm}, shares of {WINDOW}: {:?}", sockets());
        // `ss` takes no lock: it may look while the client's algorithm has a socket for a moment.
        bed.wait_until("sockets' own algorithms", || all(&|socket| socket.algorithm == algorithm));
        if cut {
            bed.relay.freeze(true);
            controller.stop();
        } else {
            let epoch = controller.stop();
            bed.wait_until("the epoch to be told", || {
                bed.channels.guest(PORT).is_some_and(|guest| guest.epoch == epoch)
            });
            bed.channels.window(PORT, epoch + 1, 0);
        }
        let took = bed.wait_until("windows to grow", || all(&|socket| socket.cwnd > WINDOW));
        println!("windows above {WINDOW} {took:?} after the limit's end (channel cut: {cut})");
        bed.wait_until("thresholds to be put back", || bed.counter("windows_back") >= back + flows as u64);
        bed.wait_until("sockets' own algorithms", || all(&|socket| socket.algorithm == algorithm));
        bed.relay.freeze(false);
        bed.wait_until("the guest", || bed.channels.has_client(PORT));
    }
    bed.end_connections();
    bed.shell("tc qdisc del dev eth0 root");
}

/// The host's window is for what goes by one network card, and some connections may go by another.
fn leaves_windows_to_the_host(bed: &Bed) {
    assert_eq!(bed.status()["cards"], 1);
    bed.shell("ip link set eth1 up");
    bed.wait_until("a guest that does not offer to share", || {
        bed.channels.guest(PORT).is_some() && !bed.channels.has_client(PORT)
    });
    assert_eq!(bed.status()["cards"], 2);
    let status = bed.shell("evenkeel guest --status");
    assert!(status.contains("leaves its connections to the host: 2 network cards are up"), "{status}");
    bed.shell("ip link set eth1 down");
    bed.wait_until("the client again", || bed.channels.has_client(PORT));
}

/// CERA's client needs nothing of vFlood's, and the guest's status tells that the host is there.
fn without_vflood(bed: &Bed) {
    bed.start_agent(CERA_ALONE);
    bed.wait_until("the guest", || bed.channels.has_client(PORT));
    bed.wait_until("the host", || bed.status()["has_host"] == true);
    assert!(!bed.registered("vflood") && bed.status()["vflood_mode"] == 0, "{}", bed.status());
    // The host counts as there not by its first word alone, but as long as its heartbeats come.
    std::thread::sleep(Duration::from_millis(4 * u64::from(HEARTBEAT_MS)));
    bed.wait_until("the host's heartbeats", || bed.status()["has_host"] == true);
    shares(bed, "cubic");
    leaves_windows_to_the_host(bed);
    bed.relay.freeze(true);
    bed.wait_until("the host to be missed", || bed.status()["has_host"] == false);
    bed.relay.freeze(false);
    bed.wait_until("the host again", || bed.status()["has_host"] == true);
    keeps_what_it_has(bed, CONFIG);
    bed.reload(CONFIG);
    bed.wait_until("vFlood", || bed.registered("vflood") && bed.status()["vflood_mode"] == 2);
    bed.reload(CERA_ALONE);
    bed.wait_until("no vFlood", || !bed.registered("vflood") && bed.status()["vflood_mode"] == 0);
    bed.wait_until("the host of another session", || bed.status()["has_host"] == true);
    bed.shell("evenkeel guest --stop");
    assert_eq!(bed.status()["has_host"], false);
    assert_eq!(bed.shell("ls -d /sys/fs/bpf/evenkeel-guest 2>/dev/null || true"), "");
}

/// The host hears for what share of the time the guest could not run.
fn says_whether_it_has_its_core(bed: &Bed) {
    let permille = || bed.channels.guest(PORT).and_then(|guest| guest.off_core_permille);
    bed.wait_until("the guest's looks", || permille().is_some());
    bed.shell("kill -STOP $(cat /run/evenkeel/guest.lock); sleep 1; kill -CONT $(cat /run/evenkeel/guest.lock)");
    bed.wait_until("a second without a core", || permille().is_some_and(|permille| permille >= 250));
    assert!(bed.status()["off_core_permille"].is_u64());
}

fn on(series: KernelSeries) {
    let interrupt = Interrupt::install().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_evenkeel"));
    let images = prepare::prepare(&[series], binary, &|line| println!("{line}")).unwrap();
    Bed::leave();
    println!("--- {}", images[0].release);
    let bed = Bed::new(&images[0], &interrupt);
    let settings =
        || ["tcp_congestion_control", "tcp_frto", "tcp_available_congestion_control"].map(|name| bed.sysctl(name));
    let before = settings();
    assert!(bed.channels.guest(PORT).is_none());
    endpoint::vouches(&bed);
    bed.wait_until("the host to miss the guest", || bed.channels.guest(PORT).is_none());
    without_vflood(&bed);
    bed.wait_until("the host to miss the guest", || bed.channels.guest(PORT).is_none());
    bed.start_agent(CONFIG);
    bed.wait_until("the guest", || bed.channels.has_client(PORT));
    assert_eq!((bed.sysctl("tcp_congestion_control"), bed.sysctl("tcp_frto")), ("vflood".into(), "0".into()));
    let doctor = bed.shell("evenkeel doctor");
    assert!(doctor.contains("this kernel takes it: BTF, struct_ops") && doctor.contains(PORT_NAME), "{doctor}");
    // A second agent is refused with the reason.
    let second = bed.shell("evenkeel guest 2>&1 || true");
    assert!(second.contains("another evenkeel guest agent runs (process "), "{second}");
    says_whether_it_has_its_core(&bed);
    floods(&bed);
    shares(&bed, "reno");

    bed.send(5201, "-b 8M");
    bed.wait_until("a connection", || bed.sockets(5201).len() == 1);
    let stopped = bed.shell("evenkeel guest --stop --json");
    let stopped: serde_json::Value = serde_json::from_str(&stopped).unwrap();
    assert!(
        stopped["connections"].as_u64().unwrap() >= 1 && stopped["settings"]["net.ipv4.tcp_frto"] == before[1],
        "{stopped}"
    );
    assert_eq!(settings(), before, "not everything is put back");
    bed.wait_until("the host to miss the guest", || bed.channels.guest(PORT).is_none());
    // The connection goes on with the algorithm of its shadow window.
    assert!(bed.sockets(5201).iter().all(|socket| socket.algorithm == "cubic"), "{:?}", bed.sockets(5201));
    assert_eq!(bed.shell("ls /sys/fs/bpf /run/evenkeel").matches("guest-state").count(), 0);
    let again = bed.shell("evenkeel guest --stop");
    assert!(again.contains("nothing was there to undo"), "{again}");
    println!("{}", bed.shell("cat /tmp/guest.log"));
}

#[test]
fn on_linux_6_1() {
    on(KernelSeries::V6_1);
}

#[test]
fn on_linux_6_12() {
    on(KernelSeries::V6_12);
}

#[test]
fn on_the_newest_kernel() {
    on(KernelSeries::Newest);
}
