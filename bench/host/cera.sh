#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# CERA and other queues on a real kernel: four VMs of a host share an uplink that is the bottleneck (cera-bed.sh), with a queue of 1000
# packets. One VM asks a memcached on another machine, 32 requests at a time, nine GETs to a SET; the three others send with iperf3. A line
# of JSON per run. As root; needs iperf3, memcached, jq, tcpdump; for mlfq a demote.o (demote.bpf.c) beside MEMCACHED_LOAD.
#
#   cera.sh [--gso] EVENKEEL MEMCACHED_LOAD RATE_MBIT SECONDS SCHEME:FLOWS ...
#
# --gso: VMs hand over packets of up to 64 KB, as they do by default, and schemes' names end in -gso; without it, single
# segments.
#
# Schemes: alone (memcached without the others), fifo; bbr (fifo, with BBR in the VMs), tsq (fifo, and iperf3's sockets know of the host's
# queue), codel, codel-scaled (its times as much longer as the rate is lower), fq_codel, fq, dctcp (DCTCP in the VMs, marks from 65 packets
# on), mlfq (strict priority by bytes sent), limit (each VM has a quarter of the rate), htb (each has a fifth, and may borrow); cera60, cera25
# (T_u), cera60-clients and cera25-clients (an agent in each VM), cera60-mixed (in two); weights, weights-clients (T_u 240; iperf3 in all four,
# weights 1, 2, 3, 4). FLOWS: of all VMs; with weights, in each.
set -eu

large=
if [ "$1" = --gso ]; then
    large=1
    shift
fi
evenkeel=$(realpath "$1") load=$(realpath "$2") rate=$3 seconds=$4
here=$(dirname "$(realpath "$0")")
shift 4
# A slow link takes longer to settle.
warmup=$((3 + 30 / rate))
. "$here/cera-bed.sh"

# How long one packet of eight is on its way through the host, from the VM's port to behind the uplink's queue, in us. A
# packet of several segments counts as that many, of 1448 bytes each.
watch() {
    ip netns exec ekc-host tcpdump -i any -tt -n -s 64 -B 8192 -w "$work/cap" 'ip dst 10.9.0.100 and ip[5] & 7 = 0' 2> /dev/null &
    watcher=$!
}

waits() {
    kill "$watcher"
    wait "$watcher" 2> /dev/null || true
    in_ns host tcpdump -r "$work/cap" -tt -n -v -S 2> /dev/null | awk '
        / id [0-9]+, / { at = $1; way = $3; match($0, /id [0-9]+/); id = substr($0, RSTART, RLENGTH); dev = $2; bytes = $NF - 52; next }
        / > 10\.9\.0\.100\./ {
            key = $1 " " $3 " " id
            if (dev ~ /^vnet/ && way != "Out") came[key] = at
            else if (dev == "eth0" && way == "Out" && key in came) {
                for (left = bytes; left == bytes || left > 0; left -= 1448)
                    printf "%s %d\n", ($3 ~ /\.11211:$/ ? "latency" : "bulk"), (at - came[key]) * 1000000
                delete came[key]
            }
        }' > "$work/waits"
    for kind in all bulk latency; do
        { [ "$kind" = all ] && cat "$work/waits" || grep "^$kind" "$work/waits" || true; } | cut -d ' ' -f 2 | sort -n | awk -v kind="$kind" '
            { us[NR] = $1; sum += $1 }
            function at(q) { return us[int((NR - 1) * q) + 1] }
            END { if (NR) printf "{\"%s\": {\"packets\": %d, \"mean_us\": %d, \"p10_us\": %d, \"p50_us\": %d, \"p90_us\": %d, \"p99_us\": %d}}\n",
                kind, NR, sum / NR, at(.1), at(.5), at(.9), at(.99) }'
    done | jq -s -c add
}

run() {
    scheme=$1 flows=$2
    case $scheme in bbr | dctcp) control "$scheme" ;; *) control cubic ;; esac
    shape "$scheme"
    case $scheme in
    cera60) start_agents enforce 60 "1 1 1 1" "" ;;
    cera25) start_agents enforce 25 "1 1 1 1" "" ;;
    cera60-clients) start_agents enforce 60 "1 1 1 1" "1 2 3 4" ;;
    cera25-clients) start_agents enforce 25 "1 1 1 1" "1 2 3 4" ;;
    cera60-mixed) start_agents enforce 60 "1 1 1 1" "1 2" ;;
    weights) start_agents enforce 240 "1 2 3 4" "" ;;
    weights-clients) start_agents enforce 240 "1 2 3 4" "1 2 3 4" ;;
    *) start_agents observe 60 "1 1 1 1" "" ;;
    esac
    ns=app
    [ "$scheme" != tsq ] || ns=vm
    echo '{}' > "$work/load"
    # The load's connections are made before the queue is full.
    case $scheme in
    weights*) sleep $((1 + warmup + seconds)) & ;;
    *) in_ns app1 "$load" 10.9.0.100:11211 32 $((1 + warmup)) "$seconds" > "$work/load" & ;;
    esac
    asker=$!
    sleep 1
    case $scheme in
    weights*) for vm in $vms; do bulk "$ns$vm" "$vm" "$flows" $((seconds + warmup + 1)) $warmup; done ;;
    *)
        for vm in 2 3 4; do
            in_vm=$(((flows + 4 - vm) / 3))
            [ "$in_vm" = 0 ] || bulk "$ns$vm" "$vm" "$in_vm" $((seconds + warmup + 1)) $warmup
        done
        ;;
    esac
    sleep "$warmup"
    watch
    sent=$(left_bytes) began=$(now_s)
    ask > "$work/before"
    wait "$asker"
    sent=$(($(left_bytes) - sent)) ended=$(now_s)
    ask > "$work/after"
    waits > "$work/delay"
    bulk_ended
    for vm in $vms; do
        if [ -e "$work/iperf$vm" ]; then
            jq "{vm: $vm, mbit: (.end.sum_received.bits_per_second / 1e6), retransmits: .end.sum_sent.retransmits}" "$work/iperf$vm"
            rm "$work/iperf$vm"
        fi
    done | jq -s . > "$work/bulk"
    jq -c -n --arg scheme "$scheme${large:+-gso}" --argjson flows "$flows" --argjson rate "$rate" --argjson sent "$sent" \
        --argjson began "$began" --argjson ended "$ended" --slurpfile load "$work/load" --slurpfile bulk "$work/bulk" \
        --slurpfile before "$work/before" --slurpfile after "$work/after" --slurpfile delay "$work/delay" '
        ($after[0].cera.epochs - $before[0].cera.epochs) as $epochs |
        (($after[0].cera.queue_bytes_sum - $before[0].cera.queue_bytes_sum) / $epochs) as $queue |
        {scheme: $scheme, flows: $flows, rate_mbit: $rate} + $load[0] +
        {queue_segments: ($queue / 1514), delay: $delay[0], bulk_mbit: ([$bulk[0][].mbit] | add),
         uplink_mbit: ($sent * 8 / ($ended - $began) / 1e6), bulk: $bulk[0],
         cuts: ($after[0].cera.cuts - $before[0].cera.cuts), epochs: $epochs, missed: ($after[0].cera.epochs_missed - $before[0].cera.epochs_missed),
         window: $after[0].cera.window_segments, rtt_us: $after[0].cera.rtt_us,
         vms: [$after[0].ports[].cera | {window: .window_segments, flows, pause_us}],
         cpu_us_per_epoch: (($after[0].cera.cpu_us - $before[0].cera.cpu_us) / $epochs)}'
}

build
for one in "$@"; do run "${one%%:*}" "${one##*:}"; done
stop_agents
