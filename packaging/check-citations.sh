#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Checks that sources are cited by the keys of docs/bibliography.md: no paper by a number of its own, no link to a key
# that is not there, no RFC without an entry, no key twice.
#
#   check-citations.sh
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"
bibliography=docs/bibliography.md

# Every text of the tree, but for what is built and measured here.
each_text() {
    find . \( -name target -o -name .git -o -path ./results \) -prune -o -type f -exec grep -nIHE "$@" {} + || true
}

bad=0
complain() {
    printf 'check-citations: %s\n%s\n' "$1" "$2" >&2
    bad=1
}

keys=$(sed -n 's/^| <a id="\([a-z0-9-]*\)"><\/a>.*/\1/p' "$bibliography" | tr '\n' ' ')
twice=$(printf '%s\n' $keys | sort | uniq -d)
[ -z "$twice" ] || complain "keys that $bibliography has twice:" "$twice"

numbered=$(each_text -i 'papers? 00[0-9]|slides \(00[0-9]')
[ -z "$numbered" ] || complain "a number in the place of a key of $bibliography:" "$numbered"

# Links are to anchors: from other documents, and within the bibliography itself.
linked=$(
    each_text -o 'bibliography\.md#[A-Za-z0-9_-]*'
    grep -noHE '\]\(#[A-Za-z0-9_-]*' "$bibliography" || true
)
dangling=$(printf '%s\n' "$linked" | awk -v keys="$keys" '
    BEGIN { n = split(keys, list, " "); for (i = 1; i <= n; i++) known[list[i]] = 1 }
    NF && !(substr($0, match($0, /#[^#]*$/) + 1) in known)')
[ -z "$dangling" ] || complain "links to keys that $bibliography does not have:" "$dangling"

rfcs=$(each_text -o '(^|[^A-Za-z0-9_])RFC [0-9]+')
unknown=$(printf '%s\n' "$rfcs" | awk -v keys="$keys" '
    BEGIN { n = split(keys, list, " "); for (i = 1; i <= n; i++) known[list[i]] = 1 }
    NF && !(("rfc-" $NF) in known)')
[ -z "$unknown" ] || complain "RFCs without an entry in $bibliography:" "$unknown"

if [ "$bad" -eq 0 ]; then
    printf 'citations: %d keys\n' "$(printf '%s\n' $keys | grep -c .)"
fi
exit "$bad"
