#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What `evenkeel trial --mechanism cera` says of four VMs in cases whose answer is known, several times each: on the bed
# of cera.sh, with a queue of 1000 packets at the uplink.
#
#   helps    one VM asks a memcached on another machine, 32 requests at a time; iperf3 sends 24 flows from the three others
#   nothing  the same requests, and nobody sends
#
# Prints a table in Markdown, as trial.sh. As root; needs iperf3, memcached, jq.
#
#   cera-trial.sh EVENKEEL MEMCACHED_LOAD RATE_MBIT [RUNS] [SECONDS]
set -eu

evenkeel=$(realpath "$1") load=$(realpath "$2") rate=$3 runs=${4-10} seconds=${5-24}
beds="helps nothing"
here=$(dirname "$(realpath "$0")")
. "$here/cera-bed.sh"
. "$here/trial-table.sh"

run_bed() {
    start_agents observe 60 "1 1 1 1" ""
    in_ns app1 "$load" 10.9.0.100:11211 32 0 $((seconds + 6)) > "$work/asked" &
    asker=$!
    sleep 1
    if [ "$1" = helps ]; then
        for vm in 2 3 4; do bulk "app$vm" "$vm" 8 $((seconds + 5)) 0; done
        sleep 3
    fi
    at_host "$evenkeel" trial vnet1 vnet2 vnet3 vnet4 --mechanism cera --for "${seconds}s" --json --seed "$run" \
        --report "$work/trial.html" > "$work/$1-$run.json"
    wait "$asker"
    bulk_ended
    show_trial "$1" "$run"
}

build
control cubic
shape fifo
for run in $(seq "$runs"); do
    for bed in $beds; do run_bed "$bed"; done
done
print_table
