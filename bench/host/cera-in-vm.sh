#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# cera.sh in a VM with the newest kernel, which has qdiscs that this machine's may lack; the VMs are network namespaces
# in it.
#
#   cera-in-vm.sh IN_VM EVENKEEL MEMCACHED_LOAD RATE_MBIT SECONDS "SCHEME:FLOWS ..." ...
#
# The schemes of one argument run in one bed, and are printed when all of them have run.
set -eu

in_vm=$1 evenkeel=$2 load=$3 rate=$4 seconds=$5
shift 5
here=$(dirname "$(realpath "$0")")
. "$here/in-vm.sh"

cp "$here"/cera.sh "$here"/cera-bed.sh "$here"/namespaces.sh "$folder"
strip -o "$folder/memcached_load" "$load"
clang-19 -O2 -g -target bpf "-I/usr/include/$(uname -m)-linux-gnu" -c "$here/demote.bpf.c" -o "$folder/demote.o"
for one in "$@"; do
    set -- "$@" "$with_bench sh /bench/cera.sh /bin/evenkeel /bench/memcached_load $rate $seconds $one"
    shift
done
"$in_vm" "$evenkeel" "$folder" 2 1024 "$@"
