//! For which VMs vSnoop may act: the word of a VM's agent reaches the port's entry in the datapath, as the
//! configuration has it, and ends. The test plays the guest's end of the channel.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_agent::channel::wire::Capabilities;
use evenkeel_agent::channel::{GuestEnd, Reason, Reasons, session};
use evenkeel_testbed::tap::TapVm;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bed::{Host, METRICS, wait_until};

/// What a guest's agent is to do from now on.
enum Order {
    /// It says this of its TCP.
    Say(Option<Reasons>),
    /// It reads and writes nothing.
    Stop,
    /// It says goodbye, and ends.
    Leave,
}

/// The agent in the VM, as far as its host knows.
struct Guest {
    orders: Sender<Order>,
    thread: JoinHandle<()>,
}

impl Guest {
    /// Accepts the host's next connection.
    fn new(listener: &UnixListener) -> Self {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (orders, ordered) = channel();
        let thread = std::thread::spawn(move || {
            let mut end = GuestEnd::new(100, Capabilities::default(), session().unwrap(), Instant::now());
            end.connected(Instant::now());
            let mut is_stopped = false;
            loop {
                match ordered.try_recv() {
                    Ok(Order::Say(said)) => {
                        is_stopped = false;
                        end.endpoint(said, Instant::now());
                    }
                    Ok(Order::Stop) => is_stopped = true,
                    Ok(Order::Leave) => {
                        let mut last = Vec::new();
                        end.goodbye(&mut last);
                        stream.write_all(&last).unwrap();
                        // Takes what the host still says until it has read that.
                        while stream.read(&mut [0; 4096]).is_ok() {}
                        return;
                    }
                    Err(_) => {}
                }
                if is_stopped {
                    std::thread::sleep(Duration::from_millis(20));
                } else {
                    turn(&mut stream, &mut end);
                }
            }
        });
        Self { orders, thread }
    }

    fn order(&self, order: Order) {
        self.orders.send(order).unwrap();
    }

    fn leave(self) {
        self.order(Order::Leave);
        self.thread.join().unwrap();
    }
}

fn turn(stream: &mut UnixStream, end: &mut GuestEnd) {
    let mut out = Vec::new();
    end.outgoing(Instant::now(), &mut out);
    stream.write_all(&out).unwrap();
    let mut buffer = [0; 4096];
    let length = stream.read(&mut buffer).unwrap_or_default();
    end.received(&buffer[..length], Instant::now());
    end.expire(Instant::now());
}

#[test]
fn a_vms_word_reaches_its_port_and_ends() {
    let mut host = Host::new();
    let listener = UnixListener::bind(host.path("channel")).unwrap();
    let configure = |host: &Host, endpoint: &str| {
        let path = host.text("channel");
        let vsnoop = "[port.vsnoop]\nmode = \"enforce\"";
        let port = format!("[[port]]\nmatch = \"vp1\"\nchannel = \"{path}\"\n{vsnoop}\nendpoint = \"{endpoint}\"\n");
        host.configure("off", METRICS, &port);
    };
    configure(&host, "attested");
    let _vm = TapVm::new("vp1", false, "10.9.0.1");
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    let vsnoop = |host: &Host| -> Value { host.status()["ports"][0]["vsnoop"].clone() };
    let is = |host: &Host, endpoint: &str| wait_until(endpoint, || vsnoop(host)["endpoint"] == endpoint);
    let text = |host: &Host| {
        let output = host.evenkeel(&["status", "--socket", &host.text("host.sock")]);
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(vsnoop(&host)["endpoint"], "unknown");
    assert!(text(&host).contains("NO early ACKs: no agent in the VM vouches for its TCP"), "{}", text(&host));

    let guest = Guest::new(&listener);
    guest.order(Order::Say(Some(Reasons::default())));
    is(&host, "attested");
    wait_until("early ACKs", || text(&host).contains("the VM is attested") && !text(&host).contains("NO early ACKs"));
    guest.order(Order::Say(Some(Reasons::from_iter([Reason::Rps, Reason::ShrinkWindow]))));
    is(&host, "unfit");
    assert_eq!(vsnoop(&host)["objections"].as_array().unwrap().len(), 2, "{}", vsnoop(&host));
    assert!(text(&host).contains("tcp_shrink_window") && text(&host).contains("rps_cpus"), "{}", text(&host));
    guest.order(Order::Say(Some(Reasons::default())));
    is(&host, "attested");
    guest.order(Order::Stop);
    is(&host, "unknown");
    // An agent from before there was such a word.
    guest.order(Order::Say(None));
    wait_until("the guest again", || !host.status()["ports"][0]["channel"]["guest"].is_null());
    assert_eq!(vsnoop(&host)["endpoint"], "unknown");

    configure(&host, "observed");
    host.signal(Signal::SIGHUP);
    is(&host, "observed");
    guest.order(Order::Say(Some(Reasons::default())));
    is(&host, "attested");
    guest.order(Order::Say(Some(Reasons::from_iter([Reason::Upper]))));
    is(&host, "unfit");
    // A guest that waits for its core has not taken back what it said.
    guest.order(Order::Stop);
    wait_until("the guest to be missed", || host.status()["ports"][0]["channel"]["guest"].is_null());
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(vsnoop(&host)["endpoint"], "unfit");
    guest.leave();
    is(&host, "observed");

    // Nor has one that waits while the host's agent is replaced.
    let guest = Guest::new(&listener);
    guest.order(Order::Say(Some(Reasons::from_iter([Reason::Upper]))));
    is(&host, "unfit");
    guest.order(Order::Stop);
    host.signal(Signal::SIGKILL);
    host.ended();
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(vsnoop(&host)["endpoint"], "unfit");
    let guest = Guest::new(&listener);
    guest.order(Order::Say(Some(Reasons::default())));
    is(&host, "attested");
}

/// A VM with a card in each of two networks has one agent, and QEMU takes one connection to it at a time.
#[test]
fn every_port_of_a_vm_hears_its_agent() {
    let mut host = Host::new();
    let listener = UnixListener::bind(host.path("channel")).unwrap();
    let path = host.text("channel");
    let vsnoop = "[port.vsnoop]\nmode = \"enforce\"\nendpoint = \"observed\"";
    let port = |name: &str| format!("[[port]]\nmatch = \"{name}\"\nchannel = \"{path}\"\n{vsnoop}\n");
    host.configure("off", METRICS, &(port("vp1") + &port("vp2")));
    let vms = [("vp1", "10.9.0.1"), ("vp2", "10.9.0.2")].map(|(port, address)| TapVm::new(port, false, address));
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
    let endpoints = |host: &Host| -> Vec<Value> {
        let status = host.status();
        status["ports"].as_array().unwrap().iter().map(|port| port["vsnoop"]["endpoint"].clone()).collect()
    };
    let guest = Guest::new(&listener);
    guest.order(Order::Say(Some(Reasons::from_iter([Reason::Upper]))));
    wait_until("both ports to hear no", || endpoints(&host) == ["unfit", "unfit"]);
    guest.order(Order::Say(Some(Reasons::default())));
    wait_until("both ports to hear yes", || endpoints(&host) == ["attested", "attested"]);
    // One port goes, and the other still hears.
    let [gone, _stays] = vms;
    drop(gone);
    wait_until("one port", || host.ports() == ["vp2"]);
    guest.order(Order::Say(Some(Reasons::from_iter([Reason::Rps]))));
    wait_until("the other port to hear no", || endpoints(&host) == ["unfit"]);
}
