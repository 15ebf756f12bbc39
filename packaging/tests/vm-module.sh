# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh
# Part of in-vm.sh: the guest module, by its package and by the binary alone.

module_works() {
    evenkeel guest pvtcp load && evenkeel guest pvtcp status --json > /run/seen/pvtcp.json &&
        cat /run/seen/pvtcp.json && jq -e '.loaded and (.doubts | length == 0)' /run/seen/pvtcp.json
}
says_what_is_missing() {
    mv "/lib/modules/$(uname -r)/build" /run/seen/build
    evenkeel guest pvtcp install > /run/seen/install.out 2>&1
    code=$?
    mv /run/seen/build "/lib/modules/$(uname -r)/build"
    cat /run/seen/install.out
    is "$code" 3 && grep -q "^error: .* for lack of headers of kernel $(uname -r)" /run/seen/install.out &&
        grep -q '^help: apt-get install linux-headers-' /run/seen/install.out
}

say "evenkeel-pvtcp-dkms"
check "apt install ./evenkeel.deb" apt install ./1.deb
snapshot before-module
check "apt install ./evenkeel-pvtcp-dkms.deb builds the module" apt install ./dkms.deb
check "nothing is loaded by that" sh -c '! grep -q evenkeel /proc/modules'
check "dkms has it installed" sh -c 'dkms status | grep -q "evenkeel-pvtcp/.*$(uname -r).*: installed"'
check "it loads, and every probe is in place" module_works
check "evenkeel guest pvtcp install leaves a package's module alone" sh -c '! evenkeel guest pvtcp install'
check "apt purge while it is loaded" apt purge evenkeel-pvtcp-dkms
snapshot after-module
check "nothing is left" same before-module after-module

say "evenkeel guest pvtcp install, by dkms"
check "what is missing is said" says_what_is_missing
check "install" evenkeel guest pvtcp install
check "it loads, and every probe is in place" module_works
check "remove" evenkeel guest pvtcp remove
snapshot after-install
check "nothing is left" same before-module after-install

say "evenkeel guest pvtcp install, without dkms"
mv /usr/sbin/dkms /run/seen/dkms
check "install" evenkeel guest pvtcp install
check "it loads, and every probe is in place" module_works
check "remove" evenkeel guest pvtcp remove
mv /run/seen/dkms /usr/sbin/dkms
snapshot after-make
check "nothing is left" same before-module after-make
check "apt purge" apt purge evenkeel
