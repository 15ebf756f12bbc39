#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What `evenkeel trial` says of beds whose answer is known, each some times:
#
#   helps    a VM behind a tap that is off its core for most of the time; vSnoop, data for the VM, 2 ms away
#   nothing  the same VM, which always has its core: vSnoop has nothing to do
#   harms    ProBoSCIS with a first window of one segment (icwnd_segments = 1), between two VMs 10 ms apart
#
# Prints a table in Markdown: how often each verdict came, and the ratios. As root; needs cc, jq, python3.
#
#   trial.sh EVENKEEL [RUNS] [SECONDS] [BED...]
set -eu

evenkeel=$(realpath "$1")
runs=${2-10}
seconds=${3-24}
[ $# -lt 3 ] && shift $# || shift 3
beds=${*:-helps nothing harms}
here=$(dirname "$(realpath "$0")")
prefix=ektr
. "$here/namespaces.sh"

cc -O2 -Wall -Wextra -pthread -o "$work/vm" "$here/soak_vm.c"

configure() {
    cat > "$work/host.toml" << CONFIG
ports = ["vp*"]
port_queue_segments = 1000
probe_key_file = "$work/key"
$1
[metrics]
enabled = false
CONFIG
}
(
    umask 077
    echo 00112233445566778899aabbccddeeff > "$work/key"
)

begin_bed() {
    for name in host a b; do add_ns "$name"; done
    add_mounts
    sleep 0.3
    in_ns host ip link add br0 type bridge
    in_ns host ip link set br0 up
}

# NAMESPACE PORT ADDRESS: a VM behind a veth.
add_veth() {
    ip link add "$2" netns "$prefix-host" type veth peer name eth0 netns "$prefix-$1"
    in_ns host ip link set "$2" master br0 up
    in_ns "$1" ip addr add "$3/24" dev eth0
    in_ns "$1" ip link set eth0 up
}

# NAMESPACE PORT ADDRESS ON_MS OFF_MS: one behind a tap.
add_tap() {
    ip netns exec "$prefix-host" "$work/vm" "$2" "$prefix-$1" "$run" "$4" "$5" vcpu > "$work/ready" 2> /dev/null &
    pump=$!
    until [ -s "$work/ready" ]; do sleep 0.1; done
    in_ns host ip link set "$2" master br0 up
    in_ns "$1" ip addr add "$3/24" dev eth0
    in_ns "$1" ip link set eth0 txqueuelen 10000 up
    # Of a smaller window nobody knows that there is memory for it.
    in_ns "$1" sh -c 'echo 4096 4194304 8388608 > /proc/sys/net/ipv4/tcp_rmem'
}

VSNOOP='[proboscis]
mode = "off"
[vsnoop]
mode = "observe"
endpoint = "observed"'
ICWND_1='[proboscis]
icwnd_segments = 1'

run_bed() {
    begin_bed
    pump=
    case $1 in
    helps) add_tap a vpa 10.9.0.1 5 30 ;;
    nothing) add_tap a vpa 10.9.0.1 100 0 ;;
    harms) add_veth a vpa 10.9.0.1 ;;
    esac
    if [ "$1" = harms ]; then
        add_veth b vpb 10.9.0.2
        delay=10ms mechanism=proboscis ports="vpa vpb"
        configure "$ICWND_1"
        start_agent 2
    else
        add_veth b other 10.9.0.2
        delay=2ms mechanism=vsnoop ports=vpa
        configure "$VSNOOP"
        start_agent 1
    fi
    in_ns b tc qdisc add dev eth0 root netem delay "$delay" limit 10000
    in_ns a python3 "$here/trial_load.py" serve 10.9.0.1 8000 &
    server=$!
    sleep 0.5
    in_ns b python3 "$here/trial_load.py" send 10.9.0.1 8000 $((seconds + 1)) 8 > "$work/sent" &
    load=$!
    # shellcheck disable=SC2086
    at_host "$evenkeel" trial $ports --mechanism $mechanism --for "${seconds}s" --json --seed "$run" \
        --report "$work/trial.html" > "$work/$1-$run.json"
    wait "$load"
    kill "$server"
    [ -z "$pump" ] || kill "$pump"
    stop_agent
    kill "$mounts"
    mounts=
    remove_namespaces
    jq -c '{verdict: .trial.judgement.verdict, ratio: .trial.judgement.primary, left: .trial.judgement.left_out,
        exchanges: [.trial.judgement.rows[].exchanges]}' "$work/$1-$run.json" >&2
}

echo "| bed | runs | gain | harm | no difference | too little | ratios |"
echo "|---|---|---|---|---|---|---|"
for bed in $beds; do
    for run in $(seq "$runs"); do run_bed "$bed"; done
    said() { jq -r .trial.judgement.verdict "$work/$bed"-*.json | grep -c "^$1$" || true; }
    ratios=$(jq '.trial.judgement.primary.value // empty' "$work/$bed"-*.json | sort -g | xargs printf '%.2f ')
    echo "| $bed | $runs | $(said gain) | $(said harm) | $(said no_difference) | $(said too_little) | $ratios|"
done
