# In the guest of hold.sh: a VM that floods (namespace both) behind the tap vp1, with a short queue. It has /tmp/tap_vm running.
# $SEND_BYTES: its tap's send buffer, without a limit if it is not set.
ip netns add both
setsid /tmp/tap_vm vp1 both $SEND_BYTES >/dev/null 2>&1 </dev/null & echo $! >/tmp/tap_vm.pid
for i in $(seq 100); do ip -n both link show eth0 >/dev/null 2>&1 && break; sleep 0.1; done
ip link set vp1 txqueuelen 300 master br0 up
ip -n both link set eth0 txqueuelen 10000 up
ip -n both addr add 10.8.0.3/24 dev eth0
ip -n both route change 10.8.0.0/24 dev eth0 initcwnd 300
# It sends for longer than the VM does, whose host lets out what it holds: 60 segments in each round trip.
ip -n peer route change 10.8.0.0/24 dev eth1 cwnd lock 60
# Nobody waits for room in a socket: nc does not read then.
for side in both peer; do
    for of in rmem wmem; do
        ip netns exec $side sh -c "echo 4096 4000000 6000000 >/proc/sys/net/ipv4/tcp_$of"
    done
done
head -c 1600000 /tmp/data >/tmp/part
# Neither end asks for addresses while the VM stands still.
ip -n peer neigh replace 10.8.0.3 lladdr $(ip netns exec both cat /sys/class/net/eth0/address) dev eth1 nud permanent
ip -n both neigh replace 10.8.0.2 lladdr $(ip netns exec peer cat /sys/class/net/eth1/address) dev eth0 nud permanent
tc -n peer qdisc change dev eth1 root netem delay 800ms limit 10000
ip netns exec both httpd -p 8001 -h /tmp
