#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What packages.sh runs in a VM, as root, with systemd as process 1: each of the vm-*.sh beside this, and the sum.
set -u
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
cd "$(dirname "$0")" || exit 1
mkdir -p /run/seen
passed=0
failed=0

now() { cut -d' ' -f1 /proc/uptime; }

say() { printf '\n== %s (%s s)\n' "$*" "$(now)"; }

# check WHAT COMMAND...: the command's success; what it prints is shown if it fails.
check() {
    what=$1
    shift
    if "$@" > /run/seen/check.out 2>&1; then
        passed=$((passed + 1))
        echo "ok      $what"
    else
        failed=$((failed + 1))
        echo "FAILED  $what"
        sed 's/^/        /' /run/seen/check.out | tail -n 40
    fi
}

# As a user types it; nothing comes from the network, which this VM does not have.
apt() { apt-get -o Dpkg::Use-Pty=0 -q -y "$@"; }

is() { [ "$1" = "$2" ] || { echo "$1, not $2"; return 1; }; }

# Every file of the system with its owner, mode and size, but for those that any package's installation changes;
# pins, links and programs of BPF, qdiscs, queues, units.
snapshot() {
    mkdir -p "/run/seen/$1"
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/log \
        -o -path /var/cache -o -path /var/tmp -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/lib/systemd \
        -o -path '/lib/modules/*/modules.*' -o -path '/usr/lib/modules/*/modules.*' -o -path '/var/lib/rpm' \
        -o -path '/root/.rpmdb' -o -path '/var/lib/dkms/mok.*' -o -path /var/backups \) -prune \
        -o -type d -printf '%y %m %u:%g %p\n' -o -printf '%y %m %u:%g %s %p %l\n' | sort > "/run/seen/$1/files"
    find /run -xdev -path '*evenkeel*' | sort > "/run/seen/$1/run"
    find /sys/fs/bpf | sort > "/run/seen/$1/pins"
    bpftool -j link show | jq -c '.[] | select(.type != "cgroup") | del(.id, .prog_id, .pids)' > "/run/seen/$1/links"
    bpftool -j prog show | jq -r '.[] | select(.type | startswith("cgroup") | not) | "\(.type) \(.name)"' |
        sort > "/run/seen/$1/programs"
    bpftool -j map show | jq -r '.[].name // "nameless"' | sort > "/run/seen/$1/maps"
    tc qdisc show > "/run/seen/$1/qdiscs"
    ip -j link show | jq -r '.[] | "\(.ifname) \(.txqlen)"' > "/run/seen/$1/queues"
    systemctl list-unit-files --no-legend 'evenkeel*' > "/run/seen/$1/units"
    systemctl --failed --no-legend --plain > "/run/seen/$1/failed"
    sysctl net.ipv4.tcp_available_congestion_control net.ipv4.tcp_congestion_control net.ipv4.tcp_frto > "/run/seen/$1/tcp"
    cut -d' ' -f1 /proc/modules | grep evenkeel > "/run/seen/$1/modules"
}

# Whether everything is as it was.
same() { diff -r -U0 "/run/seen/$1" "/run/seen/$2"; }

cat /etc/os-release | sed -n 's/^PRETTY_NAME=//p'
uname -r
for script in vm-debian.sh vm-module.sh vm-rpm.sh; do
    . "./$script"
done
echo
echo "$passed passed, $failed failed ($(now) s since boot)"
