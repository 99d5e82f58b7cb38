# The menu. The work is done by scripts/ (bash), xtask/ (Rust) and tests/vm/ (virtual machines). CI
# uses the same targets.
# Variables: TARGET and SECONDS (fuzz), ARGS (run, run-box, bench, bench-vm: further arguments of
# the program), GUEST (run-box), NAME (scenario).

.DEFAULT_GOAL := help
.PHONY: help page page-if-npm deb build check test run run-box scenario bench bench-vm fuzz fmt doc clean

CARGO ?= cargo
BIN = $${CARGO_TARGET_DIR:-target}/release/ebof
# Built in less than half of the time, and slower (docs/adr/0097-a-quick-build.md).
QUICK_DEMO = $${CARGO_TARGET_DIR:-target}/quick/examples/demo
DEMO = $${CARGO_TARGET_DIR:-target}/release/examples/demo
SECONDS ?= 60
TARGET ?= tcp_controller
NAME ?= pool
ARGS ?=
# A virtual machine takes part in run-box if its QEMU has been unpacked; GUEST=1 unpacks it.
GUEST ?= $(wildcard $(or $(EBOF_VM_CACHE),$(HOME)/.cache/ebof-vm)/qemu/stamp)

help: ## this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

page: ## the web page that the program embeds, with Node.js 18 or later: page/dist
	@cd page && { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --ignore-scripts; }
	@cd page && npm run --silent check && npm run --silent build

page-if-npm:
	@if ! command -v npm >/dev/null; then echo "npm is missing: the program is built without its web page; install Node.js 18 or later (apt install nodejs npm) for it"; \
	elif ! $(MAKE) --no-print-directory page; then echo "the web page could not be built (see above): the program is built without it, or with that of an earlier build"; fi

build: page-if-npm ## the program with its web page, and the engine for fio, optimized: target/release/ebof, target/release/libebof_fio.so
	$(CARGO) build --release --locked -p ebof
	$(CARGO) rustc --release --locked -p ebof-fio --lib --crate-type cdylib

deb: build ## Debian packages of that: target/deb/ebof_VERSION_ARCH.deb, and ebof-dbgsym
	@scripts/deb.sh

check: ## format, clippy, the project's rules, licences, instruction counts, unit tests (under three minutes)
	@scripts/test.sh check

test: ## everything: check, all tests, interoperation with Linux in virtual machines (prints the time of each part)
	@scripts/test.sh all

run: ## a demonstration: serves a drive with files, attaches and mounts it, compares and measures, and cleans up; leaves target/quick/ebof and libebof_fio.so
	@scripts/packages.sh demo
	@$(MAKE) --no-print-directory page-if-npm
	$(CARGO) build --profile quick --locked -p ebof -p ebof-fio --lib --bins --example demo
	@$(QUICK_DEMO) $(ARGS)

run-box: ## a demonstration: functions of a drive are given to ports, measured and moved while they are used; GUEST=1: measured in a virtual machine, too
	@scripts/packages.sh demo
	@$(MAKE) --no-print-directory page-if-npm
	$(CARGO) build --release --locked -p ebof --bins --example demo
	@$(if $(GUEST),tests/vm/setup.sh && tests/vm/setup-qemu.sh)
	@$(DEMO) --box $(if $(GUEST),--guest tests/vm/box-guest.sh) $(ARGS)

scenario: ## plays a scenario of docs/scenarios on this machine: make scenario NAME=pool
	$(CARGO) build --release --locked -p ebof
	@EBOF=$(BIN) docs/scenarios/$(NAME).sh

bench: ## ebof, the raw limit and other installed targets, measured alternately and compared with the goals, and fair shares (docs/performance.md); ARGS="--only read4k --rounds 3"
	$(CARGO) build --release --locked -p ebof
	@$(CARGO) xtask bench $(ARGS)
	@$(if $(strip $(ARGS)),,$(CARGO) xtask bench direct)

bench-vm: ## ebof's target beside the kernel's, over RDMA and TCP, in a virtual machine: ratios (docs/performance.md); ARGS="-r 3 rdma"
	$(CARGO) build --release --locked -p ebof
	@tests/vm/bench.sh $(ARGS)

fuzz: ## one fuzz target for a time: make fuzz TARGET=tcp_host SECONDS=600
	@scripts/fuzz.sh $(TARGET) $(SECONDS)

fmt: ## formats all sources
	$(CARGO) fmt --all

doc: ## the libraries' documentation: target/doc
	$(CARGO) doc --workspace --no-deps --locked

clean: ## removes build results; the cache of the virtual machines (~/.cache/ebof-vm) is kept
	$(CARGO) clean
