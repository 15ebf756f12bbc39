# In a guest: a "VM" (namespace vm) behind port vp0 of a bridge, the other end in namespace peer, 20 ms away. The VM serves /tmp.
modprobe -a bridge veth 8021q sch_netem tun
ip link add br0 type bridge
ip link set br0 up
ip netns add vm
ip netns add peer
ip link add vp0 type veth peer name eth1 netns vm
ip link add up0 type veth peer name eth1 netns peer
ip link set vp0 master br0 up
# A VM's queue hands a flow over in order; a veth that two processors send by does not.
echo 1 >/sys/class/net/vp0/queues/rx-0/rps_cpus
ip link set up0 master br0 up
ip -n vm addr add 10.8.0.1/24 dev eth1
ip -n peer addr add 10.8.0.2/24 dev eth1
ip -n vm link set eth1 up
ip -n peer link set eth1 up
tc -n peer qdisc add dev eth1 root netem delay 20ms limit 10000
for side in "vm 1" "peer 2"; do
    set -- $side
    ip -n $1 addr add fd00:8::$2/64 dev eth1 nodad
    ip -n $1 link add link eth1 name eth1.7 type vlan id 7
    ip -n $1 addr add 10.7.0.$2/24 dev eth1.7
    ip -n $1 link set eth1.7 up
done
# It floods: 300 segments at once, and room for them in its socket.
cat >/tmp/flood.sh <<'END'
ip -n vm route change 10.8.0.0/24 dev eth1 initcwnd 300
ip -n vm route change 10.7.0.0/24 dev eth1.7 initcwnd 300
ip -n vm -6 route change fd00:8::/64 dev eth1 proto kernel metric 256 initcwnd 300
END
sh -e /tmp/flood.sh
ip netns exec vm sh -c 'echo 4096 4000000 6000000 >/proc/sys/net/ipv4/tcp_wmem'
head -c 2000000 /dev/urandom >/tmp/data
head -c 200000 /tmp/data >/tmp/small
ip netns exec vm httpd -p 8001 -h /tmp
