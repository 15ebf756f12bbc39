#!/bin/sh
# counted.sh COMMAND...: runs it with a QEMU that counts instructions. Each is a nanosecond of its guests' clocks, so that what they measure while
# they work is how many instructions it takes, whatever else this machine does.
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
