#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# CERA on this kernel: four VMs of a host (network namespaces behind veth ports of a bridge) share an uplink whose HTB with a FIFO of 1000
# packets is the bottleneck. One VM asks a memcached on another machine, 32 requests at a time, nine GETs to a SET; the three others send
# with iperf3. A line of JSON per run. As root; needs iperf3, memcached, jq.
#
#   cera.sh EVENKEEL MEMCACHED_LOAD RATE_MBIT SECONDS SCHEME:FLOWS ...
#
# Epochs are 1 ms at 1000 Mbit/s and as much longer as the rate is lower, so that as much is sent in one.
#
# Schemes: alone (memcached without the others), fifo, bbr (fifo, with BBR in the VMs), htb (a class for each VM), cera60, cera25 (T_u),
# weights (T_u 240; iperf3 in all four, weights 1, 2, 3, 4), kill (cera60, and the agent is killed by SIGKILL: how long until the window that
# VM 2 is offered is its receiver's own, and what the flows carry second by second). FLOWS: in each VM.
set -eu

evenkeel=$(realpath "$1") load=$(realpath "$2") rate=$3 seconds=$4
shift 4
vms="1 2 3 4"
warmup=3
work=$(mktemp -d)
agent=
mounts=

clean() {
    [ -z "$agent" ] || kill "$agent" 2>/dev/null || true
    [ -z "$mounts" ] || kill "$mounts" 2>/dev/null || true
    for name in host peer $(for vm in $vms; do echo "vm$vm app$vm"; done); do
        ip netns pids "ekc-$name" 2>/dev/null | xargs -r kill 2>/dev/null || true
        ip netns del "ekc-$name" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

in_ns() {
    ns=$1
    shift
    ip netns exec "ekc-$ns" "$@"
}

add_ns() {
    ip netns add "ekc-$1"
    in_ns "$1" ip link set lo up
}

# A VM is two namespaces: its applications, and a hop behind them, at which packets leave their sockets as a VM's packets do. Otherwise
# each socket would see to it that it has little in the host's queue (TSQ).
build() {
    add_ns host
    add_ns peer
    # /run and bpffs of its own, so that a host's agent is not disturbed. They outlive an agent that is killed, as a host's do.
    ip netns exec ekc-host unshare --mount sh -c "mount -t tmpfs run /run && mount -t bpf bpf /sys/fs/bpf && exec sleep infinity" &
    mounts=$!
    in_ns host ip link add br0 type bridge
    in_ns host ip link set br0 up
    ip link add eth0 netns ekc-host type veth peer name eth0 netns ekc-peer
    in_ns host ip link set eth0 master br0 up
    in_ns peer ip addr add 10.9.0.100/24 dev eth0
    in_ns peer ip link set eth0 up
    for vm in $vms; do
        add_ns "vm$vm"
        add_ns "app$vm"
        ip link add "vnet$vm" netns ekc-host type veth peer name eth0 netns "ekc-vm$vm"
        in_ns host ip link set "vnet$vm" master br0 up
        ip link add app netns "ekc-vm$vm" type veth peer name eth0 netns "ekc-app$vm"
        in_ns "vm$vm" sh -c "echo 1 > /proc/sys/net/ipv4/ip_forward"
        in_ns "vm$vm" ip addr add "10.9.0.$vm/24" dev eth0
        in_ns "vm$vm" ip addr add "10.8.$vm.1/24" dev app
        in_ns "vm$vm" ip link set eth0 up
        in_ns "vm$vm" ip link set app up
        in_ns "app$vm" ip addr add "10.8.$vm.2/24" dev eth0
        # As many packets as the paper's: single segments.
        in_ns "app$vm" ip link set eth0 gso_max_segs 1 up
        in_ns "app$vm" ip route add default via "10.8.$vm.1"
        in_ns peer ip route add "10.8.$vm.0/24" via "10.9.0.$vm"
        # Windows that do not limit by themselves.
        in_ns "app$vm" sysctl -q -w net.ipv4.tcp_wmem="4096 65536 16777216"
    done
    in_ns peer sysctl -q -w net.ipv4.tcp_rmem="4096 131072 16777216"
    in_ns peer memcached -u nobody -l 10.9.0.100 -t 1 -d -P "$work/memcached.pid"
    sleep 0.5
    in_ns app1 "$load" 10.9.0.100:11211 0 0 0 > /dev/null
    for vm in $vms; do in_ns peer iperf3 --server --daemon --port "520$vm" > /dev/null; done
}

shape() {
    in_ns host tc qdisc del dev eth0 root 2> /dev/null || true
    case $1 in
    htb)
        in_ns host tc qdisc add dev eth0 root handle 1: htb default 9
        in_ns host tc class add dev eth0 parent 1: classid 1:1 htb rate "${rate}mbit" burst 3k cburst 3k quantum 1514
        for vm in $vms 9; do
            in_ns host tc class add dev eth0 parent 1:1 classid "1:1$vm" htb rate "$((rate / 5))mbit" ceil "${rate}mbit" burst 3k cburst 3k quantum 1514
            in_ns host tc qdisc add dev eth0 parent "1:1$vm" pfifo limit 1000
        done
        for vm in $vms; do
            in_ns host tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip src "10.8.$vm.0/24" flowid "1:1$vm"
        done
        ;;
    *)
        in_ns host tc qdisc add dev eth0 root handle 1: htb default 1
        in_ns host tc class add dev eth0 parent 1: classid 1:1 htb rate "${rate}mbit" burst 3k cburst 3k quantum 1514
        in_ns host tc qdisc add dev eth0 parent 1:1 pfifo limit 1000
        ;;
    esac
}

start_agent() {
    mode=observe high=60 weights="1 1 1 1"
    case $1 in
    cera60 | kill) mode=enforce ;;
    cera25) mode=enforce high=25 ;;
    weights) mode=enforce high=240 weights="1 2 3 4" ;;
    esac
    {
        printf 'ports = ["vnet*"]\nprobe_key_file = "%s/key"\n[metrics]\nenabled = false\n[proboscis]\nmode = "off"\n' "$work"
        printf '[cera]\nmode = "%s"\nuplinks = ["eth0"]\nhigh_segments = %s\nepoch_us = %s\n' "$mode" "$high" "$((1000000 / rate))"
        vm=0
        for weight in $weights; do
            vm=$((vm + 1))
            printf '[[port]]\nmatch = "vnet%s"\n[port.cera]\nweight = %s\n' "$vm" "$weight"
        done
    } > "$work/host.toml"
    nsenter --target "$mounts" --mount --net "$evenkeel" host --config "$work/host.toml" 2> "$work/agent.log" &
    agent=$!
    for _ in $(seq 100); do
        ask 2> /dev/null > "$work/status" || true
        [ "$(jq '[.ports[].name] | length' "$work/status" 2> /dev/null)" != 4 ] || return 0
        sleep 0.1
    done
    cat "$work/agent.log" >&2
    exit 1
}

ask() { nsenter --target "$mounts" --mount --net "$evenkeel" status --json; }

stop_agent() {
    nsenter --target "$mounts" --mount --net "$evenkeel" host --stop > /dev/null
    wait "$agent" 2> /dev/null || true
    agent=
}

bulk() {
    vm=$1 flows=$2
    in_ns "app$vm" iperf3 --client 10.9.0.100 --port "520$vm" --parallel "$flows" --time "$((seconds + warmup + 2))" --omit "$warmup" \
        --json > "$work/iperf$vm" 2>&1 &
}

# What has left by the uplink, headers and all.
left_bytes() { in_ns host tc -s -j qdisc show dev eth0 root | jq '.[0].bytes'; }

run() {
    scheme=$1 flows=$2 control=cubic
    [ "$scheme" != bbr ] || control=bbr
    shape "$scheme"
    for vm in $vms; do in_ns "app$vm" ip route replace default via "10.8.$vm.1" congctl "$control"; done
    start_agent "$scheme"
    first=2
    [ "$scheme" != weights ] || first=1
    if [ "$scheme" != alone ]; then
        for vm in $vms; do [ "$vm" -lt "$first" ] || bulk "$vm" "$flows"; done
    fi
    sleep 0.5
    if [ "$scheme" = weights ]; then
        echo '{}' > "$work/load"
        sleep "$warmup"
        sent=$(left_bytes)
        ask > "$work/before"
        sleep "$seconds"
    else
        in_ns app1 "$load" 10.9.0.100:11211 32 "$warmup" "$seconds" > "$work/load" &
        asker=$!
        sleep "$warmup"
        sent=$(left_bytes)
        ask > "$work/before"
        wait "$asker"
    fi
    sent=$(($(left_bytes) - sent))
    ask > "$work/after"
    for vm in $vms; do
        if [ -e "$work/iperf$vm" ]; then
            while ip netns pids "ekc-app$vm" | grep -q .; do sleep 0.1; done
            jq "{vm: $vm, mbit: (.end.sum_received.bits_per_second / 1e6), retransmits: .end.sum_sent.retransmits}" "$work/iperf$vm"
            rm "$work/iperf$vm"
        fi
    done | jq -s . > "$work/bulk"
    stop_agent
    jq -c -n --arg scheme "$scheme" --argjson flows "$flows" --argjson rate "$rate" --argjson sent "$sent" \
        --argjson seconds "$seconds" --slurpfile load "$work/load" --slurpfile bulk "$work/bulk" \
        --slurpfile before "$work/before" --slurpfile after "$work/after" '
        ($after[0].cera.epochs - $before[0].cera.epochs) as $epochs |
        (($after[0].cera.queue_bytes_sum - $before[0].cera.queue_bytes_sum) / $epochs) as $queue |
        {scheme: $scheme, flows: $flows, rate_mbit: $rate} + $load[0] +
        {queue_segments: ($queue / 1514), queue_ms: ($queue * 8 / $rate / 1000), bulk_mbit: ([$bulk[0][].mbit] | add), uplink_mbit: ($sent * 8 / $seconds / 1e6), bulk: $bulk[0],
         cuts: ($after[0].cera.cuts - $before[0].cera.cuts), epochs: $epochs, missed: ($after[0].cera.epochs_missed - $before[0].cera.epochs_missed),
         window: $after[0].cera.window_segments, rtt_us: $after[0].cera.rtt_us,
         cpu_us_per_epoch: (($after[0].cera.cpu_us - $before[0].cera.cpu_us) / $epochs)}'
}

# The window that VM 2's flow number $1 is offered, in the order of windows.
widest() { in_ns app2 ss -tinH state established | grep -o 'snd_wnd:[0-9]*' | cut -d: -f2 | sort -n | sed -n "$1p"; }

run_kill() {
    flows=$1
    shape fifo
    for vm in $vms; do in_ns "app$vm" ip route replace default via "10.8.$vm.1" congctl cubic; done
    start_agent kill
    for vm in 2 3 4; do bulk "$vm" "$flows"; done
    sleep "$((warmup + 2))"
    limited=$(widest "$flows")
    kill -KILL "$agent"
    began=$(date +%s%N)
    while [ "$(widest "$flows")" -le "$((limited * 4))" ]; do sleep 0.01; done
    ms=$((($(date +%s%N) - began) / 1000000))
    free=$(widest "$flows")
    stop_agent
    while ip netns pids ekc-app2 | grep -q .; do sleep 0.1; done
    for vm in 2 3 4; do
        while ip netns pids "ekc-app$vm" | grep -q .; do sleep 0.1; done
    done
    seconds_mbit=$(jq -s -c '[[.[].intervals | map(.sum.bits_per_second / 1e6)] | transpose[] | add | round]' "$work/iperf2" "$work/iperf3" "$work/iperf4")
    rm -f "$work"/iperf?
    printf '{"scheme": "kill", "flows": %s, "rate_mbit": %s, "window_limited_bytes": %s, "window_free_bytes": %s, "free_after_ms": %s, "mbit_by_second": %s}\n' \
        "$flows" "$rate" "$limited" "$free" "$ms" "$seconds_mbit"
}

build
for one in "$@"; do
    case $one in
    kill:*) run_kill "${one##*:}" ;;
    *) run "${one%%:*}" "${one##*:}" ;;
    esac
done
