#!/bin/bash
# measure.sh: how long I/O of ebof's host stands still when one of two paths goes, on this machine,
# over loopback TCP: I/O to its block device (as root: devices are made by FUSE or ublk), or by
# its engine of fio.
#
# measure.sh [COUNT]      how often each story is told (50)
#   EBOF       the program (default: target/release/ebof, else target/quick/ebof, else target/debug/ebof)
#   EBOF_FIO   libebof_fio.so: no block device
#
# Beside Linux' native multipath, in a guest: tests/vm/run.sh measure-paths.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
ebof=${EBOF:-}
for build in release quick debug; do
  [[ -n $ebof || ! -x $repository/target/$build/ebof ]] || ebof=$repository/target/$build/ebof
done
ebof=$(readlink -f "${ebof:?build it, or set EBOF}")
count=${1:-50}
nqn=nqn.2014-08.org.example:measured-paths
work=$(mktemp -d)
export EBOF_RUNTIME_DIR=$work/run
mkdir -m 700 "$EBOF_RUNTIME_DIR"
processes=()

tidy() {
  [[ ${#processes[@]} -lt 2 ]] || kill -CONT "${processes[1]}" 2>/dev/null || true
  "$ebof" disconnect -n $nqn >/dev/null 2>&1 || true
  for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
  wait || true
  rm -rf "$work"
}
trap tidy EXIT
until_true() {
  local tries
  for ((tries = 0; tries < 300; tries++)); do
    ! "$@" >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  echo "measure.sh: $* has not become true" >&2
  return 1
}

# The first path is through this relay, which can be stopped: then it is silent.
relay='
import socket, sys, threading
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
def passes(a, b):
    try:
        while data := a.recv(1 << 18): b.sendall(data)
    except OSError: pass
    for end in (a, b):
        try: end.shutdown(socket.SHUT_RDWR)
        except OSError: pass
while True:
    host = server.accept()[0]
    try: target = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    except OSError: host.close(); continue
    for end in (host, target): end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for ends in ((host, target), (target, host)): threading.Thread(target=passes, args=ends, daemon=True).start()
'

base=$((21000 + RANDOM % 9000))
cat >"$work/paths.toml" <<TOML
[[ports]]
name = "fabric0"
listen = "tcp://127.0.0.1:$base"
[[ports]]
name = "fabric1"
listen = "tcp://127.0.0.1:$((base + 1))"
ana = { 1 = "non-optimized" }
[[subsystems]]
nqn = "$nqn"
allow_any_host = true
cntlid_max = 1000
namespaces = ["mem:64Mi"]
TOML
"$ebof" serve --state "$work/state" --control "$work/control.sock" --config "$work/paths.toml" >"$work/target.log" 2>&1 &
processes+=($!)
python3 -c "$relay" $((base + 2)) "$base" 2>/dev/null &
processes+=($!)
until_true "$ebof" discover -t tcp -a 127.0.0.1 -s $((base + 2))

if [[ -n ${EBOF_FIO:-} ]]; then
  # What is closed is back within this time.
  both_live() { sleep 1.5; }
  load=(--ioengine="external:$(readlink -f "$EBOF_FIO")"
    --uri="nvme+tcp://127.0.0.1:$((base + 2))/$nqn/1,nvme+tcp://127.0.0.1:$((base + 1))/$nqn/1")
else
  both_live() { [[ $("$ebof" path nvme0 -o json | jq -c '[.Paths[].State]') == '["live","live"]' ]]; }
  "$ebof" connect -t tcp -a 127.0.0.1 -s $((base + 2)) -n $nqn -k 5 -c 1 >"$work/connect"
  "$ebof" connect -t tcp -a 127.0.0.1 -s $((base + 1)) -n $nqn -k 5 -c 1 >/dev/null
  load=(--ioengine=libaio --filename="$(grep -oE '/dev/[a-z]+[0-9]+' "$work/connect" | head -n 1)")
  until_true both_live
fi

target_set() { "$ebof" target --control "$work/control.sock" set "$@" >/dev/null 2>&1; }
nothing() { :; }
closes() { target_set subsystem $nqn ports='["fabric1"]' --yes; }
opens() { target_set subsystem $nqn ports='["fabric0","fabric1"]' --yes && until_true both_live; }
is_inaccessible() { target_set port fabric0 ana.1=inaccessible --yes; }
is_optimized() { target_set port fabric0 ana.1=; }
is_silent() { kill -STOP "${processes[1]}"; }
# What was on its way is lost with the connection, which the host has given up.
is_heard() { kill -CONT "${processes[1]}" && until_true both_live; }

# story TEXT COUNT SECONDS BEGIN END: the longest command from each BEGIN until END, which is done
# so much later.
story() {
  local text=$1 count=$2 seconds=$3 begin=$4 end=$5 number at job
  rm -f "$work"/fio*
  : >"$work/events"
  # Not in $work: fio adds numbers to the name.
  (cd "$work" && exec fio --name=load "${load[@]}" --rw=randwrite --bs=4k --size=16M --iodepth=4 --rate_iops=1000 \
    --direct=1 --time_based --runtime=$((count * 40 + 30)) --write_lat_log=fio --log_unix_epoch=1 >fio.out 2>&1) &
  job=$!
  sleep 2
  for ((number = 0; number < count; number++)); do
    at=$(date +%s%3N)
    "$begin"
    sleep "$seconds"
    echo "$at $(date +%s%3N)" >>"$work/events"
    "$end"
    sleep 0.7
  done
  kill -INT "$job" 2>/dev/null || { cat "$work/fio.out" >&2; echo "$text: fio has ended" >&2; return 1; }
  wait "$job" || true
  if grep -i 'error' "$work/fio.out"; then echo "$text: commands have failed" >&2; return 1; fi
  # Of those that were under way at BEGIN or began until END. They are logged when they complete, in
  # nanoseconds.
  awk -F'[, ]+' -v n=0 -v at=0 'NR == FNR { begin[n] = $1; end[n++] = $2; next }
    { started = $1 - $2 / 1e6
      while (at + 1 < n && started > begin[at + 1]) at++
      for (i = at; i < n && begin[i] < $1; i++) if (started < end[i] && $2 > most[i]) most[i] = $2 }
    END { for (i = 0; i < n; i++) printf "%.1f\n", most[i] / 1e6 }' "$work/events" "$work"/fio_clat.1.log | sort -n >"$work/stalls"
  echo "$text: median $(sed -n "$(((count + 1) / 2))p" "$work/stalls") ms, worst $(tail -n 1 "$work/stalls") ms of $count"
}

story "nothing happens" "$count" 0.5 nothing nothing
story "the target closes a path" "$count" 0.5 closes opens
story "a path becomes inaccessible" "$count" 0.5 is_inaccessible is_optimized
story "a path is silent" "$count" 4 is_silent is_heard
