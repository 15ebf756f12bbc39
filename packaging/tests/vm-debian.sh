# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh
# Part of in-vm.sh: the package evenkeel, by apt.

status() { evenkeel status --json | jq -e "$1"; }
agent_pid() { systemctl show --value -p MainPID "evenkeel-$1"; }
# The programs on the port by what a new agent keeps: tcx's links by their numbers, filters at clsact by their places.
programs() {
    {
        bpftool -j link show | jq '.[] | select(.type == "tcx") | .id'
        for side in ingress egress; do
            tc -j filter show dev vnet7 "$side" 2> /dev/null |
                jq --arg side "$side" '.[] | select(.pref == 25963 and .options.handle) | $side'
        done
    } | jq -sc sort
}
queue() { ip -j link show vnet7 | jq '.[0].txqlen'; }

# A VM's port: a veth into a namespace, on a bridge whose other side is this machine.
make_port() {
    ip netns add vm
    ip link add vnet7 txqueuelen 500 type veth peer name eth0 netns vm
    ip link add br0 type bridge
    ip link set vnet7 master br0 up
    ip addr add 10.9.0.1/24 dev br0
    ip link set br0 up
    ip -n vm addr add 10.9.0.2/24 dev eth0
    ip -n vm link set eth0 up
}

# Starts a unit; prints what it says if it does not start.
starts() {
    systemctl --quiet enable --now "$1" && return
    journalctl --no-pager --output cat --lines 30 --unit "$1"
    return 1
}

# One connection through the port, for $1 seconds. Waits until the agent knows it.
traffic() {
    iperf3 -s -1 -D --pidfile /run/seen/iperf3.pid
    ip netns exec vm iperf3 -c 10.9.0.1 -b 4M -l 8K -t "$1" -J > /run/seen/iperf3.json 2>&1 &
    traffic=$!
    tries=0
    until big_flows | jq -e 'length > 0' > /run/seen/flows; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || return 1
        sleep 0.2
    done
}
big_flows() { evenkeel flows --json | jq '[.flows[] | select(.bytes_from_vm > 100000)]'; }
# Whether each earlier connection is known with more bytes: an agent knows none that is older than its table.
flows_went_on() {
    big_flows | jq -e --slurpfile before /run/seen/flows-before \
        '. as $now | $before[0] | all(. as $old | $now | any(.tuple == $old.tuple and .bytes_from_vm > $old.bytes_from_vm))'
}

# How many programs are on the port, again and again, while a step is done.
watch_links() {
    : > /run/seen/watched
    while :; do
        programs | jq length >> /run/seen/watched
        sleep 0.1
    done &
    watcher=$!
}
always_two() {
    kill "$watcher"
    looks=$(grep -c . /run/seen/watched)
    [ "$looks" -ge 5 ] || { echo "only $looks looks"; return 1; }
    is "$(sort -u /run/seen/watched)" 2
}

nothing_began() {
    is "$(systemctl is-enabled evenkeel-host)" disabled && is "$(systemctl is-enabled evenkeel-guest)" disabled &&
        is "$(systemctl is-active evenkeel-host)" inactive && is "$(systemctl is-active evenkeel-guest)" inactive &&
        is "$(find /sys/fs/bpf -name '*evenkeel*')" ""
}
files_are_there() {
    for file in /etc/evenkeel/host.toml /etc/evenkeel/guest.toml /usr/share/man/man1/evenkeel-host.1.gz \
        /usr/share/man/man1/evenkeel-guest-pvtcp-load.1.gz /usr/share/bash-completion/completions/evenkeel \
        /usr/share/zsh/vendor-completions/_evenkeel /usr/share/fish/vendor_completions.d/evenkeel.fish \
        /usr/share/doc/evenkeel/copyright; do
        [ -s "$file" ] || { echo "no $file"; return 1; }
    done
    [ -d /run/evenkeel/vms ] || { echo "no /run/evenkeel/vms"; return 1; }
    zcat /usr/share/man/man1/evenkeel-host.1.gz | grep -q 'check..pins'
}

# The agent attaches by tcx or, with Debian 12's kernel, by clsact, and says which mechanisms cannot work there.
says_what_the_kernel_has() {
    case $(uname -r) in
    6.1.*) status '.attach == "clsact" and ([.lacking[].part] == ["vsnoop", "host_vflood"])' ;;
    *) status '.attach == "tcx"' ;;
    esac
}

host_runs() {
    status '.ports[] | select(.name == "vnet7" and .error == null)' && is "$(programs | jq length)" 2 &&
        is "$(queue)" 1000 && [ -e /sys/fs/bpf/evenkeel/host ]
}

# Another process, of the new file, with the programs and the connection that were there.
was_taken_over() {
    is "$(systemctl is-active evenkeel-host)" active && is "$(programs)" "$links" || return 1
    [ "$(agent_pid host)" != "$pid" ] || { echo "the agent was not restarted"; return 1; }
    is "$(readlink "/proc/$(agent_pid host)/exe")" /usr/bin/evenkeel || return 1
    status .took_over && flows_went_on
}
traffic_was_whole() {
    wait "$traffic"
    jq -e '.error == null and .end.sum_received.bytes > 0 and .end.sum_received.bytes == .end.sum_sent.bytes' \
        /run/seen/iperf3.json || { jq -c '[.error, .end.sum_sent, .end.sum_received]' /run/seen/iperf3.json; return 1; }
}

# As if the layout of the pins had changed: the version in the map is another.
change_layout() {
    kill -STOP "$(agent_pid host)"
    # shellcheck disable=SC2046 # bytes
    set -- $(bpftool -j map lookup pinned /sys/fs/bpf/evenkeel/host key hex 00 00 00 00 | jq -r '.value[]' | sed 's/^0x//')
    shift
    bpftool map update pinned /sys/fs/bpf/evenkeel/host key hex 00 00 00 00 value hex 63 "$@"
}
kept_the_old_agent() {
    cat /run/seen/apt.out
    is "$(agent_pid host)" "$pid" && is "$(programs)" "$links" && is "$(dpkg-query -W -f '${Version}' evenkeel)" 0.1.3-1 &&
        grep -q 'error: the pinned datapath is of version 99' /run/seen/apt.out &&
        grep -q 'nothing is interrupted; .*evenkeel host --stop' /run/seen/apt.out
}

say "apt install"
snapshot clean
check "apt install ./evenkeel.deb" apt install ./1.deb
check "installing enables, starts and pins nothing" nothing_began
check "the list's files are there" files_are_there
say "systemctl enable --now evenkeel-host"
make_port
snapshot port
check "it starts" starts evenkeel-host
check "status has the port; programs, pins and the longer queue are there" host_runs
check "status says by what, and what cannot work" says_what_the_kernel_has
# Longer than apt takes on a slow machine: the connection is to be there afterwards.
check "its connection is seen" traffic 240

say "upgrade under traffic"
pid=$(agent_pid host)
links=$(programs)
big_flows > /run/seen/flows-before
watch_links
check "apt install ./evenkeel.deb of a newer version" apt install ./2.deb
check "both programs were on the port all the time" always_two
check "a new agent has the old one's programs and connections" was_taken_over
check "every byte of the connection arrived" traffic_was_whole

say "upgrade to another layout of pins"
pid=$(agent_pid host)
change_layout
apt install ./3.deb > /run/seen/apt.out 2>&1
kill -CONT "$pid"
check "the old agent goes on, and apt's output says why" kept_the_old_agent

say "apt remove"
check "apt remove" apt remove evenkeel
check "the configuration stays" test -s /etc/evenkeel/host.toml
snapshot removed
# The port is as it was before the agent; units and folders are gone, as before the package.
for part in pins links programs maps qdiscs queues tcp; do
    check "as before: $part" same "port/$part" "removed/$part"
done
for part in units failed run modules; do
    check "as before: $part" same "clean/$part" "removed/$part"
done
check "apt install again" apt install ./3.deb
check "the agent runs again" starts evenkeel-host
check "status has the port" host_runs

say "the guest's agent"
# What an administrator adds goes with a purge, too.
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' > /etc/evenkeel/probe.key
check "it starts" starts evenkeel-guest
check "vflood is registered" grep -qw vflood /proc/sys/net/ipv4/tcp_available_congestion_control

say "apt purge with both agents at work"
check "apt purge" apt purge evenkeel
ip link del br0 2> /dev/null
ip link del vnet7 2> /dev/null
ip netns del vm 2> /dev/null
snapshot purged
check "nothing is left: files, pins, links, programs, qdiscs, queue lengths, units, settings" same clean purged
