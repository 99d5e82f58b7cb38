# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# linux-host: ebof's target on the machine, the Linux kernel's host in a guest.
#
# Two targets: one for any host, with a file and a drive in memory, and one that is configured by a
# file of `nvmetcli save`, with a list of allowed hosts. Afterwards the machine checks the file: the
# file system in it is clean and has what the guest wrote. A third target is killed under writes,
# and comes back with another file behind the same NSID, EBOF_VM_SWAPS times (once).
# @test wire.linux-host
# @test wire.other-object

open=nqn.2014-08.org.example:open
closed=nqn.2014-08.org.example:closed
allowed=nqn.2014-08.org.nvmexpress:uuid:6a1e6a5c-3c1f-4f7e-9d1e-5a5be6ff0001
swapped=nqn.2014-08.org.example:swapped
nguid=5ac1f0e2-77b6-4d5b-8a3e-9b54c2d0e8f1

machine() {
  needs_ebof || return
  image=$work/disk.img other=$work/other.img open_port=$(free_port) closed_port=$(free_port)
  step "targets on 127.0.0.1:$open_port (open) and :$closed_port (allowed hosts, from nvmetcli's JSON)"
  truncate -s 128M "$image"
  truncate -s 32M "$other"
  configuration >"$work/nvmet.json"
  check "ebof serve disk.img mem:96Mi listens" on_target up || return
  start closed "$ebof" serve --confine all --config "$work/nvmet.json"
  check "ebof serve --config nvmet.json listens" until_true 60 reachable "$closed_port" || { note <"$work/closed.log"; return; }
  swapped_port=$(free_port)
  boot_guest -t 600 -- "$open_port" "$closed_port" "$swapped_port" "${EBOF_VM_SWAPS:-1}"

  step "the machine afterwards"
  check "SIGTERM ends the open target with status 0" stop open TERM 30
  check "SIGTERM ends the other target with status 0" stop closed TERM 30
  check "neither of them panicked" eval "! grep -n panicked '$work/open.log' '$work/closed.log'"
  check "e2fsck finds the file system in the file clean" e2fsck -fn "$image"
  check "debugfs extracts a file from it" debugfs -R "dump /files/fio $work/fio" "$image"
  check_equal "it is the file that the guest wrote" "$(sed -n 's, *files/fio$,,p' "$work/ctl/sums")" "$(sha256sum "$work/fio" | cut -d ' ' -f 1)"
}

configuration() {
  cat <<JSON
{
  "hosts": [{"nqn": "$allowed"}],
  "ports": [{
    "addr": {"adrfam": "ipv4", "traddr": "127.0.0.1", "treq": "not specified", "trsvcid": "$closed_port", "trtype": "tcp"},
    "ana_groups": [], "param": {}, "portid": 1, "referrals": [], "subsystems": ["$closed"]
  }],
  "subsystems": [{
    "allowed_hosts": ["$allowed"],
    "attr": {"allow_any_host": "0", "serial": "0123456789abcdef", "model": "ebof test"},
    "namespaces": [{"device": {"nguid": "$nguid", "path": "$other"}, "enable": 1, "nsid": 1}],
    "nqn": "$closed"
  }]
}
JSON
}

# Requests of the guest: kill the open target, start it again.
on_target() {
  if [[ $1 == down ]]; then
    stop open KILL 30
    [[ $? == 137 ]]
  else
    start open "$ebof" serve --confine all --listen "tcp://127.0.0.1:$open_port" --nqn "$open" --allow-any-host "$image" mem:96Mi
    until_true 60 reachable "$open_port" || { cat "$work/open.log"; return 1; }
  fi
}
target_down() { ask target down; }
target_up() { ask target up; }

# Requests of the guest: a larger file, which the target notices by `ebof ns-rescan` or SIGHUP.
on_grow() {
  case $1 in
    open) truncate -s 160M "$image" && "$ebof" ns-rescan --serve "${process[open]}" ;;
    closed) truncate -s 48M "$other" && kill -HUP "${process[closed]}" ;;
  esac
}

# Requests of the guest: the target that it writes to, with one of two files behind NSID 1.
on_swap() {
  case $1 in
    first) # new files, and a new target
      [[ ! -v process[swapped] ]] || stop swapped KILL 30
      rm -rf "$work/swapped.state"
      head -c 16M /dev/zero >"$work/a.img"
      head -c 16M /dev/urandom >"$work/b.img"
      cp "$work/b.img" "$work/b.before"
      serve_swapped a 1
      ;;
    other) stop swapped KILL 30; serve_swapped b 2 ;;
    same) stop swapped KILL 30; serve_swapped b 2 ;;
    untouched)
      cmp -l "$work/b.before" "$work/b.img" | awk '{blocks[int(($1 - 1) / 4096)]} END {n = length(blocks); print n " blocks differ"; exit n > 0}'
      ;;
  esac
}
serve_swapped() {
  cat >"$work/swapped.toml" <<TOML
ports = [{ listen = "tcp://127.0.0.1:$swapped_port" }]
[[subsystems]]
nqn = "$swapped"
allow_any_host = true
namespaces = [{ nsid = 1, drive = "$work/$1.img", uuid = "5ac1f0e2-77b6-4d5b-8a3e-00000000000$2", nguid = "5ac1f0e2-77b6-4d5b-8a3e-00000000000$2" }]
TOML
  start swapped "$ebof" serve --state "$work/swapped.state" --config "$work/swapped.toml"
  until_true 60 reachable "$swapped_port" || { cat "$work/swapped.log"; return 1; }
}

guest() {
  local closed_port=$2 swapped_port=$3 swaps=$4
  address=10.0.2.2 port=$1 nqn=$open
  check "modprobe nvme-tcp" modprobe nvme-tcp || return
  step_discover
  kernel_log_is_clean "about discovery"

  step "connection"
  connects -k 10 -c 1 -l 300 || return
  step_identify
  step_filesystem
  step_verify "no digests" 16
  step_commands
  kernel_log_is_clean "so far"
  step_reset
  step_idle
  clear_kernel_log
  step_unplug
  clear_kernel_log
  step_grow
  disconnects

  step "connection with header and data digest, one queue of depth 32"
  connects -g -G -i 1 -Q 32 && {
    step_verify "both digests" 8
    disconnects
  }
  kernel_log_is_clean "about digests"
  step_refusals
  port=$closed_port step_allow_list
  clear_kernel_log
  port=$swapped_port step_swapped "$swaps"
}

uuid_of() { cat "/sys/block/$(basename "$(namespace_device 1)")/uuid" 2>/dev/null; }
is_another() { local now; now=$(uuid_of) && [[ -n $now && $now != "$1" ]]; }
# The completed writes of a disk.
writes_of() { awk '{print $5}' "/sys/block/${1#/dev/}/stat"; }
has_written() { (($(writes_of "$1") > $2)); }
ended() { ! kill -0 "$1" 2>/dev/null; }
# Linux' nvme-tcp sends as whoever submits, without MSG_NOSIGNAL: whose command is the first one
# after the target's end gets SIGPIPE ("failed to send request -32"). It is ignored, as fio inherits
# it.
writes_on() ( # for so many seconds, 16 at a time
  trap '' PIPE
  fio --name=swapped --filename="$1" --rw=randwrite --bs=4k --ioengine=libaio --iodepth=16 --direct=1 --randrepeat=0 \
    --size=16M --time_based --runtime="$2" >/tmp/swapped.log 2>&1
  echo "fio ends with $?" >>/tmp/swapped.log
)

# The target is killed under writes, and the same file is behind the NSID when it returns.
step_same() {
  local writer disk
  disk=$(namespace_device 1)
  writes_on "$disk" 20 &
  writer=$!
  check "it is" until_true 60 has_written "$disk" 300
  check "the target is killed, and returns with the same file" ask swap same
  check "the writes go on" until_true 120 ended "$writer"
  if [[ $(tail -n 1 /tmp/swapped.log) == 'fio ends with 0' ]]; then
    pass "without an error"
  else
    fail "without an error"
    note </tmp/swapped.log
    dmesg | tail -n 20 | note
  fi
}

# The target is killed under writes, and another file is behind the same NSID when it returns.
step_swapped() {
  local writer disk before try
  nqn=$swapped
  for ((try = 1; try <= $1; try++)); do
    step "another file behind an NSID while the host is away ($try of $1)"
    check "a target with the first file" ask swap first || return
    connects -c 1 -l 600 || return
    disk=$(namespace_device 1) before=$(uuid_of)
    writes_on "$disk" 300 &
    writer=$!
    check "it is written to" until_true 60 has_written "$disk" 300
    check "the target is killed, and returns with the other file" ask swap other
    check "the writes end" until_true 120 ended "$writer"
    check "no block of the other file has changed" ask swap untouched
    check "the disk is the other one, without a rescan" until_true 60 is_another "$before"
    check "nor has one by then" ask swap untouched
    clear_kernel_log
    check "the other one can be written" dd if=/dev/zero of="$(namespace_device 1)" bs=1M count=1 oflag=direct
    step_same
    disconnects
    clear_kernel_log
  done
}

is_as_large() { [[ $(blockdev --getsize64 "$(namespace_device 1)") == "$1" ]]; }

step_grow() {
  step "the file of a connected disk grows"
  local disk
  disk=$(namespace_device 1)
  check_equal "its size" $((128 << 20)) "$(blockdev --getsize64 "$disk")"
  check "a larger file, and ebof ns-rescan on the machine" ask grow open
  check "the disk has the new size, without a rescan or a reconnect" until_true 60 is_as_large $((160 << 20))
  check_equal "it is the same disk" "$disk" "$(namespace_device 1)"
  check "the new blocks can be written" dd if=/dev/zero of="$disk" bs=1M seek=128 count=32 oflag=direct
  check "resize2fs" eval "e2fsck -fp '$disk' && resize2fs '$disk'"
}

step_allow_list() {
  nqn=$closed
  step "a subsystem with a list of allowed hosts"
  check "nvme discover as a host that is not allowed" nvme discover -t tcp -a "$address" -s "$port" -o json
  check_equal "the log page does not have the subsystem" 0 "$(jq --arg nqn "$nqn" '[.records[] | select(.subnqn == $nqn)] | length' <<<"$out")"
  check_fails "nvme connect as a host that is not allowed" 'fail|invalid|could not|not allowed|input/output' \
    nvme connect -t tcp -a "$address" -s "$port" -n "$nqn"
  check "no controller is left" no_controllers "$nqn"
  check "nvme discover as the allowed host" nvme discover -t tcp -a "$address" -s "$port" -q "$allowed" -I "${allowed##*:}" -o json
  check_equal "the log page has the subsystem" 1 "$(jq --arg nqn "$nqn" '[.records[] | select(.subnqn == $nqn)] | length' <<<"$out")"
  connects -q "$allowed" -I "${allowed##*:}" || return
  check_equal "the namespace has the NGUID of the configuration" "${nguid//-/}" \
    "$(nvme id-ns "$(namespace_device 1)" -o json | jq -r .nguid)"
  check_says "the controller has the configured serial number" '0123456789abcdef' nvme id-ctrl "/dev/$controller"
  check "a larger file, and SIGHUP" ask grow closed
  check "the disk has the new size" until_true 60 is_as_large $((48 << 20))
  disconnects
}
