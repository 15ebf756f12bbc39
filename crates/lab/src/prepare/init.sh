#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The first process of a guest: makes it ready for `evenkeel lab-guest`, runs that, and switches the guest off.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root TERM=linux

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
mount -t bpf bpf /sys/fs/bpf 2>/dev/null

for module in virtio_pci virtio_console virtio_net; do
    modprobe "$module" || echo "init: cannot load $module"
done
ip link set lo up

control() {
    for name in /sys/class/virtio-ports/*/name; do
        [ -e "$name" ] || continue
        read -r port <"$name"
        if [ "$port" = evenkeel.control ]; then
            name=${name%/name}
            echo "/dev/${name##*/}"
            return
        fi
    done
}

# The device learns its ports' names from messages, a moment after the driver is there.
tries=200
while port=$(control) && [ -z "$port" ] && [ $tries -gt 0 ]; do
    tries=$((tries - 1))
    usleep 50000
done

case " $(cat /proc/cmdline) " in
*" evenkeel.shell "*) setsid cttyhack sh ;;
*)
    if [ -n "$port" ]; then
        /bin/evenkeel lab-guest --control "$port" </dev/null
        echo "init: evenkeel lab-guest ended with code $?"
    else
        echo "init: the VM has no virtio port named evenkeel.control"
    fi
    ;;
esac
poweroff -f
