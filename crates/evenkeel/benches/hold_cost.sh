# In a guest, after tests/host/hold.sh and with the agent on: what holding costs. Prints tables in Markdown, those of $parts.
modprobe sch_fq
agent=$(cat /tmp/agent.pid)

mode() {
    sed -i "/^\[vflood\]/{n;s/.*/mode = \"$1\"/}" /tmp/host.toml
    kill -HUP "$agent"
    sleep 0.7
}

bulk() {
    ip netns exec peer iperf3 -s -D -1 >/dev/null
    sleep 0.5
    ip netns exec vm iperf3 -c 10.8.0.2 -t 3 -f m | awk '/sender/ { print $7 }'
}

middle() { sort -n | awk '{ v[NR] = $1 } END { printf "%s (%s to %s)", v[int((NR + 1) / 2)], v[1], v[NR] }'; }

throughput() {
    echo "One flow of the VM's (Mbit/s, median of three runs, least and most), in turn:"
    echo
    echo "| segmentation offload in the VM | held | vFlood off | vFlood off, fq at the uplink | held / fq |"
    echo "|---|---|---|---|---|"
    tc -n peer qdisc del dev eth1 root 2>/dev/null || true
    for offload in on off; do
        ip netns exec vm ethtool -K eth1 tso $offload gso $offload
        for round in 1 2 3; do
            mode enforce
            bulk >>/tmp/held.$offload
            mode off
            bulk >>/tmp/off.$offload
            tc qdisc add dev up0 root fq
            bulk >>/tmp/fq.$offload
            tc qdisc del dev up0 root
        done
        share=$(paste /tmp/held.$offload /tmp/fq.$offload | awk '{ printf "%.3f\n", $1 / $2 }' | middle)
        echo "| $offload | $(middle </tmp/held.$offload) | $(middle </tmp/off.$offload) | $(middle </tmp/fq.$offload) | $share |"
    done
}

# From an ACK's arrival at the uplink: when it leaves for the VM, and when the next data comes (back) to the VM's port
# and to the uplink. Bridged packets are for other hosts, so what does not go out comes in.
stages() {
    rm -f /tmp/us.*
    tcpdump -i any -s 100 -B 16384 -tt -n -U -w /tmp/any tcp port 8001 2>/tmp/tcpdump.log &
    tcpdump=$!
    sleep 1
    "$2"
    sleep 2
    kill $tcpdump
    wait $tcpdump || true
    tcpdump -ttnr /tmp/any 2>/dev/null >/tmp/any.txt
    awk -v us=/tmp/us. '
        $2 == "up0" && $3 != "Out" { ack = $1; told = 0; back = 0 }
        $2 == "vp0" && $3 == "Out" && ack && !told { told = $1; printf "%d\n", (told - ack) * 1e6 >(us "told") }
        $2 == "vp0" && $3 != "Out" && $NF > 0 && told && !back { back = $1; printf "%d\n", (back - ack) * 1e6 >(us "back") }
        $2 == "up0" && $3 == "Out" && $NF > 0 && back { printf "%d\n", ($1 - ack) * 1e6 >(us "out"); ack = 0; told = 0; back = 0 }' /tmp/any.txt
    [ -e /tmp/us.out ] || { cat /tmp/tcpdump.log; head -50 /tmp/any.txt; exit 1; }
    printf '| %s, %s transfers |' "$1" "$2"
    for stage in told back out; do
        sort -n "/tmp/us.$stage" | awk '{ us[NR] = $1 } END { printf " %d, %d, %d |", us[int(NR / 10) + 1], us[int(NR / 2) + 1], us[int(NR * 9 / 10) + 1] }'
    done
    awk '{ within += $1 < 100 } END { printf " %d%% | %d |\n", 100 * within / NR, NR }' /tmp/us.out
}
small() {
    for transfer in $(seq 40); do
        ip netns exec peer wget -q -O /dev/null http://10.8.0.1:8001/small
    done
}
large() { ip netns exec peer wget -q -O /dev/null http://10.8.0.1:8001/data; }
release() {
    tc -n peer qdisc replace dev eth1 root netem delay 20ms limit 10000
    head -c 100000 /tmp/data >/tmp/small
    echo
    echo "From an ACK's arrival at the uplink (us: p10, median, p90; 20 ms away; 100 KB forty times, 2 MB once):"
    echo
    echo "| | the ACK leaves for the VM | the next segment is at the VM's port | and at the uplink | within 100 us | samples |"
    echo "|---|---|---|---|---|---|"
    mode enforce
    stages held small
    stages held large
    mode off
    stages "vFlood off" small
    stages "vFlood off" large
    mode enforce
}

# The time of each program, named by its tag in the kernel's list of symbols.
programs() {
    echo 1 >/proc/sys/kernel/bpf_stats_enabled
    tc -n peer qdisc del dev eth1 root 2>/dev/null || true
    bulk >/dev/null
    echo
    echo "Each run of a program, meanwhile:"
    echo
    echo "| program | runs | ns |"
    echo "|---|---|---|"
    for info in /proc/"$agent"/fdinfo/*; do
        awk '/prog_tag/ { tag = $2 } /run_time_ns/ { ns = $2 } /run_cnt/ { runs = $2 } END { if (runs) printf "%s %d %.0f\n", tag, runs, ns / runs }' "$info" 2>/dev/null
    done | sort -u | while read -r tag runs ns; do
        echo "| $(sed -n "s/.*bpf_prog_${tag}_\([a-z_]*\).*/\1/p" /proc/kallsyms | head -1) | $runs | $ns |"
    done
}

# How long a message of one segment takes from where it comes in until it leaves. Seconds since the epoch have too many
# digits for awk.
passing() {
    rm -f /tmp/ns.*
    tcpdump -i any -s 100 -B 16384 --nano -tt -n -U -w /tmp/any tcp port 8001 2>/tmp/tcpdump.log &
    tcpdump=$!
    sleep 1
    for transfer in $(seq 40); do
        ip netns exec peer wget -q -O /dev/null http://10.8.0.1:8001/tiny
    done
    sleep 2
    kill $tcpdump
    wait $tcpdump || true
    tcpdump --nano -ttnr /tmp/any 2>/dev/null >/tmp/any.txt
    awk -v ns=/tmp/ns. '
        { now = substr($1, 7); has_data = /length [1-9]/ || /HTTP/ }
        /Flags \[S\]/ && $2 == "up0" { asked = 0; told = 0; answered = 0; out = 0 }
        has_data && $2 == "up0" && $3 != "Out" && !asked { asked = now }
        has_data && $2 == "vp0" && $3 == "Out" && !told { told = now; printf "%d\n", (told - asked) * 1e9 >(ns "to") }
        has_data && $2 == "vp0" && $3 != "Out" && !answered { answered = now }
        has_data && $2 == "up0" && $3 == "Out" && !out { out = now; printf "%d\n", (out - answered) * 1e9 >(ns "from") }' /tmp/any.txt
    [ -e /tmp/ns.from ] || { cat /tmp/tcpdump.log; head -50 /tmp/any.txt; exit 1; }
    printf '| %s |' "$1"
    for way in to from; do
        sort -n "/tmp/ns.$way" | awk '{ ns[NR] = $1 } END { printf " %d, %d, %d |", ns[int(NR / 10) + 1], ns[int(NR / 2) + 1], ns[int(NR * 9 / 10) + 1] }'
    done
    echo " $(wc -l </tmp/ns.from) |"
}
messages() {
    tc -n peer qdisc replace dev eth1 root netem delay 20ms limit 10000
    head -c 500 /tmp/data >/tmp/tiny
    echo
    echo "A request of one segment to the VM, and the first segment of its answer, through the host (ns: p10, median, p90; forty times):"
    echo
    echo "| vFlood | the request | the answer | samples |"
    echo "|---|---|---|---|"
    for round in 1 2; do
        mode enforce
        passing acts
        mode off
        passing off
    done
    mode enforce
}

for part in $parts; do
    $part
done
