#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# cargo, wherever a new enough one is: on PATH, else in the trixie root (see lab/make-root.sh), where it sees the source
# at the same path. The binaries are linked statically and so run on this machine all the same; tests are built in the
# root and run here.
#
#   cargo.sh ARG...        as cargo
#   cargo.sh --where       "path", "root", or "none" when there is none yet
#   cargo.sh --make-root   makes the root with cargo in it
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
root=${EVENKEEL_CACHE:-${XDG_CACHE_HOME:+$XDG_CACHE_HOME/evenkeel}}
root=${root:-/var/cache/evenkeel}/root

# Version 1.85 or newer. rustc decides: a cargo without it is of no use.
on_path() {
    version=$(cd / && cargo --version >/dev/null 2>&1 && rustc --version 2>/dev/null) || return 1
    printf '%s\n' "$version" | awk '{ split($2, v, "."); exit !(v[1] > 1 || v[1] == 1 && v[2] >= 85) }'
}

in_root() { grep -qx rust "$root/etc/evenkeel-root" 2>/dev/null; }

case ${1-} in
--where)
    if on_path; then echo path; elif in_root; then echo root; else echo none; fi
    exit
    ;;
--make-root) exec sh "$here/lab/make-root.sh" --with-rust "$root" ;;
esac

export CARGO_TERM_PROGRESS_WHEN="${CARGO_TERM_PROGRESS_WHEN:-auto}"
if on_path; then
    exec cargo "$@"
fi
in_root || {
    echo "cargo.sh: no cargo 1.85 or newer on PATH, and none in $root; run \`make deps\`" >&2
    exit 1
}

cargo_home=${CARGO_HOME:-${HOME:-/root}/.cargo}
mkdir -p "$cargo_home"
enter() {
    for path in /etc/resolv.conf /etc/hosts /etc/ssl/certs; do
        [ ! -e "$path" ] || set -- -b "$path:$path" "$@"
    done
    sh "$here/lab/in-root.sh" "$root" -t /tmp -b "$top:$top" -b "$cargo_home:$cargo_home" "$@"
}
# A cargo that is installed here, but too old, must not be found inside.
run_cargo() {
    enter -- /usr/bin/env PATH="/usr/sbin:/usr/bin:/sbin:/bin:$cargo_home/bin" CARGO_HOME="$cargo_home" \
        /bin/sh -c 'cd "$0" && exec cargo "$@"' "$PWD" "$@"
}

if [ "${1-}" != test ]; then
    run_cargo "$@"
    exit
fi

# Build the tests inside and run them here, each in its crate's folder as cargo does. Documentation tests are left out.
shift
# What cargo would set for them.
PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-$(sed -n 's/^PROPTEST_RNG_SEED = "\([0-9]*\)"$/\1/p' "$top/.cargo/config.toml")}
export PROPTEST_RNG_SEED
built=$(run_cargo test --no-run --message-format json-render-diagnostics "$@")
failed=0
programs=$(printf '%s\n' "$built" |
    sed -n 's/^{"reason":"compiler-artifact".*"manifest_path":"\([^"]*\)".*"test":true}.*"executable":"\([^"]*\)".*/\1|\2/p')
old_ifs=$IFS
IFS='
'
for line in $programs; do
    IFS=$old_ifs
    dir=$(dirname "${line%%|*}")
    echo "     Running ${line#*|}"
    (cd "$dir" && CARGO_MANIFEST_DIR=$dir "${line#*|}") || failed=1
done
exit $failed
