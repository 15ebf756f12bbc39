#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What CERA does when something happens, on the bed of cera.sh with CUBIC on a FIFO and T_u 60. A line of JSON per event. As root; needs
# iperf3, memcached, jq, tcpdump.
#
#   cera-events.sh EVENKEEL MEMCACHED_LOAD RATE_MBIT EVENT:FLOWS ...
#
# Events: wake, wake-clients (VM 4 begins to send beside two busy ones: what is missing of its share, in epochs); uneven (VM 2 has one flow,
# VM 3 has FLOWS, VM 4 twice as many: who gets what). Failures, while three VMs send: kill (the host's agent, by SIGKILL), stop (by SIGSTOP),
# kill-clients (an agent in each VM; the host's by SIGKILL), guests-killed, guests-stopped (the VMs' agents), cut (their channels), garbage (in
# place of VM 2's agent something that floods the channel): the uplink and its queue before and after. FLOWS: in each VM.
set -eu

evenkeel=$(realpath "$1") load=$(realpath "$2") rate=$3
here=$(dirname "$(realpath "$0")")
shift 3
. "$here/cera-bed.sh"

prepare() {
    control cubic
    shape fifo
    case $1 in
    *-clients | guests-* | cut | garbage) start_agents enforce 60 "1 1 1 1" "1 2 3 4" ;;
    *) start_agents enforce 60 "1 1 1 1" "" ;;
    esac
}

run_wake() {
    event=$1 flows=$2
    prepare "$event"
    for vm in 2 3; do bulk "app$vm" "$vm" "$flows" 9 0; done
    sleep 4
    ip netns exec ekc-host tcpdump -i eth0 -tt -n -s 64 -B 16384 -w "$work/cap" 'src net 10.8.0.0/16 and greater 200' 2> /dev/null &
    watcher=$!
    sleep 0.5
    bulk app4 4 "$flows" 4 0
    sleep 3.5
    kill "$watcher"
    wait "$watcher" 2> /dev/null || true
    bulk_ended
    stop_agents
    in_ns host tcpdump -r "$work/cap" -tt -n 2> /dev/null | awk -v epoch="$epoch_us" -v event="$event" -v flows="$flows" '
        { split($3, a, "."); vm = a[3]; if (vm == 4 && !since) since = $1 }
        since { e = int(($1 - since) * 1000000 / epoch); all[e]++; own[e] += vm == 4; if (e > last) last = e }
        END {
            missing = 0; has = -1; worst = 0
            for (e = 0; e < 100; e++) { missing += 1 - 3 * (all[e] ? own[e] / all[e] : 0); if (missing > worst) worst = missing }
            for (e = 0; e + 10 <= last; e++) {
                x = y = 0
                for (i = e; i < e + 10; i++) { x += own[i]; y += all[i] }
                if (has < 0 && y && x / y >= 0.9 / 3) has = e
            }
            x = y = 0
            for (e = 50; e <= last; e++) { x += own[e]; y += all[e] }
            printf "{\"event\": \"%s\", \"flows\": %d, \"epoch_us\": %d, \"missing_epochs\": %.1f, \"most_missing_epochs\": %.1f, \"share_from_epoch\": %d, \"share_later\": %.3f, \"first_epochs\": [", event, flows, epoch, missing, worst, has, x / y
            for (e = 0; e < 20; e++) printf "%s%.2f", (e ? ", " : ""), all[e] ? own[e] / all[e] : 0
            printf "]}\n"
        }'
}

run_uneven() {
    prepare uneven
    bulk app2 2 1 9 3
    bulk app3 3 "$1" 9 3
    bulk app4 4 $(($1 * 2)) 9 3
    bulk_ended
    stop_agents
    for vm in 2 3 4; do jq '.end.sum_received.bits_per_second / 1e6 * 10 | round / 10' "$work/iperf$vm"; done |
        jq -s -c "{event: \"uneven\", flows: $1, mbit: .}"
}

# Samples the uplink's sent bytes and waiting packets ten times a second.
sample() {
    ip netns exec ekc-host sh -c 'while :; do
        echo "$(cut -d " " -f 1 /proc/uptime) $(cat /sys/class/net/eth0/statistics/tx_bytes) $(tc -s qdisc show dev eth0 root | sed -n "s/.*backlog [^ ]* \([0-9]*\)p.*/\1/p")"
        sleep 0.1
    done' > "$work/samples" &
    sampler=$!
}

# How many VMs have an agent that the host's agent knows, and how many the host itself limits.
who() { ask 2> /dev/null | jq -c '{clients: ([.ports[] | select(.cera.has_client)] | length), limited: ([.ports[1:][] | select(.cera.window_segments > 0)] | length)}' || echo '{}'; }

run_failure() {
    event=$1 flows=$2
    prepare "$event"
    for vm in 2 3 4; do bulk "app$vm" "$vm" "$flows" 12 0; done
    sleep 3
    sample
    sleep 2
    process=$(ask | jq .pid)
    at=$(now_s) flood=
    case $event in
    kill | kill-clients) kill -KILL "$process" ;;
    stop) kill -STOP "$process" ;;
    guests-killed) for pid in $clients; do kill -KILL "$pid"; done ;;
    guests-stopped) for pid in $clients; do kill -STOP "$pid"; done ;;
    cut) for vm in $vms; do in_ns host ip route del "10.8.$vm.0/24"; done ;;
    garbage)
        kill -KILL "$(echo $clients | cut -d ' ' -f 2)"
        ip netns exec ekc-app2 python3 -c '
import os, socket
server = socket.create_server(("10.8.2.2", 7777))
while True:
    host = server.accept()[0]
    try:
        while True: host.sendall(os.urandom(65536))
    except OSError: pass' &
        flood=$!
        ;;
    esac
    sleep 5
    case $event in kill* | stop) echo '{}' > "$work/who" ;; *) who > "$work/who" ;; esac
    kill "$sampler" $flood
    wait "$sampler" $flood 2> /dev/null || true
    case $event in
    stop) kill -CONT "$process" ;;
    guests-stopped) for pid in $clients; do kill -CONT "$pid"; done ;;
    cut) for vm in $vms; do in_ns host ip route add "10.8.$vm.0/24" via "10.9.0.$vm"; done ;;
    esac
    stop_agents
    bulk_ended
    awk -v at="$at" -v event="$event" -v flows="$flows" -v who="$(cat "$work/who")" '
        function mbit(from, to,   i, first, last) {
            first = last = 0
            for (i = 1; i <= n; i++) { if (t[i] >= from && !first) first = i; if (t[i] <= to) last = i }
            return last > first ? (b[last] - b[first]) * 8 / (t[last] - t[first]) / 1e6 : 0
        }
        function queue(from, to,   i, sum, k) {
            for (i = 1; i <= n; i++) if (t[i] >= from && t[i] < to) { sum += q[i]; k++ }
            return k ? sum / k : 0
        }
        { n++; t[n] = $1; b[n] = $2; q[n] = $3 }
        END {
            worst = 1e9
            for (i = 2; i <= n; i++) if (t[i] > at + 0.1 && t[i] <= at + 3) { x = (b[i] - b[i - 1]) * 8 / (t[i] - t[i - 1]) / 1e6; if (x < worst) worst = x }
            printf "{\"event\": \"%s\", \"flows\": %d, \"before_mbit\": %.1f, \"first_second_mbit\": %.1f, \"later_mbit\": %.1f, \"worst_tenth_mbit\": %.1f, \"queue_before\": %d, \"queue_1s\": %d, \"queue_4s\": %d, \"who\": %s}\n",
                event, flows, mbit(at - 1.5, at), mbit(at, at + 1), mbit(at + 1, at + 5), worst, queue(at - 1.5, at), queue(at + 0.8, at + 1.2), queue(at + 3.5, at + 4.5), who
        }' "$work/samples"
}

build
for one in "$@"; do
    case $one in
    wake*) run_wake "${one%%:*}" "${one##*:}" ;;
    uneven:*) run_uneven "${one##*:}" ;;
    *) run_failure "${one%%:*}" "${one##*:}" ;;
    esac
done
