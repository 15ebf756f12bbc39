#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# A soak: applications talk through ports with the real agent while all kinds of things happen to it and to them, and every byte is
# compared. Then the same without an agent, to know what happens anyway. Prints lines of JSON (what happened, faults, counters) and on
# stderr a table; ends with 1 where the agent did harm, or came to some. As root; needs what packaging/deps.sh --with-soak installs, and a
# C compiler.
#
#   soak.sh EVENKEEL SOAK_LOAD SEED SECONDS [SECONDS_WITHOUT]
#
# The bed: two hosts with a bridge (network namespaces), joined by a wire of 200 Mbit/s. On each a VM behind a veth and one behind a tap
# that is off its core again and again (soak_vm.c). Every mechanism that this kernel has is enforced. SOAK_LOAD is the example soak_load of
# crates/testbed; its workloads are Redis, PostgreSQL, nginx with TLS, memcached, iperf3, and transfers by TCP, MPTCP and TFO, by IPv4 and
# IPv6. What happens, the same for the same seed: agents are killed, stopped, told to read good and bad configurations; ports go down and up;
# others' programs come before and after the agent's and write skb->mark (soak_tcx.c); VMs stand still; GRO and TSO go off and on.
#
# A fault is damaged (not what was sent), reset (a connection that ended), refused (one that could not be opened) or stuck (a minute without
# any progress). Everything is in a PID namespace, its files in memory that goes with it: nothing outlives the script.
set -eu

here=$(dirname "$(realpath "$0")")

# Prints both halves as a table, and the agents' faults.

table() {
    jq -r -s '
        def of(half): map(select(.half == half and .operations)) | group_by(.workload) | map({
            key: .[0].workload,
            value: {operations: (map(.operations) | add), mb: (map(.bytes) | add / 1e6 | round), damaged: (map(.damaged) | add),
                reset: (map(.reset) | add), refused: (map(.refused) | add), stuck: (map(.stuck) | add),
                wait: (map(.longest_wait_s) | max * 10 | round / 10)}}) | from_entries;
        of("with") as $with | of("without") as $without |
        ["workload", "agent", "operations", "MB", "damaged", "reset", "refused", "stuck", "longest wait (s)"],
        (($with + $without | keys[]) as $workload | [["with", $with[$workload]], ["without", $without[$workload]]][] | select(.[1]) |
            [$workload, .[0]] + (.[1] | [.operations, .mb, .damaged, .reset, .refused, .stuck, .wait])) |
        map(tostring) | join("|")' "$folder/lines" |
        awk -F '|' '{ printf "%-10s %-8s", $1, $2; for (i = 3; i <= NF; i++) printf " %10s", $i; print "" }'
    jq -r -s '
        ["TcpRetransSegs", "TcpExtTCPTimeouts", "TcpOutRsts", "TcpAttemptFails", "TcpEstabResets", "TcpInCsumErrors",
            "MPTcpExtMPCapableSYNACKRX", "MPTcpExtMPJoinSynAckRx", "MPTcpExtMPCapableFallbackSYNACK"] as $names |
        group_by(.half)[] | (.[0].half) as $half | map(select(.vm).counters) | select(length > 0) |
            "VMs " + $half + ": " + (. as $all | [$names[] as $name | "\($name) \($all | map(.[$name] // 0) | add)"] | join(", "))' "$folder/lines"
    jq -r -s 'map(select(.agent_fault)) | group_by([.host, .agent_fault])[] | "agent on host \(.[0].host): \(.[0].agent_fault) (\(length) times)"' "$folder/lines"
}

# Whether nothing is worse than without: no agent came to harm, and no workload has more of any fault.
is_good() {
    jq -e -s '
        def sums(half): map(select(.half == half and .operations)) | group_by(.workload) |
            map({key: .[0].workload, value: [(map(.damaged) | add), (map(.reset) | add), (map(.stuck) | add)]}) | from_entries;
        sums("without") as $without |
        (map(select(.agent_fault)) | length) == 0 and
        all(sums("with") | to_entries[]; . as $one | ($without[$one.key] // [0, 0, 0]) as $other |
            all(range(3); $one.value[.] <= $other[.]))' "$folder/lines" > /dev/null
}

half() {
    mkfifo "$folder/pipe"
    jq -R -c --unbuffered --arg half "$1" '{half: $half} + (fromjson? // {text: .})' < "$folder/pipe" | tee -a "$folder/lines" &
    reader=$!
    SOAK_HALF=$1 SOAK_FOLDER=$folder setpriv --pdeathsig KILL unshare --mount --net --pid --fork --kill-child --mount-proc \
        "$0" "$evenkeel" "$load" "$seed" "$2" > "$folder/pipe" &
    child=$!
    wait "$child" || failed=1
    child=
    wait "$reader"
    rm "$folder/pipe"
}

run_both() {
    folder=$(mktemp -d)
    child=
    failed=
    # The first process of a PID namespace takes all others with it; it ends with this shell, too.
    trap '[ -z "$child" ] || kill -9 "$child"; rm -rf "$folder"' EXIT
    trap 'exit 130' INT TERM
    chmod 711 "$folder"
    mkdir "$folder/bed"
    for program in soak_vm soak_tcx; do cc -O2 -Wall -Wextra -o "$folder/$program" "$here/$program.c"; done
    half with "$seconds"
    [ "$without" = 0 ] || half without "$without"
    table >&2
    [ -z "$failed" ] || exit 1
    is_good || {
        echo "soak: with the agent more went wrong than without" >&2
        exit 1
    }
}

# One half. Everything from here on happens in namespaces.

say() { jq -n -c "$@" --argjson time "$(date +%s.%N)" '$ARGS.named'; }

draw() {
    random=$(((random * 1103515245 + 12345) & 0x7fffffff))
    drawn=$(((random >> 16) % $1))
}

tenths() { echo "$(($1 / 10)).$(($1 % 10))"; }

now_s() { cut -d . -f 1 /proc/uptime; }

port_of() {
    case $1 in *1) echo "vnet-$1" ;; *) echo "tap-$1" ;; esac
}

host_of() { echo "${1%?}"; }

# Waits until a command succeeds, for a minute at most.
until_true() {
    for _ in $(seq 600); do
        ! "$@" > /dev/null 2>&1 || return 0
        sleep 0.1
    done
    echo "soak: waited in vain for: $*" >&2
    exit 1
}

on_host() {
    host=$1
    shift
    nsenter --target "$(cat "$work/keeper-$host")" --mount --net "$@"
}

add_host() {
    add_ns "$1"
    ip netns exec "$prefix-$1" unshare --mount sh -c "mount -t tmpfs run /run && mount -t bpf bpf /sys/fs/bpf &&
        echo \$\$ > '$work/keeper-$1' && exec sleep 1000000" &
    until_true test -s "$work/keeper-$1"
    in_ns "$1" ip link add br0 type bridge
    in_ns "$1" ip link set br0 up
}

add_wire() {
    ip link add up0 netns "$prefix-a" type veth peer name up0 netns "$prefix-b"
    for host in a b; do
        in_ns "$host" ip link set up0 master br0 up
        in_ns "$host" tc qdisc add dev up0 root handle 1: htb default 1
        in_ns "$host" tc class add dev up0 parent 1: classid 1:1 htb rate 200mbit quantum 1514
        in_ns "$host" tc qdisc add dev up0 parent 1:1 pfifo limit 300
    done
}

# VM NUMBER
add_vm() {
    host=$(host_of "$1")
    port=$(port_of "$1")
    add_ns "$1"
    if [ "$port" = "tap-$1" ]; then
        ip netns exec "$prefix-$host" "$SOAK_FOLDER/soak_vm" "$port" "$prefix-$1" "$seed$2" 20 10 > "$work/vm-$1" 2> "$work/lost-$1" &
        echo $! > "$work/pump-$1"
        until_true test -s "$work/vm-$1"
        in_ns "$1" ip link set eth0 txqueuelen 10000
    else
        ip link add "$port" netns "$prefix-$host" type veth peer name eth0 netns "$prefix-$1"
    fi
    in_ns "$host" ip link set "$port" master br0 up
    in_ns "$1" ip addr add "10.9.0.$2/16" dev eth0
    in_ns "$1" ip addr add "fd00:9::$2/64" dev eth0 nodad
    in_ns "$1" ip link set eth0 up
    # Data in a SYN for every listener.
    in_ns "$1" sh -c 'echo 1027 > /proc/sys/net/ipv4/tcp_fastopen'
    in_ns "$1" ip mptcp limits set subflows 2 add_addr_accepted 2
    # Else Linux opens connections without MPTCP for an hour after a port was down for two SYNs.
    in_ns "$1" sysctl -q -e -w net.mptcp.blackhole_timeout=0 net.mptcp.syn_retrans_before_tcp_fallback=128
    for address in "10.9.0.$2" "fd00:9::$2"; do in_ns "$1" ip mptcp endpoint add "$address" dev eth0 signal; done
}

as_postgres() { setpriv --reuid postgres --regid postgres --clear-groups "$@"; }

# Once, for all VMs: a data directory, a certificate, files.
prepare_services() {
    bin=$(find /usr/lib/postgresql -name postgres -path '*/bin/*' | sort -V | tail -n 1)
    bin=${bin%/postgres}
    install -d -o postgres "$work/postgres"
    as_postgres "$bin/initdb" --pgdata "$work/postgres/new" --auth trust --username soak --no-sync > "$work/initdb.log"
    printf 'host all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n' >> "$work/postgres/new/pg_hba.conf"
    printf "listen_addresses = '*'\nfsync = off\nunix_socket_directories = '.'\n" >> "$work/postgres/new/postgresql.conf"
    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=soak -addext subjectAltName=DNS:soak \
        -keyout "$work/tls.key" -out "$work/tls.pem" 2> /dev/null
    mkdir "$work/files"
    "$load" files "$work/files"
}

listens() { in_ns "$1" ss -Hltn "sport = :$2" | grep -q .; }

# Redis, PostgreSQL, iperf3 and the other end of transfers.
serve_b() {
    printf 'port 6379\nbind * -::*\nprotected-mode no\nsave ""\nappendonly no\ndir %s\n' "$work" > "$work/redis.conf"
    in_ns "$1" redis-server "$work/redis.conf" > "$work/redis-$1.log" 2>&1 &
    cp -a "$work/postgres/new" "$work/postgres/$1"
    in_ns "$1" setpriv --reuid postgres --regid postgres --clear-groups "$bin/postgres" -D "$work/postgres/$1" > "$work/postgres-$1.log" 2>&1 &
    in_ns "$1" "$load" serve 7000 > "$work/serve-$1.log" 2>&1 &
    for port in 5201 5202; do
        in_ns "$1" sh -c "while :; do iperf3 --server --port $port --rcv-timeout 60000; sleep 0.1; done" > "$work/iperf3-$1.log" 2>&1 &
    done
    for port in 6379 5432 7000 7001 5201 5202; do until_true listens "$1" "$port"; done
    until_true "$bin/pg_isready" --host "$work/postgres/$1"
    as_postgres "$bin/psql" --quiet --host "$work/postgres/$1" --username soak postgres \
        --command 'CREATE UNLOGGED TABLE soak (key text PRIMARY KEY, value text)'
}

# nginx and memcached.
serve_a() {
    cat > "$work/nginx-$1.conf" << CONFIG
user root;
worker_processes 1;
daemon off;
pid $work/nginx-$1.pid;
error_log $work/nginx-$1.log;
events {}
http {
    access_log off;
    client_body_temp_path $work/nginx-$1.body;
    server {
        listen 443 ssl;
        listen [::]:443 ssl;
        ssl_certificate $work/tls.pem;
        ssl_certificate_key $work/tls.key;
        root $work/files;
    }
}
CONFIG
    in_ns "$1" nginx -c "$work/nginx-$1.conf" -e "$work/nginx-$1.log" &
    in_ns "$1" memcached -u root -t 1 -m 64 > "$work/memcached-$1.log" 2>&1 &
    for port in 443 11211; do until_true listens "$1" "$port"; done
}

# What NUMBER's VM serves, for a client: WORKLOAD:PORT...
targets() {
    number=$1
    shift
    for target in "$@"; do
        name=${target%:*}
        port=${target##*:}
        [ "$name" = iperf3 ] || printf '%s@10.9.0.%s:%s ' "$name" "$number" "$port"
        printf '%s@[fd00:9::%s]:%s ' "$name" "$number" "$port"
    done
}

# VM SECONDS TARGETS. Each client has random numbers and keys of its own.
start_client() {
    # shellcheck disable=SC2086 # a list of words
    ip netns exec "$prefix-$1" "$load" ask "$2" "$seed$(echo "$clients" | wc -w)" "$work/tls.pem" $3 >> "$work/load" 2>> "$work/load-errors" &
    clients="$clients $!"
}

start_clients() {
    to_b="redis:6379 postgres:5432 tcp:7000 mptcp:7001 tfo:7000"
    to_a="nginx:443 memcached:11211"
    : > "$work/load"
    start_client a1 "$1" "$(targets 22 $to_b iperf3:5201)"
    start_client a2 "$1" "$(targets 21 $to_b iperf3:5201) $(targets 22 $to_b iperf3:5202)"
    # And connections that stay on their host.
    start_client b1 "$1" "$(targets 12 $to_a) $(targets 22 redis:6379 tcp:7000)"
    start_client b2 "$1" "$(targets 11 $to_a) $(targets 12 $to_a)"
}

# The agents.

agent_fault() { say --arg agent_fault "$2" --arg host "$1" --arg text "${3-}"; }

# The configuration that SIGHUP reads: variant 0 is right, the others change something or are refused.
configure() {
    file=$work/$1.toml
    cp "$work/good.toml" "$file"
    cp "$work/good.key" "$work/$1.key"
    sed -i "s|good.key|$1.key|" "$file"
    case $2 in
    1) sed -i 's/"enforce"/"observe"/' "$file" ;;
    2) sed -i 's/"enforce"/"off"/' "$file" ;;
    3) sed -i 's/^ports = .*/ports = ["nothing*"]/' "$file" ;;
    4) echo 'ports = [' > "$file" ;;
    5) sed -i 's/^ports = .*/ports = ["vnet-*"]/' "$file" ;;
    6) sed -i 's/up0/up9/' "$file" ;;
    7) sed -i 's/^\[proboscis\]/&\ng_probes = 64\nicwnd_segments = 1\nbudget_probes_per_s = 0/' "$file" ;;
    8) sed -i '0,/"enforce"/s//"maybe"/' "$file" ;;
    9) sed -i 's/^\[vsnoop\]/&\nbudget_segments = 1/' "$file" ;;
    10) sed -i 's/^uplinks/high_segments = 1\nlow_segments = 0\nepoch_us = 100\n&/; s/^ports/port_queue_segments = 10\n&/' "$file" ;;
    11) printf '[control]\ngroup = "nogroup"\n' >> "$file" ;;
    12) rm "$file" ;;
    13) rm "$work/$1.key" ;;
    14) echo 'not a key' > "$work/$1.key" ;;
    esac
}
VARIANTS=14

is_there() { readlink "/proc/$(cat "$work/agent-$1")/exe" > /dev/null 2>&1; }

status() { on_host "$1" timeout 20 "$evenkeel" status --json 2> /dev/null; }

# Whether the agent has both ports and the settings of the right file. (jq 1.6 takes no input for a success.)
is_right() {
    [ "$(status "$1" | jq '.config_refused == null and ([.ports[] | select(.error == null and .mode == "enforce")] | length) == 2')" = true ]
}

becomes_right() {
    for _ in $(seq 60); do
        ! is_right "$1" || return 0
        is_there "$1" || return 1
        sleep 0.5
    done
    return 1
}

# What the host's agent says of itself, for a fault's text.
words_of() {
    status "$1" | jq -c '[.config_refused, .ports[]?.error]' || echo "no status"
    on_host "$1" cat /run/evenkeel/host-state.json || true
    tail -n 3 "$work/agent-$1.log"
}

reload() {
    kill -HUP "$(cat "$work/agent-$1")" 2> /dev/null || true
    # Until the agent has read the file, its status would still be the old one.
    sleep 1
}

kill_agent() {
    kill -9 "$(cat "$work/agent-$1")" 2> /dev/null || true
    wait "$(cat "$work/agent-$1")" 2> /dev/null || true
}

start_agent_of() {
    configure "$1" 0
    nsenter --target "$(cat "$work/keeper-$1")" --mount --net "$evenkeel" host --config "$work/$1.toml" >> "$work/agent-$1.log" 2>&1 &
    echo $! > "$work/agent-$1"
    becomes_right "$1" || agent_fault "$1" "does not come up" "$(words_of "$1")"
}

# HOST TENTHS: kills the agent by SIGKILL, and starts a new one after a while.
event_kill() {
    kill_agent "$1"
    sleep "$(tenths "$2")"
    start_agent_of "$1"
}

# HOST TENTHS VARIANT
event_reload() {
    configure "$1" "$3"
    reload "$1"
    sleep "$(tenths "$2")"
    configure "$1" 0
    reload "$1"
    becomes_right "$1" && return
    agent_fault "$1" "does not recover from configuration $3" "$(words_of "$1")"
    kill_agent "$1"
    start_agent_of "$1"
}

# Finds packets that the programs take for a new SYN of the VM's each time that they come back.
judge_syns() {
    sent=$(in_ns "$2" nstat -azs --json | jq '.kernel | .TcpActiveOpens + .TcpExtTCPSynRetrans')
    taken=$(jq --arg port "$(port_of "$2")" '.ports[] | select(.name == $port) | .counters.syns_from_vm' "$work/status-$1")
    [ "${taken:-0}" -le $((sent * 2 + 100)) ] || agent_fault "$1" "takes other packets for a VM's SYNs" "$taken, where $2 has sent $sent"
}

stop_agent_of() {
    # The agent's counters go with it.
    status "$1" > "$work/status-$1" || true
    for vm in "${1}1" "${1}2"; do judge_syns "$1" "$vm"; done
    on_host "$1" timeout 60 "$evenkeel" host --stop > "$work/stop-$1" 2>&1 || agent_fault "$1" "--stop fails" "$(tail -n 5 "$work/stop-$1" && words_of "$1")"
    kill_agent "$1"
}

event_stop() {
    stop_agent_of "$1"
    sleep "$(tenths "$2")"
    start_agent_of "$1"
}

# Events of ports and VMs go on beside the next event.

event_down() {
    in_ns "$(host_of "$1")" ip link set "$(port_of "$1")" down
    (sleep "$(tenths "$2")" && in_ns "$(host_of "$1")" ip link set "$(port_of "$1")" up) &
}

event_still() {
    kill -STOP "$(cat "$work/pump-$1")"
    (sleep "$(tenths "$2")" && kill -CONT "$(cat "$work/pump-$1")") &
}

event_foreign() {
    ip netns exec "$prefix-$(host_of "$1")" timeout "$2" "$SOAK_FOLDER/soak_tcx" "$(port_of "$1")" "$3" "$4" "$5" &
}

# VM on|off: GRO where packets come, segmentation offloads where the VM sends. ethtool says what it changed.
event_offload() {
    in_ns "$(host_of "$1")" ethtool -K up0 gro "$2"
    case $1 in
    *1)
        in_ns "$(host_of "$1")" ethtool -K "$(port_of "$1")" gro "$2"
        in_ns "$1" ethtool -K eth0 gro "$2"
        ;;
    esac
    in_ns "$1" ethtool -K eth0 tso "$2" gso "$2"
} > /dev/null

# Everything is drawn, needed or not, so that without an agent the same happens at the same time.
happen() {
    draw 12 && kind=$drawn
    draw 2 && host=$(echo a b | cut -d ' ' -f $((drawn + 1)))
    draw 4 && vm=$(echo a1 a2 b1 b2 | cut -d ' ' -f $((drawn + 1)))
    draw 40 && tenths=$((drawn + 2))
    draw "$VARIANTS" && variant=$((drawn + 1))
    draw 2 && direction=$(echo ingress egress | cut -d ' ' -f $((drawn + 1)))
    draw 2 && place=$(echo before after | cut -d ' ' -f $((drawn + 1)))
    # Nothing, what others write, and what the agent's programs might have written.
    draw 4 && mark=$(echo 0 0xa00 0xe7ee1004 0xffffffff | cut -d ' ' -f $((drawn + 1)))
    draw 2 && switch=$(echo on off | cut -d ' ' -f $((drawn + 1)))
    case $kind in
    0 | 1) set -- kill "$host" "$tenths" ;;
    2 | 3) set -- reload "$host" "$tenths" "$variant" ;;
    4) set -- stop "$host" "$tenths" ;;
    5 | 6) set -- down "$vm" "$tenths" ;;
    7 | 8 | 9) set -- foreign "$vm" "$((1 + tenths / 2))" "$direction" "$place" "$mark" ;;
    10) set -- still "$host"2 "$tenths" ;;
    11) set -- offload "$vm" "$switch" ;;
    esac
    event=$1
    shift
    case $event in kill | reload | stop)
        [ "$SOAK_HALF" = with ] || return 0
        is_there "$1" || {
            agent_fault "$1" "has ended by itself" "$(words_of "$1")"
            start_agent_of "$1"
        }
        ;;
    esac
    say --arg event "$event" --arg where "$*"
    "event_$event" "$@"
}

# What a stuck connection looks like from all sides, and others of its server: MPTCP's have more paths.
show_stuck() {
    [ "$shown" -lt 20 ] || return 0
    shown=$((shown + 1))
    for vm in a1 a2 b1 b2; do
        echo "$vm:"
        for kind in tcp mptcp; do
            in_ns "$vm" ss "--$kind" -inmoO "sport = :${2##*:} or dport = :${2##*:}"
        done
    done > "$work/sockets"
    for host in a b; do
        echo "$host:"
        [ "$SOAK_HALF" = without ] || on_host "$host" timeout 20 "$evenkeel" flows --explain "$1-$2" || true
    done > "$work/flows" 2>&1
    say --arg connection "$1-$2" --rawfile sockets "$work/sockets" --rawfile flows "$work/flows"
}

look() {
    lines=$(wc -l < "$work/load")
    [ "$lines" -gt "$seen" ] || return 0
    sed -n "$((seen + 1)),${lines}p" "$work/load" > "$work/new"
    seen=$lines
    cat "$work/new"
    jq -r 'select(.fault == "stuck" and .client) | .client + " " + .server' "$work/new" > "$work/stuck"
    while read -r client server; do show_stuck "$client" "$server"; done < "$work/stuck"
}

look_until() {
    while [ "$(now_s)" -lt "$1" ]; do
        sleep 0.5
        look
    done
}

are_there() {
    for client in $clients; do ! readlink "/proc/$client/exe" > /dev/null 2>&1 || return 0; done
    return 1
}

run_half() {
    mount -t tmpfs -o mode=711 bed "$SOAK_FOLDER/bed"
    mount -t tmpfs run /run
    mkdir /run/netns
    export TMPDIR="$SOAK_FOLDER/bed"
    prefix=eks
    . "$here/namespaces.sh"
    chmod 711 "$work"
    random=$seed
    seen=0
    shown=0
    clients=
    add_host a
    add_host b
    add_wire
    add_vm a1 11
    add_vm a2 12
    add_vm b1 21
    add_vm b2 22
    prepare_services
    for vm in a1 a2; do serve_a "$vm"; done
    for vm in b1 b2; do serve_b "$vm"; done
    if [ "$SOAK_HALF" = with ]; then
        (umask 077 && echo 00112233445566778899aabbccddeeff > "$work/good.key")
        {
            printf 'ports = ["vnet-*", "tap-*"]\nprobe_key_file = "%s/good.key"\n[proboscis]\nmode = "enforce"\n[vsnoop]\nmode = "enforce"\nendpoint = "observed"\n' "$work"
            printf '[cera]\nmode = "enforce"\nuplinks = ["up0"]\n'
            holds=$(on_host a "$evenkeel" doctor --json | jq -r '.findings[] | select(.topic == "vFlood on hosts").level')
            [ "$holds" != ok ] || printf '[vflood]\nmode = "enforce"\n'
        } > "$work/good.toml"
        start_agent_of a
        start_agent_of b
    fi
    for vm in b1 b2; do event_offload "$vm" off; done
    # Clients go on for a while after the last event.
    start_clients $((seconds + 20))
    end=$(($(now_s) + seconds))
    next=$(now_s)
    while draw 8 && next=$((next + 2 + drawn)) && [ "$next" -lt "$end" ]; do
        look_until "$next"
        happen
        # After an event that took long, those that it held up do not follow all at once.
        sleep 1
    done
    look_until "$end"
    # A connection that is stuck says so after a minute.
    end=$(($(now_s) + 200))
    while are_there && [ "$(now_s)" -lt "$end" ]; do look_until $(($(now_s) + 1)); done
    look
    ! are_there || say --arg fault "clients do not end"
    for vm in a2 b2; do
        [ ! -s "$work/lost-$vm" ] || say --arg fault "the tap of $vm loses frames" --arg text "$(sort "$work/lost-$vm" | uniq -c)"
    done
    [ ! -s "$work/load-errors" ] || say --arg fault "clients complain" --rawfile text "$work/load-errors"
    for vm in a1 a2 b1 b2; do
        in_ns "$vm" nstat -azs --json |
            jq -c --arg vm "$vm" '{vm: $vm, counters: (.kernel | with_entries(select(.value != 0 and (.key | test("^Tcp|^MPTcp")))))}'
    done
    [ "$SOAK_HALF" = with ] || return 0
    for host in a b; do
        status "$host" |
            jq -c --arg host "$host" '{host: $host, agent, ports: [.ports[] | {name, error, counters: (.counters | with_entries(select(.value != 0)))}]}'
        grep -hE 'ERROR|WARN' "$work/agent-$host.log" | sed 's/^[^ ]* *//' | sort | uniq -c | sort -rn | head -n 20 |
            jq -R -s -c --arg host "$host" '{host: $host, log: split("\n")[:-1]}'
        is_there "$host" || agent_fault "$host" "has ended by itself" "$(words_of "$host")"
        stop_agent_of "$host"
    done
}

[ $# -ge 4 ] || {
    echo "usage: soak.sh EVENKEEL SOAK_LOAD SEED SECONDS [SECONDS_WITHOUT]" >&2
    exit 2
}
evenkeel=$(realpath "$1") load=$(realpath "$2") seed=$3 seconds=$4 without=${5-$4}
if [ -n "${SOAK_HALF-}" ]; then run_half; else run_both; fi
