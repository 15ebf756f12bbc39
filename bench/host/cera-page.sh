#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The lines of cera.sh as tables in Markdown.
#
#   cera-page.sh FILE
set -eu

ms='def ms: if . == null then "" else (. / 1000 | if . < 10 then (. * 100 | round / 100) else (. * 10 | round / 10) end | tostring) end; def one: if . == null then "" else (. * 10 | round / 10 | tostring) end;'

echo "| scheme | flows | request mean (ms) | p50 | p90 | p99 | max | requests | queue, mean (packets) | iperf3 (Mbit/s) | uplink (Mbit/s) | cuts of epochs |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
jq -r "$ms"'select(.scheme != "kill" and .scheme != "weights") |
    "| \(.scheme) | \(.flows * 3) | \(.mean_us | ms) | \(.p50_us | ms) | \(.p90_us | ms) | \(.p99_us | ms) | \(.max_us | ms) | \(.requests) | \(.queue_segments | one) | \(.bulk_mbit | one) | \(.uplink_mbit | one) | \(.cuts) of \(.epochs) |"' "$1"

echo
echo "| weights, flows in each VM | Mbit/s of VMs 1, 2, 3, 4 | share, by weight 1 would be 1 | queue, mean (packets) |"
echo "|---|---|---|---|"
jq -r "$ms"'select(.scheme == "weights") | ([.bulk[].mbit] | add / 10) as $unit |
    "| 1:2:3:4, \(.flows) | \([.bulk[].mbit | one] | join(", ")) | \([.bulk[] | .mbit / $unit / .vm | . * 1000 | round / 1000 | tostring] | join(", ")) | \(.queue_segments | one) |"' "$1"

echo
echo "| killed, flows in each of three VMs | window of a flow before (bytes) | after | free after (ms) | Mbit/s of all, second by second |"
echo "|---|---|---|---|---|"
jq -r 'select(.scheme == "kill") | "| \(.flows) | \(.window_limited_bytes) | \(.window_free_bytes) | \(.free_after_ms) | \(.mbit_by_second | map(tostring) | join(", ")) |"' "$1"
