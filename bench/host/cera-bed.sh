# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The bed of cera.sh, cera-events.sh and cera-trial.sh: four VMs of a host behind ports of a bridge, an uplink that is
# the bottleneck, another machine behind it. VMs and machines are network namespaces, on this machine or in a VM
# (in_vm). To be sourced, with `here`, `evenkeel`, `load` and `rate` set, and `large` where VMs hand over packets of
# several segments.
#
# A VM is two namespaces: its applications, and a hop behind them, where packets leave their sockets as a VM's packets
# do. Without the hop each socket would limit what it has in the host's queue (TSQ).

prefix=ekc
. "$here/namespaces.sh"

vms="1 2 3 4"
clients=
bulks=
keepers=
with_agent=
mode=
# The epoch that the agent finds by itself: 1 ms at 1 Gbit/s, and longer in proportion at lower rates.
epoch_us=$((1000000 / rate))

clean_bed() {
    # Killed agents leave their congestion control in the kernel.
    for vm in $with_agent; do (in_guest "$vm" --stop) > /dev/null 2>&1 || true; done
    for pid in $keepers $clients $bulks; do kill "$pid" 2> /dev/null || true; done
    clean
}
trap clean_bed EXIT

build() {
    modprobe -qa bridge veth sch_htb sch_codel sch_fq_codel sch_fq sch_prio cls_u32 cls_bpf tcp_dctcp tcp_bbr 2>/dev/null || true
    add_ns host
    add_ns peer
    add_mounts
    in_ns host ip link add br0 type bridge
    # Channels of guests' agents do not pass the uplink.
    in_ns host ip addr add 10.9.0.200/24 dev br0
    in_ns host ip link set br0 up
    ip link add eth0 netns ekc-host type veth peer name eth0 netns ekc-peer
    in_ns host ip link set eth0 master br0 up
    in_ns peer ip addr add 10.9.0.100/24 dev eth0
    in_ns peer ip link set eth0 up
    for vm in $vms; do
        add_ns "vm$vm"
        add_ns "app$vm"
        ip link add "vnet$vm" netns ekc-host type veth peer name eth0 netns "ekc-vm$vm"
        in_ns host ip link set "vnet$vm" master br0 up
        ip link add app netns "ekc-vm$vm" type veth peer name eth0 netns "ekc-app$vm"
        in_ns "vm$vm" sh -c "echo 1 > /proc/sys/net/ipv4/ip_forward"
        in_ns "vm$vm" ip addr add "10.9.0.$vm/24" dev eth0
        in_ns "vm$vm" ip addr add "10.8.$vm.1/24" dev app
        in_ns "vm$vm" ip link set app up
        in_ns "app$vm" ip addr add "10.8.$vm.2/24" dev eth0
        for hop in vm app; do
            # Single segments, so that there are as many packets as in the paper.
            [ -n "${large-}" ] || in_ns "$hop$vm" ip link set eth0 gso_max_segs 1
            in_ns "$hop$vm" ip link set eth0 up
        done
        in_ns "app$vm" ip route add default via "10.8.$vm.1"
        in_ns peer ip route add "10.8.$vm.0/24" via "10.9.0.$vm"
        in_ns host ip route add "10.8.$vm.0/24" via "10.9.0.$vm"
        # Windows so large that they do not limit.
        for ns in app vm; do in_ns "$ns$vm" sh -c 'echo 4096 65536 16777216 > /proc/sys/net/ipv4/tcp_wmem'; done
    done
    in_ns peer sh -c 'echo 4096 131072 16777216 > /proc/sys/net/ipv4/tcp_rmem'
    in_ns peer memcached -u root -l 10.9.0.100 -t 1 -d -P "$work/memcached.pid"
    sleep 0.5
    in_ns app1 "$load" 10.9.0.100:11211 0 0 0 > /dev/null
    for vm in $vms; do in_ns peer iperf3 --server --daemon --port "520$vm" > /dev/null; done
}

# How long the link takes for $1 full segments.
segments_us() { echo $(($1 * 1514 * 8 / rate)); }

# The uplink's queue, of whatever kind, at the leaf of an HTB.
shape() {
    in_ns host tc qdisc del dev eth0 root 2> /dev/null || true
    in_ns host tc qdisc add dev eth0 root handle 1: htb default 9
    in_ns host tc class add dev eth0 parent 1: classid 1:1 htb rate "${rate}mbit" burst 3k cburst 3k quantum 1514
    case $1 in
    htb | limit)
        for vm in $vms 9; do
            ceil=$rate
            [ "$1" = htb ] || ceil=$((rate / 4))
            in_ns host tc class add dev eth0 parent 1:1 classid "1:1$vm" htb rate "$((rate / 5))mbit" ceil "${ceil}mbit" burst 3k cburst 3k quantum 1514
            in_ns host tc qdisc add dev eth0 parent "1:1$vm" pfifo limit 1000
        done
        for vm in $vms; do
            in_ns host tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip src "10.8.$vm.0/24" flowid "1:1$vm"
        done
        in_ns host tc filter add dev eth0 parent 1: protocol all prio 2 u32 match u32 0 0 flowid 1:19
        return
        ;;
    codel) set -- codel limit 1000 ;;
    codel-scaled) set -- codel limit 1000 target "$((5000000 / rate))us" interval "$((100000000 / rate))us" ;;
    fq_codel) set -- fq_codel limit 1000 ;;
    fq) set -- fq limit 1000 ;;
    # Marks what has waited for longer than 65 packets take, and drops at the limit only.
    dctcp) set -- codel limit 1000 target 100s interval 1000s ecn ce_threshold "$(segments_us 65)us" ;;
    mlfq)
        in_ns host tc class add dev eth0 parent 1:1 classid 1:11 htb rate "${rate}mbit" burst 3k cburst 3k quantum 1514
        in_ns host tc qdisc add dev eth0 parent 1:11 handle 2: prio bands 3
        for band in 1 2 3; do in_ns host tc qdisc add dev eth0 parent "2:$band" pfifo limit 1000; done
        in_ns host tc filter add dev eth0 parent 2: protocol ip prio 1 bpf obj "$(dirname "$load")/demote.o" sec classifier
        in_ns host tc filter add dev eth0 parent 1: protocol all prio 2 u32 match u32 0 0 flowid 1:11
        return
        ;;
    *) set -- pfifo limit 1000 ;;
    esac
    in_ns host tc class add dev eth0 parent 1:1 classid 1:11 htb rate "${rate}mbit" burst 3k cburst 3k quantum 1514
    in_ns host tc qdisc add dev eth0 parent 1:11 "$@"
    in_ns host tc filter add dev eth0 parent 1: protocol all prio 2 u32 match u32 0 0 flowid 1:11
}

# /run and bpffs of their own for the VMs' agents, as for the host's.
make_guests() {
    for vm in $vms; do
        ip netns exec "ekc-app$vm" unshare --mount sh -c "mount -t tmpfs run /run && mount -t bpf bpf /sys/fs/bpf && echo \$\$ > '$work/keeper$vm' && exec sleep 100000" &
        keepers="$keepers $!"
        while [ ! -s "$work/keeper$vm" ]; do sleep 0.1; done
    done
    with_agent=$vms
}

# `evenkeel guest` in a VM, in place of this shell.
in_guest() {
    vm=$1
    shift
    exec nsenter --target "$(cat "$work/keeper$vm")" --mount --net "$evenkeel" guest "$@"
}

# MODE T_U WEIGHTS, and the VMs that have an agent. An agent that only observes is kept from the run before.
start_agents() {
    [ "$mode $1" != "observe observe" ] || [ -z "$agent" ] || return 0
    stop_agents
    mode=$1 high=$2 weights=$3 with_client=$4
    {
        printf 'ports = ["vnet*"]\nprobe_key_file = "%s/key"\n[metrics]\nenabled = false\n[proboscis]\nmode = "off"\n' "$work"
        printf '[cera]\nmode = "%s"\nuplinks = ["eth0"]\nhigh_segments = %s\n' "$mode" "$high"
        vm=0
        for weight in $weights; do
            vm=$((vm + 1))
            printf '[[port]]\nmatch = "vnet%s"\n' "$vm"
            case " $with_client " in *" $vm "*) printf 'channel = "tcp:10.8.%s.2:7777"\n' "$vm" ;; esac
            printf '[port.cera]\nweight = %s\n' "$weight"
        done
    } > "$work/host.toml"
    clients=
    [ -z "$with_client" ] || [ -n "$with_agent" ] || make_guests
    for vm in $with_client; do
        printf '[channel]\naddress = "tcp:10.8.%s.2:7777,from=10.9.0.200"\n[vflood]\nmode = "off"\n' "$vm" > "$work/guest$vm.toml"
        in_guest "$vm" --config "$work/guest$vm.toml" 2> "$work/guest$vm.log" &
        clients="$clients $!"
    done
    start_agent 4
    for _ in $(seq 300); do
        [ "$(ask | jq '[.ports[] | select(.cera.has_client)] | length')" != "$(echo $with_client | wc -w)" ] || return 0
        sleep 0.1
    done
    cat "$work/agent.log" "$work"/guest*.log >&2
    exit 1
}

stop_agents() {
    [ -z "$agent" ] || stop_agent
    for pid in $clients; do kill "$pid" 2> /dev/null || true; done
    for pid in $clients; do wait "$pid" 2> /dev/null || true; done
    clients=
}

# Sets the congestion control of the VMs' connections and of the other machine's.
control() {
    for vm in $vms; do
        in_ns "app$vm" ip route replace default via "10.8.$vm.1" congctl "$1"
        in_ns peer ip route replace "10.8.$vm.0/24" via "10.9.0.$vm" congctl "$1"
    done
}

# NAMESPACE VM FLOWS SECONDS OMIT: the first OMIT seconds are not counted.
bulk() {
    in_ns "$1" iperf3 --client 10.9.0.100 --port "520$2" --parallel "$3" --time "$4" --omit "$5" --json > "$work/iperf$2" 2>&1 &
    bulks="$bulks $!"
}

# Waits until every iperf3 has ended.
bulk_ended() {
    for pid in $bulks; do wait "$pid" || true; done
    bulks=
}

# Bytes that have left by the uplink, headers included.
left_bytes() { in_ns host tc -s -j qdisc show dev eth0 root | jq '.[0].bytes'; }

now_s() { cut -d ' ' -f 1 /proc/uptime; }
