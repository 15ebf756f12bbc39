#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Makes packages of a binary that is built, from the lists in crates/evenkeel/Cargo.toml.
#
#   package.sh deb BINARY [VERSION [NATIVE]]    evenkeel and evenkeel-pvtcp-dkms for Debian
#   package.sh rpm BINARY [VERSION]             the same for rpm
#
# They go to target/package. VERSION is that of the packages, if it is to be another than the binary's. A binary for
# arm64 needs NATIVE beside it, one for this machine, which writes the manual pages. cargo-deb and cargo-generate-rpm
# come from PATH, else cargo builds them once, into target/tools.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
cd "$top"
kind=$1
binary=$2
version=${3-}
native=${4:-$binary}
out=target/package
manifest=crates/evenkeel/Cargo.toml
PATH=$PATH:$top/target/tools/bin
export PATH

die() {
    printf 'package: %s\n' "$*" >&2
    exit 1
}

# Installs a tool that is missing, in the version that reads the lists as they are written.
tool() {
    command -v "$1" > /dev/null ||
        env -u CARGO_BUILD_TARGET -u RUSTFLAGS "$here/cargo.sh" install --locked --root target/tools \
            --target-dir target/tools/build "$1@$2"
}

[ -x "$binary" ] || die "there is no $binary; \`make build\` makes it"
[ -x "$native" ] || die "there is no $native; \`make build\` makes it"

# The machine that an ELF file is for: 183 is arm64.
strip=strip target=
if [ "$(od -An -j 18 -N 1 -tu1 "$binary" | tr -d ' ')" = 183 ] && [ "$(uname -m)" != aarch64 ]; then
    strip=aarch64-linux-gnu-strip
    target=--target=aarch64-unknown-linux-gnu
fi
rm -rf "$out/man"
mkdir -p "$out/man"

# The same binary for every package, without the tables of lines that only developers read.
"$strip" -o "$out/evenkeel" "$binary"
"$native" man "$out/man"
"$native" completions bash > "$out/evenkeel.bash"
"$native" completions zsh > "$out/_evenkeel"
"$native" completions fish > "$out/evenkeel.fish"
{
    echo "The Rust crates that the binary contains, each with its licence:"
    echo
    "$here/cargo.sh" tree --locked --package evenkeel --edges normal --prefix none --format '{p}  {l}' |
        sed -e 's/ (\*)$//' -e 's/ ([^)]*)  /  /' | sort -u
} > "$out/crates.txt"

case $kind in
deb)
    tool cargo-deb 3.8.0
    for package in evenkeel pvtcp-dkms; do
        variant=
        [ "$package" = evenkeel ] || variant=--variant=$package
        cargo-deb --quiet --manifest-path "$manifest" --no-build --no-strip --output "$out/" $variant $target \
            ${version:+--deb-version="$version"}
    done
    ;;
rpm)
    tool cargo-generate-rpm 0.21.1
    for package in evenkeel pvtcp-dkms; do
        list=$manifest#package.metadata.deb
        [ "$package" = evenkeel ] || list=$list.variants.$package
        cargo-generate-rpm --package crates/evenkeel --output "$out/" --metadata-overwrite="$list" \
            --variant="$package" ${version:+--set-metadata="version = \"$version\""}
    done
    ;;
*) die "what is $kind? (deb or rpm)" ;;
esac
