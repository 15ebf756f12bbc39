#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The parsers and decisions of algo/ under sanitizers: AddressSanitizer in Rust and C, UndefinedBehaviorSanitizer in C.
# With a stable compiler, which is told to take unstable flags. Needs clang-19.
#
#   fuzz.sh run SECONDS   every fuzz target for so long, by libFuzzer; what it finds is in artifacts/
#   fuzz.sh noise COUNT   so many random and mutated packets, the same in every run
set -eu

cd "$(dirname "$0")"
clang=${CLANG:-clang-19}
rust_target=$(uname -m)-unknown-linux-gnu
c_flags="-fsanitize=address,undefined -fno-sanitize=function -fno-sanitize-recover=all -fsanitize-trap=undefined -fno-omit-frame-pointer -g"

# AddressSanitizer's runtime is rustc's, and its C++ (libFuzzer) the system's: linked dynamically, unlike the release.
export RUSTC_BOOTSTRAP=1 CARGO_BUILD_TARGET="$rust_target" CC="$clang" CXX="${clang%%-*}++${clang#clang}"
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"

case ${1-} in
run)
    seconds=${2:?how many seconds}
    export CFLAGS="$c_flags -fsanitize=fuzzer-no-link"
    # What cargo-fuzz passes.
    coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
    coverage="$coverage -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
    export RUSTFLAGS="-Zsanitizer=address $coverage --cfg fuzzing -Ccodegen-units=1"
    target=${CARGO_TARGET_DIR:-$PWD/../../../target}
    cargo build --release --locked --target-dir "$target" --bins --features fuzzer
    for name in $(sed -n 's/^name = "\([a-z]*\)"$/\1/p' Cargo.toml); do
        mkdir -p "corpus/$name" "artifacts/$name"
        echo "fuzz: $name, $seconds s"
        "$target/$rust_target/release/$name" -max_total_time="$seconds" -artifact_prefix="artifacts/$name/" -print_final_stats=1 \
            "corpus/$name" 2> "artifacts/$name.log" || { cat "artifacts/$name.log" >&2; exit 1; }
        grep -E '^(Done|stat::number_of_executed_units|stat::new_units_added)' "artifacts/$name.log"
    done
    ;;
noise)
    export EVENKEEL_NOISE="${2:?how many packets}" CFLAGS="$c_flags" RUSTFLAGS="-Zsanitizer=address"
    cd ..
    cargo test --locked --test noise -- --nocapture
    ;;
*)
    sed -n 's/^#   //p' "$0" >&2
    exit 2
    ;;
esac
