# SPDX-License-Identifier: MIT OR Apache-2.0
#
# make demo    the demonstration, from nothing: installs, fetches kernels, builds, runs
# make build   the evenkeel binary
# make arm64   the same for arm64
# make test    all checks and tests
# make check   those that need neither root nor VMs: minutes less
# make deb     Debian packages of it; make rpm for rpm
# make python  the Python package's wheel
# make site    these documents as pages
# make deps    what building and the lab need (Debian 12 or 13, as root)

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Targets share cargo's lock and the machine's two cores.
.NOTPARALLEL:

CARGO := packaging/cargo.sh
TARGET := $(shell uname -m)-unknown-linux-gnu
EVENKEEL := target/$(TARGET)/release/evenkeel
C_FILES = $(shell find algo kernel -name '*.[ch]' ! -name '*.mod.c' ! -name vmlinux.h)

# One static binary: it runs in the lab's VMs and on hosts older than the machine that built it. The target is named so
# that these flags stay away from build scripts and procedural macros.
export CARGO_BUILD_TARGET := $(TARGET)
export RUSTFLAGS := -C target-feature=+crt-static
export CARGO_TERM_COLOR ?= auto

# A number of runs stands where it is not the scenario's.
RESULTS := demo $(addprefix pvtcp/,shared-core fig4-rtt table1-one-sender fig5-senders fig6-rto-response fig8-microview fig9-rto fig13-incast fig13-delayed-ack fig13-density:2 \
             s14-rto-runs s17-detection s18-ack-cost s31-port-queue) \
           $(addprefix proboscis/,incast answers one-to-all all-to-all) \
           $(addprefix vflood/,fig6 answer wire fig7 fig7-slow-port rest fig10 with-vsnoop migration:2 table1 table1-slices table1-crowded fairness) $(addprefix vsnoop/,receiver:6 idle ask bulk:1) \
           $(addprefix cera/,fig2:3 fig4:3 fig5:3 with-vflood:3) $(addprefix hosts/,ping transfers answer bulk) tax/mixed

# Small sets of runs, by the names of their scenarios.
KEPT := docs/results/data

SIMULATIONS = $(patsubst scenarios/sim/%.toml,%,$(sort $(wildcard scenarios/sim/pvtcp/*.toml scenarios/sim/proboscis/*.toml scenarios/sim/cera/*.toml scenarios/sim/vflood/*.toml scenarios/sim/hosts/*.toml scenarios/sim/tax/*.toml)))

.PHONY: help demo build profiled arm64 deb deb-arm64 rpm packages-test libvirt-test test check test-rules python test-python site lint lint-full audit fmt bench bench-host bench-hold bench-cera bench-cera-peers fuzz noise flood soak validate results results-sim results-check results-verify scorecard deps deps-test deps-peers clean

help:
	@echo 'make demo       install what is missing, build, and run the demonstration (as root)'
	@echo 'make build      build $(EVENKEEL)'
	@echo 'make profiled   the same, faster for sweeps of hours: compiled by a profile of the simulator (two builds; needs llvm-profdata)'
	@echo 'make arm64      the binary for arm64, in target/aarch64-unknown-linux-gnu/release (Debian; fetches its libraries once)'
	@echo 'make deb        target/package/*.deb: evenkeel and evenkeel-pvtcp-dkms (installs cargo-deb below target/: minutes)'
	@echo 'make deb-arm64  the same for arm64'
	@echo 'make rpm        the same for rpm (installs cargo-generate-rpm below target/)'
	@echo 'make packages-test  both installed, upgraded, removed and purged in clean Debian 12 and 13 VMs (as root; half an hour)'
	@echo 'make libvirt-test  the host agent beside the real libvirtd (as root, with libvirt; not part of make test; minutes)'
	@echo 'make test       all checks and tests (installs what they need)'
	@echo 'make check      those of them that need neither root nor VMs'
	@echo 'make test-rules Prometheus rules and the dashboard, by promtool (needs it; not part of make test)'
	@echo 'make python     the wheel of the Python package, in target/wheels'
	@echo 'make test-python  its tests and notebooks, in a venv (not part of make test)'
	@echo 'make site       the documents as pages, in target/site (needs python3-venv; fetches MkDocs)'
	@echo 'make lint       format, columns, imports, clippy, licences, citations'
	@echo 'make lint-full  lint, and cargo-deny (installs it: more than 3 minutes; wants a current Rust)'
	@echo 'make audit      known vulnerabilities, by cargo-deny (fetches its database)'
	@echo 'make fmt        format the code'
	@echo 'make bench      the simulator: its speed, beside that of ns-3 (installs ns-3)'
	@echo 'make bench-host the host agent: ns per packet, iperf3 with and without it, and ports that come and go (as root; needs iperf3, jq, nft)'
	@echo 'make bench-hold what it costs to hold packets (vFlood), in a VM with the newest kernel (as root)'
	@echo 'make bench-cera CERA: memcached beside iperf3 on one uplink, and what the controller costs (as root; installs memcached)'
	@echo 'make bench-cera-peers  the same beside CoDel, FQ-CoDel, DCTCP, fq and MLFQ, in a VM with the newest kernel (as root)'
	@echo 'make noise      ten million random packets through the parsers and the eBPF programs (as root; minutes)'
	@echo 'make fuzz       the parsers under a fuzzer, FUZZ_SECONDS (60) for each target, and the random tests with a fresh seed'
	@echo 'make flood      a million SYNs from one VM through the host agent (as root)'
	@echo 'make soak       applications through enforced ports while agents and ports come and go, and the same without (as root; SOAK_SECONDS each, 3600)'
	@echo 'make validate   the simulator: its results, beside those of ns-3 computed again (installs ns-3)'
	@echo 'make results    run every experiment of docs/results in the lab again (hours)'
	@echo 'make results-sim  the same in the simulator (an hour)'
	@echo 'make results-check  say which pages of docs/results are of other code or of another scenario than is here now'
	@echo 'make results-verify  run the simulator'"'"'s kept runs again; pages whose runs are all equal are current (an hour)'
	@echo 'make scorecard  hold what the papers report against the runs that are kept: docs/results/scorecard.md (a minute)'
	@echo 'make deps       install what building and the lab need'
	@echo 'make clean      remove what was built; the kernels stay in the cache'

demo: deps build
	$(EVENKEEL) lab scenarios/demo.toml

build:
	$(CARGO) build --release --locked --package evenkeel

# The simulations that the profile is made of: a minute of each kind. Others gain by it as well.
PROFILED := $(patsubst %,scenarios/sim/%.toml,validation/star-bulk validation/dumbbell-bulk hosts/bulk cera/fig2 pvtcp/table2 vflood/fig6)

profiled:
	sh packaging/profiled.sh $(PROFILED)

arm64:
	sh packaging/deps.sh --with-arm64
	sh packaging/arm64.sh

deb rpm: build
	sh packaging/package.sh $@ $(EVENKEEL)

deb-arm64: build arm64
	sh packaging/package.sh deb target/aarch64-unknown-linux-gnu/release/evenkeel '' $(EVENKEEL)

packages-test: build
	sh packaging/tests/packages.sh $(EVENKEEL)

libvirt-test: build
	sh packaging/tests/libvirt.sh $(EVENKEEL)

# Tests with VMs and namespaces wait more than they compute: one more runs at a time than there are CPUs.
test: deps-test lint
	RUST_TEST_THREADS=$$(($$(nproc) + 1)) $(CARGO) test --workspace --locked

# Tests that make namespaces, taps or VMs, which `make check` leaves out: whole files by name (the same kind in every
# crate), and single tests.
WITH_ROOT := datapath guest host lab packages
AS_ROOT := attached:: uplink:: links:: netns:: trials_leave_nothing what_others_can_write_is_not_believed
CHECKED := $(sort $(filter-out $(WITH_ROOT),$(patsubst %.rs,%,$(notdir $(wildcard crates/*/tests/*.rs) \
             $(patsubst %/main.rs,%,$(wildcard crates/*/tests/*/main.rs))))))

check: lint
	$(CARGO) test --workspace --locked --lib --bin evenkeel $(addprefix --test ,$(CHECKED)) -- $(addprefix --skip ,$(AS_ROOT))

test-rules:
	sh packaging/tests/rules.sh

python:
	sh packaging/python.sh wheel

# Results are compared with those of the debug binary, which `make test` has built already.
test-python:
	$(CARGO) build --locked --package evenkeel
	EVENKEEL=target/$(TARGET)/debug/evenkeel sh packaging/python.sh test

# A link that leads nowhere is an error.
site: target/site-venv/made
	NO_MKDOCS_2_WARNING=1 target/site-venv/bin/mkdocs build --strict

target/site-venv/made: docs/requirements.txt
	python3 -m venv --clear target/site-venv
	target/site-venv/bin/pip install --quiet --requirement $<
	touch $@

lint:
	$(CARGO) fmt --all --check
	clang-format-19 --dry-run -Werror $(C_FILES)
	sh packaging/check-dependencies.sh $(CARGO)
	python3 packaging/check-imports.py $(CARGO)
	python3 packaging/check-columns.py
	sh packaging/check-citations.sh
	python3 packaging/check-links.py
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

lint-full: lint
	command -v cargo-deny >/dev/null || env -u CARGO_BUILD_TARGET -u RUSTFLAGS $(CARGO) install --locked cargo-deny
	$(CARGO) deny check licenses bans sources

audit:
	$(CARGO) deny check advisories

fmt:
	$(CARGO) fmt --all
	clang-format-19 -i $(C_FILES)

# Every experiment of docs/results in the lab, one after the other: some hours on two cores. Leave the machine alone meanwhile. It goes on where it was
# interrupted; runs of other code are refused, and RESUME= makes all again.
RESUME := --resume

results: build
	RESUME=$(RESUME) sh packaging/results.sh $(EVENKEEL) $(KEPT) $(RESULTS)

# Every simulation of docs/results: an hour on two cores. It goes on where it was interrupted; runs of other code are refused, and RESTART=--restart makes
# all again.
RESTART :=

results-sim: build
	for name in $(SIMULATIONS); do \
	    $(EVENKEEL) sweep $(RESTART) scenarios/sim/$$name.toml && \
	    $(EVENKEEL) report results/sim/$$name --page docs/results/sim-$$(echo $$name | tr / -).md --keep $(KEPT)/sim/$$name || exit 1; \
	done

# An outdated page is no error: it is marked as outdated.
results-check: build
	$(EVENKEEL) report docs/results --check --mark

# A run depends only on its scenario and the code: one that is equal to the last digit is the present code's.
results-verify: build
	$(EVENKEEL) verify docs/results/data
	$(EVENKEEL) report docs/results --check --mark

# Uses the runs that are kept, or else those that were made here; runs nothing.
scorecard: build
	$(EVENKEEL) scorecard $(KEPT) results --page docs/results/scorecard.md

# Built like the release. NS3_PEER is the program that the simulator is compared with; without it the simulator is
# measured alone.
bench: deps-peers
	$(MAKE) -C bench/ns3
	NS3_PEER=$(CURDIR)/target/ns3/peer $(CARGO) bench --locked --package evenkeel-sim --bench speed

bench-host: build
	$(CARGO) bench --locked --package evenkeel-agent --bench datapath
	bench/host/throughput.sh $(EVENKEEL) 40 1 0,0
	bench/host/throughput.sh $(EVENKEEL) 40 1
	bench/host/ports.sh $(EVENKEEL)

bench-hold:
	$(CARGO) bench --locked --package evenkeel --bench hold
	sh bench/host/counted.sh $(CARGO) bench --locked --package evenkeel --bench hold -- release messages
	$(CARGO) bench --locked --package evenkeel --bench hold -- policies

LOAD = target/$(TARGET)/release/examples/memcached_load

# At a tenth of the paper's rate, and so with epochs ten times as long. Seven minutes.
bench-cera: build
	sh packaging/deps.sh --with-cera
	$(CARGO) build --release --locked --package evenkeel-testbed --example memcached_load
	bench/host/cera-cost.sh $(EVENKEEL) 1000 5 4 32 128
	mkdir -p results
	bench/host/cera.sh $(EVENKEEL) $(LOAD) 100 5 alone:0 fifo:24 bbr:24 htb:24 cera60:24 cera25:24 cera60-clients:24 cera60-mixed:24 \
	    fifo:1 cera60:1 cera25:1 fifo:48 cera60:48 weights:1 weights:2 weights:4 weights-clients:1 weights-clients:2 \
	    weights-clients:4 | tee results/cera-host.jsonl
	bench/host/cera-events.sh $(EVENKEEL) $(LOAD) 100 wake:4 wake-clients:4 uneven:8 kill:8 kill-clients:8 stop:8 guests-killed:8 guests-stopped:8 \
	    cut:8 garbage:8 | tee results/cera-events.jsonl
	bench/host/cera-page.sh results/cera-host.jsonl results/cera-events.jsonl

PEERS := fifo tsq bbr limit fq codel codel-scaled fq_codel mlfq dctcp cera60 cera25 cera60-clients
PEER_FLOWS := 1 6 24 48
PEER_SECONDS := 5
PEER_RUNS := 1

# The same beside the queues of current Linux, in a VM with the newest kernel, at 1.5% of the paper's rate: translated code can do no more. Half an hour; with
# PEERS="fifo cera60" PEER_FLOWS=24 a minute.
bench-cera-peers: build
	sh packaging/deps.sh --with-cera
	$(CARGO) build --release --locked --package evenkeel-testbed --example memcached_load
	$(CARGO) build --release --locked --package evenkeel-lab --example in_vm
	mkdir -p results
	bench/host/cera-in-vm.sh target/$(TARGET)/release/examples/in_vm $(EVENKEEL) $(LOAD) 15 $(PEER_SECONDS) alone:0 \
	    $(foreach run,$(shell seq $(PEER_RUNS)),$(foreach flows,$(PEER_FLOWS),"$(addsuffix :$(flows),$(PEERS))")) > results/cera-peers.jsonl
	bench/host/cera-page.sh results/cera-peers.jsonl

# NOISE packets through the parsers with sanitizers in the C code, and through the programs in the kernel.
NOISE := 10000000
FUZZ_SECONDS := 60
FLOOD := 1000000

noise:
	crates/algo/fuzz/fuzz.sh noise $(NOISE)
	EVENKEEL_NOISE=$(NOISE) $(CARGO) test --locked --package evenkeel-agent --test datapath packets_of_noise -- --nocapture

# `make test` has a fixed seed for random tests (.cargo/config.toml); `make fuzz` takes a fresh one, or
# PROPTEST_RNG_SEED to repeat a run.
fuzz: export PROPTEST_RNG_SEED := $(or $(PROPTEST_RNG_SEED),$(shell od -An -N8 -tu8 /dev/urandom | tr -d ' '))
fuzz:
	crates/algo/fuzz/fuzz.sh run $(FUZZ_SECONDS)
	@echo "random tests: PROPTEST_RNG_SEED=$$PROPTEST_RNG_SEED"
	$(CARGO) test --locked --package evenkeel-algo --package evenkeel-quote --package evenkeel-scenario --package evenkeel-report --package evenkeel-sim
	$(CARGO) test --locked --package evenkeel-agent --package evenkeel-lab --lib
	$(CARGO) test --locked --package evenkeel --bin evenkeel

flood:
	EVENKEEL_FLOOD=$(FLOOD) $(CARGO) test --locked --package evenkeel --test host flood -- --nocapture

# Widely used services through two hosts with the agent, every byte compared; then as long without it, or for
# SOAK_WITHOUT seconds. Takes half a core to a whole one.
SOAK_SECONDS := 3600
SOAK_WITHOUT := $(SOAK_SECONDS)
SOAK_SEED := 1

soak: build
	sh packaging/deps.sh --with-soak
	$(CARGO) build --release --locked --package evenkeel-testbed --example soak_load
	mkdir -p results
	bench/host/soak.sh $(EVENKEEL) target/$(TARGET)/release/examples/soak_load $(SOAK_SEED) $(SOAK_SECONDS) $(SOAK_WITHOUT) > results/soak.jsonl

# Inputs from the scenarios, what ns-3 makes of them, and the comparison.
validate: deps-peers
	rm -f bench/ns3/inputs/*.txt bench/ns3/outputs/*.json
	UPDATE_GENERATED=1 $(CARGO) test --release --locked --package evenkeel-sim --test validation peer
	$(MAKE) -C bench/ns3 outputs
	$(CARGO) test --release --locked --package evenkeel-sim --test validation -- --nocapture --test-threads=1

deps:
	sh packaging/deps.sh

deps-test:
	sh packaging/deps.sh --with-tests

deps-peers:
	sh packaging/deps.sh --with-peers

clean:
	$(CARGO) clean
