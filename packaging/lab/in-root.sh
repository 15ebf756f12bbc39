#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Runs a command inside a root made by make-root.sh.
#
#   in-root.sh ROOT_DIR [-b SRC:DST | -t DST]... -- COMMAND ARG...
#
# -b mounts SRC of this machine at DST inside, -t mounts an empty tmpfs there. All mounts are in a namespace of their
# own and end with the command, however it ends; the root itself gets nothing but empty mount points.
set -eu

if [ "${EVENKEEL_IN_ROOT-}" != "$$" ]; then
    # exec keeps the process id, so a stale variable from outside cannot be mistaken for ours.
    EVENKEEL_IN_ROOT=$$ exec unshare --mount --propagation private -- sh "$0" "$@"
fi
unset EVENKEEL_IN_ROOT
# A folder of this machine, which the root may not have.
unset TMPDIR

root=$1
shift
# A root that is a mount point: some programs inside expect one, this script among them.
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do
    case $1 in
    -b)
        src=${2%%:*}
        dst=$root${2#*:}
        if [ -d "$src" ]; then
            mkdir -p "$dst"
        else
            [ -e "$dst" ] || : >"$dst"
        fi
        mount --bind "$src" "$dst"
        ;;
    -t)
        mkdir -p "$root$2"
        mount -t tmpfs -o mode=755 tmpfs "$root$2"
        ;;
    *)
        echo "in-root: what is $1? (-b SRC:DST, -t DST or -- COMMAND)" >&2
        exit 2
        ;;
    esac
    shift 2
done
shift
exec chroot "$root" "$@"
