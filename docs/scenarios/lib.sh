#!/bin/bash
# lib.sh: machines on one machine, for the scripts of scenarios.
#
# A script sources this file first, and is then started again as root in a network and with mounts
# of its own. There it makes its machines: each is a network and mounts of its own, with an
# interface at a common switch, a directory of its own as its current one, and its own state of
# ebof. Nothing outside is touched, ports are always free, and a cable can be pulled. Files and
# devices are those of this machine.
#
#   needs PROGRAM...             without one of these programs the script ends: SKIPPED
#   machine NAME ADDRESS         makes a machine, for example: machine target 192.168.13.147
#   drives NAME COUNT SIZE       gives it /dev/nvme0n1 and so on: sparse files of this size
#   step TEXT                    says what comes next
#   on NAME COMMAND              prints and runs a command there; it has to succeed. Its output, with
#                                standard error, is printed and in $output
#   fails NAME COMMAND           the same; it has to fail
#   start NAME JOB COMMAND       prints a command and runs it there in the background; its output is
#                                in $work/JOB.log, its process is ${job[JOB]}
#   serve NAME COMMAND           starts `ebof serve` as the job NAME, and waits until it listens
#   end JOB [SIGNAL]             ends a job (TERM) and waits for that
#   quiet NAME COMMAND           runs a command there without printing it, for checks
#   disk NAME nvme0n1            the block device that this namespace is there now
#   within SECONDS COMMAND...    repeats a command of this shell until it succeeds
#   unplug NAME, plug NAME       pulls the cable of a machine, and puts it back
#   check TEXT COMMAND...        prints "ok: TEXT" or "FAILED: TEXT", by the status of a command of
#                                this shell
#   skip TEXT                    prints "SKIPPED: TEXT", and ends the script with status 77
#   at_exit COMMAND              runs a command of this shell at the end, before machines go away
#   finish                       the last line of each script: all of it was run
#
# $work is a directory that is removed at the end, $work/NAME the current directory of a machine.
# The status is 0 if no check failed, 77 if the script was skipped: nothing was shown then.
#
#   EBOF       the program (default: ebof in PATH)
#   EBOF_SCENARIO_PROGRAMS  where scripts/packages.sh has unpacked programs of services
#              (default: /var/cache/ebof-scenarios)
#   TMPDIR     where $work is made
#   EBOF_SCENARIO_KEEP=1  $work is kept
# shellcheck disable=SC2034,SC2317 # scripts use what seems unused
set -uo pipefail
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C

say() { printf '%s\n' "$*"; }
skip() { say "SKIPPED: $*"; exit 77; }
# What scripts/packages.sh has unpacked, instead of installing services, is used where it is
# missing.
unpacked=${EBOF_SCENARIO_PROGRAMS:-/var/cache/ebof-scenarios}
if [[ -d $unpacked && ${EBOF_SCENARIO_UNPACKED:-} != "$unpacked" ]]; then
  export EBOF_SCENARIO_UNPACKED=$unpacked PYTHONPATH=$unpacked/usr/lib/python3/dist-packages
  for folder in "$unpacked"/usr/lib/postgresql/*/bin "$unpacked"/usr/{bin,sbin}; do PATH=$PATH:$folder; done
  for folder in "$unpacked"/{usr/,}lib/*-linux-gnu "$unpacked"/usr/lib/*-linux-gnu/ceph; do
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
  done
  export LD_LIBRARY_PATH
fi
needs() {
  local program
  for program; do
    command -v "$program" >/dev/null || skip "the program $program is missing (as root, scripts/packages.sh test installs or unpacks what scenarios need)"
  done
}

# ---- outside: starts the script again, and cleans up after it

outside() {
  local status=0 child
  ((EUID == 0)) || skip "root is needed, for networks and mounts of their own"
  needs unshare nsenter setsid ip mount
  EBOF=$(readlink -f "${EBOF:-$(command -v ebof)}")
  [[ -x $EBOF ]] || skip "there is no ebof in PATH; EBOF=target/release/ebof names another one"
  unshare --net --mount --propagation private true 2>/dev/null || skip "networks and mounts of their own are not permitted here"
  work=$(mktemp -d "${TMPDIR:-/tmp}/ebof-scenario.XXXXXX") || exit 1
  mkdir "$work/bin" && ln -s "$EBOF" "$work/bin/ebof" || exit 1
  # Signals end the script inside, which cleans up; this shell waits for it.
  trap '[[ -z ${child:-} ]] || kill -TERM "$child" 2>/dev/null' INT TERM HUP
  EBOF=$EBOF EBOF_SCENARIO_WORK=$work unshare --net --mount --propagation private bash "$0" "$@" &
  child=$!
  wait "$child" || status=$?
  while kill -0 "$child" 2>/dev/null; do status=0; wait "$child" || status=$?; done
  [[ ${EBOF_SCENARIO_KEEP:-} == 1 ]] || rm -rf --one-file-system "$work"
  exit "$status"
}

# ---- inside: machines. Their processes have sessions of their own: the signals with which the
# script is ended, by a terminal or by timeout, must not end targets before their hosts.

declare -A job=() holder=()
passed=0 failed=0 finished='' output='' at_end=()

machine() {
  local name=$1 address=$2
  mkdir "$work/$name"
  setsid unshare --net --mount --uts --propagation private sleep infinity </dev/null >/dev/null 2>&1 &
  holder[$name]=$!
  for _ in {1..100}; do # until unshare has done its work
    [[ $(readlink "/proc/${holder[$name]}/ns/uts") == "$(readlink /proc/self/ns/uts)" ]] || break
    sleep 0.02
  done
  ip link add "$name" type veth peer name eth0 netns "${holder[$name]}" 2>/dev/null ||
    skip "pairs of network interfaces (veth) cannot be made here"
  ip link set "$name" master switch up
  quiet "$name" "hostname $name; ip link set lo up; ip addr add $address/24 dev eth0; ip link set eth0 up"
}
# A /dev of its own, which has what programs without devices need.
drives() {
  local number
  # shellcheck disable=SC2016 # the machine expands it
  quiet "$1" 'mkdir dev nodes && mount --bind /dev nodes && mount -t tmpfs -o mode=755 tmpfs /dev &&
    for node in null zero full random urandom tty fuse loop-control; do
      [[ ! -e nodes/$node ]] || { touch "/dev/$node" && mount --bind "nodes/$node" "/dev/$node"; }
    done && ln -s /proc/self/fd /dev/fd && umount -l nodes' || skip "a machine cannot have a /dev of its own here"
  for ((number = 0; number < $2; number++)); do
    quiet "$1" "truncate -s $3 dev/nvme${number}n1 && ln -s \"\$PWD/dev/nvme${number}n1\" /dev/"
  done
}
unplug() { ip link set "$1" down; }
plug() { ip link set "$1" up; }

# inside NAME COMMAND: the command in that machine, instead of this process. Its directory is
# entered there: a directory that is open already would not show what is mounted there. A third
# argument is a program in front, such as setsid.
inside() {
  exec ${3:-} nsenter -t "${holder[$1]}" --net --mount --uts \
    env -u EBOF_SCENARIO_WORK -u STATE_DIRECTORY -u EBOF_LOG PATH="$work/bin:$PATH" HOME="$work/$1" \
    EBOF_RUNTIME_DIR="$work/$1/run" NO_COLOR=1 bash --norc -c "cd '$work/$1' && $2"
}
quiet() { (inside "$@") </dev/null; }

# run NAME COMMAND: prints and runs it, for `on` and `fails`.
run() {
  local status=0
  say "$1# $2"
  quiet "$1" "$2" >"$work/output" 2>&1 || status=$?
  cat "$work/output"
  output=$(tr -d '\0' <"$work/output")
  cat "$work/output" >>"$work/$1.transcript"
  return "$status"
}
on() {
  local status=0
  run "$@" || status=$?
  ((status == 0)) || give_up "$1# $2: exit status $status"
}
fails() { ! run "$@" || give_up "$1# $2: it succeeded, and should not"; }
give_up() {
  say "FAILED: $*"
  failed=$((failed + 1))
  exit 1
}

start() {
  say "$1# $3 &"
  : >"$work/$2.log"
  (inside "$1" "exec $3" setsid) </dev/null >>"$work/$2.log" 2>&1 &
  job[$2]=$!
}
serve() {
  start "$1" "$1" "$2"
  within 20 listens "$1" || { cat "$work/$1.log"; give_up "$1# $2: it does not listen"; }
  cat "$work/$1.log"
}
listens() { kill -0 "${job[$1]}" 2>/dev/null && grep -q '^listening on' "$work/$1.log"; }
end() {
  [[ -n ${job[$1]:-} ]] || return 0
  kill "-${2:-TERM}" "${job[$1]}" 2>/dev/null
  wait "${job[$1]}" 2>/dev/null
  unset "job[$1]"
  return 0
}

disk() { quiet "$1" 'ebof list' | awk -v name="$2" '$2 == name && /^.dev/ { print $1 }'; }
within() {
  local end=$((SECONDS + $1))
  shift
  while ! "$@" >/dev/null 2>&1; do
    ((SECONDS <= end)) || return 1
    sleep 0.1
  done
}

# ---- checks

step() { printf '\n== %s\n' "$*"; }
check() {
  local text=$1
  shift
  if "$@" >"$work/check" 2>&1; then
    passed=$((passed + 1))
    say "ok: $text"
  else
    failed=$((failed + 1))
    sed 's/^/  | /' "$work/check"
    say "FAILED: $text"
  fi
}
at_exit() { at_end+=("$1"); }
finish() {
  finished=yes
  exit 0
}

# unmount_all NAME: unmounts what is below its directory, the last one mounted first.
unmount_all() {
  quiet "$1" "cd / && awk -v below='$work/$1/' 'index(\$2, below) == 1 && \$3 !~ /^fuse/ { print \$2 }' /proc/self/mounts |
    tac | while IFS= read -r point; do umount \"\$point\" || umount -l \"\$point\"; done"
}
# A device whose target is away does not let its file system go before it is disconnected.
disconnect() {
  local unmounting
  unmount_all "$1" &
  unmounting=$!
  within 5 gone "$unmounting"
  [[ -d $work/$1/run/nvme0 || -d $work/$1/run/nvme1 ]] || return 0
  quiet "$1" 'timeout -k 1 10 ebof disconnect-all --force'
  # The daemons that are left.
  # shellcheck disable=SC2016 # the machine expands it
  quiet "$1" 'for state in run/nvme*/state.json; do
      pid=$(sed -n "s/.*\"pid\": *\([0-9]*\).*/\1/p" "$state"); [[ ! $pid ]] || kill -KILL "$pid"
    done; timeout -k 1 5 ebof list'
  within 5 gone "$unmounting"
}
clean_up() {
  local status=$? name
  trap '' INT TERM HUP
  trap - EXIT
  exec 3>&1 >"$work/clean-up" 2>&1
  for name in "${at_end[@]}"; do eval "$name"; done
  for name in "${!holder[@]}"; do disconnect "$name"; done
  for name in "${!job[@]}"; do kill "${job[$name]}"; done
  for name in "${!job[@]}"; do
    within 12 gone "${job[$name]}" || kill -KILL "${job[$name]}"
  done
  for name in "${holder[@]}"; do kill "$name"; done
  exec >&3
  if [[ -z $finished ]] && ((status != 0 && failed == 0)); then
    failed=1
    say "FAILED: the script ended before its end (status $status)"
  fi
  ((passed + failed == 0)) || printf '\n%d checks passed, %d failed\n' "$passed" "$failed"
  exit $((failed > 0))
}
gone() { ! kill -0 "$1"; }

[[ -n ${EBOF_SCENARIO_WORK:-} ]] || outside "$@"
work=$EBOF_SCENARIO_WORK
trap clean_up EXIT
trap 'exit 143' INT TERM HUP
ip link set lo up
{ ip link add switch type bridge 2>/dev/null && ip link set switch up; } || skip "a bridge of networks cannot be made here"
