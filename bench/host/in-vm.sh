# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Shared by scripts that run others of this folder in a VM with the newest kernel (in_vm). To be sourced, with `here`
# set; files for the VM's /bench go to `folder`.

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The VM has neither jq nor its libraries, except libc's.
cp "$(command -v jq)" "$folder"
ldd "$(command -v jq)" | awk '$3 ~ /lib(jq|onig)/ { print $3 }' | xargs cp -L -t "$folder"
with_bench="PATH=/bench:\$PATH LD_LIBRARY_PATH=/bench"
