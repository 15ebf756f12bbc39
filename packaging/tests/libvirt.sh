#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The host agent beside the real libvirtd: domains are defined, started, given a second interface, destroyed; libvirtd
# is started anew; guests have evenkeel's agent. One moves to a second host, with a libvirtd and an agent of its own, by
# the script of docs/operations.md. Then a QEMU that nobody but its command line knows.
#
#   libvirt.sh EVENKEEL_BINARY
#
# Needs root, and a kernel and an initramfs that the lab has made (evenkeel's cache). libvirtd, its sockets and its
# network are in namespaces of their own, and its directories are empty ones: nothing of this machine's is touched. So
# are those of the second host, which is another set of namespaces.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
cache=${EVENKEEL_CACHE:-${XDG_CACHE_HOME:+$XDG_CACHE_HOME/evenkeel}}
cache=${cache:-/var/cache/evenkeel}
# The limit of each wait, in seconds; only a test that hangs reaches it.
limit=240

not_run() {
    printf 'libvirt-test: NOT RUN, nothing was tested: %s\n' "$*" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || not_run "it needs root; run it with sudo"
for program in libvirtd virtlogd virsh qemu-system-x86_64 jq curl cpio iperf3 setpriv python3 strip; do
    command -v "$program" > /dev/null || not_run "$program is not installed; apt-get install --no-install-recommends \
libvirt-daemon-system libvirt-clients libvirt-daemon-driver-qemu qemu-system-x86 jq curl cpio iperf3 python3 binutils"
done
base=
for one in $(ls -t "$cache"/bases/6.*.cpio 2> /dev/null); do
    release=$(basename "$one")
    release=${release%-*}
    kernel=$(ls "$cache/kernels/$release"_*/boot/vmlinuz-* 2> /dev/null | head -n 1)
    [ -z "$kernel" ] || { base=$one; break; }
done
[ -n "$base" ] || not_run "there is no guest in $cache; \`evenkeel lab scenarios/demo.toml\` makes one"

# libvirtd waits until a QEMU that it has ended is gone, which takes a process that reaps it.
if [ -z "${IN_NAMESPACES-}" ]; then
    IN_NAMESPACES=1 exec unshare --mount --net --uts --propagation private python3 -c '
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
child = os.fork()
if child == 0:
    os.execvp("sh", ["sh", *sys.argv[1:]])
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(child, number))
while True:
    pid, status = os.wait()
    if pid == child:
        sys.exit(os.waitstatus_to_exitcode(status))
' "$here/libvirt.sh" "$binary"
fi

empty_directories() {
    for directory in /run /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /etc/libvirt/qemu; do
        mkdir -p "$directory"
        mount -t tmpfs -o mode=755 tmpfs "$directory"
    done
    mkdir -p /run/lock
}
empty_directories
work=/run/libvirt-test
mkdir -p "$work/bpf" "$work/guest/bin"
mount -t bpf bpf "$work/bpf"
agent=
agent2=
host2=
qemu=
cleanup() {
    kill -9 $agent $agent2 $qemu 2> /dev/null || true
    for root in / ${host2:+/proc/$host2/root/}; do
        for file in "$root"run/libvirtd.pid "$root"run/libvirt/qemu/*.pid "$root"run/virtlogd.pid; do
            kill -9 "$(cat "$file" 2> /dev/null)" 2> /dev/null || true
        done
    done
    kill -9 $host2 2> /dev/null || true
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# The guest: the lab's, with another first process, which runs evenkeel's agent and a server.
strip -o "$work/guest/bin/evenkeel" "$binary"
cat > "$work/guest/init" << 'INIT'
#!/bin/sh
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t bpf bpf /sys/fs/bpf
for module in virtio_pci virtio_console virtio_net; do modprobe $module; done
ip link set lo up
read -r _ _ address _ < /proc/cmdline
ip addr add "${address#*=}/24" dev eth0
ip link set eth0 up
iperf3 -s > /dev/null 2>&1 &
tries=200
while ! cat /sys/class/virtio-ports/*/name 2> /dev/null | grep -q evenkeel && [ $tries -gt 0 ]; do
    tries=$((tries - 1))
    usleep 50000
done
evenkeel guest
echo "the guest's agent ended with $?"
sleep 1000000
INIT
chmod +x "$work/guest/init"
cp "$kernel" "$work/vmlinuz"
cp "$base" "$work/initrd"
(cd "$work/guest" && find . | cpio --quiet -o -H newc) >> "$work/initrd"

passed=0
failed=0
# check WHAT COMMAND...: waits until the command succeeds.
check() {
    what=$1
    shift
    deadline=$(($(date +%s) + limit))
    until "$@" > "$work/check.out" 2>&1; do
        if [ "$(date +%s)" -gt "$deadline" ] || { [ -n "$agent" ] && ! kill -0 "$agent" 2> /dev/null; }; then
            failed=$((failed + 1))
            echo "FAILED  $what"
            sed 's/^/        /' "$work/check.out" | tail -n 20
            return
        fi
        sleep 0.2
    done
    passed=$((passed + 1))
    echo "ok      $what"
}

socket=$work/host.sock
status() { "$binary" status --json --socket "$socket"; }
# port NAME FILTER: whether what status says of a port fits the filter of jq.
port() { status | jq -e --arg port "$1" '.ports[] | select(.name == $port) | '"$2"; }
metric() { curl -s http://127.0.0.1:19464/metrics | grep -F "$1"; }
logged() { grep -F "$1" "$work/agent.log"; }
absent() { ! "$@"; }
virsh() { command virsh -q -c qemu:///system "$@"; }
# The tap of a domain's first interface by virsh.
tap_of() { virsh domiflist "$1" | awk 'NF { print $1; exit }'; }
# QEMU 7.2 errs with CMPXCHG16B when it translates code.
domain() {
    cat << XML
<domain type='qemu'>
  <name>$1</name><memory unit='MiB'>640</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type>
    <kernel>$work/vmlinuz</kernel><initrd>$work/initrd</initrd>
    <cmdline>console=ttyS0 quiet address=$2 panic=-1 no_timer_check rootfstype=ramfs tsc=unstable</cmdline></os>
  <features><acpi/></features>
  <cpu mode='maximum'><feature policy='disable' name='cx16'/></cpu>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
    <interface type='bridge'><source bridge='br0'/><model type='virtio'/></interface>
    <channel type='unix'><target type='virtio' name='org.evenkeel.0'/></channel>
    <serial type='file'><source path='$work/console'/></serial>
  </devices>
</domain>
XML
}

start_libvirtd() {
    libvirtd -d
    check "libvirtd answers" virsh version
}

# libvirt names a migration's destination by the host's name.
hostname host1
ip link set lo up
ip link add br0 type bridge
ip addr add 10.77.0.1/24 dev br0
ip link set br0 up
cat > "$work/host.toml" << TOML
ports = ["vnet*", "tap*"]
[control]
socket = "$work/host.sock"
[metrics]
listen = "127.0.0.1:19464"
[vsnoop]
mode = "enforce"
[[port]]
match = "vnet*"
channel = "libvirt"
[[port]]
match = "tap*"
channel = "auto"
TOML
# As the unit has it: capabilities, the group that docs/libvirt.md says, and a /proc that hides others' processes.
# shellcheck disable=SC2016
unshare --mount sh -c 'mount -t proc -o hidepid=invisible proc /proc && exec "$@"' sh \
    setpriv --groups "$(getent group libvirt-qemu | cut -d: -f3)" --bounding-set=-all,+bpf,+net_admin,+perfmon \
    "$binary" host --config "$work/host.toml" --run-dir "$work/run" --pin-dir "$work/bpf/evenkeel" \
    2> "$work/agent.log" &
agent=$!
check "the agent answers before libvirtd is there" status
virtlogd -d
start_libvirtd

echo "== define, start"
domain web1 10.77.0.2 > "$work/web1.xml"
virsh define "$work/web1.xml"
virsh start web1
tap=$(tap_of web1)
check "the domain's name at $tap" port "$tap" '.vm.name == "web1" and .vm.found_by == "libvirt"'
check "QEMU's process" port "$tap" ".vm.process == $(cat /run/libvirt/qemu/web1.pid)"
check "its cgroup" port "$tap" '.vm.cgroup | endswith("/qemu-1-web1.libvirt-qemu")'
check "no vhost here, and offload headers" port "$tap" '.vm.vhost_threads == 0 and .tap.vnet_hdr'
check "a channel in libvirt's directory" port "$tap" '.channel.address | endswith("/domain-1-web1/org.evenkeel.0")'
check "the guest's agent" port "$tap" '.channel.guest.has_vflood'
check "attested" port "$tap" '.vsnoop.endpoint == "attested"'
check "the name in the table of status" sh -c "'$binary' status --socket $work/host.sock | grep '^$tap  *web1 '"
check "the name in metrics" metric "evenkeel_host_port_attached{port=\"$tap\",domain=\"web1\"} 1"
check "the name in the log" logged 'domain="web1"'
iperf3 -c 10.77.0.2 -b 1M -t 600 > /dev/null 2>&1 &
check "the name in flows" sh -c "'$binary' flows --json --socket $work/host.sock |
    jq -e '[.flows[].domain] | length > 0 and all(. == \"web1\")'"
tuple=$("$binary" flows --json --socket "$work/host.sock" | jq -r '.flows[0].tuple')
check "the VM and its tap in words" sh -c "'$binary' flows --explain '$tuple' --socket $work/host.sock |
    grep -A 1 'The VM is web1 (by libvirt), process' | grep 'Its port is a tap with offload headers'"
kill $!
check "the name in top" sh -c "'$binary' top --json --count 1 --socket $work/host.sock |
    jq -e '.status.ports[0].vm.name == \"web1\"'"

echo "== libvirtd ends, and is there again"
kill "$(cat /run/libvirtd.pid)"
check "libvirtd is gone" sh -c '! kill -0 $(cat /run/libvirtd.pid)'
before=$(port "$tap" .channel.messages)
check "the guest is heard without it" port "$tap" ".channel.messages > $before + 5"
start_libvirtd
before=$(port "$tap" .channel.messages)
check "the guest is heard with it" port "$tap" ".channel.messages > $before + 5"
check "attested" port "$tap" '.vsnoop.endpoint == "attested" and .vm.name == "web1"'
check "the channel was never lost" absent logged 'no connection to the guest'

echo "== a second interface"
virsh attach-interface web1 bridge br0 --model virtio --live
second=$(virsh domiflist web1 | awk 'NF { last = $1 } END { print last }')
check "two taps" [ "$second" != "$tap" ]
check "the domain's name at $second" port "$second" '.vm.name == "web1"'

echo "== notes that are not true"
sed "s/<name>web1</<name>evil</; s/pid='[0-9]*'/pid='$agent'/" /run/libvirt/qemu/web1.xml > "$work/evil.xml"
(umask 077 && cp "$work/evil.xml" /run/libvirt/qemu/evil.xml)
before=$(status | jq .uptime_s)
check "a look later" sh -c "[ \$('$binary' status --json --socket $work/host.sock | jq .uptime_s) -gt $((before + 1)) ]"
check "who has the tap open is the domain" port "$tap" '.vm.name == "web1"'
rm /run/libvirt/qemu/evil.xml
head -c 2000 /run/libvirt/qemu/web1.xml > "$work/half.xml"
(umask 077 && cp "$work/half.xml" /run/libvirt/qemu/half.xml)
check "half a file harms nobody" port "$tap" '.vm.name == "web1" and .channel.is_connected'
rm /run/libvirt/qemu/half.xml

echo "== destroy, and start anew"
virsh destroy web1
check "no ports" sh -c "'$binary' status --json --socket $work/host.sock | jq -e '.ports == []'"
virsh start web1
tap=$(tap_of web1)
check "the domain's name at $tap" port "$tap" '.vm.name == "web1"'
check "its new channel" port "$tap" '.channel.address | endswith("/domain-2-web1/org.evenkeel.0")'
check "attested" port "$tap" '.vsnoop.endpoint == "attested"'
virsh destroy web1
check "no ports" sh -c "'$binary' status --json --socket $work/host.sock | jq -e '.ports == []'"
virsh undefine web1

echo "== a second host"
# Domains of both hosts have their cgroups in the same place, under names with their numbers: the first host's are
# higher.
cat > "$work/hosts" << HOSTS
127.0.0.1 localhost
10.78.0.1 host1
10.78.0.2 host2
HOSTS
mount --bind "$work/hosts" /etc/hosts
mkdir -p "$work/etc"
grep -v '^host_uuid' /etc/libvirt/libvirtd.conf > "$work/etc/libvirtd.conf"
# libvirt takes two hosts for one if firmware gives them the same UUID.
echo 'host_uuid = "6e1e22a6-0000-4000-8000-00000000000a"' >> "$work/etc/libvirtd.conf"
unshare --mount --net --uts --propagation private sh -c '
    hostname host2
    mount --bind "'"$work"'" /mnt
    '"$(sed -n '/^empty_directories() {/,/^}/p' "$here/libvirt.sh")"'
    empty_directories
    mkdir -p "'"$work"'"
    mount --move /mnt "'"$work"'"
    mount --bind "'"$work"'/etc/libvirtd.conf" /etc/libvirt/libvirtd.conf
    : > "'"$work"'/host2.ready"
    exec sleep 1000000' &
host2=$!
check "the second host" [ -e "$work/host2.ready" ]
at_host2() { nsenter --target "$host2" --mount --net --uts "$@"; }
# Each host has an address of its own beside the bridge's network, and both bridges are one network.
ip link add up0 type veth peer name up0 netns "$host2"
ip link set up0 master br0 up
ip addr add 10.78.0.1/24 dev br0
at_host2 sh -c 'ip link set lo up; ip link add br0 type bridge; ip addr add 10.78.0.2/24 dev br0; ip link set br0 up
    ip link set up0 master br0 up'
mkdir -p "$work/bin"
printf '#!/bin/sh\nexec %s "$@" --socket %s\n' "$binary" "$work/host.sock" > "$work/bin/evenkeel"
# The command as operators have it.
sed -n '/^# evenkeel-migrate /,/^```/p' "$here/../../docs/operations.md" | sed '1i #!/bin/sh -e
/^```/d' > "$work/bin/evenkeel-migrate"
chmod +x "$work/bin/evenkeel" "$work/bin/evenkeel-migrate"
sed "s,$work/host.sock,$work/host2.sock,; s/^listen = .*/listen = \"127.0.0.1:19465\"/" "$work/host.toml" > "$work/host2.toml"
mkdir -p "$work/bpf2"
at_host2 mount -t bpf bpf "$work/bpf2"
nsenter --target "$host2" --mount --net --uts "$binary" host --config "$work/host2.toml" \
    --run-dir "$work/run2" --pin-dir "$work/bpf2/evenkeel" 2> "$work/agent2.log" &
agent2=$!
at_host2 virtlogd -d
at_host2 libvirtd -d
other="qemu+unix:///system?socket=/proc/$host2/root/run/libvirt/libvirt-sock"
virsh2() { command virsh -q -c "$other" "$@"; }
check "its libvirtd answers" virsh2 version
domain web3 10.77.0.4 > "$work/web3.xml"
virsh create "$work/web3.xml"
tap=$(tap_of web3)
check "attested" port "$tap" '.vm.name == "web3" and .vsnoop.endpoint == "attested"'
migrate() { env PATH="$work/bin:$PATH" VIRSH_DEFAULT_CONNECT_URI=qemu:///system evenkeel-migrate "$@"; }
check "a migration to nowhere fails" absent migrate web3 "qemu+unix:///system?socket=$work/nobody"
check "and the port is online again" port "$tap" '.offline == null'
# One connection from before to after.
iperf3 -c 10.77.0.4 -b 1M -t 600 --json > "$work/across.json" 2>&1 &
across=$!
check "a connection" sh -c "'$binary' flows --json --socket $work/host.sock | jq -e '[.flows[].domain] | length > 0'"
check "evenkeel-migrate" migrate web3 "$other"
check "no ports on the first host" sh -c "'$binary' status --json --socket $work/host.sock | jq -e '.ports == []'"
check "no domain on the first host" absent virsh dominfo web3
tap=$(virsh2 domiflist web3 | awk 'NF { print $1; exit }')
socket=$work/host2.sock
check "the domain's name at $tap on the second" port "$tap" '.vm.name == "web3" and .vm.found_by == "libvirt"'
check "its channel there" port "$tap" '.channel.address | endswith("-web3/org.evenkeel.0")'
check "attested by the second host" port "$tap" '.vsnoop.endpoint == "attested"'
before=$(port "$tap" .counters.packets_to_vm)
check "the connection goes on" port "$tap" ".counters.packets_to_vm > $before + 50"
check "and its client has seen no end of it" kill -0 "$across"
kill "$across"
# Back, with the second host's agent.
printf '#!/bin/sh\nexec %s "$@" --socket %s\n' "$binary" "$work/host2.sock" > "$work/bin/evenkeel"
first="qemu+unix:///system?socket=/proc/$$/root/run/libvirt/libvirt-sock"
check "evenkeel-migrate back" at_host2 env PATH="$work/bin:$PATH" VIRSH_DEFAULT_CONNECT_URI=qemu:///system \
    evenkeel-migrate web3 "$first"
socket=$work/host.sock
tap=$(tap_of web3)
check "attested by the first host" port "$tap" '.vm.name == "web3" and .vsnoop.endpoint == "attested"'
virsh destroy web3
check "no ports" sh -c "'$binary' status --json --socket $work/host.sock | jq -e '.ports == []'"
at_host2 "$binary" host --stop --run-dir "$work/run2" --pin-dir "$work/bpf2/evenkeel" > /dev/null
wait "$agent2" || failed=$((failed + 1))
agent2=
check "no pins of the second host's" at_host2 [ ! -e "$work/bpf2/evenkeel" ]

echo "== a name that is no word"
domain 'a "b\&amp; ü{x="1"}' 10.77.0.3 > "$work/odd.xml"
virsh create "$work/odd.xml" --paused
odd=$(ls /run/libvirt/qemu/*.xml)
check "the name" port "$(tap_of 'a "b\& ü{x="1"}')" '.vm.name == "a \"b\\& ü{x=\"1\"}"'
check "the name in metrics" metric 'domain="a \"b\\& ü{x=\"1\"}"'
check "QEMU listens" port "$(tap_of 'a "b\& ü{x="1"}')" .channel.is_connected
virsh destroy 'a "b\& ü{x="1"}'
check "its file is gone" [ ! -e "$odd" ]

echo "== without libvirt: a command line as Proxmox has it"
ip tuntap add tap101i0 mode tap
ip link set tap101i0 master br0 up
check "nobody has the tap" port tap101i0 '.vm == null and (.channel.trouble | contains("no process"))'
qemu-system-x86_64 -name web2,debug-threads=on -S -nodefaults -display none -machine q35 -accel tcg -m 64 \
    -netdev type=tap,id=net0,ifname=tap101i0,script=no,downscript=no -device virtio-net-pci,netdev=net0,romfile= \
    -chardev socket,id=evenkeel,path=$work/101.channel,server=on,wait=off \
    -device virtio-serial-pci -device virtserialport,chardev=evenkeel,name=org.evenkeel.0 > "$work/qemu.log" 2>&1 &
qemu=$!
check "the name" port tap101i0 '.vm.name == "web2" and .vm.found_by == "process"'
check "QEMU's process" port tap101i0 ".vm.process == $qemu"
check "QEMU listens" port tap101i0 '.channel.is_connected and (.channel.address | endswith("/101.channel"))'
kill "$qemu"
check "nobody has the tap" port tap101i0 '.vm == null and .channel.address == "auto"'
# Another process listens where this VM's agent would be.
qemu-system-x86_64 -name web3 -S -nodefaults -display none -machine q35 -accel tcg -m 64 \
    -netdev type=tap,id=net0,ifname=tap101i0,script=no,downscript=no -device virtio-net-pci,netdev=net0,romfile= \
    -chardev socket,id=evenkeel,path=$work/102.channel,server=on,wait=off \
    -device virtio-serial-pci -device virtserialport,chardev=evenkeel,name=org.evenkeel.0 > "$work/qemu.log" 2>&1 &
qemu=$!
check "QEMU listens" port tap101i0 '.channel.is_connected and .vm.name == "web3"'
python3 -c '
import os, socket, sys
os.unlink(sys.argv[1])
own = socket.socket(socket.AF_UNIX)
own.bind(sys.argv[1])
own.listen()
while True:
    own.accept()
' "$work/102.channel" &
other=$!
check "another has its place" sh -c "ss -xlp | grep 102.channel | grep 'pid=$other'"
# Channels with another heartbeat are connected anew.
printf '[channel]\nheartbeat_ms = 300\n' >> "$work/host.toml"
kill -HUP "$agent"
check "it is not believed" port tap101i0 "(.channel.is_connected | not) and
    (.channel.trouble | startswith(\"process $other of user 0 listens there\"))"
kill "$other" "$qemu"
ip link del tap101i0

echo "== the end"
"$binary" host --stop --run-dir "$work/run" --pin-dir "$work/bpf/evenkeel" > /dev/null
wait "$agent" || failed=$((failed + 1))
agent=
check "no pins" [ ! -e "$work/bpf/evenkeel" ]
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] || tail -n 40 "$work/agent.log"
[ "$failed" = 0 ]
