//! Trouble with one file or one client ends nothing else.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;

use evenkeel_testbed::place::{index, ip};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;

use crate::bed::{Host, METRICS, programs, queue_length, tcx_programs, wait_until};

/// More than are served at once.
const MANY: usize = 200;

/// Whether the other end has hung up.
fn is_over(mut stream: impl Read) -> bool {
    !stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn clients_that_say_nothing_keep_nobody_waiting() {
    let mut host = Host::new();
    host.start();
    let silent = |_| {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, METRICS)).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let few: Vec<_> = (0..24).map(silent).collect();
    assert!(host.metrics(METRICS).is_some());
    // No client had to be given up first.
    assert!(!few.iter().any(is_over), "the answer came after the end of those that say nothing");
    // Of many clients the oldest are given up.
    let many: Vec<_> = (0..MANY).map(silent).collect();
    assert!(host.metrics(METRICS).is_some());
    wait_until("the first ones to go", || few.iter().all(is_over));
    drop(many);

    let silent = |_| {
        let stream = UnixStream::connect(host.path("host.sock")).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let many: Vec<_> = (0..MANY).map(silent).collect();
    host.status();
    wait_until("the first ones to go", || many.iter().take(MANY / 2).all(is_over));
    assert!(!is_over(many.last().unwrap()));
}

/// The limit of files that a shell gives is not the agent's.
#[test]
fn it_may_have_as_many_files_open_as_the_system_allows() {
    let mut host = Host::new();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 500, hard).unwrap();
    host.start();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", host.status()["pid"])).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some(hard.to_string().as_str()), "{files}");
    host.stop();
}

#[test]
fn a_full_run_directory_stops_the_change_and_nothing_else() {
    let mut host = Host::new();
    let run = host.path("run");
    fs::create_dir(&run).unwrap();
    mount(Some("tmpfs"), &run, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
    let _first = host.add_vm(1);
    host.start();
    wait_until("the first queue", || queue_length("vp1") == 4000);
    let filler = run.join("filler");
    // Until not a byte is left.
    let mut file = fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 512]).is_ok() {}
    drop(file);
    let _second = host.add_vm(2);
    wait_until("the second port", || host.ports() == ["vp1", "vp2"]);
    assert_eq!((tcx_programs("vp2"), queue_length("vp2")), (2, 72));
    wait_until("the reason", || host.status()["notes_error"].as_str().is_some_and(|why| why.contains("No space left")));
    let table = host.evenkeel(&["status", "--socket", &host.text("host.sock")]);
    assert!(String::from_utf8(table.stdout).unwrap().contains("CANNOT BE NOTED"));
    // Another agent can be started, too.
    host.signal(Signal::SIGKILL);
    host.ended();
    host.start();
    wait_until("both ports", || host.ports() == ["vp1", "vp2"]);
    ip("link set vp1 mtu 1400");
    fs::remove_file(filler).unwrap();
    wait_until("the second queue", || queue_length("vp2") == 4000);
    wait_until("no more trouble", || host.status()["notes_error"].is_null());
    host.stop();
    host.ended();
    assert_eq!((queue_length("vp1"), queue_length("vp2")), (71, 72));
    umount(&run).unwrap();
}

#[test]
fn a_stop_that_fails_is_said_by_both_and_can_be_run_again() {
    let mut host = Host::new();
    let _vm = host.add_vm(1);
    host.start();
    wait_until("the queue", || queue_length("vp1") == 4000);
    let theirs = host.path("bpf/evenkeel/theirs");
    fs::create_dir(&theirs).unwrap();
    mount(Some("tmpfs"), &theirs, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    let said = host.stop_in_part();
    assert!(said.contains("cannot remove"), "{said}");
    assert_eq!(host.ended(), Some(4), "an agent that has said farewell goes on, or says that all is well");
    assert!(host.stop_in_part().contains("cannot remove"));
    // A pin that stays keeps nothing else.
    assert_eq!((tcx_programs("vp1"), queue_length("vp1")), (0, 71));
    umount(&theirs).unwrap();
    host.stop();
    assert!(!host.path("bpf/evenkeel").exists());
}

/// Pins that cannot be removed stand for all that can be wrong with one port.
#[test]
fn one_port_that_cannot_be_undone_keeps_no_other() {
    for (attach, pin, stays) in [("tcx", "from_vm", (1, 0)), ("clsact", "from_vm-filter", (0, 0))] {
        for is_killed in [false, true] {
            let mut host = Host::by(attach);
            let _vms = [host.add_vm(1), host.add_vm(2), host.add_vm(3)];
            host.start();
            wait_until("the queues", || ["vp1", "vp2", "vp3"].iter().all(|port| queue_length(port) == 4000));
            let pin = host.path(&format!("bpf/evenkeel/links/{}-{pin}", index("vp2")));
            mount(Some(&pin), &pin, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
            if is_killed {
                host.signal(Signal::SIGKILL);
            }
            let said = host.stop_in_part();
            assert_eq!(said.matches("cannot remove").count(), 1, "{said}");
            assert_eq!([programs("vp1"), programs("vp2"), programs("vp3")], [(0, 0), stays, (0, 0)]);
            assert_eq!(["vp1", "vp2", "vp3"].map(queue_length), [71, 72, 73]);
            host.ended();
            umount(&pin).unwrap();
            host.stop();
            assert_eq!((programs("vp2"), host.path("bpf/evenkeel").exists()), ((0, 0), false));
        }
    }
}
