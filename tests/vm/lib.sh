# shellcheck shell=bash
# lib.sh: functions for scenarios, on the machine (run.sh reads it) and in the guest (vm.sh copies
# it to /ctl).
#
# Functions for the Linux host are in host.sh. One check is one line of output, "ok   TEXT",
# "FAIL TEXT" or "skip TEXT: WHY"; run.sh adds the time and counts. Steps begin with "--"; all other
# output is indented, and for human readers only.

# shellcheck disable=SC2034 # used by the files that read this one
failed=0      # checks that failed, on this side
transport=tcp # or rdma: what the steps connect by

step() { echo "-- $*"; }
note() { sed 's/^/     | /'; }

pass() {
  echo "ok   $*"
  [[ -z ${EBOF_VM_VERBOSE:-} ]] || head -c 4000 <<<"$out" | note
}
fail() {
  echo "FAIL $*"
  failed=$((failed + 1))
}
skip() { echo "skip $1: $2"; }

# Runs a command with its output in $out and its status in $status. Programs have a time limit,
# which only ends what hangs: beside others, an emulated machine may need five times as long.
# Functions have their own, and run in this shell because they may start processes or set variables.
# eval runs in a subshell because it may change the shell's state.
scratch=$(mktemp)
out='' status=0
attempt() {
  status=0
  case $(type -t "$1") in
    file) timeout -k 5 "${LIMIT:-300}" "$@" >"$scratch" 2>&1 || status=$? ;;
    function) "$@" >"$scratch" 2>&1 || status=$? ;;
    *) ("$@") >"$scratch" 2>&1 || status=$? ;;
  esac
  out=$(tr -d '\0' <"$scratch")
}
# Prints command, status and output of the last attempt.
explain() {
  echo "command: $*" | note
  echo "status $status, output:" | note
  head -c 4000 <<<"$out" | note
}

# check TEXT COMMAND...: the command succeeds.
check() {
  local text=$1
  shift
  attempt "$@"
  if ((status != 0)); then
    fail "$text"
    explain "$@"
    return 1
  fi
  pass "$text"
}

# check_fails TEXT REGEX COMMAND...: the command fails, not by the time limit, and its output
# matches.
check_fails() {
  local text=$1 regex=$2
  shift 2
  attempt "$@"
  if ((status != 0 && status < 124)) && grep -qiE -- "$regex" <<<"$out"; then
    pass "$text"
  else
    fail "$text (expected a failure with output like /$regex/)"
    explain "$@"
    return 1
  fi
}

# check_says TEXT REGEX COMMAND...: the command succeeds, and one line of its output matches.
check_says() {
  local text=$1 regex=$2
  shift 2
  attempt "$@"
  if ((status == 0)) && grep -qE -- "$regex" <<<"$out"; then
    pass "$text"
  else
    fail "$text (expected output like /$regex/)"
    explain "$@"
    return 1
  fi
}

# check_equal TEXT EXPECTED ACTUAL
check_equal() {
  if [[ $2 == "$3" ]]; then
    pass "$1"
  else
    fail "$1: expected '$2', found '$3'"
    return 1
  fi
}

# until_true SECONDS COMMAND...: repeats a quiet command until it succeeds.
until_true() {
  local end=$((EPOCHSECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((EPOCHSECONDS < end)) || return 1
    sleep 0.2
  done
}

# ---- processes, on either side

# free_port: prints a port of 127.0.0.1 that nobody listens on.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000)) # below the range from which the kernel takes ports for outgoing connections
    reachable "$port" || { echo "$port"; return; }
  done
}
reachable() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# start NAME COMMAND...: a process that runs until the scenario ends; its output goes to
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

# ---- in the guest: requests to the machine

# ask VERB [WORD...]: runs the scenario's function on_VERB on the machine, and returns its status.
ask() {
  local id answer
  id=${EPOCHREALTIME//[.,]/} # no counter: a subshell's would be lost, and its numbers used again
  echo "$*" >"/ctl/ask.$id.new"
  mv "/ctl/ask.$id.new" "/ctl/ask.$id"
  until_true 300 test -e "/ctl/answer.$id" || { fail "the machine answers '$*'"; return 1; }
  answer=$(<"/ctl/answer.$id")
  return "$answer"
}

# tell GUEST VERB [WORD...]: has another guest execute do_VERB, and returns its status.
tell() { ask tell "$@"; }

# obey: executes what other guests tell this one, until one of them, or the machine because the
# others have ended, says "end".
obey() {
  local file verb id
  while :; do
    for file in /ctl/order.*; do
      [[ -e $file && $file != *.new ]] || continue
      id=${file##*.}
      read -ra verb <"$file"
      rm "$file"
      [[ ${verb[0]} != end ]] || return 0
      "do_${verb[0]}" "${verb[@]:1}"
      echo $? >"/ctl/done.$id.new"
      mv "/ctl/done.$id.new" "/ctl/done.$id"
    done
    sleep 0.1
  done
}

# ---- in the guest: the kernel's own target

nvmet=/sys/kernel/config/nvmet

# nvmet_subsystem NQN DEVICE...: a subsystem for any host, its namespaces numbered from 1.
nvmet_subsystem() {
  local directory=$nvmet/subsystems/$1 nsid=0 device
  shift
  mkdir "$directory" && echo 1 >"$directory/attr_allow_any_host" || return 1
  for device in "$@"; do
    nsid=$((nsid + 1))
    mkdir "$directory/namespaces/$nsid"
    echo -n "$device" >"$directory/namespaces/$nsid/device_path"
    echo 1 >"$directory/namespaces/$nsid/enable" || return 1
  done
}

# nvmet_port ID tcp|rdma ADDRESS PORT NQN...: a port for these subsystems; it listens once it has
# one.
nvmet_port() {
  local directory=$nvmet/ports/$1 nqn
  mkdir "$directory"
  echo "$2" >"$directory/addr_trtype"
  echo ipv4 >"$directory/addr_adrfam"
  echo "$3" >"$directory/addr_traddr"
  echo "$4" >"$directory/addr_trsvcid"
  shift 4
  for nqn in "$@"; do ln -s "$nvmet/subsystems/$nqn" "$directory/subsystems/" || return 1; done
}

nvmet_clear() {
  local namespace
  rm -f "$nvmet"/ports/*/subsystems/* "$nvmet"/subsystems/*/allowed_hosts/*
  rmdir "$nvmet"/ports/*
  for namespace in "$nvmet"/subsystems/*/namespaces/*; do
    echo 0 >"$namespace/enable"
    rmdir "$namespace"
  done
  rmdir "$nvmet"/subsystems/* "$nvmet"/hosts/* 2>/dev/null
  return 0
}
