//! Turns a scenario's guest settings into what is run inside the guest.

use std::fmt::Write;
use std::net::Ipv4Addr;

use evenkeel_scenario::format::{DelayedAck, GuestTcp, Network, Pvtcp, RtoMin, RtoMinWord};
use evenkeel_settings::Mode;

/// A neighbour in the lab's network.
#[derive(Debug, Clone)]
pub struct Neighbour {
    /// Address.
    pub address: Ipv4Addr,
    /// MAC address.
    pub mac: String,
}

/// Where a guest keeps the sizes of socket buffers that its kernel chose, by the name of their sysctl.
const KERNELS_OWN: &str = "/run/evenkeel-lab";

/// The script that sets a guest's addresses, and keeps what the kernel chose, once after it has booted. Programs are
/// named by their path, because busybox's shell would take its own `ip` instead.
pub fn boot_script(address: Ipv4Addr, neighbours: &[Neighbour]) -> String {
    let mut batch = format!("addr replace {address}/24 dev eth0\nlink set lo up\nlink set eth0 up\n");
    for neighbour in neighbours {
        // Fixed, because an ARP exchange in the middle of a run is one more thing that waits for a vCPU. Writing to a
        // String cannot fail.
        let _ = writeln!(batch, "neigh replace {} lladdr {} dev eth0 nud permanent", neighbour.address, neighbour.mac);
    }
    format!(
        "for f in /proc/sys/net/ipv6/conf/all/disable_ipv6; do [ ! -e $f ] || echo 1 > $f; done\n\
         /bin/ip -batch - <<END\n{batch}END\n\
         mkdir -p {KERNELS_OWN}\n\
         for key in tcp_rmem tcp_wmem; do cat /proc/sys/net/ipv4/$key > {KERNELS_OWN}/$key; done\n"
    )
}

/// The script that has a namespace's device take and give segments no larger than the MTU.
pub const NO_OFFLOAD_SCRIPT: &str = "ethtool -K eth0 tso off gso off gro off";

/// Most segments in a packet if the scenario does not say: the kernel's own bound (GSO_MAX_SEGS).
const GSO_MAX_SEGMENTS: u32 = 65_535;

/// The script that sets a guest's route and TCP. Every key is written each time, so that nothing of the run before
/// stays.
pub fn tcp_script(address: Ipv4Addr, tcp: &GuestTcp, network: &Network) -> String {
    let mut script = format!(
        "/bin/ip -batch - <<END\nlink set eth0 mtu {} gso_max_segs {}\n\
         route replace 10.0.0.0/24 dev eth0 proto kernel scope link src {address}{}\ntcp_metrics flush all\nEND\n",
        network.mtu_bytes,
        tcp.gso_segments.unwrap_or(GSO_MAX_SEGMENTS),
        route_attributes(tcp)
    );
    for (key, value) in sysctls(tcp) {
        let _ = writeln!(script, "echo {value} > /proc/sys/net/ipv4/{key}");
    }
    script += &buffer_script("tcp_rmem", tcp.receive_buffer_bytes);
    script += &buffer_script("tcp_wmem", tcp.send_buffer_bytes);
    script
}

/// The script that sets what a socket begins with and how far it may grow, which reaches programs that have no setting
/// of their own for it; without a size, what the kernel chose. The lab's own sockets set theirs, and check them.
fn buffer_script(key: &str, bytes: Option<u32>) -> String {
    let of = |value: &str| {
        format!("read least first most < {KERNELS_OWN}/{key}\necho \"{value}\" > /proc/sys/net/ipv4/{key}\n")
    };
    bytes.map_or_else(|| of("$least $first $most"), |bytes| of(&format!("$least {bytes} {bytes}")))
}

/// The script that switches CUBIC's HyStart on or off: a parameter of the kernel's, which stays from run to run.
pub fn hystart_script(tcp: &GuestTcp) -> String {
    format!("echo {} > /sys/module/tcp_cubic/parameters/hystart", u8::from(tcp.hystart.unwrap_or(true)))
}

fn route_attributes(tcp: &GuestTcp) -> String {
    let mut attributes = String::new();
    match tcp.rto_min_us {
        RtoMin::Word(RtoMinWord::Default) => {}
        // The kernel rounds up to a jiffy.
        RtoMin::Word(RtoMinWord::Smallest) => attributes += " rto_min 1ms",
        RtoMin::Us(us) => attributes += &format!(" rto_min {}ms", us.div_ceil(1000)),
    }
    if let Some(segments) = tcp.initial_window_segments {
        attributes += &format!(" initcwnd {segments}");
    }
    if tcp.delayed_ack == DelayedAck::Off {
        attributes += " quickack 1";
    }
    attributes
}

fn sysctls(tcp: &GuestTcp) -> Vec<(&'static str, String)> {
    let flag = |on: bool| u8::from(on).to_string();
    vec![
        ("tcp_congestion_control", tcp.congestion_control().to_owned()),
        // 3 is the kernel's own value: early retransmit is long gone, the tail-loss probe is on.
        ("tcp_early_retrans", if tcp.tail_loss_probe() { "3" } else { "0" }.to_owned()),
        ("tcp_recovery", flag(tcp.rack())),
        ("tcp_timestamps", flag(tcp.timestamps())),
        ("tcp_sack", flag(tcp.sack.unwrap_or(true))),
        ("tcp_dsack", flag(tcp.dsack.unwrap_or(true))),
        ("tcp_frto", if tcp.f_rto.unwrap_or(true) { "2" } else { "0" }.to_owned()),
        ("tcp_slow_start_after_idle", flag(tcp.slow_start_after_idle.unwrap_or(true))),
        // 2 is the kernel's own value: it takes ECN, but does not ask for it.
        ("tcp_ecn", if tcp.ecn() { "1" } else { "2" }.to_owned()),
        ("tcp_no_metrics_save", "1".to_owned()),
    ]
}

/// The script that loads PVTCP as asked, or unloads it. It is loaded afresh for every run, so its counters begin at 0.
pub fn pvtcp_script(pvtcp: &Pvtcp) -> String {
    const UNLOAD: &str = "if [ -d /sys/module/evenkeel_pvtcp ]; then rmmod evenkeel_pvtcp; fi";
    match pvtcp_load_command(pvtcp) {
        Some(load) => format!("{UNLOAD}\n{load}"),
        None => UNLOAD.to_owned(),
    }
}

/// The script that unloads and loads PVTCP again as often as asked; None if that is never.
pub fn pvtcp_reload_script(pvtcp: &Pvtcp) -> Option<String> {
    let load = pvtcp_load_command(pvtcp).filter(|_| pvtcp.reloads > 0)?;
    Some(format!("i=0; while [ $i -lt {} ]; do rmmod evenkeel_pvtcp; {load}; i=$((i+1)); done", pvtcp.reloads))
}

fn pvtcp_load_command(pvtcp: &Pvtcp) -> Option<String> {
    if pvtcp.mode() == Mode::Off {
        return None;
    }
    // The module's parameters are the settings' keys.
    let parameters = toml::Table::try_from(&pvtcp.set).ok()?;
    let value = |value: &toml::Value| match value {
        toml::Value::Boolean(on) => if *on { "Y" } else { "N" }.to_owned(),
        toml::Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    let arguments = parameters.iter().map(|(name, given)| format!(" {name}={}", value(given)));
    Some(format!("modprobe evenkeel_pvtcp{}", arguments.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::format::Era;
    use evenkeel_settings::Bounded;
    use evenkeel_settings::pvtcp::PvtcpOverride;

    use super::*;

    fn value(tcp: &GuestTcp, key: &str) -> String {
        sysctls(tcp).into_iter().find(|(k, _)| *k == key).map(|(_, v)| v).unwrap()
    }

    #[test]
    fn the_papers_day_has_no_tlp_rack_or_timestamps() {
        let tcp = GuestTcp { era: Era::Paper, ..GuestTcp::default() };
        let values = ["tcp_early_retrans", "tcp_recovery", "tcp_timestamps", "tcp_frto", "tcp_congestion_control"]
            .map(|k| value(&tcp, k));
        assert_eq!(values, ["0", "0", "0", "2", "reno"]);
    }

    #[test]
    fn a_key_beats_the_era() {
        let tcp = GuestTcp {
            era: Era::Paper,
            timestamps: Some(true),
            congestion_control: Some("cubic".into()),
            ..GuestTcp::default()
        };
        assert_eq!(value(&tcp, "tcp_timestamps"), "1");
        assert_eq!(value(&tcp, "tcp_congestion_control"), "cubic");
    }

    #[test]
    fn the_module_is_loaded_with_what_is_set() {
        let set = |mode| PvtcpOverride {
            mode: Some(mode),
            hold_tlp: Some(false),
            jit_segments: Some(Bounded::new(0)),
            ..PvtcpOverride::default()
        };
        let script = |mode| pvtcp_script(&Pvtcp { set: set(mode), reloads: 0 });
        assert!(script(Mode::Enforce).ends_with("modprobe evenkeel_pvtcp hold_tlp=N jit_segments=0 mode=enforce"));
        assert!(!script(Mode::Off).contains("modprobe"));
    }

    #[test]
    fn hystart_is_on_unless_it_is_switched_off() {
        let script = |hystart| hystart_script(&GuestTcp { hystart, ..GuestTcp::default() });
        assert!(script(None).starts_with("echo 1 >") && script(Some(false)).starts_with("echo 0 >"));
    }

    #[test]
    fn packets_are_bounded_anew_for_each_run() {
        let network = Network::default();
        let script =
            |gso_segments| tcp_script(Ipv4Addr::LOCALHOST, &GuestTcp { gso_segments, ..GuestTcp::default() }, &network);
        assert!(script(Some(4)).contains("\nlink set eth0 mtu 1500 gso_max_segs 4\n"));
        assert!(script(None).contains(" gso_max_segs 65535\n"));
    }

    #[test]
    fn buffers_are_set_or_the_kernels_own_again() {
        let network = Network::default();
        let script = |receive_buffer_bytes| {
            let tcp = GuestTcp { receive_buffer_bytes, ..GuestTcp::default() };
            tcp_script(Ipv4Addr::LOCALHOST, &tcp, &network)
        };
        let line = |value: &str| format!("\necho \"{value}\" > /proc/sys/net/ipv4/tcp_rmem\n");
        assert!(script(Some(65_536)).contains(&line("$least 65536 65536")));
        assert!(script(None).contains(&line("$least $first $most")));
    }

    #[test]
    fn route_attributes_follow_the_settings() {
        let tcp = GuestTcp {
            rto_min_us: RtoMin::Us(10_500),
            delayed_ack: DelayedAck::Off,
            initial_window_segments: Some(3),
            ..GuestTcp::default()
        };
        assert_eq!(route_attributes(&tcp), " rto_min 11ms initcwnd 3 quickack 1");
        assert_eq!(route_attributes(&GuestTcp::default()), "");
    }
}
