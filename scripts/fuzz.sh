#!/bin/bash
# fuzz.sh TARGET SECONDS: runs one of fuzz/fuzz_targets, starting from the committed corpus.
#
# Crashes are written to fuzz/artifacts/TARGET. Copy inputs worth keeping to fuzz/corpus/TARGET,
# which `cargo test` replays. New inputs go to a directory under target/, so that a run does not
# change the committed corpus.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=${1:-} seconds=${2:-60}
if [[ ! -f fuzz/fuzz_targets/$name.rs ]]; then
  echo "fuzz: there is no target '$name'; there are: $(cd fuzz/fuzz_targets && printf '%s ' *.rs | sed 's/\.rs / /g')" >&2
  exit 2
fi
target=${CARGO_TARGET_DIR:-$PWD/target}
export PATH=$target/tools/bin:$PATH
if ! cargo fuzz --version >/dev/null 2>&1; then
  echo "fuzz: installing cargo-fuzz under $target/tools"
  cargo install --quiet --locked cargo-fuzz --root "$target/tools"
fi
work=$target/fuzz-corpus/$name
mkdir -p "$work" "fuzz/corpus/$name"
# The sanitizer needs options that the stable compiler does not offer.
export RUSTC_BOOTSTRAP=1
exec cargo fuzz run "$name" "$work" "fuzz/corpus/$name" -- -max_total_time="$seconds" -print_final_stats=1
