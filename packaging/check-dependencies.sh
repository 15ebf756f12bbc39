#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Checks every dependency's licence against the list in deny.toml, and that all come from the package registry. It is
# the part of cargo-deny that needs no installation of several minutes.
#
#   check-dependencies.sh CARGO_COMMAND...
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"

sources=$(sed -n 's/^source = //p' Cargo.lock | sort -u)
if [ "$(printf '%s\n' "$sources" | grep -c .)" -gt 1 ] || printf '%s' "$sources" | grep -qv '^"registry+'; then
    printf 'check-dependencies: Cargo.lock has other sources than one package registry:\n%s\n' "$sources" >&2
    exit 1
fi

list=$("$@" tree --workspace --locked --edges normal,build,dev --prefix none --format '{p}|{l}')
printf '%s\n' "$list" | sort -u | awk -F '|' '
    BEGIN {
        while ((getline line < "deny.toml") > 0) {
            if (line ~ /^allow = \[/) inside = 1
            else if (line ~ /^\]/) inside = 0
            else if (inside && match(line, /"[^"]*"/)) allowed[substr(line, RSTART + 1, RLENGTH - 2)] = 1
        }
    }
    # An expression in the way licences are written here: AND binds more than OR, and "/" is an old OR.
    function is_allowed(text,   ors, ands, i, j, n, m, good) {
        gsub(/\//, " OR ", text)
        # (A OR B) AND C: every part must hold, and parts are looked at one by one.
        if (text ~ /\(/) {
            n = split(text, ands, / AND /)
            for (i = 1; i <= n; i++) {
                gsub(/^ *\(|\) *$/, "", ands[i])
                if (!is_allowed(ands[i])) return 0
            }
            return 1
        }
        n = split(text, ors, / OR /)
        for (i = 1; i <= n; i++) {
            m = split(ors[i], ands, / AND /)
            good = 1
            for (j = 1; j <= m; j++) {
                gsub(/^ +| +$/, "", ands[j])
                if (!(ands[j] in allowed)) good = 0
            }
            if (good) return 1
        }
        return 0
    }
    NF && $1 !~ / \(\*\)$/ {
        sub(/ \(\*\)$/, "", $2)
        count++
        if (!is_allowed($2)) { print "check-dependencies: " $1 " has the licence \"" $2 "\", which deny.toml does not allow"; bad = 1 }
    }
    END {
        if (!bad) print "dependencies: " count " licences and all sources as deny.toml has them"
        exit bad
    }'
