# In a guest: a "VM" (namespace vm) behind port vp0 of a bridge, the other end in namespace peer, 20 ms away. The VM serves /tmp.
modprobe -a bridge veth sch_netem
ip link add br0 type bridge
ip link set br0 up
for name in vm peer; do
    unshare --net sleep 100000 &
    echo $! >/tmp/$name.pid
done
sleep 1
enter() { name=$1; shift; nsenter --net=/proc/$(cat /tmp/$name.pid)/ns/net "$@"; }
ip link add vp0 type veth peer name eth1 netns $(cat /tmp/vm.pid)
ip link add up0 type veth peer name eth1 netns $(cat /tmp/peer.pid)
ip link set vp0 master br0 up
ip link set up0 master br0 up
enter vm ip addr add 10.8.0.1/24 dev eth1
enter peer ip addr add 10.8.0.2/24 dev eth1
enter vm ip link set eth1 up
enter peer ip link set eth1 up
enter peer tc qdisc add dev eth1 root netem delay 20ms limit 10000
# It floods: 300 segments at once, and room for them in its socket.
enter vm ip route change 10.8.0.0/24 dev eth1 initcwnd 300
enter vm sh -c 'echo 4096 4000000 6000000 >/proc/sys/net/ipv4/tcp_wmem'
head -c 2000000 /dev/urandom >/tmp/data
enter vm httpd -p 8001 -h /tmp
