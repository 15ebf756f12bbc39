#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The evenkeel binary, optimized for what its simulator does most (profile-guided optimization), for sweeps of hours.
# What it simulates is the same to the byte.
#
#   profiled.sh SCENARIO...     builds target/profiled/TARGET/release/evenkeel; the scenarios, run once each, are what
#                               it learns from
#
# RUSTFLAGS and CARGO_BUILD_TARGET are make's. LLVM_PROFDATA names another llvm-profdata than the one that fits rustc.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
folder=$top/target/profiled

[ "$("$here/cargo.sh" --where)" = path ] || {
    echo "profiled.sh: it needs a rustc 1.85 or newer on PATH, for an llvm-profdata of the same LLVM" >&2
    exit 1
}

# That of rustup's component llvm-tools, or of the distribution.
llvm_profdata() {
    version=$(rustc --version --verbose | sed -n 's/^LLVM version: \([0-9]*\)\..*/\1/p')
    set -- "$(rustc --print target-libdir)/../bin/llvm-profdata" "/usr/lib/llvm-$version/bin/llvm-profdata" \
        "/usr/bin/llvm-profdata-$version"
    for tool in "$@"; do
        [ ! -x "$tool" ] || { echo "$tool"; return; }
    done
    echo "profiled.sh: no llvm-profdata of LLVM $version, which rustc has; install llvm-$version or rustup's component" \
        "llvm-tools, or set LLVM_PROFDATA; looked for $*" >&2
    exit 1
}
merge=${LLVM_PROFDATA:-$(llvm_profdata)}

# build KIND FLAG: compiles with FLAG, in a folder of its own, so that other builds stay.
build() {
    RUSTFLAGS="$RUSTFLAGS $2" CARGO_TARGET_DIR=$folder/$1 "$here/cargo.sh" build --release --locked --package evenkeel
}

rm -rf "$folder/counts"
mkdir -p "$folder/counts"
build counting "-Cprofile-generate=$folder/counts"
for scenario in "$@"; do
    "$folder/counting/$CARGO_BUILD_TARGET/release/evenkeel" sweep --quiet --repetitions 1 --out "$folder/runs" \
        "$scenario" > /dev/null
    rm -rf "$folder/runs"
done
"$merge" merge --output "$folder/profile" "$folder/counts"
build . "-Cprofile-use=$folder/profile"
echo "built $folder/$CARGO_BUILD_TARGET/release/evenkeel"
