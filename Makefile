# The menu. What stands behind it: scripts/ (bash), xtask/ (Rust), tests/vm/ (virtual machines). CI calls the same names.
# Variables: TARGET and SECONDS (fuzz), ARGS (run, bench: more arguments for the program).

.DEFAULT_GOAL := help
.PHONY: help build check test run bench fuzz fmt doc clean

CARGO ?= cargo
BIN = $${CARGO_TARGET_DIR:-target}/release/ebof
SECONDS ?= 60
TARGET ?= tcp_controller
ARGS ?=

help: ## this menu
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the program and the engine for fio, optimized: target/release/ebof, target/release/libebof_fio.so
	$(CARGO) build --release --locked -p ebof
	$(CARGO) rustc --release --locked -p ebof-fio --lib --crate-type cdylib

check: ## format, clippy, the house's rules, licences, instruction counts, unit tests (under three minutes)
	@scripts/test.sh check

test: ## everything: check, all tests, interoperation with Linux in virtual machines (prints the time of each part)
	@scripts/test.sh all

run: ## a demonstration: a drive with files is served, attached, mounted, compared and measured, and all is put away
	@scripts/packages.sh demo
	$(CARGO) build --release --locked -p ebof
	@$(BIN) demo $(ARGS)

bench: ## ebof, the raw limit and the peers that are there, side by side against the goals (docs/performance.md); ARGS="--only read4k --rounds 3"
	$(CARGO) build --release --locked -p ebof
	@$(CARGO) xtask bench $(ARGS)

fuzz: ## one fuzz target for a while: make fuzz TARGET=tcp_host SECONDS=600
	@scripts/fuzz.sh $(TARGET) $(SECONDS)

fmt: ## formats all sources
	$(CARGO) fmt --all

doc: ## the libraries' documentation: target/doc
	$(CARGO) doc --workspace --no-deps --locked

clean: ## removes what was built; the virtual machines' cache (~/.cache/ebof-vm) stays
	$(CARGO) clean
