#!/bin/bash
# run.sh: runs scenarios with virtual machines and counts their checks.
#
# run.sh [SCENARIO...]        without a name, all of scenarios/ but peers, concat and measure-paths; -l lists them
#   EBOF             the binary under test (default: target/release/ebof, else target/debug/ebof, of this repository)
#   EBOF_VERBS_TESTS crates/verbs/tests/alone, built (default: the newest one in target/debug/deps)
#   EBOF_SERVER_TESTS crates/server/tests/it, likewise
#   EBOF_VM_CACHE    where setup.sh builds (default ~/.cache/ebof-vm)
#   EBOF_VM_VERBOSE=1  show the output of every checked command, not only of those that fail
#   EBOF_VM_KEEP=1   keep each scenario's directory also after success
#   EBOF_VM_ROUNDS   how often scenarios repeat what is rare (host-paths: late writes, and nothing else; measure-paths)
#   EBOF_VM_JOBS     how many scenarios run at once (default: two where there are two processors and 4 GiB of memory, else one)
#
# A scenario is a file with a function "machine", which runs here, and usually a function "guest",
# which machine runs in a guest by boot_guest. Both use lib.sh. The guest can have the machine do
# something (lib.sh's ask). The status is 0 if no check failed. The last line
# reads "N passed, M failed", followed by ", K skipped" if some were.
# shellcheck disable=SC2317 # scenarios call what looks unreachable
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
export EBOF_VM_CACHE=${EBOF_VM_CACHE:-${HOME:?}/.cache/ebof-vm}
# shellcheck source=lib.sh
. "$here/lib.sh"

find_binary() {
  local candidate
  if [[ -n ${EBOF:-} ]]; then
    [[ ! -x $EBOF ]] || readlink -f "$EBOF"
    return
  fi
  for candidate in "${CARGO_TARGET_DIR:-$repository/target}"/{release,debug}/ebof; do
    [[ ! -x $candidate ]] || { readlink -f "$candidate"; return; }
  done
}

# ---- for scenarios: on the machine

ebof='' # the binary
work='' # the scenario's directory; $work/ctl is the guest's /ctl, $work/share its /host
borrowed=() # files of scenarios/ that the guest finds at /ctl beside its own
tools=$EBOF_VM_CACHE/tools/bin # e2fsck and others, which the machine may lack
export PATH=$PATH:$tools

# needs_ebof: whether there is a binary to test; a failed check if not. The guest finds it at
# /host/ebof.
needs_ebof() {
  if [[ -z $ebof ]]; then
    fail "there is an ebof binary to test: build it, or set EBOF"
    return 1
  fi
  # Debug information is most of the binary, and the guest reads it through a slow file system.
  strip -o "$work/share/ebof" "$ebof" 2>/dev/null || cp "$ebof" "$work/share/ebof"
}

# needs_verbs_tests: the same for the tests of RDMA devices, which are /host/devices.
needs_verbs_tests() {
  needs_tests devices "${EBOF_VERBS_TESTS:-}" alone 'needs an RDMA device: tests/vm' && return
  fail "the tests of RDMA devices are built: cargo test --no-run -p ebof-verbs, or set EBOF_VERBS_TESTS"
  return 1
}
# needs_server_tests: the same for the tests with a target over RDMA, which are /host/hosts.
needs_server_tests() {
  needs_tests hosts "${EBOF_SERVER_TESTS:-}" it 'needs an RDMA target: tests/vm' && return
  fail "the tests with a target over RDMA are built: cargo test --no-run -p ebof-server, or set EBOF_SERVER_TESTS"
  return 1
}
# needs_tests NAME PROGRAM TEST TEXT: has the guest find a program with tests at /host/NAME; without
# one the newest TEST that cargo has built whose tests are ignored because of this text.
needs_tests() {
  local program=$2 candidate
  if [[ -z $program ]]; then
    for candidate in "${CARGO_TARGET_DIR:-$repository/target}"/debug/deps/"$3"-*; do
      [[ -x $candidate && ! $program -nt $candidate ]] || continue
      # Other crates have tests of this name.
      ! grep -q "$4" "$candidate" || program=$candidate
    done
  fi
  [[ -x $program ]] || return 1
  strip -o "$work/share/$1" "$program" 2>/dev/null || cp "$program" "$work/share/$1"
}

# needs_vfio_user: whether guests can have vfio-user devices (vm.sh -u); a skipped check if not.
needs_vfio_user() {
  local log
  log=$("$here/setup-qemu.sh" 2>&1) && return
  skip "guests with vfio-user devices" "$(tail -n 1 <<<"$log")"
  return 1
}

# needs_systemd: whether there can be guests that systemd runs (vm.sh -S); a skipped check if not.
needs_systemd() {
  local log
  log=$("$here/setup-systemd.sh" 2>&1) && return
  skip "guests that systemd runs" "$(tail -n 1 <<<"$log")"
  return 1
}

# boot_guest [VM-OPTION...] -- [ARGUMENT...]: boots a guest, runs the scenario's function guest with
# the arguments in it, and executes its requests, until it ends.
boot_guest() {
  start_guest guest "$@"
  serve_guests
}

# start_guest NAME [VM-OPTION...] -- [ARGUMENT...]: boots one of several guests, which runs the
# function NAME. Its control directory is $work/NAME, but $work/ctl for "guest". serve_guests
# executes the requests of all.
declare -A guest_control=() # by name: those that run
start_guest() {
  local name=$1 options=() control=$work/$1 label=''
  shift
  while (($#)) && [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  if [[ $name == guest ]]; then control=$work/ctl; else label=-$name; fi
  mkdir -p "$control"
  cp "$scenario_file" "$control/"
  # What a scenario takes from another one.
  ((!${#borrowed[@]})) || cp "${borrowed[@]/#/$here/scenarios/}" "$control/"
  cat >"$work/$name-main.sh" <<GUEST
EBOF_VM_VERBOSE=${EBOF_VM_VERBOSE:-} EBOF_VM_ROUNDS=${EBOF_VM_ROUNDS:-}
. /ctl/lib.sh
. /ctl/host.sh
. /ctl/links.sh
. /ctl/$scenario.sh
$name "\$@"
exit \$((failed > 0))
GUEST
  local command=(
    "$here/vm.sh" -n "$scenario$label" -c "$control" -s "$work/share" "${options[@]}" "$work/$name-main.sh" "$@"
  )
  # Of several guests each names itself in its checks; through a filter, so that lines stay whole.
  # QEMU prints a line for each register of a vfio-user device whose target is gone.
  if [[ $name == guest ]]; then
    EBOF_VM_RETRY=0 "${command[@]}" &
  else
    EBOF_VM_RETRY=0 "${command[@]}" > >(sed -u -E "s/^(ok  |FAIL|skip|--) /&$name: /; /^qemu: vfio_/d") 2>&1 &
  fi
  process[$name]=$!
  guest_control[$name]=$control
}

# Executes the requests of the guests until all have ended. Its variables and serve_requests' hide a
# scenario's of the same names from its functions.
serve_guests() {
  local guest_name
  while ((${#guest_control[@]})); do
    for guest_name in "${!guest_control[@]}"; do
      [[ -v guest_control[$guest_name] ]] || continue # its power failed
      serve_requests "${guest_control[$guest_name]}"
      [[ -v guest_control[$guest_name] ]] || continue
      kill -0 "${process[$guest_name]}" 2>/dev/null && continue
      serve_requests "${guest_control[$guest_name]}" # of its last moment
      guest_ended "$guest_name"
    done
    sleep 0.1
  done
}

# guest_ended NAME: takes its status. The others are told to end (lib.sh's obey). If QEMU aborts
# (status 134), the whole scenario is repeated.
guest_ended() {
  local other status=0
  wait "${process[$1]}" || status=$?
  unset "process[$1]" "guest_control[$1]"
  [[ $status != 134 ]] || exit 134
  # Status 124: it did not end in time. A scenario may know that this is not what it tests.
  if [[ $status == 124 ]] && declare -F hung >/dev/null && hung "$1"; then exit 134; fi
  # Status 1 means failed checks, which have been counted.
  ((status <= 1)) || fail "$1 ends by itself (status $status)"
  guest_status=$((guest_status > status ? guest_status : status))
  for other in "${guest_control[@]}"; do order "$other" end; done
}

# power_off NAME: ends a guest as if its power failed. The others go on; NAME may be started again
# under another name.
power_off() {
  unset "guest_control[$1]"
  stop "$1" TERM 10
}

# plug NAME SOCKET: puts another vfio-user device into a guest. None can be taken out: QEMU 11.1
# aborts at that (memory_region_del_subregion).
plug() {
  qmp "$1" '{"execute":"device_add","arguments":{"driver":"vfio-user-pci","id":"plugged","bus":"spare","socket":{"path":"'"$2"'","type":"unix"}}}'
}
# qmp NAME COMMAND: has a guest's QEMU do something.
qmp() {
  local answer
  answer=$(printf '%s\n' '{"execute":"qmp_capabilities"}' "$2" | socat -t 1 - "UNIX-CONNECT:$work/$1/qmp") || return
  echo "$answer"
  ! grep -q '"error"' <<<"$answer"
}

# serve_requests DIRECTORY: executes what the guest with this control directory has asked for.
serve_requests() {
  local request request_id request_words
  for request in "$1"/ask.*; do
    [[ -e $request && $request != *.new ]] || continue
    request_id=${request##*.}
    read -ra request_words <"$request"
    rm "$request"
    "on_${request_words[0]}" "${request_words[@]:1}"
    echo $? >"$1/answer.$request_id.new"
    mv "$1/answer.$request_id.new" "$1/answer.$request_id"
  done
}

# on_tell GUEST VERB [WORD...]: a request of one guest to another, which obeys (lib.sh).
on_tell() {
  local control=$work/$1
  shift
  order "$control" "$@"
  until_true 240 test -e "$control/done.$orders" || { fail "the other guest obeys '$*'"; return 1; }
  return "$(<"$control/done.$orders")"
}
# order DIRECTORY VERB [WORD...]: without waiting.
orders=0
order() {
  orders=$((orders + 1))
  echo "${*:2}" >"$1/order.$orders.new"
  mv "$1/order.$orders.new" "$1/order.$orders"
}

# ---- running them

# One scenario in a process of its own, which leaves no process running. Its standard output is
# the checks.
run_scenario() (
  scenario=$1 scenario_file=$here/scenarios/$1.sh
  work=$(mktemp -d "$EBOF_VM_CACHE/run/$scenario.XXXXXX")
  # Targets of this machine have their state there: the machine's own is not the tests'.
  export STATE_DIRECTORY=$work/state-directory
  guest_status=0
  scratch=$work/scratch # lib.sh's would be shared by all scenarios
  mkdir "$work/ctl" "$work/share"
  ebof=$(find_binary)
  # shellcheck disable=SC2317 # called by the trap
  tidy() {
    local name status=$?
    if declare -F cleanup >/dev/null; then cleanup; fi
    for name in "${!process[@]}"; do stop "$name" TERM 5; done
    if ((failed == 0 && guest_status == 0 && status == 0)) && [[ -z ${EBOF_VM_KEEP:-} ]]; then
      rm -rf "$work"
    else
      echo "     | logs are in $work"
    fi
  }
  trap tidy EXIT
  trap 'exit 143' INT TERM HUP
  # shellcheck source=/dev/null
  . "$scenario_file"
  machine
  exit 0
)

# Puts the time since the start before each line.
stamped() {
  local line elapsed
  while IFS= read -r line; do
    elapsed=$(((${EPOCHREALTIME/./} - began) / 100000))
    printf '%5d.%d  %s\n' $((elapsed / 10)) $((elapsed % 10)) "$line"
  done
}

if [[ ${1:-} == -l ]]; then
  cd "$here/scenarios" && printf '%s\n' *.sh | sed 's/\.sh$//'
  exit
fi
scenarios=("$@")
# The longest ones begin first, so that no processor is idle beside the last one.
((${#scenarios[@]})) || scenarios=(package box rdma-two self drive linux-host paths function-paths host-paths tls auth rdma rdma-host rdma-shared rdma-paths ublk rdma-hostile direct rdma-drive verbs media protection nvmet functions)
for name in "${scenarios[@]}"; do
  [[ -f $here/scenarios/$name.sh ]] || { echo "run.sh: no scenario $name (run.sh -l lists them)" >&2; exit 2; }
done
# QEMU emulates a guest in one thread, and the program under test is seldom busy: a guest takes
# less than one processor.
available_kib=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
jobs=${EBOF_VM_JOBS:-$(($(nproc) >= 2 && available_kib >= 4 << 20 ? 2 : 1))}
"$here/setup.sh" || exit 1
mkdir -p "$EBOF_VM_CACHE/run"
find "$EBOF_VM_CACHE/run" -mindepth 1 -maxdepth 1 -mtime +2 -exec rm -rf {} +
results=$(mktemp -d)
trap 'rm -rf "$results" "$scratch"' EXIT

# Runs a scenario, again if QEMU aborts. In $results: NAME.shown is the output to print, NAME.checks
# the checks of the last try; at the end NAME.over has status and seconds.
try_scenario() {
  local name=$1 try status began
  for try in 1 2; do
    began=${EPOCHREALTIME/./}
    echo "== $name"
    run_scenario "$name" 2>&1 | tee "$results/$name.checks" | stamped
    status=${PIPESTATUS[0]}
    [[ $status == 134 && $try == 1 ]] || break
    echo "== $name: QEMU aborted, or a guest hung by its own fault, which is very rare; trying again"
  done >"$results/$name.shown"
  echo "$status $(((${EPOCHREALTIME/./} - began) / 1000000))" >"$results/$name.over.new"
  mv "$results/$name.over.new" "$results/$name.over"
}

# show NAME: prints the output of a scenario, as it appears, until the scenario ends.
show() {
  local over='' lines shown=0
  while [[ -z $over ]]; do
    [[ ! -e $results/$1.over ]] || over=yes
    if [[ -e $results/$1.shown ]]; then
      lines=$(wc -l <"$results/$1.shown")
      ((lines == shown)) || sed -n "$((shown + 1)),${lines}p" "$results/$1.shown"
      shown=$lines
    fi
    [[ -n $over ]] || sleep 0.3
  done
}

# In a process of its own, so that scenarios start and end while the output of one is printed. Each
# has a process group, so that all of its processes can be ended.
(
  set -m
  trap 'kill -TERM $(jobs -rp | sed s/^/-/) 2>/dev/null; wait; exit 143' TERM
  for name in "${scenarios[@]}"; do
    (($(jobs -rp | wc -l) < jobs)) || wait -n
    try_scenario "$name" &
  done
  wait
) &
all=$!
trap 'kill "$all"; wait; exit 143' INT TERM HUP

passed=0 total_failed=0 skipped=0 summary=()
for name in "${scenarios[@]}"; do
  show "$name"
  read -r status elapsed <"$results/$name.over"
  p=$(grep -c '^ok ' "$results/$name.checks")
  f=$(grep -c '^FAIL' "$results/$name.checks")
  k=$(grep -c '^skip ' "$results/$name.checks")
  # A scenario with an error status or without any check has failed, whatever its checks say.
  if ((status != 0 || p + f + k == 0)); then f=$((f + 1)); fi
  summary+=("$(printf '%-12s %3d passed, %d failed, %d skipped in %d s' "$name" "$p" "$f" "$k" "$elapsed")")
  passed=$((passed + p)) total_failed=$((total_failed + f)) skipped=$((skipped + k))
done
printf '%s\n' "${summary[@]}"
if ((skipped)); then
  echo "$passed passed, $total_failed failed, $skipped skipped"
else
  echo "$passed passed, $total_failed failed"
fi
exit $((total_failed > 0))
