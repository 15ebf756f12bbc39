//! QEMU's command line for a VM, and its threads.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sched::CloneFlags;

use super::{Accelerator, Channel, Nic, VmSpec};
use crate::error::LabError;
use crate::host::cores;
use crate::prepare::GuestImage;
use crate::proto::CONTROL_PORT;

/// QEMU 7.2's flags after CMPXCHG16B are sometimes a register's value, which the kernel's allocator does not survive
/// under load.
const TCG_PROCESSOR: &str = "max,-cx16";

/// Slots of each ring of a network card. On a tap, QEMU gives the transmit ring no more than this, whatever it is asked
/// for.
pub const RING_SLOTS: u32 = 256;

/// What a network card can do with packets larger than the MTU.
const OFFLOADS: [&str; 9] =
    ["gso", "host_tso4", "host_tso6", "host_ecn", "host_ufo", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"];

/// Starts QEMU for a VM; `stem` names its sockets and logs.
pub(super) fn start(
    spec: &VmSpec,
    image: &GuestImage,
    directory: &Path,
    stem: &str,
    more: &[&str],
) -> Result<Child, LabError> {
    let console = directory.join(format!("{stem}.console"));
    let socket = directory.join(format!("{stem}.control"));
    let (accelerator, processor) = match spec.accelerator {
        Accelerator::Kvm => ("kvm", "max"),
        Accelerator::Tcg if spec.vcpu_threads < spec.vcpus => ("tcg,thread=single", TCG_PROCESSOR),
        Accelerator::Tcg => ("tcg,thread=multi", TCG_PROCESSOR),
    };
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args(["-name", &format!("{},debug-threads=on", spec.name)])
        .args(["-machine", "q35", "-accel", accelerator, "-cpu", processor])
        .args(["-smp", &spec.vcpus.to_string(), "-m", &spec.memory_mib.to_string()])
        .arg("-kernel")
        .arg(&image.vmlinuz)
        .arg("-initrd")
        .arg(&image.initramfs)
        .args(["-append", &command_line(spec.accelerator)])
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .args(["-device", "virtio-rng-pci"])
        .arg("-chardev")
        .arg(format!("socket,id=control,path={},server=on,wait=off", socket.display()))
        .args([
            "-device",
            "virtio-serial-pci",
            "-device",
            &format!("virtserialport,chardev=control,name={CONTROL_PORT}"),
        ])
        .args([
            "-chardev",
            &format!("socket,id=qmp,path={},server=on,wait=off", directory.join(format!("{stem}.qmp")).display()),
        ])
        .args(["-mon", "chardev=qmp,mode=control"])
        .args(devices(spec))
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(super::log_file(directory, stem)?);
    super::ends_with_the_lab(&mut command, CloneFlags::empty());
    command.spawn().map_err(|e| LabError::io("starting qemu-system-x86_64", e))
}

/// Arguments for network cards and for ports beside the control port.
fn devices(spec: &VmSpec) -> Vec<String> {
    // Without KVM, an event costs one more turn of a thread for each packet.
    let notified = match spec.accelerator {
        Accelerator::Kvm => "",
        Accelerator::Tcg => ",ioeventfd=off",
    };
    let rings = format!("rx_queue_size={RING_SLOTS},tx_queue_size={RING_SLOTS}");
    let nics = spec.nics.iter().enumerate().flat_map(|(index, Nic { tap, mac, segmentation_offload })| {
        let offload = if *segmentation_offload { "on" } else { "off" };
        let offloads = OFFLOADS.map(|name| format!("{name}={offload}")).join(",");
        [
            "-netdev".to_owned(),
            format!("tap,id=net{index},ifname={tap},script=no,downscript=no,vhost=off"),
            "-device".to_owned(),
            format!("virtio-net-pci,netdev=net{index},mac={mac},romfile=,{rings},{offloads}{notified}"),
        ]
    });
    let channels = spec.channels.iter().enumerate().flat_map(|(index, Channel { name, socket, listens })| {
        // A socket that connects may be made before the other end, and connects again when that is made anew.
        let how = if *listens { "server=on,wait=off" } else { "server=off,reconnect=1" };
        [
            "-chardev".to_owned(),
            format!("socket,id=channel{index},path={},{how}", socket.display()),
            "-device".to_owned(),
            format!("virtserialport,chardev=channel{index},name={name}"),
        ]
    });
    nics.chain(channels).collect()
}

/// The guest kernel's command line.
fn command_line(accelerator: Accelerator) -> String {
    // A ramfs, because a tmpfs would take half of the memory that is free beside the archive, and the archive must fit.
    let common =
        "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off no_timer_check random.trust_cpu=on rootfstype=ramfs";
    match accelerator {
        Accelerator::Kvm => common.to_owned(),
        // The guest reads this machine's TSC, but cannot measure its rate while it shares a core: guest clocks ran ten
        // times too fast. A waiting vCPU would also make the TSC look unstable to the clock watchdog, which then falls
        // back to a slow clock.
        Accelerator::Tcg => format!("{common} tsc=reliable tsc_early_khz={}", cores::tsc_khz()),
    }
}

/// QEMU names a vCPU's thread `CPU 0/TCG` or `CPU 0/KVM`, and `ALL CPUs/TCG` the one that runs them all.
pub(super) fn vcpu_index(thread_name: &str) -> Option<u32> {
    if thread_name == "ALL CPUs/TCG" {
        return Some(0);
    }
    thread_name.strip_prefix("CPU ")?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::vcpu_index;

    #[test]
    fn names_of_vcpu_threads() {
        assert_eq!(vcpu_index("CPU 0/TCG"), Some(0));
        assert_eq!(vcpu_index("ALL CPUs/TCG"), Some(0));
        assert_eq!(vcpu_index("CPU 11/KVM"), Some(11));
        assert_eq!(vcpu_index("sender-0"), None);
        assert_eq!(vcpu_index("CPU x/TCG"), None);
    }
}
