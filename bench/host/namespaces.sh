# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What the scripts here have in common: network namespaces, and the agent in one of them with /run and a bpf file system of its own, so that a
# host's agent is not disturbed. All of it is gone when the script ends. To be sourced, with `evenkeel` and `prefix` (of namespaces) set.

work=$(mktemp -d)
agent=
mounts=
namespaces=

remove_namespaces() {
    for name in $namespaces; do
        ip netns pids "$prefix-$name" 2> /dev/null | xargs -r kill 2> /dev/null || true
        ip netns del "$prefix-$name" 2> /dev/null || true
    done
    namespaces=
}

clean() {
    [ -z "$agent" ] || kill "$agent" 2> /dev/null || true
    [ -z "$mounts" ] || kill "$mounts" 2> /dev/null || true
    remove_namespaces
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

in_ns() {
    ns=$1
    shift
    ip netns exec "$prefix-$ns" "$@"
}

add_ns() {
    ip netns add "$prefix-$1"
    namespaces="$namespaces $1"
    in_ns "$1" ip link set lo up
}

# The mounts outlive an agent that is killed, as a host's do.
add_mounts() {
    ip netns exec "$prefix-host" unshare --mount sh -c "mount -t tmpfs run /run && mount -t bpf bpf /sys/fs/bpf && : > '$work/mounted' && exec sleep 100000" &
    mounts=$!
    while [ ! -e "$work/mounted" ] && kill -0 "$mounts"; do sleep 0.1; done
}

at_host() { nsenter --target "$mounts" --mount --net "$@"; }

ask() { at_host "$evenkeel" status --json; }

# start_agent PORTS: by $work/host.toml. Waits until the agent has that many ports.
start_agent() {
    at_host "$evenkeel" host --config "$work/host.toml" 2> "$work/agent.log" &
    agent=$!
    for _ in $(seq 300); do
        ports=$(ask 2> /dev/null | jq '[.ports[].name] | length' 2> /dev/null) || true
        [ "$ports" != "$1" ] || return 0
        sleep 0.1
    done
    cat "$work/agent.log" >&2
    exit 1
}

# Ends the agent and removes its datapath.
stop_agent() {
    at_host "$evenkeel" host --stop > /dev/null
    wait "$agent" 2> /dev/null || true
    agent=
}
