#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The lines of cera.sh and cera-events.sh as tables in Markdown. Several runs of a scheme with the same flows: the
# median (least to most).
#
#   cera-page.sh FILE...
set -eu

functions='def ms: if . == null then "" else (. / 1000 | if . < 10 then (. * 100 | round / 100) else (. * 10 | round / 10) end | tostring) end;
    def one: if . == null then "" else (. * 10 | round / 10 | tostring) end;
    def three: . * 1000 | round / 1000 | tostring;
    def runs(value; text): map(value | select(. != null)) | sort | if length < 2 then (.[0] | text) else
        "\((.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2 | text) (\(.[0] | text) to \(.[-1] | text))" end;
    def together: reduce .[] as $run ([]; (map(.[0] | .scheme == $run.scheme and .flows == $run.flows) | index(true)) as $at |
        if $at then .[$at] += [$run] else . + [[$run]] end);'

# $1: which lines; $2 and $3: the table's head; $4: a row; $5: what is done with the lines first. Prints nothing if
# there are no lines.
table() {
    jq -r -n --arg head "$2" --arg rule "$3" "$functions"'[inputs | select('"$1"')] | '"${5-.}"' | if length > 0 then ($head, $rule, (.[] | '"$4"'), "") else empty end' $files
}

files=$*
table '.scheme and (.scheme | startswith("weights") | not)' \
    '| scheme | flows | waiting, all packets: mean (ms) | p50 | p99 | bulk: mean | latency: mean | p99 | request: mean (ms) | p99 | requests | queue, mean (packets) | iperf3 (Mbit/s) | uplink (Mbit/s) |' \
    '|---|---|---|---|---|---|---|---|---|---|---|---|---|---|' \
    '"| \(.[0].scheme) | \(.[0].flows) | \(runs(.delay.all.mean_us; ms)) | \(runs(.delay.all.p50_us; ms)) | \(runs(.delay.all.p99_us; ms)) | \(runs(.delay.bulk.mean_us; ms)) | \(runs(.delay.latency.mean_us; ms)) | \(runs(.delay.latency.p99_us; ms)) | \(runs(.mean_us; ms)) | \(runs(.p99_us; ms)) | \(runs(.requests; tostring)) | \(runs(.queue_segments; one)) | \(runs(.bulk_mbit; one)) | \(runs(.uplink_mbit; one)) |"' together
table '.scheme and (.scheme | startswith("weights"))' \
    '| weights 1:2:3:4 | flows in each VM | Mbit/s of VMs 1, 2, 3, 4 | share, by weight 1 would be 1 | queue, mean (packets) |' \
    '|---|---|---|---|---|' \
    '([.bulk[].mbit] | add / 10) as $unit | "| \(if .scheme == "weights" then "no agents" else "agents" end) | \(.flows) | \([.bulk[].mbit | one] | join(", ")) | \([.bulk[] | .mbit / $unit / .vm | three] | join(", ")) | \(.queue_segments | one) |"'
table '.event and (.event | startswith("wake"))' \
    '| woke up | flows in each VM | its share from epoch | missing after 100 epochs (epochs of its share) | at most | share after 50 epochs | shares in the first 20 epochs |' \
    '|---|---|---|---|---|---|---|' \
    '"| \(if .event == "wake" then "no agents" else "agents" end) | \(.flows) | \(.share_from_epoch) | \(.missing_epochs) | \(.most_missing_epochs) | \(.share_later) | \(.first_epochs | map(tostring) | join(", ")) |"'
table '.event == "uneven"' '| flows of VMs 2, 3, 4 | Mbit/s |' '|---|---|' '"| 1, \(.flows), \(.flows * 2) | \(.mbit | map(tostring) | join(", ")) |"'
table '.event and .before_mbit' \
    '| failure | flows in each VM | uplink before (Mbit/s) | in the first second | in the four after | least in a tenth of the first three | queue before (packets) | after 1 s | after 4 s | agents then, limited by the host then |' \
    '|---|---|---|---|---|---|---|---|---|---|' \
    '"| \(.event) | \(.flows) | \(.before_mbit) | \(.first_second_mbit) | \(.later_mbit) | \(.worst_tenth_mbit) | \(.queue_before) | \(.queue_1s) | \(.queue_4s) | \(if .who.clients == null then "" else "\(.who.clients), \(.who.limited)" end) |"'
