#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What `evenkeel trial` says of beds whose answer is known, several times each:
#
#   helps    vSnoop, data at 100 Mbit/s for a VM behind a tap that is off its core for most of the time
#   nothing  the same VM and traffic, but nobody vouches for the VM's TCP, so that vSnoop acknowledges nothing
#   harms    ProBoSCIS with a first window of one segment (icwnd_segments = 1), between two VMs 10 ms apart
#   floods   vFlood, data at 100 Mbit/s from such a VM with a guest agent; where the kernel has qdiscs in BPF (trial-in-vm.sh)
#
# Prints a table in Markdown: how often each verdict came, and the ratios. As root; needs jq, and cc unless soak_vm and delay_vm are beside
# this script.
#
#   trial.sh EVENKEEL TRIAL_LOAD [RUNS] [SECONDS] [BED...]
set -eu

evenkeel=$(realpath "$1") trial_load=$(realpath "$2")
runs=${3-10}
seconds=${4-24}
[ $# -lt 4 ] && shift $# || shift 4
beds=${*:-helps nothing harms}
here=$(dirname "$(realpath "$0")")
prefix=ektr
. "$here/namespaces.sh"
. "$here/trial-table.sh"

for program in soak_vm delay_vm; do
    if [ -x "$here/$program" ]; then
        cp "$here/$program" "$work"
    else
        cc -O2 -Wall -Wextra -pthread -o "$work/$program" "$here/$program.c"
    fi
done

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
    # With a smaller window nobody could know that there is memory for it.
    in_ns "$1" sh -c 'echo 4096 4194304 8388608 > /proc/sys/net/ipv4/tcp_rmem'
}

VSNOOP='[proboscis]
mode = "off"
[vsnoop]
mode = "observe"'
ICWND_1='[proboscis]
icwnd_segments = 1'
# This bed's guest always has its core, whatever its tap does, so its agent would let vFlood rest.
VFLOOD='[proboscis]
mode = "off"
[vflood]
mode = "observe"
off_core_percent = 0
[[port]]
match = "vpa"
channel = "tcp:10.10.0.1:7777"'

# `evenkeel guest` in namespace a, with /run and a bpf file system of its own as in a VM, and a channel that does not
# pass its tap.
start_guest() {
    ip link add channel netns "$prefix-host" type veth peer name eth1 netns "$prefix-a"
    in_ns host ip addr add 10.10.0.200/24 dev channel
    in_ns host ip link set channel up
    in_ns a ip addr add 10.10.0.1/24 dev eth1
    in_ns a ip link set eth1 up
    printf '[channel]\naddress = "tcp:10.10.0.1:7777,from=10.10.0.200"\n[vflood]\ndefault = true\n' > "$work/guest.toml"
    ip netns exec "$prefix-a" unshare --mount sh -c "mount -t tmpfs run /run && mount -t bpf bpf /sys/fs/bpf &&
        exec '$evenkeel' guest --config '$work/guest.toml'" 2> "$work/guest.log" &
    guest=$!
}

# Its congestion control would stay in the kernel, and so in the next bed.
stop_guest() {
    nsenter --target "$guest" --mount --net "$evenkeel" guest --stop > /dev/null
    wait "$guest" 2> /dev/null || true
}

run_bed() {
    begin_bed
    guest= way=send clients=6 slot=1s
    if [ "$1" = harms ]; then
        add_veth a vpa 10.9.0.1
        add_tap b vpb 10.9.0.2 delay_vm 5
        mechanism=proboscis tried="vpa vpb" sizes=4000,14000
        configure "$ICWND_1"
        start_agent 2
    elif [ "$1" = floods ]; then
        add_tap a vpa 10.9.0.1 soak_vm "$run" 3 30 vcpu
        add_veth b other 10.9.0.2
        # Its guest floods from a second or so after the mode has changed.
        mechanism=vflood tried=vpa sizes=60000,300000 way=fetch clients=8 slot=5s
        start_guest
        configure "$VFLOOD"
        start_agent 1
    else
        add_tap a vpa 10.9.0.1 soak_vm "$run" 3 30 vcpu
        add_veth b other 10.9.0.2
        mechanism=vsnoop tried=vpa sizes=60000,300000
        # Without early ACKs the sizes above would take several slots.
        [ "$1" = helps ] || sizes=4000,30000
        configure "$VSNOOP
endpoint = \"$([ "$1" = nothing ] && echo attested || echo observed)\""
        start_agent 1
    fi
    in_ns b tc qdisc add dev eth0 root handle 1: htb default 1
    in_ns b tc class add dev eth0 parent 1: classid 1:1 htb rate 100mbit quantum 1514
    in_ns a "$trial_load" serve 10.9.0.1:8000 &
    server=$!
    sleep 0.5
    in_ns b "$trial_load" $way 10.9.0.1:8000 $((seconds + 1)) $clients $sizes > "$work/sent" &
    load=$!
    # shellcheck disable=SC2086
    at_host "$evenkeel" trial $tried --mechanism $mechanism --for "${seconds}s" --slot $slot --json --seed "$run" \
        --report "$work/trial.html" > "$work/$1-$run.json"
    wait "$load"
    kill "$server"
    kill "$pump"
    stop_agent
    [ -z "$guest" ] || stop_guest
    kill "$mounts"
    mounts=
    remove_namespaces
    show_trial "$1" "$run"
}

for run in $(seq "$runs"); do
    for bed in $beds; do run_bed "$bed"; done
done
print_table
