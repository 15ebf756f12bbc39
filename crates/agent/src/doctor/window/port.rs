//! Ports: the devices that lead to VMs, what went through them and what was dropped there.

use std::collections::BTreeMap;

use super::files::Files;
use super::qdisc::Qdiscs;

/// `IFF_TAP` of `tun_flags`: a port of a VM; without it, a tunnel's.
const IFF_TAP: u32 = 2;

/// Counters since the device was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Port {
    pub ifindex: u32,
    /// `txqueuelen`: of a tap, the length of the ring from which its VM is fed.
    pub queue_length: u64,
    pub to_vm_packets: u64,
    pub from_vm_packets: u64,
    /// Dropped on the way to the VM by the device: its ring was full.
    pub ring_drops: u64,
    /// The device could not send for another reason.
    pub to_vm_errors: u64,
    /// Dropped on the way from the VM.
    pub from_vm_drops: u64,
    /// What the VM sent was no packet.
    pub from_vm_errors: u64,
    /// Dropped by the queue in front of the device.
    pub queue_drops: u64,
    /// Dropped by filters and programs of tc.
    pub filter_drops: u64,
    /// Kind of that queue; `None` if the kernel was not asked.
    pub qdisc: Option<String>,
}

/// All ports of this network namespace, by name; `None` if devices cannot be listed.
pub(super) fn read(files: Files<'_>, qdiscs: &Qdiscs) -> Option<BTreeMap<String, Port>> {
    const CLASS: &str = "/sys/class/net";
    let names = files.names(CLASS)?;
    Some(names.into_iter().filter_map(|name| Some((name.clone(), port(files, CLASS, &name, qdiscs)?))).collect())
}

fn port(files: Files<'_>, class: &str, name: &str, qdiscs: &Qdiscs) -> Option<Port> {
    let flags = files.text(&format!("{class}/{name}/tun_flags"));
    let flags = flags.and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    let uevent = files.text(&format!("{class}/{name}/uevent")).unwrap_or_default();
    let is_macvtap = uevent.lines().any(|line| line == "DEVTYPE=macvtap");
    // Xen's ports are known by their names alone.
    let is_vif = name.strip_prefix("vif").is_some_and(|rest| rest.contains('.'));
    if !flags.map_or(is_macvtap || is_vif, |flags| flags & IFF_TAP != 0) {
        return None;
    }
    // A macvtap receives what is for its VM; all others send it.
    let (to, from) = if is_macvtap { ("rx", "tx") } else { ("tx", "rx") };
    let number = |file: &str| files.number(&format!("{class}/{name}/{file}")).unwrap_or(0);
    let count = |way: &str, what: &str| number(&format!("statistics/{way}_{what}"));
    let ifindex = files.number(&format!("{class}/{name}/ifindex"))?;
    let queue = qdiscs.of(ifindex);
    Some(Port {
        ifindex,
        queue_length: number("tx_queue_len"),
        to_vm_packets: count(to, "packets"),
        from_vm_packets: count(from, "packets"),
        ring_drops: count(to, "dropped"),
        to_vm_errors: count(to, "errors"),
        from_vm_drops: count(from, "dropped"),
        from_vm_errors: count(from, "errors"),
        queue_drops: queue.map_or(0, |queue| queue.drops),
        filter_drops: queue.map_or(0, |queue| queue.filter_drops),
        qdisc: queue.map(|queue| queue.kind.clone()),
    })
}
