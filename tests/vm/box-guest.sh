#!/bin/bash
# box-guest.sh: measures a function in a guest, for the demonstration of a box (make run-box
# GUEST=1).
#
# box-guest.sh direct SOCKET SECONDS       at a direct port
# box-guest.sh tcp PORT NQN SECONDS        at a port of the machine's 127.0.0.1
#
# Prints what fio reports in JSON, a line for each load: reads of 128 KiB, depth 8; random reads of
# 4 KiB, depth 32. setup.sh and setup-qemu.sh come first.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${EBOF_VM_CACHE:-${HOME:?}/.cache/ebof-vm}
mkdir -p "$cache/run"
control=$(mktemp -d "$cache/run/box-guest.XXXXXX")
trap 'rm -rf "$control"' EXIT
options=()
[[ $1 != direct ]] || options=(-u "$(realpath "$2")")

cat >"$control/guest.sh" <<'GUEST'
. /ctl/lib.sh
. /ctl/host.sh
kind=$1 seconds=${*: -1}
if [[ $kind == tcp ]]; then
  modprobe nvme-tcp && nvme connect -t tcp -a 10.0.2.2 -s "$2" -n "$3" || exit
else
  modprobe nvme || exit
fi
until_true 60 test -b /dev/nvme0n1 || exit
measure() {
  fio --name=measured --filename=/dev/nvme0n1 --ioengine=libaio --direct=1 --norandommap --time_based \
    --ramp_time=1 --runtime="$seconds" --output-format=json --output="/ctl/$1.json" "${@:2}"
}
measure 1 --rw=read --bs=128k --iodepth=8 && measure 2 --rw=randread --bs=4k --iodepth=32 || exit
[[ $kind != tcp ]] || nvme disconnect -n "$3"
GUEST
"$here/vm.sh" -n box-guest -c "$control" -t 150 "${options[@]}" "$control/guest.sh" "$@" >"$control/output" 2>&1 ||
  { cat "$control/output" >&2; exit 1; }
PATH=$PATH:$cache/tools/bin
jq -c . "$control/1.json"
jq -c . "$control/2.json"
