//! Advice on ports: what drops there, and what would make room.

use super::super::figures::{Drops, Figures, PortFigures, VmFigures, percent};
use super::{Advice, Cost, Cure, ms, vm};

/// From this share of the packets to the VM, in percent, drops get advice.
const DROPS_PERCENT: f64 = 0.01;
/// A queue of this length gets no longer: room is not what is missing, and everything would wait for bulk data.
const LONG_QUEUE: u64 = 10_000;
/// Shorter queues count as this long when a longer one is advised: a default of the kernel's or libvirt's.
const SHORT_QUEUE: u64 = 250;
/// A VM that is off its core for less of the window, in percent, counts as having it when packets come.
const OFF_CORE_PERCENT: f64 = 5.0;
/// Queues whose room is `txqueuelen`.
const BY_LENGTH: [&str; 4] = ["pfifo_fast", "pfifo", "bfifo", "mq"];

pub(super) fn advise(port: &PortFigures, figures: &Figures) -> Vec<Advice> {
    let vm = figures.vms.iter().find(|vm| Some(vm.process) == port.process);
    let mut all = Vec::new();
    if port.to_vm_packets == 0 && port.dropped(Drops::ToVmRing) > 0 {
        let why = format!("its ring is full: all {} packets for the VM were dropped", port.dropped(Drops::ToVmRing));
        let how = "the VM takes nothing: it is paused, has crashed, or has no driver for its card or that one down";
        let subject = port.name.clone();
        all.push(Advice { cost: Cost::Command, cure: Cure::Guest, subject, why, how: how.to_owned() });
    } else if is_worth_a_word(port, Drops::ToVmRing) {
        all.extend(longer_queue(port, Drops::ToVmRing, "its ring was full", vm, figures));
        all.extend(vm.and_then(|vm| longer_ring(port, vm)));
    }
    if is_worth_a_word(port, Drops::ToVmQueue) && port.qdisc.as_deref().is_some_and(|kind| BY_LENGTH.contains(&kind)) {
        all.extend(longer_queue(port, Drops::ToVmQueue, "the queue in front of it was full", vm, figures));
    }
    all
}

fn share(port: &PortFigures, cause: Drops) -> f64 {
    let dropped = port.dropped(cause) as f64;
    percent(dropped, dropped + port.to_vm_packets as f64)
}

fn is_worth_a_word(port: &PortFigures, cause: Drops) -> bool {
    share(port, cause) >= DROPS_PERCENT
}

fn fact(port: &PortFigures, cause: Drops, words: &str) -> String {
    format!("{words}: {} packets ({:.2} %) for the VM were dropped", port.dropped(cause), share(port, cause))
}

fn longer_queue(
    port: &PortFigures,
    cause: Drops,
    words: &str,
    vm: Option<&VmFigures>,
    figures: &Figures,
) -> Option<Advice> {
    if port.queue_length >= LONG_QUEUE {
        return None;
    }
    let rate = (port.to_vm_packets + port.dropped(cause)) as f64 / figures.window_s.max(f64::MIN_POSITIVE);
    let mut why = format!(
        "{}; {} packets fit, as many as come in {} at the {rate:.0} packets/s of this window",
        fact(port, cause, words),
        port.queue_length,
        ms(port.queue_length as f64 / rate * 1e3)
    );
    if let Some(vm) = vm.filter(|vm| vm.off_core_percent >= OFF_CORE_PERCENT) {
        why.push_str(&format!("; its VM was off its core for {:.0} % of it", vm.off_core_percent));
        if vm.groups.iter().any(vm::is_throttled) {
            why.push_str(", by its quota first of all");
        }
    }
    let length = (port.queue_length.max(SHORT_QUEUE) * 4).min(LONG_QUEUE);
    let how = format!("ip link set {} txqueuelen {length}", port.name);
    Some(Advice { cost: Cost::Command, cure: Cure::QueueLength, subject: port.name.clone(), why, how })
}

/// A longer ring, if the VM had its cores and yet did not take what was there.
fn longer_ring(port: &PortFigures, vm: &VmFigures) -> Option<Advice> {
    if vm.vcpus.is_empty() || vm.off_core_percent >= OFF_CORE_PERCENT {
        return None;
    }
    let why = format!(
        "{}, though its VM was off its core for {:.1} % of the window only: it does not take them as they come",
        fact(port, Drops::ToVmRing, "its ring was full"),
        vm.off_core_percent
    );
    let how = "if its card has the default of 256: rx_queue_size=1024 for QEMU's -device virtio-net-pci; libvirt: \
               <driver name='vhost' rx_queue_size='1024'/>";
    let subject = vm::name(vm);
    Some(Advice { cost: Cost::Restart, cure: Cure::RingSize, subject, why, how: how.to_owned() })
}

/// Advice on drops between devices and the host's stack.
pub(super) fn host_backlog(figures: &Figures) -> Option<Advice> {
    let dropped = figures.softnet_dropped.filter(|count| *count > 0)?;
    let limit = figures.softnet_limit.unwrap_or(1000);
    let why = format!("{dropped} packets were dropped because {limit} waited for a processor of this machine already");
    let how = format!("sysctl -w net.core.netdev_max_backlog={}", limit * 4);
    let subject = "this machine".to_owned();
    Some(Advice { cost: Cost::Command, cure: Cure::NetdevBacklog, subject, why, how })
}
