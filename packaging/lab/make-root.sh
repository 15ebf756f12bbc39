#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Makes a small Debian trixie root: the compiler and dkms that build the guest module, and the programs that go into
# the lab's guests. `evenkeel lab` carries this script inside; the Makefile runs it for `make deps`.
#
#   make-root.sh [--with-rust | --with-database] ROOT_DIR    make ROOT_DIR, or do nothing when it is there already
#   make-root.sh --print-mirrors           the Debian archive on line 1, the security archive (or nothing) on line 2
#
# The archive is the one this machine's own apt uses, and the keys in debian-archive-keyring decide whether to believe
# it. The root is made beside ROOT_DIR and renamed when it is complete, so that ROOT_DIR is never half a root; what an
# interrupted run left behind is removed by the next one. Two runs at once wait for each other.
set -eu

suite=trixie
# A new number here makes every root anew.
stamp_text="evenkeel root 3 $suite"

# The compilers are those that Debian built the kernels with: gcc-12 for 6.1, gcc-14 for 6.12 and newer.
packages=gcc-14,gcc-12,binutils,make,libc6-dev,dkms,kmod,libelf1t64,pahole,xz-utils
packages=$packages,busybox-static,iperf3,nginx,iproute2,tcpdump,ethtool
rust_packages="ca-certificates cargo rustc libclang-19-dev clang-19 pkg-config gcc"

say() { printf '%s\n' "$*"; }
die() {
    printf 'make-root: %s\n' "$*" >&2
    exit 1
}

# What apt reads on this machine, as "ARCHIVE SUITE" lines: first what apt knows to be signed by Debian, then (when
# no lists have been fetched yet) what its sources say, archives with an -updates suite first.
sources() {
    # shellcheck disable=SC2016 # apt fills these in
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(CODENAME)' 'Identifier: Packages' 2>/dev/null |
        sed -n 's/^Debian \([^ ]*\) \(.*\)$/\1 \2/p'
    apt-get update --print-uris 2>/dev/null |
        sed -n "s|^'\(.*\)/dists/\([^/']*\)/InRelease' .*|\1 \2|p" |
        awk '{ line[NR] = $0; if ($2 ~ /-(updates|security)$/) good[$1] = 1 }
             END { for (i = 1; i <= NR; i++) { split(line[i], f, " "); if (f[1] in good) print line[i] }
                   for (i = 1; i <= NR; i++) { split(line[i], f, " "); if (!(f[1] in good)) print line[i] } }'
}

find_mirrors() {
    list=$(sources | sed -n 's#^\(\(https\{0,1\}\|file\|ftp\)://*[^ ]*[^ /]\)/* \([^ ]*\)$#\1 \3#p')
    codenames='\(oldoldstable\|oldstable\|stable\|testing\|unstable\|sid\|bookworm\|trixie\|forky\|duke\)'
    mirror=$(say "$list" | sed -n "s#^\([^ ]*\) $codenames\$#\1#p" | head -n 1)
    security=$(say "$list" | sed -n "s#^\([^ ]*\) $codenames-security\$#\1#p" | head -n 1)
    [ -n "$mirror" ] ||
        die "apt on this machine has no Debian archive among its sources (\`apt-get indextargets\` lists them); add one for bookworm, trixie or newer to the apt sources and try again"
}

find_keyring() {
    for keyring in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
        [ -e "$keyring" ] && return
    done
    die "no Debian archive keys on this machine; apt-get install debian-archive-keyring and try again"
}

with_rust=
with_database=
case "${1-}" in
--print-mirrors)
    find_mirrors
    say "$mirror"
    say "$security"
    exit
    ;;
--with-rust)
    with_rust=yes
    shift
    ;;
--with-database)
    with_database=yes
    shift
    ;;
esac
[ $# = 1 ] || die "usage: make-root.sh [--with-rust | --with-database] ROOT_DIR"
case $1 in
/*) root=$1 ;;
*) root=$PWD/$1 ;;
esac
[ "$(id -u)" = 0 ] || die "making a Debian root needs root; run it with sudo"
command -v debootstrap >/dev/null || die "debootstrap is not installed; apt-get install debootstrap and try again"

part=$root.part
stamp=$root/etc/evenkeel-root
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

remove() {
    [ -e "$1" ] || return 0
    # debootstrap may have been killed with its /proc and /sys still mounted.
    awk -v d="$1/" 'index($2, d) == 1 { print $2 }' /proc/self/mounts | sort -r | while read -r m; do
        umount -l "$(printf '%b' "$m")"
    done
    rm -rf --one-file-system -- "$1"
}

mkdir -p "$(dirname "$root")"
exec 9>"$root.lock"
if ! flock -n 9; then
    say "waiting for another run that makes $root"
    flock 9
fi

fetch_env() {
    # debootstrap fetches with wget, which does not know apt's proxy.
    proxy=
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    [ -z "$proxy" ] || [ "$proxy" = DIRECT ] || export http_proxy="${http_proxy:-$proxy}"
}

if [ "$(head -n 1 "$stamp" 2>/dev/null)" != "$stamp_text" ]; then
    find_mirrors
    find_keyring
    fetch_env
    remove "$part"
    remove "$root"
    trap 'remove "$part"' EXIT
    trap 'exit 130' INT TERM HUP
    say "making a $suite root"
    # Packages unpack without a sync after each one: a root that was cut short is thrown away anyhow.
    debootstrap --foreign --variant=minbase --keyring="$keyring" --include="$packages" "$suite" "$part" "$mirror" \
        >"$root.log" 2>&1 || die "debootstrap could not fetch the packages; the end of $root.log says: $(tail -n 3 "$root.log")"
    echo force-unsafe-io >"$part/etc/dpkg/dpkg.cfg.d/evenkeel"
    printf '#!/bin/sh\nexit 101\n' >"$part/usr/sbin/policy-rc.d"
    chmod 755 "$part/usr/sbin/policy-rc.d"
    chroot "$part" /debootstrap/debootstrap --second-stage \
        >>"$root.log" 2>&1 || die "debootstrap could not set up the packages; the end of $root.log says: $(tail -n 3 "$root.log")"
    rm -rf "$part"/var/cache/apt/archives/*.deb "$part"/usr/share/doc "$part"/usr/share/man "$part"/usr/share/locale
    say "$stamp_text" >"$part/etc/evenkeel-root"
    sync -f "$part" 2>/dev/null || true
    mv "$part" "$root"
    trap - EXIT INT TERM HUP
fi

# Adds packages to a root that is there, once: add WORD PACKAGE...; WORD goes into the stamp.
add() {
    word=$1
    shift
    grep -qx "$word" "$stamp" && return
    find_mirrors
    find_keyring
    say "adding $word to the $suite root"
    cp "$keyring" "$root/usr/share/keyrings/evenkeel-archive.gpg"
    say "deb [signed-by=/usr/share/keyrings/evenkeel-archive.gpg] $mirror $suite main" >"$root/etc/apt/sources.list"
    proxy=
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    [ -z "$proxy" ] || say "Acquire::http::Proxy \"$proxy\";" >"$root/etc/apt/apt.conf.d/01evenkeel"
    [ ! -e /etc/resolv.conf ] || cp --remove-destination -L /etc/resolv.conf "$root/etc/resolv.conf"
    { chroot "$root" apt-get -o Acquire::Languages=none update &&
        chroot "$root" apt-get install -y --no-install-recommends "$@"; } \
        >>"$root.log" 2>&1 || die "could not add $word; the end of $root.log says: $(tail -n 3 "$root.log")"
    chroot "$root" apt-get clean
    say "$word" >>"$stamp"
}

add memcached memcached
[ -z "$with_database" ] || add database postgresql-17
# shellcheck disable=SC2086 # a list of words
[ -z "$with_rust" ] || add rust $rust_packages
