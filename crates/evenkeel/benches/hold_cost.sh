# In a guest, after hold.sh and with the agent on: what holding costs. One flow of the VM's, held, not held, and past fq without vFlood,
# in turn; then how long after an ACK at the uplink the first segment that it lets out is there; then what each run of a program took.
modprobe sch_fq
agent=$(cat /tmp/agent.pid)

mode() {
    sed -i "/^\[vflood\]/{n;s/.*/mode = \"$1\"/}" /tmp/host.toml
    kill -HUP "$agent"
    sleep 0.7
}

run() {
    ip netns exec peer iperf3 -s -D -1 >/dev/null
    sleep 0.5
    ip netns exec vm iperf3 -c 10.8.0.2 -t 3 | awk -v name="$1" '/sender/ { print name ":", $7, $8 }'
}

tc -n peer qdisc del dev eth1 root
for round in 1 2 3; do
    for offload in on off; do
        ip netns exec vm ethtool -K eth1 tso $offload gso $offload
        mode enforce
        run "round $round, segmentation offload $offload, held"
        mode off
        run "round $round, segmentation offload $offload, vFlood off"
        tc qdisc add dev up0 root fq
        run "round $round, segmentation offload $offload, vFlood off, fq"
        tc qdisc del dev up0 root
    done
done

mode enforce
tc -n peer qdisc add dev eth1 root netem delay 20ms limit 10000
tcpdump -s 80 -ttni up0 -U -w /tmp/cap tcp 2>/dev/null &
tcpdump=$!
sleep 1
run "20 ms away, held"
kill $tcpdump
sleep 0.5
tcpdump -ttnr /tmp/cap 2>/dev/null |
    awk '/10.8.0.2.5201 >/ { ack = $1; was = 1; next } / > 10.8.0.2.5201/ && was && $NF > 0 { printf "%d\n", ($1 - ack) * 1e6; was = 0 }' |
    sort -n |
    awk '{ us[NR] = $1 } END { print "ACK to the segment it lets out, us:", NR, "samples, p10", us[int(NR / 10) + 1], "median", us[int(NR / 2) + 1], "p90", us[int(NR * 9 / 10) + 1] }'

echo 1 >/proc/sys/kernel/bpf_stats_enabled
tc -n peer qdisc del dev eth1 root
run "with statistics of the programs, held"
# Numbers grow in the order in which programs are in their objects: to_vm, from_vm, then what else runs; those of hold.bpf.c last.
for info in /proc/"$agent"/fdinfo/*; do
    awk '/prog_id/ { id = $2 } /run_time_ns/ { ns = $2 } /run_cnt/ { runs = $2 } END { if (runs) printf "program %d: %d runs, %.0f ns each\n", id, runs, ns / runs }' "$info" 2>/dev/null
done | sort -u
