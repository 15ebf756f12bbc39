#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The Python package. What it needs of PyPI goes into venvs below target/.
#
#   python.sh wheel                      builds the wheel into target/wheels
#   EVENKEEL=PROGRAM python.sh test ...  builds a wheel quickly, installs it beside what its tests need, and runs pytest
#                                        with the arguments; results are compared with PROGRAM's
#
# PYTHON is the interpreter (python3).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
python=${PYTHON:-python3}
builder=$top/target/python/builder
tester=$top/target/python/tester
# Python loads a library that is linked dynamically: the flags of the static binary are not for it.
unset RUSTFLAGS CARGO_BUILD_TARGET

# make_venv VENV LIST: a venv with what a list of requirements has, unless it is there.
make_venv() {
    wanted=$(cat "$top/python/$2" && "$python" --version)
    [ "$wanted" != "$(cat "$1/requirements" 2>/dev/null)" ] || return 0
    rm -rf "$1"
    "$python" -m venv "$1"
    install "$1" -r "$top/python/$2"
    printf '%s\n' "$wanted" > "$1/requirements"
}

install() {
    pip=$1/bin/pip
    shift
    "$pip" install --quiet --disable-pip-version-check "$@"
}

# make_wheel FOLDER OPTION...
make_wheel() {
    make_venv "$builder" requirements-build.txt
    rm -rf "$1"
    cd "$top/python"
    CARGO=$here/cargo.sh "$builder/bin/maturin" build --locked --out "$@"
}

case ${1-} in
wheel) make_wheel "$top/target/wheels" --release --target-dir "$top/target/python/build" ;;
test)
    shift
    [ -x "${EVENKEEL-}" ] || {
        echo "python.sh: EVENKEEL is to name the program that results are held against" >&2
        exit 2
    }
    EVENKEEL=$(realpath "$EVENKEEL")
    export EVENKEEL
    make_venv "$tester" requirements-test.txt
    # With the profile and the target of cargo's tests, macros and build scripts for this machine are built already. The
    # simulator is optimized, to be fast enough to simulate with.
    make_wheel "$top/target/python/wheels" --profile dev --target "$(uname -m)-unknown-linux-gnu" \
        --target-dir "$top/target" --config 'profile.dev.package.evenkeel-sim.opt-level=2' \
        --config 'profile.dev.package.evenkeel-algo.opt-level=2'
    install "$tester" --no-deps --force-reinstall "$top"/target/python/wheels/*.whl
    # Runs files side by side: type checks take as long as all sweeps.
    exec "$tester/bin/pytest" --numprocesses 2 --dist loadfile "$@"
    ;;
*)
    echo "python.sh: say wheel or test" >&2
    exit 2
    ;;
esac
