# In a guest, after tests/host/hold.sh and with the agent on: what flows of low and of high RTT get under each policy
# (vFlood Fig. 12b). The VM is off its core by turns: what the host has for it waits for the next slot, and slots are
# 100 ms apart. Twenty flows fetch blocks again and again, some from near, the others from 200 ms away. Prints the
# median throughput of a block for each kind.
modprobe sch_netem
BLOCK_BYTES=250000
SECONDS_EACH=12
head -c $BLOCK_BYTES /tmp/data >/tmp/block
agent=$(cat /tmp/agent.pid)
ip netns add far
ip link add up1 type veth peer name eth1 netns far
ip link set up1 master br0 up
ip -n far addr add 10.8.0.3/24 dev eth1
ip -n far link set eth1 up
tc -n far qdisc add dev eth1 root netem delay 200ms limit 10000
tc -n peer qdisc del dev eth1 root
# With this qdisc packets leave their sockets' accounts at the device, as a VM's do.
tc -n vm qdisc add dev eth1 root netem delay 10us limit 10000
tc qdisc add dev vp0 root netem slot 100ms 100ms limit 100000

blocks() {
    while [ -e /tmp/goes-on ]; do
        read -r from _ </proc/uptime
        ip netns exec "$1" wget -q -T 50 -O /dev/null http://10.8.0.1:8001/block || continue
        read -r to _ </proc/uptime
        echo "$from $to" >>"/tmp/took.$1"
    done
}

median() {
    awk -v bytes=$BLOCK_BYTES '{ s = $2 - $1; print bytes * 8 / 1e6 / (s > 0.01 ? s : 0.01) }' "/tmp/took.$1" | sort -n |
        awk '{ v[NR] = $1 } END { printf "%d blocks, %.1f Mbit/s", NR, v[int((NR + 1) / 2)] }'
}

for round in 1 2; do
    for low in 6 14; do
        for policy in none fair priority; do
            printf 'ports = ["vp*"]\nport_queue_segments = 0\n[proboscis]\nmode = "off"\n[vflood]\nmode = "enforce"\npolicy = "%s"\nlow_rtt_us = 50000\nbuffer_segments = 1024\n[metrics]\nenabled = false\n' \
                $policy >/tmp/host.toml
            kill -HUP "$agent"
            sleep 1
            rm -f /tmp/took.*
            touch /tmp/goes-on /tmp/took.peer /tmp/took.far
            for i in $(seq 20); do
                if [ "$i" -le $low ]; then blocks peer & else blocks far & fi
            done
            sleep $SECONDS_EACH
            rm /tmp/goes-on
            wait
            echo "round $round, $low low-RTT flows of 20, policy $policy: low RTT $(median peer); high RTT $(median far)"
        done
    done
done
