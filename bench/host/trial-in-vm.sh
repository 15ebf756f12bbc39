#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# trial.sh in a VM with the newest kernel, for the bed `floods`.
#
#   trial-in-vm.sh IN_VM EVENKEEL TRIAL_LOAD [RUNS] [SECONDS] [BED...]
set -eu

in_vm=$1 evenkeel=$2 load=$3 runs=${4-10} seconds=${5-110}
[ $# -lt 5 ] && shift $# || shift 5
beds=${*:-floods}
here=$(dirname "$(realpath "$0")")
. "$here/in-vm.sh"

cp "$here/trial.sh" "$here/trial-table.sh" "$here/namespaces.sh" "$folder"
for program in soak_vm delay_vm; do cc -O2 -static -pthread -o "$folder/$program" "$here/$program.c"; done
strip -o "$folder/trial_load" "$load"
"$in_vm" "$evenkeel" "$folder" 2 1024 "modprobe -a bridge veth tun sch_htb
    $with_bench sh /bench/trial.sh /bin/evenkeel /bench/trial_load $runs $seconds $beds"
