//! Guests as directories with what their kernels would say.

use std::fs;
use std::os::unix::fs::symlink;

use super::readings::Attached;
use super::*;

/// A guest with one network card that is up, `eth0`.
struct Guest {
    root: tempfile::TempDir,
    attached: Attached,
}

impl Guest {
    fn new() -> Self {
        let none = || Ok(Some(false));
        let attached = Attached { xdp: none(), filter: none(), tcx: none(), addresses: none() };
        let guest = Self { root: tempfile::tempdir().unwrap(), attached };
        guest.write("proc/sys/net/ipv4/tcp_shrink_window", "0\n");
        guest.device("lo", 0x9);
        guest.card("eth0");
        guest
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        symlink(to, self.root.path().join(path)).unwrap();
    }

    fn remove(&self, path: &str) {
        let path = self.root.path().join(path);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    fn device(&self, name: &str, flags: u32) {
        let path = format!("sys/class/net/{name}");
        self.write(&format!("{path}/flags"), &format!("{flags:#x}\n"));
        self.write(&format!("{path}/ifindex"), "2\n");
        self.write(&format!("{path}/uevent"), &format!("INTERFACE={name}\nIFINDEX=2\n"));
        self.write(&format!("{path}/queues/rx-0/rps_cpus"), "00000000,00000000\n");
        self.write(&format!("{path}/queues/tx-0/xps_cpus"), "3\n");
    }

    fn card(&self, name: &str) {
        self.device(name, 0x1003);
        self.link(&format!("sys/class/net/{name}/device"), "../../../virtio0");
    }

    /// A device on top of another one.
    fn upper(&self, lower: &str, name: &str, kind: &str) {
        self.device(name, 0x1003);
        self.write(&format!("sys/class/net/{name}/uevent"), &format!("{kind}INTERFACE={name}\n"));
        self.link(&format!("sys/class/net/{lower}/upper_{name}"), &format!("../{name}"));
    }

    fn objections(&self) -> Vec<Objection> {
        objections(&Readings::take(self.root.path(), |_| self.attached.clone()))
    }

    fn reasons(&self) -> Vec<Reason> {
        self.objections().into_iter().map(|objection| objection.reason).collect()
    }
}

#[test]
fn a_plain_guest_vouches() {
    assert_eq!(Guest::new().objections(), []);
}

#[test]
fn what_a_kernel_does_not_have_speaks_against_nobody() {
    let mut guest = Guest::new();
    guest.remove("proc/sys/net/ipv4/tcp_shrink_window");
    guest.remove("sys/class/net/eth0/queues/rx-0/rps_cpus");
    guest.attached.tcx = Ok(None);
    guest.attached.filter = Ok(None);
    assert_eq!(guest.objections(), []);
}

#[test]
fn a_window_that_may_be_taken_back_is_no_promise() {
    let guest = Guest::new();
    guest.write("proc/sys/net/ipv4/tcp_shrink_window", "1\n");
    assert_eq!(guest.reasons(), [Reason::ShrinkWindow]);
    assert_eq!(guest.objections()[0].to_string(), "net.ipv4.tcp_shrink_window is 1");
}

#[test]
fn a_card_that_belongs_to_something_else_is_no_end() {
    let guest = Guest::new();
    guest.upper("eth0", "br0", "DEVTYPE=bridge\n");
    guest.link("sys/class/net/eth0/master", "../br0");
    assert_eq!(guest.reasons(), [Reason::Master], "once, though it is among what is on top of it, too");
    assert_eq!(guest.objections()[0].to_string(), "eth0 belongs to br0");
}

#[test]
fn so_is_one_with_a_macvlan_on_top_but_not_one_with_a_vlan() {
    let guest = Guest::new();
    guest.upper("eth0", "eth0.5", "DEVTYPE=vlan\n");
    guest.upper("eth0", "flannel.1", "DEVTYPE=vxlan\n");
    assert_eq!(guest.objections(), []);
    guest.upper("eth0", "macvtap0", "");
    assert_eq!(guest.reasons(), [Reason::Upper]);
    assert_eq!(guest.objections()[0].to_string(), "macvtap0 takes packets of eth0");
}

#[test]
fn vlans_are_looked_at_like_cards() {
    let guest = Guest::new();
    guest.upper("eth0", "eth0.5", "DEVTYPE=vlan\n");
    guest.upper("eth0.5", "eth0.5.6", "DEVTYPE=vlan\n");
    guest.upper("eth0.5.6", "br0", "DEVTYPE=bridge\n");
    guest.link("sys/class/net/eth0.5.6/master", "../br0");
    assert_eq!(guest.objections()[0].to_string(), "eth0.5.6 belongs to br0");
    // Not if they are down.
    guest.write("sys/class/net/eth0.5/flags", "0x1002\n");
    assert_eq!(guest.objections(), []);
}

#[test]
fn packets_that_wait_for_another_processor_may_be_dropped() {
    let guest = Guest::new();
    guest.write("sys/class/net/eth0/queues/rx-1/rps_cpus", "00000000,00000002\n");
    assert_eq!(guest.reasons(), [Reason::Rps]);
}

#[test]
fn services_of_ipvs_pass_connections_on() {
    let guest = Guest::new();
    let head = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  \
                -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n";
    guest.write("proc/net/ip_vs", head);
    assert_eq!(guest.objections(), []);
    guest.write("proc/net/ip_vs", &format!("{head}TCP  0A090005:0050 rr \n  -> 0A090007:0050 Masq 1 0 0\n"));
    assert_eq!(guest.reasons(), [Reason::IpVs]);
}

#[test]
fn what_is_attached_speaks_against_it() {
    let yes = || Ok(Some(true));
    let reasons = |change: fn(&mut Attached, Result<Option<bool>, String>)| {
        let mut guest = Guest::new();
        change(&mut guest.attached, yes());
        let reasons = guest.reasons();
        change(&mut guest.attached, Err("not allowed".to_owned()));
        assert_eq!(guest.reasons(), [Reason::Unreadable]);
        reasons
    };
    assert_eq!(reasons(|attached, is| attached.xdp = is), [Reason::Xdp]);
    assert_eq!(reasons(|attached, is| attached.filter = is), [Reason::Tc]);
    assert_eq!(reasons(|attached, is| attached.tcx = is), [Reason::Tc]);
    assert_eq!(reasons(|attached, is| attached.addresses = is), [Reason::Addresses]);
}

#[test]
fn what_cannot_be_read_speaks_against_it() {
    // A directory cannot be read as a file, not even by root.
    for path in ["proc/sys/net/ipv4/tcp_shrink_window", "proc/net/ip_vs"] {
        let guest = Guest::new();
        if guest.root.path().join(path).exists() {
            guest.remove(path);
        }
        fs::create_dir_all(guest.root.path().join(path)).unwrap();
        assert_eq!(guest.reasons(), [Reason::Unreadable], "{path}");
    }
    for path in ["eth0/flags", "eth0/ifindex", "eth0/queues", "eth0", ""] {
        let guest = Guest::new();
        guest.remove(&format!("sys/class/net/{path}"));
        assert_eq!(guest.reasons(), [Reason::Unreadable], "{path}");
    }
    let guest = Guest::new();
    guest.write("sys/class/net/eth0/flags", "up\n");
    assert_eq!(guest.reasons(), [Reason::Unreadable]);
    // A device that went between two looks at it.
    let guest = Guest::new();
    guest.upper("eth0", "eth0.5", "DEVTYPE=vlan\n");
    guest.remove("sys/class/net/eth0.5");
    assert_eq!(guest.reasons(), [Reason::Unreadable]);
}

#[test]
fn cards_that_are_down_and_other_devices_do_not_count() {
    let guest = Guest::new();
    guest.card("eth1");
    guest.write("sys/class/net/eth1/flags", "0x1002\n");
    guest.write("sys/class/net/eth1/queues/rx-0/rps_cpus", "3\n");
    guest.device("veth7", 0x1003);
    guest.link("sys/class/net/veth7/master", "../docker0");
    assert_eq!(guest.objections(), []);
    guest.write("sys/class/net/eth1/flags", "0x1003\n");
    assert_eq!(guest.reasons(), [Reason::Rps]);
}

/// What goes by another card than the host's is not the host's.
#[test]
fn cards_that_are_up_are_counted() {
    let guest = Guest::new();
    let counted = || cards(&Readings::take(guest.root.path(), |_| guest.attached.clone()));
    assert_eq!(counted(), Some(1));
    guest.upper("eth0", "eth0.5", "DEVTYPE=vlan\n");
    guest.device("wg0", 0x1003);
    assert_eq!(counted(), Some(1), "a VLAN and a tunnel use the card");
    guest.card("eth1");
    assert_eq!(counted(), Some(2));
    guest.write("sys/class/net/eth1/flags", "0x1002\n");
    assert_eq!(counted(), Some(1));
    guest.write("sys/class/net/eth1/flags", "up\n");
    assert_eq!(counted(), None);
}

#[test]
fn a_look_is_taken_again_after_a_while() {
    let mut watch = Watch::new();
    let begin = Instant::now();
    let first = watch.look(begin);
    let looked = watch.looked;
    assert_eq!((watch.look(begin + LOOK_EVERY / 2), watch.looked), (first, looked));
    watch.look(begin + LOOK_EVERY);
    assert_eq!(watch.looked, Some(begin + LOOK_EVERY));
}
