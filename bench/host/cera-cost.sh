#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What CERA's controller costs: the share of one CPU that its thread uses, for each number of PORTS, while one VM keeps
# the uplink's queue above T_u with 16 flows (so that windows are set in every epoch), and while idle. As root; needs
# iperf3, jq.
#
#   cera-cost.sh EVENKEEL [EPOCH_US] [SECONDS] [PORTS ...]
set -eu

evenkeel=$(realpath "$1") epoch=${2-1000} seconds=${3-10}
[ $# -le 3 ] && set -- "" "" "" 4 32 128
shift 3
work=$(mktemp -d)
agent=

clean() {
    [ -z "$agent" ] || kill "$agent" 2> /dev/null || true
    for name in host far vm; do
        ip netns pids "eko-$name" 2> /dev/null | xargs -r kill 2> /dev/null || true
        ip netns del "eko-$name" 2> /dev/null || true
    done
}
trap 'clean; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

in_host() { ip netns exec eko-host "$@"; }

build() {
    for name in host far vm; do
        ip netns add "eko-$name"
        ip netns exec "eko-$name" ip link set lo up
    done
    in_host ip link add br0 type bridge
    in_host ip link set br0 up
    ip link add eth0 netns eko-host type veth peer name eth0 netns eko-far
    in_host ip link set eth0 master br0 up
    in_host tc qdisc add dev eth0 root handle 1: htb default 1
    in_host tc class add dev eth0 parent 1: classid 1:1 htb rate 100mbit burst 3k cburst 3k
    in_host tc qdisc add dev eth0 parent 1:1 pfifo limit 1000
    ip link add vnet1 netns eko-host type veth peer name eth0 netns eko-vm
    in_host ip link set vnet1 master br0 up
    for port in $(seq 2 "$1"); do
        in_host ip link add "vnet$port" type veth peer name "x$port"
        in_host ip link set "x$port" up
        in_host ip link set "vnet$port" master br0 up
    done
    ip netns exec eko-far ip addr add 10.9.0.100/24 dev eth0
    ip netns exec eko-far ip link set eth0 up
    ip netns exec eko-vm ip addr add 10.9.0.1/24 dev eth0
    ip netns exec eko-vm ip link set eth0 up
    ip netns exec eko-far iperf3 --server --daemon > /dev/null
    cat > "$work/host.toml" << CONFIG
ports = ["vnet*"]
probe_key_file = "$work/key"
[metrics]
enabled = false
[proboscis]
mode = "off"
[cera]
mode = "enforce"
uplinks = ["eth0"]
high_segments = 4
epoch_us = $epoch
CONFIG
    ip netns exec eko-host unshare --mount sh -c "mount -t tmpfs run /run && mount -t bpf bpf /sys/fs/bpf && exec '$evenkeel' host --config '$work/host.toml'" \
        2> "$work/agent.log" &
    agent=$!
    for _ in $(seq 300); do
        ask 2> /dev/null > "$work/status" || true
        [ "$(jq '[.ports[].name] | length' "$work/status" 2> /dev/null)" != "$1" ] || return 0
        sleep 0.1
    done
    cat "$work/agent.log" >&2
    exit 1
}

ask() { nsenter --target "$agent" --mount --net "$evenkeel" status --json; }

# The controller notes once a second what it has used.
measure() {
    ask > "$work/before"
    sleep "$seconds"
    ask > "$work/after"
    jq -r -n --arg ports "$1" --arg what "$2" --arg epoch "$epoch" --slurpfile before "$work/before" --slurpfile after "$work/after" '
        ($after[0].cera.epochs - $before[0].cera.epochs) as $epochs | ($after[0].cera.cpu_us - $before[0].cera.cpu_us) as $cpu |
        ($after[0].cera.cuts - $before[0].cera.cuts) as $cuts | ($after[0].cera.epochs_missed - $before[0].cera.epochs_missed) as $missed |
        "| \($ports) | \($epoch) | \($what) | \($cpu / $epochs * 10 | round / 10) | \($cpu / ($epochs + $missed) / ($epoch | tonumber) * 1000 | round / 10)% | \($epochs) | \($missed) | \($cuts) |"'
}

echo "| ports | epoch (us) | uplink | us per epoch | share of a CPU | epochs | missed | cuts |"
echo "|---|---|---|---|---|---|---|---|"
for ports in "$@"; do
    build "$ports"
    sleep 2
    measure "$ports" idle
    ip netns exec eko-vm iperf3 --client 10.9.0.100 --parallel 16 --time "$((seconds + 6))" > /dev/null 2>&1 &
    sleep 3
    measure "$ports" "queue above T_u"
    kill "$agent" 2> /dev/null || true
    wait "$agent" 2> /dev/null || true
    agent=
    clean
done
