#!/bin/sh
# counted.sh COMMAND...: runs it with a QEMU that counts instructions. Each instruction is a nanosecond of the guests'
# clocks, so that a guest at work measures how many instructions the work takes, whatever else this machine does.
set -e
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
qemu=$(command -v qemu-system-x86_64)
cat >"$directory/qemu-system-x86_64" <<END
#!/bin/sh
for argument; do
    shift
    set -- "\$@" "\$(echo "\$argument" | sed s/thread=multi/thread=single/)"
done
exec $qemu "\$@" -icount shift=0
END
chmod +x "$directory/qemu-system-x86_64"
PATH="$directory:$PATH" "$@"
