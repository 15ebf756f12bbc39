#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What the host agent costs a transfer: iperf3 between two network namespaces over a bridge, with `evenkeel host`
# (ProBoSCIS in enforce mode on both ports) and without, in turns. Each turn has two runs without it, which show how
# much equal runs differ on this machine. Prints a table in Markdown: Mbit/s, and Mbit per second of CPU time of both
# ends, which depends less on other processes. As root; needs iperf3, jq.
#
#   throughput.sh EVENKEEL [ROUNDS] [SECONDS] [SENDER,RECEIVER]
#
# SENDER,RECEIVER: the CPUs of both ends. On one CPU all that a packet costs shows in the throughput, and little
# disturbs it.
set -eu

evenkeel=$(realpath "$1")
rounds=${2-21}
seconds=${3-1}
cpus=${4-}
prefix=ekb
. "$(dirname "$0")/namespaces.sh"

for name in host a b; do add_ns "$name"; done
add_mounts
in_ns host ip link add br0 type bridge
in_ns host ip link set br0 up
for name in a b; do
    ip link add "vnet-$name" netns ekb-host type veth peer name eth0 netns "ekb-$name"
    in_ns host ip link set "vnet-$name" master br0 up
    in_ns "$name" ip link set eth0 up
done
in_ns a ip address add 10.9.0.1/24 dev eth0
in_ns b ip address add 10.9.0.2/24 dev eth0

cat > "$work/host.toml" << CONFIG
ports = ["vnet-*"]
probe_key_file = "$work/key"
[proboscis]
mode = "enforce"
[metrics]
enabled = false
CONFIG
(
    umask 077
    echo 00112233445566778899aabbccddeeff > "$work/key"
)

iperf() {
    in_ns b iperf3 --server --one-off --daemon
    sleep 0.3
    in_ns a iperf3 --client 10.9.0.2 --time "$seconds" ${cpus:+--affinity "$cpus"} --json > "$work/iperf"
    jq '.end.sum_received.bits_per_second / 1e6 | round' "$work/iperf" >> "$work/$1.mbit"
    jq '.end | .sum_received.bits_per_second / 1e4 / (.cpu_utilization_percent | .host_total + .remote_total) | round' "$work/iperf" >> "$work/$1.cpu"
}

measure() {
    [ "$1" != with ] || start_agent 2
    # Lets the kernel free what an earlier agent has left.
    sleep 0.3
    iperf "$1"
    [ "$1" != with ] || stop_agent
}

# Each series is first, second and third equally often, so that drift affects all alike.
for round in $(seq "$rounds"); do
    case $((round % 3)) in
    0) order="without with again" ;;
    1) order="again without with" ;;
    *) order="with again without" ;;
    esac
    for series in $order; do measure "$series"; done
done

quarters() { sort -n | awk -v form="$1" '{v[NR] = $1} function at(share) {return v[1 + int((NR - 1) * share + 0.5)]} END {printf form " (" form " to " form ")", at(0.5), at(0.25), at(0.75)}'; }
median() { sort -n "$work/$1" | awk '{v[NR] = $1} END {print v[1 + int((NR - 1) / 2 + 0.5)]}'; }
ratio() { awk -v a="$(median "$1.$2")" -v b="$(median "without.$2")" 'BEGIN {printf "%.3f", a / b}'; }
pairs() { paste "$work/$1.$2" "$work/without.$2" | awk '{print $1 / $2}' | quarters %.3f; }

echo "CPUs of sender and receiver: ${cpus:-any}; $rounds rounds of $seconds s; medians (and the middle half)"
echo
echo "| | without | without, again | with | again / without: of medians | of pairs | with / without: of medians | of pairs |"
echo "|---|---|---|---|---|---|---|---|"
for what in mbit cpu; do
    printf '| %s |' "$([ $what = mbit ] && echo "Mbit/s" || echo "Mbit per CPU second")"
    for series in without again with; do printf ' %s |' "$(quarters %.0f < "$work/$series.$what")"; done
    for series in again with; do printf ' %s | %s |' "$(ratio "$series" "$what")" "$(pairs "$series" "$what")"; done
    echo
done
