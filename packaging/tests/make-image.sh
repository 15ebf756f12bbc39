#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Makes what packages.sh boots: a clean Debian with systemd as process 1, its stock kernel, that kernel's headers and
# dkms, as a disk image.
#
#   make-image.sh SUITE DIR     makes DIR/disk.img, DIR/vmlinuz and DIR/initrd, or does nothing when they are there
#
# The archive is the one that this machine's own apt uses (../lab/make-root.sh finds it).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
suite=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)
log=$dir/make-image.log
# A new number here makes every image anew.
stamp_text="evenkeel packages image 1 $suite"
# What a clean system has, what dkms needs, and what the test itself asks the kernel with.
packages=systemd,systemd-sysv,udev,dbus,kmod,initramfs-tools,linux-image-cloud-amd64,linux-headers-cloud-amd64,dkms
packages=$packages,iproute2,bpftool,iperf3,jq,procps,rpm
size=6G

die() {
    printf 'make-image: %s\n' "$*" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || die "making a Debian root needs root; run it with sudo"
for program in debootstrap mke2fs; do
    command -v "$program" > /dev/null || die "$program is not installed; apt-get install debootstrap e2fsprogs"
done
exec 9> "$dir/lock"
flock 9
[ "$(cat "$dir/stamp" 2> /dev/null)" != "$stamp_text" ] || exit 0

mirror=$(sh "$here/../lab/make-root.sh" --print-mirrors | head -n 1)
# debootstrap fetches with wget, which does not know apt's proxy.
proxy=
eval "$(apt-config shell proxy Acquire::http::Proxy)"
[ -z "$proxy" ] || [ "$proxy" = DIRECT ] || export http_proxy="${http_proxy:-$proxy}"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

root=$dir/root
remove_root() {
    [ -e "$root" ] || return 0
    # debootstrap may have been killed with its /proc and /sys still mounted.
    awk -v d="$root/" 'index($2, d) == 1 { print $2 }' /proc/self/mounts | sort -r | while read -r mounted; do
        umount -l "$(printf '%b' "$mounted")"
    done
    rm -rf --one-file-system -- "$root"
}
remove_root
rm -f "$dir/stamp" "$dir/disk.img"
trap remove_root EXIT
trap 'exit 130' INT TERM HUP

echo "making a Debian $suite image"
debootstrap --foreign --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
    --include="$packages" "$suite" "$root" "$mirror" > "$log" 2>&1 || die "debootstrap: $(tail -n 3 "$log")"
echo force-unsafe-io > "$root/etc/dpkg/dpkg.cfg.d/unsafe"
chroot "$root" /debootstrap/debootstrap --second-stage >> "$log" 2>&1 || die "debootstrap: $(tail -n 3 "$log")"
rm -f "$root/etc/dpkg/dpkg.cfg.d/unsafe"
rm -rf "$root"/var/cache/apt/archives/*.deb
echo packages > "$root/etc/hostname"
echo '/dev/vda / ext4 defaults 0 1' > "$root/etc/fstab"
: > "$root/etc/machine-id"
# What the second disk holds is run once the system is up.
cat > "$root/etc/systemd/system/packages-test.service" << 'UNIT'
[Unit]
After=multi-user.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh -c 'mkdir -p /run/packages && tar -C /run/packages -xf /dev/vdb && exec sh /run/packages/in-vm.sh > /dev/ttyS1 2>&1'
[Install]
WantedBy=multi-user.target
UNIT
chroot "$root" systemctl --quiet enable packages-test
cp "$root"/boot/vmlinuz-* "$dir/vmlinuz"
cp "$root"/boot/initrd.img-* "$dir/initrd"
mke2fs -q -t ext4 -d "$root" "$dir/disk.img" "$size" >> "$log" 2>&1 || die "mke2fs: $(tail -n 3 "$log")"
printf '%s\n' "$stamp_text" > "$dir/stamp"
