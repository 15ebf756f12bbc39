# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh
# Part of in-vm.sh: the package for rpm, by rpm itself. The system is not rpm's: dependencies are not checked
# (--nodeps), the database is new, and Debian 12's rpm wants to be told that this is meant (--force-debian).

force=
! rpm --force-debian --version > /dev/null 2>&1 || force=--force-debian

say "rpm -i, -U and -e"
# Fish's folder is another package's.
mkdir -p /usr/share/fish/vendor_completions.d
snapshot before-rpm
check "rpm -i" rpm $force -i --nodeps ./1.rpm
check "installing enables, starts and pins nothing" nothing_began
check "configurations are marked as such" sh -c 'rpm -q --configfiles evenkeel | grep -cx "/etc/evenkeel/\(host\|guest\).toml" | grep -qx 2'
make_port
check "the agent starts" starts evenkeel-host
check "status has the port" host_runs
pid=$(agent_pid host)
links=$(programs)
check "rpm -U" rpm $force -U --nodeps ./2.rpm
check "a new agent has the old one's programs" sh -c "[ '$(programs)' = '$links' ] && [ '$(agent_pid host)' != '$pid' ]"
check "rpm -e" rpm $force -e evenkeel
ip link del br0 2> /dev/null
ip link del vnet7 2> /dev/null
ip netns del vm 2> /dev/null
snapshot after-rpm
check "nothing is left" same before-rpm after-rpm
