#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What `evenkeel trial` says of beds whose answer is known, each some times:
#
#   helps    vSnoop, data at 100 Mbit/s for a VM behind a tap that is off its core for most of the time
#   nothing  the same VM and traffic, but nobody vouches for the VM's TCP, so that vSnoop acknowledges nothing
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

cc -O2 -Wall -Wextra -pthread -o "$work/soak_vm" "$here/soak_vm.c"
cc -O2 -Wall -Wextra -o "$work/delay_vm" "$here/delay_vm.c"

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

# NAMESPACE PORT ADDRESS PROGRAM ARGUMENTS: one behind a tap.
add_tap() {
    rm -f "$work/ready"
    program=$4
    namespace=$1 port=$2 address=$3
    shift 4
    ip netns exec "$prefix-host" "$work/$program" "$port" "$prefix-$namespace" "$@" > "$work/ready" 2> /dev/null &
    pump=$!
    set -- "$namespace" "$port" "$address"
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
mode = "observe"'
ICWND_1='[proboscis]
icwnd_segments = 1'

run_bed() {
    begin_bed
    if [ "$1" = harms ]; then
        add_veth a vpa 10.9.0.1
        add_tap b vpb 10.9.0.2 delay_vm 5
        mechanism=proboscis tried="vpa vpb" sizes=4000,14000
        configure "$ICWND_1"
        start_agent 2
    else
        add_tap a vpa 10.9.0.1 soak_vm "$run" 3 30 vcpu
        add_veth b other 10.9.0.2
        mechanism=vsnoop tried=vpa sizes=60000,300000
        # Without early ACKs these would take several slots.
        [ "$1" = helps ] || sizes=4000,30000
        configure "$VSNOOP
endpoint = \"$([ "$1" = nothing ] && echo attested || echo observed)\""
        start_agent 1
    fi
    in_ns b tc qdisc add dev eth0 root handle 1: htb default 1
    in_ns b tc class add dev eth0 parent 1: classid 1:1 htb rate 100mbit quantum 1514
    in_ns a python3 "$here/trial_load.py" serve 10.9.0.1 8000 &
    server=$!
    sleep 0.5
    in_ns b python3 "$here/trial_load.py" send 10.9.0.1 8000 $((seconds + 1)) 6 $sizes > "$work/sent" &
    load=$!
    # shellcheck disable=SC2086
    at_host "$evenkeel" trial $tried --mechanism $mechanism --for "${seconds}s" --json --seed "$run" \
        --report "$work/trial.html" > "$work/$1-$run.json"
    wait "$load"
    kill "$server"
    kill "$pump"
    stop_agent
    kill "$mounts"
    mounts=
    remove_namespaces
    jq -c --arg bed "$1" '{$bed, verdict: .trial.judgement.verdict, ratio: .trial.judgement.primary, left: .trial.judgement.left_out,
        notes: .trial.notes, rows: [.trial.judgement.rows[] | [.class, .exchanges, .geometric.change.value]]}' "$work/$1-$run.json" >&2
}

for run in $(seq "$runs"); do
    for bed in $beds; do run_bed "$bed"; done
done
echo "| bed | runs | gain | harm | no difference | too little | ratios |"
echo "|---|---|---|---|---|---|---|"
for bed in $beds; do
    said() { jq -r .trial.judgement.verdict "$work/$bed"-*.json | grep -c "^$1$" || true; }
    ratios=$(jq '.trial.judgement.primary.value // empty' "$work/$bed"-*.json | sort -g | xargs printf '%.2f ')
    echo "| $bed | $runs | $(said gain) | $(said harm) | $(said no_difference) | $(said too_little) | $ratios|"
done
