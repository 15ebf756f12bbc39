#!/bin/sh
# Runs scenarios in the lab and makes their pages. Goes on with the next after a failure, which is said again at the end;
# with RESUME=--resume, also where it was interrupted.
# Usage: results.sh EVENKEEL DIRECTORY NAME[:RUNS]...; what is kept of the runs goes below DIRECTORY.
set -u

evenkeel=$1 kept=$2
shift 2
failed=
for entry; do
    name=${entry%:*}
    runs=${entry#"$name"}
    "$evenkeel" lab ${RESUME:-} ${runs:+--repetitions "${runs#:}"} "scenarios/$name.toml" &&
        "$evenkeel" report "results/$name" --page "docs/results/$(echo "$name" | tr / -).md" --keep "$kept/$name" ||
        failed="$failed $name"
done
[ -z "$failed" ] || {
    echo "results: not made:$failed" >&2
    exit 1
}
