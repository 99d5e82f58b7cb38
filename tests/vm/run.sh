#!/bin/bash
# run.sh: runs scenarios with virtual machines and counts their checks.
#
# run.sh [SCENARIO...]        without a name, all of scenarios/ but peers; -l lists them
#   EBOF             the binary under test (default: target/release/ebof, else target/debug/ebof, of this repository)
#   EBOF_VM_CACHE    where setup.sh builds (default ~/.cache/ebof-vm)
#   EBOF_VM_VERBOSE=1  show the output of every checked command, not only of those that fail
#   EBOF_VM_KEEP=1   keep each scenario's directory also after success
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

# free_port: prints a port of 127.0.0.1 that nobody listens on.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000)) # below the range from which the kernel takes ports for outgoing connections
    reachable "$port" || { echo "$port"; return; }
  done
}
reachable() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# start NAME COMMAND...: a process on the machine, until the scenario ends; its output goes to
# $work/NAME.log.
declare -A process=()
start() {
  local name=$1
  shift
  "$@" >>"$work/$name.log" 2>&1 &
  process[$name]=$!
}
# stop NAME SIGNAL SECONDS: ends it and returns its status; 124 if it had to be killed.
stop() {
  local pid=${process[$1]:-} status=0
  [[ -n $pid ]] || return 0
  unset "process[$1]"
  { # bash would report the end by a signal
    kill "-$2" "$pid"
    if until_true "$3" eval "! kill -0 $pid"; then
      wait "$pid" || status=$?
    else
      kill -KILL "$pid"
      wait "$pid"
      status=124
    fi
  } 2>/dev/null
  return "$status"
}

# boot_guest [VM-OPTION...] -- [ARGUMENT...]: boots a guest, runs the scenario's function guest with
# the arguments in it, and executes its requests. If QEMU aborts (status 134), the whole scenario is
# repeated.
boot_guest() {
  local options=() request id verb status=0 vm
  while (($#)) && [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  cp "$scenario_file" "$work/ctl/"
  cat >"$work/guest-main.sh" <<GUEST
EBOF_VM_VERBOSE=${EBOF_VM_VERBOSE:-}
. /ctl/lib.sh
. /ctl/host.sh
. /ctl/$scenario.sh
guest "\$@"
exit \$((failed > 0))
GUEST
  EBOF_VM_RETRY=0 "$here/vm.sh" -n "$scenario" -c "$work/ctl" -s "$work/share" "${options[@]}" "$work/guest-main.sh" "$@" &
  vm=$!
  process[vm]=$vm
  while kill -0 "$vm" 2>/dev/null; do
    for request in "$work"/ctl/ask.*; do
      [[ -e $request && $request != *.new ]] || continue
      id=${request##*.}
      read -ra verb <"$request"
      rm "$request"
      "on_${verb[0]}" "${verb[@]:1}"
      echo $? >"$work/ctl/answer.$id.new"
      mv "$work/ctl/answer.$id.new" "$work/ctl/answer.$id"
    done
    sleep 0.1
  done
  wait "$vm" || status=$?
  unset 'process[vm]'
  [[ $status != 134 ]] || exit 134
  guest_status=$status
  # Status 1 means failed checks, which have been counted.
  ((status <= 1)) || fail "the guest ends by itself (status $status)"
}

# ---- running them

# One scenario in a process of its own, which leaves no process running. Its standard output is
# the checks.
run_scenario() (
  scenario=$1 scenario_file=$here/scenarios/$1.sh
  work=$(mktemp -d "$EBOF_VM_CACHE/run/$scenario.XXXXXX")
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
((${#scenarios[@]})) || scenarios=(self linux-host drive media protection nvmet ublk)
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
    echo "== $name: QEMU aborted, which its emulation does very rarely; trying again"
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
