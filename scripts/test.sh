#!/bin/bash
# test.sh: runs the project's tests in parts, each with a heading and a time limit of its own, and
# counts them.
#
# test.sh check    format, clippy, the project's rules, licences, instruction counts, unit tests
# test.sh all      check, documentation, every test of the workspace, the web page, Redfish's checkers, the scenarios, packages, the virtual machines; with a new
#                  target directory, incremental compilation is off (CARGO_INCREMENTAL)
#   EBOF_TEST_PARTS="fmt vm"   only these parts (of `all`, in its order)
#   EBOF_TEST_PROFILE=release  what packages and virtual machines are tested with (default: quick,
#                              which takes a quarter of the time to build); before a release
#   CARGO_TARGET_DIR           as for cargo; the logs are in its test-logs/
#
# A static check counts as one test. For test programs, the numbers are theirs, except that a test
# which prints a line beginning with "SKIPPED:" counts as skipped, and "SKIPPED on ..." or "SKIPPED
# for ..." counts as one skipped part of a test that passed. Tests of RDMA devices, which cargo
# ignores, are counted where the virtual machines run them. The durations of parts, programs,
# scenarios and of the slowest tests are printed. The last line is "N passed, M failed, K skipped";
# the status is 0 if nothing failed.
#
# Some parts of `all` run in the background (lane): what waits for one program or one processor runs
# beside others, at a priority that leaves the processors to those that have little time. What they
# say is printed in its place.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

mode=${1:-all}
target=${CARGO_TARGET_DIR:-target}
logs=$target/test-logs
mkdir -p "$logs"
export CARGO_TERM_COLOR=never PATH=$PATH:/usr/sbin:/sbin:${EBOF_TOOLS_VENV:-$HOME/.cache/ebof/tools-venv}/bin
export RUST_BACKTRACE=${RUST_BACKTRACE:-1}
unset MAKEFLAGS MFLAGS MAKELEVEL # parts that call make are not sub-makes of this one
# A clean build is not repeated, so that incremental compilation would only cost time and space.
[[ $mode != all || -d $target/debug/incremental ]] || export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

passed=0 failed=0 skipped=0 failures=()
began=$EPOCHSECONDS
count() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }
say() { printf '%s\n' "$*"; }

# Tests that the virtual machines run, if this script runs those.
elsewhere='^test .* \.\.\. ignored, needs an RDMA device: tests.vm'
[[ $mode == all && " ${EBOF_TEST_PARTS:-vm} " == *" vm "* ]] || elsewhere='^nothing$'

# ---- running a part

# timeout gives each command a process group of its own, which a terminal's Ctrl-C does not reach:
# stop it here.
running=()
declare -A lanes=() # by part: the process that runs it beside other parts
stop() {
  kill -TERM "${running[@]}" "${lanes[@]}" 2>/dev/null
  wait
  say "interrupted by SIG$1"
  exit 130
}
catch_signals() {
  local signal
  for signal in INT TERM HUP; do
    # shellcheck disable=SC2064 # the value of now is meant
    trap "stop $signal" $signal
  done
}
catch_signals

# limited LOG SECONDS FILTER COMMAND...: runs a command with a time limit; its output goes to LOG,
# and through FILTER to standard output. A file instead of a pipe: processes that the command left
# running could keep a pipe open.
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

# lane NICE PART...: runs these parts one after the other in the background, at this priority
# (19 is the lowest), each with its output in PART.out. join waits for a part.
lane() {
  local nice=$1 part chosen=()
  shift
  for part; do
    if wanted "$part"; then chosen+=("$part"); fi
  done
  ((${#chosen[@]})) || return 0
  for part in "${chosen[@]}"; do
    rm -f "$logs/$part.over"
    : >"$logs/$part.out"
  done
  run_lane "$nice" "${chosen[@]}" &
  for part in "${chosen[@]}"; do lanes[$part]=$!; done
}
# run_lane NICE PART...: in a process of its own, which leaves the counts, the durations and the
# failures of each part in PART.over.
run_lane() {
  local nice=$1 part
  shift
  running=() lanes=()
  catch_signals
  renice -n "$nice" -p "$BASHPID" >/dev/null
  for part; do
    passed=0 failed=0 skipped=0 failures=()
    measure "$part" >"$logs/$part.out" 2>&1
    [[ $part != program ]] || program_failed=$failed
    printf '%s\n' "$passed $failed $skipped $measured" "${failures[@]}" >"$logs/$part.over.new"
    mv "$logs/$part.over.new" "$logs/$part.over"
  done
}
# measure PART: runs it; its duration and processor time are in $measured.
measure() {
  local start=$EPOCHSECONDS used
  processor_time
  used=$processor_seconds
  "part_$1"
  processor_time
  measured="$((EPOCHSECONDS - start)) $((processor_seconds - used))"
}
# processor_time: what the processes that have ended took, in $processor_seconds. In a substitution
# the shell's times would be those of another process.
processor_time() {
  local user system
  times >"$logs/times.$BASHPID"
  { read -r _; read -r user system; } <"$logs/times.$BASHPID"
  rm "$logs/times.$BASHPID"
  user=${user%[.,]*} system=${system%[.,]*}
  processor_seconds=$((${user%m*} * 60 + ${user#*m} + ${system%m*} * 60 + ${system#*m}))
}
# join PART: prints what a part of a lane says, until it has ended, and counts it.
join() {
  local out=$logs/$1.out over=$logs/$1.over lines shown=0 ended='' result=() p f k duration processor
  while [[ ! $ended ]]; do
    # A lane that has ended leaves all that there will be.
    if [[ -e $over ]] || ! kill -0 "${lanes[$1]}" 2>/dev/null; then ended=yes; fi
    lines=$(wc -l <"$out")
    ((lines == shown)) || sed -n "$((shown + 1)),${lines}p" "$out"
    shown=$lines
    [[ $ended ]] || sleep 0.3
  done
  unset "lanes[$1]"
  if [[ ! -e $over ]]; then
    heading "$1" "in the background"
    say "   FAILED: it did not finish"
    count 0 1 0
    failures+=("$1")
    return
  fi
  mapfile -t result <"$over"
  read -r p f k duration processor <<<"${result[0]}"
  count "$p" "$f" "$k"
  failures+=("${result[@]:1}")
  timed "$1" "$duration" "$processor" ", beside others"
  [[ $1 != program ]] || program_failed=$f
}
# run PART: here, unless it runs in a lane.
run() {
  wanted "$1" || return 0
  if [[ -n ${lanes[$1]:-} ]]; then
    join "$1"
  else
    measure "$1"
    # shellcheck disable=SC2086 # two numbers
    timed "$1" $measured ''
  fi
}
times=()
timed() { times+=("$(printf '%-12s %4d s, %4d s of a processor%s' "$@")"); }
wanted() { [[ -z ${EBOF_TEST_PARTS:-} || " $EBOF_TEST_PARTS " == *" $1 "* ]]; }

quiet() { cat >/dev/null; }
# awk rules for the output of cargo test: set `name` to the test program that begins. Cargo names
# the crate only for unit tests.
# shellcheck disable=SC2016 # $ is awk's
programs='
  /^ +Running / {
    file = $NF
    gsub(/^.*\/|-[0-9a-f]+\)$/, "", file)
    if ($2 == "unittests") { crate = file; source = $3 } else source = $2
    name = crate ": " source
  }
  /^ +Doc-tests / { name = $2 ": documentation" }'
# Summarizes the output of cargo test: a line for each program that has tests. A program with its
# own main prints no summary, so that its tests are counted.
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
# Prints the numbers of skipped tests in a log of cargo test, by reason.
reasons() {
  awk '
    /'"$elsewhere"'/ { next }
    /^SKIPPED/ { why[$0]++ }
    /^test .* \.\.\. (skipped|ignored)/ { sub(/^test .* \.\.\. (skipped|ignored)[:,]? */, ""); why[$0]++ }
    END { for (one in why) printf "   skipped: %d x %s\n", why[one], substr(one, 1, 140) }' "$1" | sort
}
# Prints the failed tests in a log of cargo test, each with its program and where it panicked.
failures() {
  awk "$programs"'
    /^test .* \.\.\. FAILED/ { failed[++n] = $2; program[n] = name }
    /^thread .* panicked at / { name_of = $2; gsub(/\047/, "", name_of); sub(/^.* panicked at /, ""); place[name_of] = $0 }
    END { for (i = 1; i <= n; i++) print program[i] " " failed[i] (failed[i] in place ? " at " place[failed[i]] : "") }' "$1"
}
# The durations of tests in a log: of cargo test, of the page, of scenarios, and of those with
# virtual machines, "SECONDS s  NAME".
durations() {
  awk "$programs"'
    /^test .* \.\.\. .*<[0-9.]+s>$/ { seconds = $NF; gsub(/[<>s]/, "", seconds); print seconds " s  " name " " $2 }
    /^ok .* \([0-9.]+ s\)$/ { seconds = $(NF - 1); sub(/^\(/, "", seconds); sub(/^ok +/, ""); sub(/ \([0-9.]+ s\)$/, ""); print seconds " s  page: " $0 }
    /^== .*, [0-9.]+ s$/ { sub(/,$/, "", $2); print $3 " s  docs/scenarios: " $2 }
    / passed, .* skipped in [0-9]+ s$/ { print $(NF - 1) " s  tests/vm: " $1 }' "$1"
}
# slowest WORD LOG...: prints the slowest tests in these logs.
slowest() {
  local word=$1 log
  shift
  for log; do [[ ! -e $log ]] || durations "$log"; done | sort -rn | head -n 10 | sed "s/^/   $word/"
}
# The filter for virtual machines: everything, indented.
indented() { sed -u 's/^/   /'; }

heading() { printf '== %-10s %s\n' "$1" "$2"; }
took() { printf '%d s' $((EPOCHSECONDS - part_began)); }
# verdict STATUS LOG: ends a part that counts as one test.
verdict() {
  if (($1 == 0)); then
    count 1 0 0
    say "   ok, $(took)"
  else
    count 0 1 0
    tail -n 60 "$2" | sed 's/^/   | /'
    say "   FAILED, $(took); the log is $2"
    failures+=("$(basename "$2" .log)")
  fi
}
# static NAME SECONDS WHAT COMMAND...: a part that counts as one test.
static() {
  local name=$1 limit=$2 what=$3 log=$logs/$1.log status=0
  shift 3
  heading "$name" "$what"
  part_began=$EPOCHSECONDS
  limited "$log" "$limit" quiet "$@" || status=$?
  verdict "$status" "$log"
}

# ---- counting tests

# Prints "passed failed skipped" for a log of cargo test. For a program without a "test result" line
# (with its own main), the lines of its tests are counted.
tally() {
  awk '
    function close_program() { p += own_p; f += own_f; k += own_k; own_p = own_f = own_k = 0 }
    /^ +(Running|Doc-tests) / { close_program() }
    /^test .* \.\.\. ok/ { own_p++ }
    /^test .* \.\.\. FAILED/ { own_f++ }
    /^test .* \.\.\. (ignored|skipped)/ { own_k++ }
    /'"$elsewhere"'/ { k-- }
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

# The harness reports durations as an unstable option. RUSTC_BOOTSTRAP, which allows it, is set for
# test programs only (see the runner below), not for the compiler.
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
  # A program that crashed or did not compile has no line of its own.
  if ((status != 0 && counts[1] == 0)); then counts[1]=1; fi
  count "${counts[@]}"
  reasons "$log"
  slowest 'slowest: ' "$log"
  if ((status != 0)); then
    # Failures and compiler errors; the end of the log if there are none.
    awk '
      /^failures:/ { on = 1 } /^test result:/ { on = 0 } /^$/ && on == 2 { on = 0 }
      # That a test failed, and which programs have such tests, is said elsewhere.
      /^error/ && !/^error: (test failed|[0-9]+ targets? failed)/ { on = 2 }
      on { print "   | " $0; some = 1 }
      { last[NR % 20] = $0 }
      END { if (!some) for (i = NR - 19; i <= NR; i++) if (i > 0) print "   | " last[i % 20] }' "$log" | tail -n 200
    say "   FAILED; the log is $log"
    mapfile -t -O "${#failures[@]}" failures < <(failures "$log")
  fi
  say "   ${counts[0]} passed, ${counts[1]} failed, ${counts[2]} skipped, $(took)"
}

# ---- the parts

part_packages() { scripts/packages.sh programs; }
# Not a part by itself: it belongs to packages, and nothing that is built needs it.
part_services() {
  heading services "services of scenarios, checkers of Redfish"
  limited "$logs/services.log" 900 indented scripts/packages.sh services
}
# Before the program is built, which embeds it.
part_page-build() {
  if ! command -v npm >/dev/null; then
    heading page-build "the web page"
    say "   skipped: there is no npm: the program is built without its page"
    count 0 0 1
    return
  fi
  static page-build 300 "the web page: types, bundle, size (make page)" make --no-print-directory page
}
part_fmt() { static fmt 120 "cargo fmt --check" cargo fmt --all --check; }
part_clippy() {
  static clippy 1500 "cargo clippy, warnings denied" \
    cargo clippy --locked --workspace --all-targets -- -D warnings
}
# The whole workspace at once: for single packages, cargo selects other features and builds
# dependencies again.
part_build() {
  local before=$failed
  static build 1800 "every library, program, test and example" \
    cargo build --locked --workspace --lib --bins --tests --examples
  ((failed > before)) || xtask=("$target/debug/xtask")
}
part_tidy() { static tidy 600 "xtask tidy: the project's rules" "${xtask[@]}" tidy; }
part_deny() {
  local what=(bans licenses sources) databases=("${CARGO_HOME:-$HOME/.cargo}"/advisory-dbs/*/)
  # Licences are always checked; the rest needs cargo-deny, which scripts/packages.sh installs.
  static licences 300 "xtask licences: every dependency's licence" "${xtask[@]}" licences
  if ! cargo deny --version >/dev/null 2>&1; then
    heading deny "bans, sources and advisories"
    say "   skipped: cargo-deny is not installed (scripts/packages.sh programs)"
    count 0 0 1
    return
  fi
  # It looks at the dependencies on all platforms, which nothing else fetches.
  if ! cargo fetch --locked >"$logs/fetch.log" 2>&1; then
    heading deny "bans, sources and advisories"
    tail -n 3 "$logs/fetch.log" | sed 's/^/   | /'
    say "   skipped: dependencies on other platforms cannot be fetched"
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
  static instructions 1800 "xtask instructions: instructions per command against the baseline" "${xtask[@]}" instructions
  # Without valgrind, or with another compiler, it says what was skipped.
  if grep -q '^SKIPPED' "$log"; then
    say "   skipped: $(sed -n 's/^SKIPPED: *//p' "$log")"
    count -1 0 1
  fi
}
part_unit() { cargo_tests unit 900 "unit tests" --workspace --lib --bins; }
part_doc() {
  # Links to private items are for readers of the source. The program's help texts are not
  # documentation in this sense.
  static doc 1800 "cargo doc, warnings denied" \
    env RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --locked --workspace --no-deps --lib
}
part_tests() {
  on_its_own_state cargo_tests tests 2400 "unit, property, conversation, corpus and end-to-end tests" \
    --workspace --lib --bins --test it
}
# What they compare is a time, or what the whole process takes.
part_alone() {
  on_its_own_state cargo_tests alone 900 "tests that have a process, and here the machine, for themselves" \
    --workspace --test alone
}
# on_its_own_state COMMAND...: tests have state directories of their own: what is served here is not
# theirs to change.
on_its_own_state() {
  local stamp=$logs/tests.stamp used
  touch "$stamp"
  "$@"
  used=$(find /var/lib/ebof "${XDG_STATE_HOME:-$HOME/.local/state}/ebof" -newer "$stamp" 2>/dev/null)
  [[ $used ]] || return
  say "   FAILED: a test has used the state directory of this machine: ${used//$'\n'/ }"
  count 0 1 0
  failures+=("the state directory of this machine")
}
# counted NAME SECONDS WHAT COMMAND...: a part whose program gets the debug build in $EBOF, prints
# "FAILED  TEST" for each test that failed, and ends with "N passed, M failed, K skipped".
counted() {
  local name=$1 limit=$2 what=$3 log=$logs/$1.log status=0 last
  shift 3
  heading "$name" "$what"
  part_began=$EPOCHSECONDS
  EBOF=$(realpath "$target")/debug/ebof limited "$log" "$limit" indented "$@" || status=$?
  last=$(tail -n 1 "$log")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped ]]; then
    count "${BASH_REMATCH[@]:1:3}"
    ((status == 0 || BASH_REMATCH[2] > 0)) || count 0 1 0
  else
    say "   FAILED: it did not finish (status $status); the log is $log"
    count 0 1 0
  fi
  mapfile -t -O "${#failures[@]}" failures < <(sed -n "s/^FAILED  /$name: /p" "$log")
  say "   $(took)"
}
part_page() {
  local what="the web page in a browser, with a target (page/tests)"
  if [[ ! -d page/node_modules || ! -d page/dist ]]; then
    heading page "$what"
    say "   skipped: the page was not built"
    count 0 0 1
    return
  fi
  counted page 900 "$what" node page/tests/run.mjs
}
part_redfish() {
  counted redfish 600 "DMTF's checkers and clients of Redfish, with a target under load (tests/redfish)" \
    python3 tests/redfish/run.py
}
part_scenarios() { counted scenarios 900 "the scripts of docs/scenarios, and what their pages say" tests/scenarios/run.sh; }
part_doctests() {
  # rustdoc runs them, and does not accept the unstable option.
  local harness=(--show-output)
  cargo_tests doctests 900 "documentation tests" --workspace --doc
}
# The levels share the processor time, which is the same beside other parts. Seeds begin at 1, so
# that the first stories are always the same.
part_simulation() {
  static simulation 1800 "stories from seeds, against a model: cargo xtask simulate" \
    "$target/debug/examples/simulate" --seconds 110 --hours 1000
  sed 's/^/   /' "$logs/simulation.log"
}
part_program() {
  static program 2400 "the program and the engine for fio, profile $profile" \
    cargo build --profile "$profile" --locked -p ebof -p ebof-fio --lib --bins
}
part_deb() {
  if ((program_failed)); then
    heading deb "Debian packages"
    say "   FAILED: there is no program"
    count 0 1 0
    return
  fi
  static deb 600 "Debian packages: the same twice, and what lintian says" scripts/test-deb.sh "$target/deb" "$target/$profile"
  local line
  while IFS= read -r line; do
    say "   skipped: $line"
    count 0 0 1
  done < <(sed -n 's/^SKIPPED: *//p' "$logs/deb.log")
}
# Not a part by itself either: what is missing without the last two is said by the scenarios that
# need them.
part_vm-setup() {
  heading vm-setup "programs and images of the virtual machines"
  limited "$logs/vm-setup.log" 1200 indented bash -c 'tests/vm/setup.sh && { tests/vm/setup-qemu.sh; tests/vm/setup-systemd.sh; }'
}
part_vm() {
  local log=$logs/vm.log status=0 last
  heading vm "the real Linux host and target in virtual machines (tests/vm)"
  part_began=$EPOCHSECONDS
  # If the build failed, there may be an old binary: do not test that.
  if ((program_failed)); then
    say "   FAILED: there is no program to test"
    count 0 1 0
    return
  fi
  EBOF=$target/$profile/ebof EBOF_DEB=$(find "$target/deb" -name 'ebof_*.deb' -newer "$target/$profile/ebof" 2>/dev/null | head -n 1) limited "$log" 2700 indented tests/vm/run.sh || status=$?
  last=$(tail -n 1 "$log")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
    count "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[4]:-0}"
    ((status == 0 || BASH_REMATCH[2] > 0)) || count 0 1 0
  else
    say "   FAILED: it did not finish (status $status); the log is $log"
    count 0 1 0
  fi
  mapfile -t -O "${#failures[@]}" failures < <(sed -n 's/^ *[0-9.]* *FAIL /vm: /p' "$log")
  say "   $(took)"
}

xtask=(cargo xtask) program_failed=0 profile=${EBOF_TEST_PROFILE:-quick}
[[ -z $host ]] || export "CARGO_TARGET_${host^^}_RUNNER=env RUSTC_BOOTSTRAP=1"
case $mode in
  check) for part in fmt clippy tidy deny instructions unit; do run $part; done ;;
  all)
    run packages
    run page-build
    # Downloads, and a build of its own, beside the other builds.
    ! wanted packages || EBOF_TEST_PARTS='' lane 19 services
    ! wanted vm || EBOF_TEST_PARTS='' lane 19 vm-setup
    lane 0 program deb
    for part in fmt clippy build; do run $part; done
    # None of these depends on how long it takes.
    lane 0 instructions
    lane 0 doc simulation
    for part in tidy deny program deb instructions doc simulation; do run $part; done
    # Tests have the machine for themselves: some show what a program on a busy one does not do.
    for part in services vm-setup; do [[ -z ${lanes[$part]:-} ]] || join $part; done
    for part in tests doctests alone; do run $part; done
    # Each of the first three waits for one program at a time, and of the machines two run at once.
    # More would be too much: at a lower priority, or beside two of the others, a guest takes longer
    # than its limits.
    lane 0 page scenarios redfish
    lane 0 vm
    for part in page scenarios redfish vm; do run $part; done
    timed_logs=()
    for part in tests alone page scenarios vm; do
      if wanted "$part"; then timed_logs+=("$logs/$part.log"); fi
    done
    if ((${#timed_logs[@]})); then
      heading slowest "the ten slowest tests of all parts"
      slowest '' "${timed_logs[@]}"
    fi
    ;;
  *) echo "usage: test.sh check|all" >&2; exit 2 ;;
esac

heading time "by part"
printf '   %s\n' "${times[@]}"
printf '== total time %d:%02d; the logs are in %s\n' $(((EPOCHSECONDS - began) / 60)) $(((EPOCHSECONDS - began) % 60)) "$logs"
# Said again: the last lines are what is read first.
((!${#failures[@]})) || printf '   failed: %s\n' "${failures[@]}"
if ((passed == 0)); then count 0 1 0; fi # no test ran: that is a failure
say "$passed passed, $failed failed, $skipped skipped"
exit $((failed > 0))
