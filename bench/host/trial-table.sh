# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Prints what the trials of trial.sh and cera-trial.sh have found, from $work/BED-RUN.json. To be sourced, with `work`,
# `beds` and `runs` set.

# BED RUN: prints a line, to be read meanwhile.
show_trial() {
    jq -c --arg bed "$1" '{$bed, verdict: .trial.judgement.verdict, ratio: .trial.judgement.primary, left: .trial.judgement.left_out,
        notes: .trial.notes, rows: [.trial.judgement.rows[] | [.class, .exchanges, .geometric.change.value]]}' "$work/$1-$2.json" >&2
}

print_table() {
    echo "| bed | runs | gain | harm | no difference | too little | ratios |"
    echo "|---|---|---|---|---|---|---|"
    for bed in $beds; do
        said() { jq -r .trial.judgement.verdict "$work/$bed"-*.json | grep -c "^$1$" || true; }
        ratios=$(jq '.trial.judgement.primary.value // empty' "$work/$bed"-*.json | sort -g | xargs printf '%.2f ')
        echo "| $bed | $runs | $(said gain) | $(said harm) | $(said no_difference) | $(said too_little) | $ratios|"
    done
}
