#!/bin/bash
# test.sh: runs the project's tests in parts, each with a heading and a time limit of its own, and counts them.
#
# test.sh check    format, clippy, the house's rules, licences, instruction counts, unit tests
# test.sh all      check, documentation, every test of the workspace, the release build, the virtual machines; in a fresh
#                  target directory without what the compiler keeps to build again sooner (CARGO_INCREMENTAL)
#   EBOF_TEST_PARTS="fmt vm"   only these parts (of `all`, in its order)
#   CARGO_TARGET_DIR           as for cargo; the logs are in its test-logs/
#
# A static check counts as one. Tests count as their programs say; a test that prints a line beginning with "SKIPPED:" counts
# as skipped, and "SKIPPED on ..." or "SKIPPED for ..." as one part skipped of a test that passed. The times of parts, programs,
# scenarios and of the slowest tests are printed. The last line is "N passed, M failed, K skipped"; the status is 0 if nothing
# failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

mode=${1:-all}
target=${CARGO_TARGET_DIR:-target}
logs=$target/test-logs
mkdir -p "$logs"
export CARGO_TERM_COLOR=never PATH=$PATH:/usr/sbin:/sbin
export RUST_BACKTRACE=${RUST_BACKTRACE:-1}
unset MAKEFLAGS MFLAGS MAKELEVEL # no part is a make of this one
# What nobody is going to build again need not be kept for that.
[[ $mode != all || -d $target/debug/incremental ]] || export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

passed=0 failed=0 skipped=0
began=$EPOCHSECONDS
count() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }
say() { printf '%s\n' "$*"; }

# ---- running a part

# Whatever runs is in a process group of timeout's, out of a terminal's reach: it ends with us.
running=()
declare -A aside=() # by part, what goes on while others run
stop() {
  ((!${#running[@]} + ${#aside[@]})) || kill -TERM "${running[@]}" "${aside[@]}" 2>/dev/null
  wait
  say "interrupted by SIG$1"
  exit 130
}
for signal in INT TERM HUP; do
  # shellcheck disable=SC2064 # the signal of now is meant
  trap "stop $signal" $signal
done

# limited LOG SECONDS FILTER COMMAND...: runs a command with a time limit, its output into LOG and through FILTER to ours.
# The log is read as a file: something left running that holds on to the output cannot keep us.
limited() {
  local log=$1 limit=$2 filter=$3 status=0 work show
  shift 3
  : >"$log"
  timeout --kill-after=30 "$limit" "$@" >"$log" 2>&1 </dev/null &
  work=$!
  tail --pid="$work" -s 0.3 -n +1 -f "$log" 2>/dev/null | $filter &
  show=$!
  running=("$work")
  wait "$work" || status=$?
  running=()
  wait "$show"
  if ((status == 124 || status == 137)); then
    say "   time limit of $limit s exceeded" | tee -a "$log"
  fi
  return "$status"
}

# begin_aside PART SECONDS COMMAND...: begins what wait_aside waits for, where the processors have nothing else to do.
begin_aside() {
  timeout --kill-after=30 "$2" nice -n 19 "${@:3}" >"$logs/$1.log" 2>&1 </dev/null &
  aside[$1]=$!
}
# wait_aside PART: waits until it is over, and returns its status.
wait_aside() {
  local status=0
  running=("${aside[$1]}")
  unset "aside[$1]"
  wait "${running[0]}" || status=$?
  running=()
  return "$status"
}

quiet() { cat >/dev/null; }
# Before each line of a run of cargo test that begins a program: its name. Cargo names the crate only beside its unit tests.
# shellcheck disable=SC2016 # it is for awk
programs='
  /^ +Running / {
    file = $NF
    gsub(/^.*\/|-[0-9a-f]+\)$/, "", file)
    if ($2 == "unittests") { crate = file; source = $3 } else source = $2
    name = crate ": " source
  }
  /^ +Doc-tests / { name = $2 ": documentation" }'
# Of a run of cargo test: a line for each program that has tests. One with a main of its own has no line of results: its tests are
# counted.
results() {
  awk '
    function tell(what) { printf "   %-36s %s\n", name, what; fflush(); ok = failed = skipped = 0 }
    function close_program() {
      if (ok + failed + skipped) tell(ok " passed; " failed " failed; " skipped " skipped; " time " s one after the other")
      time = 0
    }
    /^ +(Running|Doc-tests) / { close_program() } '"$programs"'
    /^test result: ok. 0 passed; 0 failed; 0 ignored/ { next }
    /^test result: / { sub(/^test result: /, ""); sub(/ 0 measured; 0 filtered out;/, ""); tell($0); next }
    /^test .* \.\.\. .*<[0-9.]+s>$/ { seconds = $NF; gsub(/[<>s]/, "", seconds); time += seconds }
    /^test .* \.\.\. ok/ { ok++ }
    /^test .* \.\.\. (skipped|ignored)/ { skipped++ }
    /^test .* \.\.\. FAILED/ { failed++; print "   " $0; fflush() }
    END { close_program() }'
}
# What was skipped in a run of cargo test, by reason.
reasons() {
  awk '
    /^SKIPPED/ { why[$0]++ }
    /^test .* \.\.\. (skipped|ignored)/ { sub(/^test .* \.\.\. (skipped|ignored)[:,]? */, ""); why[$0]++ }
    END { for (one in why) printf "   skipped: %d x %s\n", why[one], substr(one, 1, 140) }' "$1" | sort
}
# The tests that took longest.
slowest() {
  awk "$programs"'
    /^test .* \.\.\. .*<[0-9.]+s>$/ { seconds = $NF; gsub(/[<>s]/, "", seconds); print seconds " s  " name " " $2 }' "$1" |
    sort -rn | head -n 10 | sed 's/^/   slowest: /'
}
# Of the virtual machines: everything, a little indented.
all_of_it() { sed -u 's/^/   /'; }

heading() { printf '== %-10s %s\n' "$1" "$2"; }
took() { printf '%d s' $((EPOCHSECONDS - part_began)); }
# verdict STATUS LOG: closes a part that counts as one.
verdict() {
  if (($1 == 0)); then
    count 1 0 0
    say "   ok, $(took)"
  else
    count 0 1 0
    tail -n 60 "$2" | sed 's/^/   | /'
    say "   FAILED, $(took); all of it is in $2"
  fi
}
# static NAME SECONDS WHAT COMMAND...: a part that counts as one.
static() {
  local name=$1 limit=$2 what=$3 log=$logs/$1.log status=0
  shift 3
  heading "$name" "$what"
  part_began=$EPOCHSECONDS
  limited "$log" "$limit" quiet "$@" || status=$?
  verdict "$status" "$log"
}

# ---- counting tests

# Prints "passed failed skipped" of a log of cargo test. A program without a "test result" line (its own main) counts by the
# lines of its tests.
tally() {
  awk '
    function close_program() { p += own_p; f += own_f; k += own_k; own_p = own_f = own_k = 0 }
    /^ +(Running|Doc-tests) / { close_program() }
    /^test .* \.\.\. ok/ { own_p++ }
    /^test .* \.\.\. FAILED/ { own_f++ }
    /^test .* \.\.\. (ignored|skipped)/ { own_k++ }
    /^test result: / {
      for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/) p += $(i - 1)
        if ($i ~ /^failed/) f += $(i - 1)
        if ($i ~ /^ignored/) k += $(i - 1)
      }
      own_p = own_f = own_k = 0
    }
    /^---- .* ----$/ { told = 0 }
    /^SKIPPED:/ && !told { told = 1; p--; k++ }
    /^SKIPPED (on|for)/ { k++ }
    END { close_program(); print p + 0, f + 0, k + 0 }' "$1"
}

# Times are an unstable option of the stable harness. What allows it is seen by the tests' programs, not by the compiler.
host=$(rustc -vV 2>/dev/null | sed -n 's/^host: //p')
host=${host//-/_}
harness=(--show-output -Zunstable-options --report-time)
# cargo_tests NAME SECONDS WHAT ARGUMENT...: a run of cargo test.
cargo_tests() {
  local name=$1 limit=$2 what=$3 log=$logs/$1.log status=0 counts
  shift 3
  heading "$name" "$what"
  part_began=$EPOCHSECONDS
  limited "$log" "$limit" results cargo test --locked --no-fail-fast "$@" -- "${harness[@]}" || status=$?
  read -ra counts < <(tally "$log")
  # A program that died, or did not compile, has no line of its own.
  if ((status != 0 && counts[1] == 0)); then counts[1]=1; fi
  count "${counts[@]}"
  reasons "$log"
  slowest "$log"
  if ((status != 0)); then
    # What failed, and what the compiler says; the end of it where nothing of the kind is found.
    awk '
      /^failures:/ { on = 1 } /^test result:/ { on = 0 } /^error/ { on = 2 } /^$/ && on == 2 { on = 0 }
      on { print "   | " $0; some = 1 }
      { last[NR % 20] = $0 }
      END { if (!some) for (i = NR - 19; i <= NR; i++) if (i > 0) print "   | " last[i % 20] }' "$log" | tail -n 200
    say "   FAILED; all of it is in $log"
  fi
  say "   ${counts[0]} passed, ${counts[1]} failed, ${counts[2]} skipped, $(took)"
}

# ---- the parts

part_packages() { scripts/packages.sh test; }
part_fmt() { static fmt 120 "cargo fmt --check" cargo fmt --all --check; }
part_clippy() {
  static clippy 1500 "cargo clippy, warnings denied" \
    cargo clippy --locked --workspace --all-targets -- -D warnings
}
# Of the whole workspace at once: packages built by themselves have features of their own, and what they use is built once more.
part_build() {
  local before=$failed
  static build 1800 "every library, program, test and example" \
    cargo build --locked --workspace --lib --bins --tests --examples
  ((failed > before)) || xtask=("$target/debug/xtask")
}
part_tidy() { static tidy 600 "xtask tidy: the house's rules" "${xtask[@]}" tidy; }
part_deny() {
  local what=(bans licenses sources) databases=("${CARGO_HOME:-$HOME/.cargo}"/advisory-db*)
  # Licences are looked at in any case; the rest is for who has cargo-deny, which takes longer to build than ebof.
  static licences 300 "xtask licences: every dependency's licence" "${xtask[@]}" licences
  if ! cargo deny --version >/dev/null 2>&1; then
    heading deny "bans, sources and advisories"
    say "   skipped: cargo-deny is not installed (cargo install --locked cargo-deny)"
    count 0 0 1
    return
  fi
  [[ ! -d ${databases[0]} ]] || what+=(advisories)
  static deny 300 "cargo deny --offline check ${what[*]}" cargo deny --offline check "${what[@]}"
  if [[ ! -d ${databases[0]} ]]; then
    say "   skipped: advisories: there is no database on this machine (cargo deny fetch)"
    count 0 0 1
  fi
}
part_instructions() {
  local log=$logs/instructions.log
  static instructions 900 "xtask instructions: instructions per command against the baseline" "${xtask[@]}" instructions
  # Without valgrind, or with another compiler, it says what it did not do.
  if grep -q '^SKIPPED' "$log"; then
    say "   skipped: $(sed -n 's/^SKIPPED: *//p' "$log")"
    count -1 0 1
  fi
}
part_unit() { cargo_tests unit 900 "unit tests" --workspace --lib --bins; }
part_doc() {
  # A library's files may point readers of the source at what is private. The program's arguments are no documentation.
  static doc 600 "cargo doc, warnings denied" \
    env RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --locked --workspace --no-deps --lib
}
part_tests() {
  cargo_tests tests 2400 "unit, property, conversation, corpus and end-to-end tests" --workspace --lib --bins --tests
}
part_doctests() {
  # They are run by rustdoc, which takes no unstable option.
  local harness=(--show-output)
  cargo_tests doctests 900 "documentation tests" --workspace --doc
}
# The levels share the time; each story is a seed, and the first ones are always the same.
part_simulation() {
  static simulation 300 "stories from seeds, against a model: cargo xtask simulate" \
    "$target/debug/examples/simulate" --seconds 100 --hours 1000
  sed 's/^/   /' "$logs/simulation.log"
}
begin_release() { begin_aside release 2400 cargo build --locked --release -p ebof; }
part_release() {
  local status=0
  heading release "cargo build --release, begun at the start"
  part_began=$EPOCHSECONDS
  wait_aside release || status=$?
  verdict "$status" "$logs/release.log"
}
part_vm() {
  local log=$logs/vm.log status=0 last
  heading vm "the real Linux host and target in virtual machines (tests/vm)"
  part_began=$EPOCHSECONDS
  if [[ -n ${aside[vm-setup]:-} ]]; then
    say "   waiting for the set-up, which began at the start"
    wait_aside vm-setup
    all_of_it <"$logs/vm-setup.log"
  fi
  # The binary just built; where that failed there may be an old one, which would prove nothing.
  if ((release_failed)); then
    say "   FAILED: there is no release binary to test"
    count 0 1 0
    return
  fi
  EBOF=$target/release/ebof limited "$log" 2100 all_of_it tests/vm/run.sh || status=$?
  last=$(tail -n 1 "$log")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
    count "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[4]:-0}"
    ((status == 0 || BASH_REMATCH[2] > 0)) || count 0 1 0
  else
    say "   FAILED: it did not come to its end (status $status); all of it is in $log"
    count 0 1 0
  fi
  say "   $(took)"
}

case $mode in
  check) parts=(fmt clippy tidy deny instructions unit) ;;
  # Whatever is timed by itself, as tests are, comes when nothing goes on aside.
  all) parts=(packages fmt clippy build tidy deny instructions doc simulation release tests doctests vm) ;;
  *) echo "usage: test.sh check|all" >&2; exit 2 ;;
esac
wanted() { [[ -z ${EBOF_TEST_PARTS:-} || " $EBOF_TEST_PARTS " == *" $1 "* ]]; }

xtask=(cargo xtask) release_failed=0 times=()
[[ -z $host ]] || export "CARGO_TARGET_${host^^}_RUNNER=env RUSTC_BOOTSTRAP=1"
for part in "${parts[@]}"; do
  wanted "$part" || continue
  before=$failed began_part=$EPOCHSECONDS
  # What is downloaded and what one processor links for minutes leaves others free for the compiler.
  if [[ $part != packages && $mode == all && ! -v begun ]]; then
    begun=yes
    ! wanted vm || begin_aside vm-setup 1200 tests/vm/setup.sh
    ! wanted release || begin_release
  fi
  "part_$part"
  [[ $part != release ]] || release_failed=$((failed - before))
  times+=("$part $((EPOCHSECONDS - began_part)) s")
done

heading time "by part"
printf '   %s\n' "${times[@]}"
printf '== all of it took %d:%02d; the logs are in %s\n' $(((EPOCHSECONDS - began) / 60)) $(((EPOCHSECONDS - began) % 60)) "$logs"
if ((passed == 0)); then count 0 1 0; fi # nothing passed: nothing was tested
say "$passed passed, $failed failed, $skipped skipped"
exit $((failed > 0))
