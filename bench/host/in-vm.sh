# SPDX-License-Identifier: MIT OR Apache-2.0
#
# What scripts share that run others of this folder in a VM with the newest kernel (in_vm). To be sourced, with `here` set; what is to be in
# the VM's /bench goes to `folder`.

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# jq is not in the VM, and neither are its libraries, other than libc's.
cp "$(command -v jq)" "$folder"
ldd "$(command -v jq)" | awk '$3 ~ /lib(jq|onig)/ { print $3 }' | xargs cp -L -t "$folder"
with_bench="PATH=/bench:\$PATH LD_LIBRARY_PATH=/bench"
