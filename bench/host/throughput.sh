#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What the host agent costs a transfer: iperf3 between two network namespaces over a bridge, in turns without and with `evenkeel host` in
# enforce mode on both ports. Prints both medians and their ratio, and that of the pairs. As root; needs iperf3.
#
#   throughput.sh EVENKEEL [ROUNDS] [SECONDS]
set -eu

evenkeel=$(realpath "$1")
rounds=${2-21}
seconds=${3-1}
work=$(mktemp -d)
agent=

clean() {
    [ -z "$agent" ] || kill "$agent" 2>/dev/null || true
    for name in host a b; do
        ip netns pids "ekb-$name" 2>/dev/null | xargs -r kill 2>/dev/null || true
        ip netns del "ekb-$name" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

in_ns() {
    ns=$1
    shift
    ip netns exec "ekb-$ns" "$@"
}

for name in host a b; do
    ip netns add "ekb-$name"
    in_ns "$name" ip link set lo up
done
in_ns host ip link add br0 type bridge
in_ns host ip link set br0 up
for name in a b; do
    ip link add "vnet-$name" netns ekb-host type veth peer name eth0 netns "ekb-$name"
    in_ns host ip link set "vnet-$name" master br0 up
    in_ns "$name" ip link set eth0 up
done
in_ns a ip address add 10.9.0.1/24 dev eth0
in_ns b ip address add 10.9.0.2/24 dev eth0

cat > "$work/host.toml" <<CONFIG
ports = ["vnet-*"]
probe_key_file = "$work/key"
[proboscis]
mode = "enforce"
[metrics]
enabled = false
CONFIG
(umask 077; echo 00112233445566778899aabbccddeeff > "$work/key")

# With /run and bpffs of its own: a host's agent is not disturbed. Ready when it has both ports.
start_agent() {
    ip netns exec ekb-host unshare --mount sh -c "mount -t tmpfs run /run && mount -t bpf bpf /sys/fs/bpf && exec '$evenkeel' host --config '$work/host.toml'" \
        2> "$work/agent.log" &
    agent=$!
    for _ in $(seq 100); do
        ports=$(nsenter --target "$agent" --mount --net "$evenkeel" status --json 2>/dev/null | grep -o '"vnet-[ab]"' | sort -u | wc -l)
        [ "$ports" != 2 ] || return 0
        sleep 0.1
    done
    cat "$work/agent.log" >&2
    exit 1
}

stop_agent() {
    kill "$agent"
    wait "$agent" 2>/dev/null || true
    agent=
}

mbit() {
    in_ns b iperf3 --server --one-off --daemon
    sleep 0.3
    in_ns a iperf3 --client 10.9.0.2 --time "$seconds" --json |
        sed -n '/"sum_received"/,/}/s/.*"bits_per_second":[[:space:]]*\([0-9.e+]*\).*/\1/p' | awk '{printf "%.0f\n", $1 / 1e6}'
}

median() { sort -n "$1" | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
spread() { sort -n "$1" | awk 'NR == 1 {least = $1} {most = $1} END {print least " to " most}'; }

measure_with() {
    start_agent
    mbit >> "$work/with"
    stop_agent
}

# Now one is first and now the other: what drifts hits both.
for round in $(seq "$rounds"); do
    if [ $((round % 2)) = 0 ]; then
        measure_with
        mbit >> "$work/without"
    else
        mbit >> "$work/without"
        measure_with
    fi
done
paste "$work/with" "$work/without" | awk '{printf "%.3f\n", $1 / $2}' > "$work/pairs"
without=$(median "$work/without") with=$(median "$work/with")
echo "without: $without Mbit/s ($(spread "$work/without"))"
echo "with:    $with Mbit/s ($(spread "$work/with"))"
awk -v a="$with" -v b="$without" 'BEGIN {printf "ratio:   %.3f\n", a / b}'
echo "pairs:   $(median "$work/pairs") ($(spread "$work/pairs"))"
