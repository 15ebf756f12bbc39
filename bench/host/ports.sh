#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The host agent's own CPU time and memory when ports come and go: TAPS taps in its network namespace, and one in each
# of NAMESPACES others, come at once; then all of them go. Prints a line per round, and one for what the agent uses with
# no port at all. As root.
#
#   ports.sh EVENKEEL [ROUNDS] [TAPS] [NAMESPACES] [MODE]
set -eu

evenkeel=$(realpath "$1") rounds=${2-3} taps=${3-400} pods=${4-100} mode=${5-enforce}
prefix=ekp
. "$(dirname "$0")/namespaces.sh"

# On the CPU, in us: all threads, user and kernel.
cpu_us() { cat /proc/"$pid"/task/*/schedstat | awk '{ ns += $1 } END { printf "%d", ns / 1000 }'; }
kilobytes() { awk -v what="$1:" '$1 == what { print $2 }' "/proc/$pid/status"; }
links() { at_host sh -c 'ls /sys/fs/bpf/evenkeel/links | wc -l'; }

# Asking the agent would cost it CPU time, so pinned links are counted.
wait_for_links() {
    for _ in $(seq 6000); do
        [ "$(links)" != "$1" ] || return 0
        sleep 0.1
    done
    echo "$(links) programs are on devices, not $1" >&2
    tail -n 5 "$work/agent.log" >&2
    exit 1
}

# $1: what was done, $2: CPU time before, $3: to how many ports.
report() {
    used=$(($(cpu_us) - $2))
    awk -v what="$1" -v us="$used" -v ports="$3" -v rss="$(kilobytes VmRSS)" -v peak="$(kilobytes VmHWM)" 'BEGIN {
        printf "| %s | %d | %.0f | %s | %.1f | %.1f |\n", what, ports, us / 1000, ports ? sprintf("%.3f", us / 1000 / ports) : "", rss / 1024, peak / 1024 }'
}

add_ns host
add_mounts
cat > "$work/host.toml" << CONFIG
ports = ["tap*"]
netns = ["pod*"]
port_queue_segments = 4000
probe_key_file = "$work/key"
[metrics]
enabled = false
[proboscis]
mode = "$mode"
[vsnoop]
mode = "$mode"
CONFIG
for number in $(seq "$taps"); do echo "tuntap add dev tap$number mode tap"; done > "$work/add"
for number in $(seq "$taps"); do echo "link del tap$number"; done > "$work/del"
for number in $(seq "$pods"); do echo "netns add pod$number"; done > "$work/pods"
for number in $(seq "$pods"); do echo "netns del pod$number"; done > "$work/no-pods"
start_agent 0
pid=$(ask | jq .pid)

echo "| ports | how many | the agent's CPU time (ms) | a port (ms) | resident (MiB) | at most (MiB) |"
echo "|---|---:|---:|---:|---:|---:|"
sleep 1
before=$(cpu_us)
sleep 10
report "none, for 10 s" "$before" 0
for round in $(seq "$rounds"); do
    before=$(cpu_us)
    at_host ip -batch "$work/add"
    at_host ip -batch "$work/pods"
    for number in $(seq "$pods"); do at_host ip -n "pod$number" tuntap add dev tap0 mode tap; done
    wait_for_links $((2 * (taps + pods)))
    # Includes the agent's searches for VMs, which follow.
    sleep 3
    report "round $round: come" "$before" $((taps + pods))
    before=$(cpu_us)
    at_host ip -batch "$work/no-pods"
    at_host ip -batch "$work/del"
    wait_for_links 0
    sleep 3
    report "round $round: go" "$before" $((taps + pods))
done
stop_agent
