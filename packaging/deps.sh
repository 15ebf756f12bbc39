#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Installs what building and running the lab needs, by apt on Debian 12 or 13.
#
#   deps.sh [--with-tests | --with-peers | --with-cera | --with-soak | --with-arm64]
#
# --with-peers: ns-3, which `make bench` and `make validate` compare the simulator with.
# --with-cera: what `make bench-cera` and `bench-cera-peers` run beside the agent.
# --with-soak: the applications of `make soak`. Their services are not started, and not at boot either.
# --with-arm64: the compiler of `make arm64`.
#
# Nothing is done when all is there. Rust comes from PATH if it is new enough, else from apt, else (Debian 12) from the
# trixie root in evenkeel's cache, see cargo.sh.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

die() {
    printf 'deps: %s\n' "$*" >&2
    exit 1
}

packages="qemu-system-x86 debootstrap debian-archive-keyring iproute2 kmod util-linux xz-utils ca-certificates"
packages="$packages gcc libc6-dev make libclang-19-dev clang-19 pkg-config libelf-dev zlib1g-dev libzstd-dev"
case "${1-}" in
--with-tests) packages="$packages chromium fonts-liberation clang-format-19 iperf3 nftables procps python3 python3-venv tshark" ;;
--with-peers) packages="$packages g++ libns3-dev" ;;
--with-cera) packages="$packages iperf3 jq memcached python3 tcpdump" ;;
--with-soak) packages="$packages curl ethtool iperf3 jq memcached nginx openssl postgresql procps redis-server" ;;
--with-arm64) packages="$packages curl gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;;
esac

missing() {
    for package in $packages; do
        dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || printf '%s ' "$package"
    done
}

is_available() { apt-cache policy "$1" 2>/dev/null | grep -q '^  Candidate: [0-9]'; }

# Services stay off: the packages' scripts ask the policy before they start any.
policy=/usr/sbin/policy-rc.d

install() {
    [ "$(id -u)" = 0 ] || die "these packages are missing: $1; run \`make deps\` as root"
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        trap 'exit 130' INT TERM
        printf '#!/bin/sh\nexit 101\n' > "$policy"
        chmod 755 "$policy"
    fi
    # shellcheck disable=SC2086 # a list of words
    apt-get install -y -q --no-install-recommends $1 ||
        die "apt-get could not install $1; see its messages above, run \`apt-get update\`, and try again"
    for package in $1; do
        case $package in
        memcached | nginx | postgresql | redis-server) service=$package ;;
        *) continue ;;
        esac
        ! command -v systemctl > /dev/null || systemctl --quiet disable "$service"
    done
}

updated=
update() {
    [ -z "$updated" ] || return 0
    [ "$(id -u)" = 0 ] || die "packages are missing ($(missing)); run \`make deps\` as root"
    apt-get update -q || die "apt-get update failed; see its messages above"
    updated=yes
}

command -v dpkg-query >/dev/null || die "this is for Debian 12 or 13; elsewhere install by hand: $packages, cargo 1.85"

list=$(missing)
if [ -n "$list" ]; then
    update
    if ! is_available libclang-19-dev; then
        packages=$(printf '%s' "$packages" | sed 's/libclang-19-dev/libclang-dev/')
        list=$(missing)
    fi
    [ -z "$list" ] || install "$list"
fi

# 'none' means that cargo.sh found no cargo outside of the root.
if [ "$("$here/cargo.sh" --where)" = none ]; then
    update
    candidate=$(apt-cache policy rustc | sed -n 's/^  Candidate: //p')
    if dpkg --compare-versions "${candidate:-0}" ge 1.85; then
        install "cargo rustc rust-clippy rustfmt"
    else
        echo "no Rust 1.85 by apt here: taking trixie's, in a root of its own"
        "$here/cargo.sh" --make-root
    fi
fi
