#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Installs, upgrades, removes and purges the packages in clean Debian systems with systemd as process 1, each a VM with
# that release's stock kernel (QEMU, translated code), and compares what is there before and after.
#
#   packages.sh EVENKEEL_BINARY [SUITE...]     by default trixie and bookworm
#
# Needs root. The images are kept in evenkeel's cache; what the VMs said is in results/packages.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cache=${EVENKEEL_CACHE:-${XDG_CACHE_HOME:+$XDG_CACHE_HOME/evenkeel}}
cache=${cache:-/var/cache/evenkeel}/packages
out=$top/results/packages
# A VM that hangs is a failure.
limit=2400
binary=$1
shift
[ $# -gt 0 ] || set -- trixie bookworm

die() {
    printf 'packages: %s\n' "$*" >&2
    exit 1
}

command -v qemu-system-x86_64 > /dev/null || die "QEMU is not installed; apt-get install qemu-system-x86"
for suite in "$@"; do
    sh "$here/make-image.sh" "$suite" "$cache/$suite"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$work/disk" "$out"
cp "$here/in-vm.sh" "$here/vm-debian.sh" "$here/vm-module.sh" "$here/vm-rpm.sh" "$work/disk"

# Three versions of one binary: what differs is what the packages' scripts do with an agent that runs.
for version in 1 2 3; do
    rm -f "$top"/target/package/*.deb "$top"/target/package/*.rpm
    sh "$here/../package.sh" deb "$binary" "0.1.$version-1" > "$work/package.log" 2>&1 || die "$(tail -n 5 "$work/package.log")"
    mv "$top"/target/package/evenkeel_*.deb "$work/disk/$version.deb"
    [ "$version" != 1 ] || mv "$top"/target/package/evenkeel-pvtcp-dkms_*.deb "$work/disk/dkms.deb"
    [ "$version" != 3 ] || continue
    sh "$here/../package.sh" rpm "$binary" "0.1.$version" > "$work/package.log" 2>&1 || die "$(tail -n 5 "$work/package.log")"
    mv "$top"/target/package/evenkeel-0*.rpm "$work/disk/$version.rpm"
done
rm -f "$top"/target/package/*.deb "$top"/target/package/*.rpm
tar -C "$work/disk" -cf "$work/packages.tar" .

failed=0
for suite in "$@"; do
    began=$(date +%s)
    echo "== Debian $suite"
    # One processor, and no CMPXCHG16B: QEMU 7.2 errs with more when it translates code.
    timeout "$limit" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
        -machine q35 -accel tcg -cpu max,-cx16 -smp 1 -m 2048 \
        -kernel "$cache/$suite/vmlinuz" -initrd "$cache/$suite/initrd" -append "root=/dev/vda rw console=ttyS0 quiet panic=-1 systemd.getty_auto=no" \
        -drive "file=$cache/$suite/disk.img,format=raw,if=virtio,snapshot=on" \
        -drive "file=$work/packages.tar,format=raw,if=virtio,readonly=on" \
        -device virtio-serial-pci \
        -chardev "socket,id=channel,path=$work/channel,server=on,wait=off" \
        -device virtserialport,chardev=channel,name=org.evenkeel.0 \
        -serial "file:$out/$suite-console.log" -serial "file:$out/$suite.log" ||
        echo "QEMU did not end by itself within $limit s" >> "$out/$suite.log"
    cat "$out/$suite.log"
    # A test that ended early has no such line.
    grep -q '^[1-9][0-9]* passed, 0 failed' "$out/$suite.log" || failed=1
    echo "$suite took $(($(date +%s) - began)) s"
done
exit "$failed"
