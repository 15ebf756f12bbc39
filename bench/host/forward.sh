#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# How long this machine takes as a host, without evenkeel, for an ACK and the data that it lets out of a VM.
# crates/evenkeel/benches/hold_cost.sh measures the same in an emulated guest with vFlood off; the ratio of the two tells
# how slow that guest is. As root; needs busybox, tcpdump.
#
#   forward.sh
set -eu

evenkeel=
prefix=ekf
. "$(dirname "$0")/namespaces.sh"

for name in host vm peer; do add_ns "$name"; done
in_ns host ip link add br0 type bridge
in_ns host ip link set br0 up
for port in vp0:vm:1 up0:peer:2; do
    IFS=: read -r device name number << END
$port
END
    ip link add "$device" netns ekf-host type veth peer name eth1 netns "ekf-$name"
    in_ns host ip link set "$device" master br0 up
    in_ns "$name" ip addr add "10.8.0.$number/24" dev eth1
    in_ns "$name" ip link set eth1 up
done
mkdir "$work/web"
head -c 100000 /dev/urandom > "$work/web/small"
in_ns vm busybox httpd -p 8001 -h "$work/web"
in_ns host tcpdump -i any -s 100 -B 16384 -tt -n -U -w "$work/any" tcp port 8001 2> /dev/null &
tcpdump=$!
sleep 1
for _ in $(seq 400); do in_ns peer busybox wget -q -O /dev/null http://10.8.0.1:8001/small; done
sleep 0.5
kill $tcpdump
wait $tcpdump 2> /dev/null || true
# tcpdump notes devices by number, and looks up their names when it reads: hence in the host's namespace.
in_ns host tcpdump -ttnr "$work/any" 2> /dev/null | awk -v us="$work/us." '
    $2 == "up0" && $3 != "Out" { ack = $1; told = 0; back = 0 }
    $2 == "vp0" && $3 == "Out" && ack && !told { told = $1; printf "%.1f\n", (told - ack) * 1e6 > (us "told") }
    $2 == "vp0" && $3 != "Out" && $NF > 0 && told && !back { back = $1; printf "%.1f\n", (back - ack) * 1e6 > (us "back") }
    $2 == "up0" && $3 == "Out" && $NF > 0 && back { printf "%.1f\n", ($1 - ack) * 1e6 > (us "out"); ack = 0; told = 0; back = 0 }'
echo "From an ACK's arrival at the uplink (us: p10, median, p90), on this machine, without evenkeel:"
echo
echo "| the ACK leaves for the VM | the next segment is at the VM's port | and at the uplink | samples |"
echo "|---|---|---|---|"
for stage in told back out; do
    sort -n "$work/us.$stage" | awk '{ us[NR] = $1 } END { printf "| %g, %g, %g ", us[int(NR / 10) + 1], us[int(NR / 2) + 1], us[int(NR * 9 / 10) + 1] }'
done
echo "| $(wc -l < "$work/us.out") |"
