#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Builds the evenkeel binary for arm64 on a Debian 12 or 13 of another architecture, where the compilers of
# `deps.sh --with-arm64` are. Needs no root.
#
#   arm64.sh            prints the binary's path
#
# Rust's standard library for arm64 is that of the Rust on PATH, or unpacked where RUST_STD says. The static libraries
# that libbpf is linked with come by the machine's sources of apt into target/arm64; nothing is installed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
cd "$top"
triple=aarch64-unknown-linux-gnu
gnu=aarch64-linux-gnu
out=$top/target/arm64

die() {
    printf 'arm64: %s\n' "$*" >&2
    exit 1
}

for program in "$gnu-gcc" apt-get dpkg-deb; do
    command -v "$program" > /dev/null || die "$program is missing; \`sh packaging/deps.sh --with-arm64\` installs it"
done
[ "$("$here/cargo.sh" --where)" = path ] || die "this needs a cargo 1.85 or newer on PATH"
mkdir -p "$out"

# The sysroot with the standard library for arm64: rustc's own if it is there, else links to it with what RUST_STD has.
sysroot=$(rustc --print sysroot)
if [ ! -d "$(rustc --print target-libdir --target "$triple")" ]; then
    name=rust-std-$(rustc --version --verbose | sed -n 's/^release: //p')-$triple
    library=${RUST_STD:-}/rust-std-$triple/lib/rustlib/$triple
    [ -d "$library" ] ||
        die "this Rust has no standard library for $triple: install that, or unpack $name.tar.xz of Rust's own archive" \
            "and name its directory in RUST_STD"
    made=$out/$name
    rm -rf "$made"
    mkdir -p "$made/lib/rustlib"
    for path in "$sysroot"/* "$sysroot"/lib/* "$sysroot"/lib/rustlib/*; do
        link=$made${path#"$sysroot"}
        [ -e "$link" ] || ln -s "$path" "$link"
    done
    ln -s "$(cd "$library" && pwd)" "$made/lib/rustlib/$triple"
    sysroot=$made
fi

# An apt state of our own, of that architecture alone: the machine's lists and packages stay as they are.
libraries=$out/libraries
if [ ! -d "$libraries" ]; then
    rm -rf "$out/apt"
    mkdir -p "$out/apt/lists/partial" "$out/apt/cache/archives/partial" "$out/apt/unpacked"
    cd "$out/apt"
    set -- -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Acquire::Languages=none \
        -o "Dir::State::lists=$out/apt/lists" -o "Dir::Cache=$out/apt/cache" -o Dir::State::status=/dev/null \
        -o "APT::Sandbox::User=$(id -un)"
    { apt-get "$@" update && apt-get "$@" download libelf-dev zlib1g-dev libzstd-dev; } > log 2>&1 ||
        die "apt cannot fetch the libraries for arm64; see $out/apt/log"
    for package in *.deb; do dpkg-deb -x "$package" unpacked; done
    mv unpacked "$libraries"
    cd "$top"
    rm -rf "$out/apt"
fi

# Settings with the triple in their names do not reach build scripts, which run here.
export "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$gnu-gcc"
export "CC_aarch64_unknown_linux_gnu=$gnu-gcc" "AR_aarch64_unknown_linux_gnu=$gnu-ar"
export "CFLAGS_aarch64_unknown_linux_gnu=-idirafter $libraries/usr/include -idirafter $libraries/usr/include/$gnu"
export "LIBBPF_SYS_LIBRARY_PATH_aarch64_unknown_linux_gnu=$libraries/usr/lib/$gnu"
export RUSTFLAGS="-C target-feature=+crt-static --sysroot=$sysroot"
"$here/cargo.sh" build --release --locked --package evenkeel --target "$triple"
echo "${CARGO_TARGET_DIR:-target}/$triple/release/evenkeel"
