# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# drive: a drive on the machine (`ebof serve --drive`), managed by the Linux kernel's host with
# nvme-cli and smartctl in a guest.
#
# Two namespaces: the guest creates and attaches 1; the machine creates 2 and attaches it to the
# guest's controller, which reports it by an event. Firmware, logs, reservations between two hosts,
# deallocation, and a target that is killed under load.

drive_nqn=nqn.2014-08.org.example:drive
alice=nqn.2014-08.org.nvmexpress:uuid:a11ce000-3c1f-4f7e-9d1e-5a5be6ff0001
bob=nqn.2014-08.org.nvmexpress:uuid:b0b00000-3c1f-4f7e-9d1e-5a5be6ff0002

machine() {
  needs_ebof || return
  drive_address=127.0.0.1 drive_port=$(free_port)
  step "a drive of 256 MiB on 127.0.0.1:$drive_port"
  check "ebof serve --drive listens" on_target up || return
  cp "$repository/docs/nvme-cli-json.txt" "$work/share/differences"
  boot_guest -t 600 -- "$drive_port"

  step "the machine afterwards"
  check "SIGTERM ends the target with status 0" stop drive TERM 30
  check "it did not panic" eval "! grep -n panicked '$work/drive.log'"
}

# Requests of the guest: kill the target or start it again; run a verb of ebof; measure the backing
# file.
on_target() {
  if [[ $1 == down ]]; then
    stop drive KILL 30
    [[ $? == 137 ]]
  else
    start drive "$ebof" serve --confine "${confine:-all}" --listen "$transport://$drive_address:$drive_port" \
      --nqn "$drive_nqn" --allow-any-host --drive "name=d0,backing=$work/disk.img,size=256Mi"
    until_true 60 drive_listens || { cat "$work/drive.log"; return 1; }
  fi
}
drive_listens() { reachable "$drive_port"; }
target_down() { ask target down; }
target_up() { ask target up; }
on_ebof() {
  local verb=$1 status=0
  shift
  EBOF_RUNTIME_DIR=$work/state "$ebof" "$verb" "nvme+$transport://$drive_address:$drive_port/$drive_nqn" "$@" >"$work/verb.out" 2>&1 || status=$?
  tee -a "$work/verbs.log" <"$work/verb.out"
  return $status
}
# held now: measures the backing file. held below MIB, held above MIB: how much it has grown since.
held_before=0
on_held() {
  local mib
  mib=$(du -m "$work/disk.img" | cut -f 1)
  echo "disk.img takes $mib MiB" >>"$work/verbs.log"
  case $1 in
    now) held_before=$mib ;;
    below) ((mib - held_before < $2)) ;;
    above) ((mib - held_before > $2)) ;;
  esac
}

guest() {
  address=10.0.2.2 port=$1 nqn=$drive_nqn
  check "modprobe nvme-tcp" modprobe nvme-tcp || return
  step_empty || return
  step_create || return
  step_event
  kernel_log_is_clean "so far"
  step_reset_keeps
  step_filesystem
  step_space
  step_logs
  step_json
  step_firmware
  clear_kernel_log
  step_unplug
  step_after_unplug
  step_remove
  clear_kernel_log
  disconnects
  step_two_hosts
  clear_kernel_log
}

# number JSON-KEY FILE-OR-COMMAND...: a number of the JSON that a command prints.
number() {
  local key=$1
  shift
  "$@" -o json 2>/dev/null | jq "$key"
}

nvme_connect() { nvme connect -t "$transport" -a "$address" -s "$port" -n "$nqn" "$@"; }
has_no_namespace() { ! namespace_device "$1"; }

step_empty() {
  step "a drive without a namespace"
  check "nvme connect" nvme_connect -q "$alice" -I "${alice##*:}" -k 10 -c 1 -l 300 || return 1
  controller=$(controllers "$nqn")
  check "$controller becomes live" until_true 60 controller_is "$controller" live || return 1
  check_says "nvme id-ctrl -H: namespace management" 'NS Management and Attachment Supported' nvme id-ctrl "/dev/$controller" -H
  check_says "nvme id-ctrl -H: reservations" 'Reservations Supported' nvme id-ctrl "/dev/$controller" -H
  check "nvme id-ctrl" nvme id-ctrl "/dev/$controller" -o json
  jq -c '{oacs, oncs, frmw, lpa, elpe, tnvmcap, unvmcap, nn, mnan, rpmbs, edstt, sanicap, endgidmax}' <<<"$out" | note
  check_equal "id-ctrl: the whole capacity is unallocated" "268435456 268435456" "$(jq -r '"\(.tnvmcap) \(.unvmcap)"' <<<"$out")"
  check_equal "nvme list-ns --all is empty" 0 "$(nvme list-ns "/dev/$controller" --all -o json | jq '.nsid_list | length')"
}

# The usual commands, with their usual flags.
step_create() {
  local device=/dev/$controller cntlid
  step "create, attach, list"
  cntlid=$(number .cntlid nvme id-ctrl "$device")
  check_says "nvme create-ns" 'created nsid:1$' nvme create-ns "$device" -s 0x40000 -c 0x40000 -f 0 -d 0 -m 0 || return 1
  check_says "nvme list-ns --all has it" ':0x1$' nvme list-ns "$device" --all
  check "it has no disk yet" has_no_namespace 1
  check "nvme attach-ns" nvme attach-ns "$device" -n 1 -c "$cntlid" || return 1
  check "its disk appears without a reset" until_true 60 namespace_device 1 || return 1
  check_says "nvme list has it" "^$(namespace_device 1) .*134.22 +MB" nvme list
  note <<<"$out"
  check_says "nvme list-ctrl -n 1" "]:(0x)?$cntlid\$" nvme list-ctrl "$device" -n 1
  check_says "nvme list-ctrl" "]:(0x)?$cntlid\$" nvme list-ctrl "$device"
  check "nvme id-ns" nvme id-ns "$device" -n 1 -o json
  check_equal "id-ns: size, capacity and use in blocks" "262144 262144 0" "$(jq -r '"\(.nsze) \(.ncap) \(.nuse)"' <<<"$out")"
  check_fails "nvme create-ns beyond the capacity" 'Insufficient Capacity' nvme create-ns "$device" -s 0x60000 -c 0x60000 -f 0 -d 0 -m 0
  check_fails "nvme attach-ns once more" 'Already Attached' nvme attach-ns "$device" -n 1 -c "$cntlid"
  check_fails "nvme attach-ns to a controller that does not exist" 'Controller List' nvme attach-ns "$device" -n 1 -c 999
}

# No command in the guest is involved.
step_event() {
  local cntlid
  step "the machine attaches a namespace"
  cntlid=$(number .cntlid nvme id-ctrl "/dev/$controller")
  check "ebof create-ns on the machine" ask ebof create-ns -S 64Mi --nmic 1
  check "ebof attach-ns on the machine" ask ebof attach-ns -n 2 -c "$cntlid"
  check "the disk appears by the event alone" until_true 60 namespace_device 2
  check "ebof detach-ns on the machine" ask ebof detach-ns -n 2 -c "$cntlid"
  check "the disk disappears by the event alone" until_true 60 has_no_namespace 2
  check "ebof attach-ns on the machine" ask ebof attach-ns -n 2 -c "$cntlid"
  check "the disk appears again" until_true 60 namespace_device 2
}

step_reset_keeps() {
  step "reset"
  check "nvme reset" nvme reset "/dev/$controller"
  check "$controller is live again" until_true 60 controller_is "$controller" live
  check_equal "both namespaces are attached as before" "1 2" \
    "$(nvme list-ns "/dev/$controller" -o json | jq -r '[.nsid_list[].nsid] | join(" ")')"
  check "nvme ns-rescan" nvme ns-rescan "/dev/$controller"
  check "the disks are still there" eval 'namespace_device 1 && namespace_device 2'
}

step_space() {
  local device
  device=$(namespace_device 2)
  step "writes allocate space, deallocation frees it"
  check "the backing file is measured" ask held now
  verified_writes "fio: 4 KiB to 256 KiB random writes, CRC32C verified" "$device" --bsrange=4k-256k --size=48M --iodepth=8
  check "NUSE counts what was written" eval "(( $(number .nuse nvme id-ns "$device") >= 98304 ))"
  check "the backing file has grown" ask held above 44
  check "blkdiscard" blkdiscard "$device"
  check "NUSE is 0" until_true 30 eval "(( \$(number .nuse nvme id-ns $device) == 0 ))"
  check "the backing file has shrunk" until_true 30 ask held below 8
  check "the disk reads as zeros" cmp -n 16777216 "$device" /dev/zero
}

step_logs() {
  local device=/dev/$controller
  step "logs"
  check_fails "nvme read beyond the end" 'LBA Out of Range' nvme read "$device"n2 -s 999999999 -c 0 -z 512
  check "nvme smart-log" nvme smart-log "$device" -o json
  jq -c . <<<"$out" | note
  check_equal "smart-log: counters have moved" true "$(jq '.data_units_written > 50 and .data_units_read > 50 and
    .host_write_commands > 200 and .host_read_commands > 100 and .power_cycles == 1 and .unsafe_shutdowns == 0 and
    .num_err_log_entries > 0 and .critical_warning == 0 and .avail_spare > 50 and .temperature > 280' <<<"$out")"
  check "nvme error-log" nvme error-log "$device" -e 4 -o json
  check_equal "error-log: the LBA out of range" 999999999 "$(jq '.errors[0].lba' <<<"$out")"
  check_says "nvme fw-log" 'frs1' nvme fw-log "$device"
  check "nvme endurance-log" nvme endurance-log "$device" -g 1 -o json
  check_equal "endurance-log: counters have moved" true "$(jq '(.data_units_written | tonumber) > 0 and (.host_write_cmds | tonumber) > 200' <<<"$out")" || note <<<"$out"
  check "nvme persistent-event-log: establish" nvme persistent-event-log "$device" -a 1
  check_says "nvme persistent-event-log: namespaces were created" 'Change Namespace' nvme persistent-event-log "$device" -a 0
  check "nvme persistent-event-log: release" nvme persistent-event-log "$device" -a 2
  check "nvme changed-ns-list-log" nvme changed-ns-list-log "$device"
  check_says "nvme effects-log" 'Namespace Management' nvme effects-log "$device"
  check "smartctl -a" smartctl -a -d nvme "$device"
  note <<<"$out"
  check_equal "smartctl: passed, with counters and an error" 5 "$(grep -cE \
    '^SMART overall-health .* PASSED|^Data Units Written: +[1-9]|^Host Read Commands: +[1-9]|^Error Information Log Entries: +[1-9]|^Temperature: +[1-9]' <<<"$out")"
}

# json_keys: the places and types of everything in a JSON document, one in a line; a device's name
# that is a key as DEVICE.
json_keys() {
  jq -r '[paths as $p | ($p | map(if type == "number" then "[]" else "." + . end) | join("")) + ": " + (getpath($p) | type)]
    + [": " + type] | unique[]' | sed -E 's/^\.nvme[0-9]+/.DEVICE/' | sort -u
}
# is_difference VERB KEY: docs/nvme-cli-json.txt has it.
is_difference() {
  local verb place reason
  while IFS=$'\t' read -r verb place reason; do
    [[ $verb == "$1" ]] || continue
    [[ $place != *'*' ]] || [[ $2 != "${place%'*'}"* ]] || return 0
    [[ $place != "$2" ]] || return 0
  done </host/differences
  return 1
}
# same_json VERB [DEVICE OUR-DEVICE] [-- OPTION...]: ebof's JSON has every key of nvme-cli's, in its
# place and of its type, but the differences that are listed.
same_json() {
  local verb=$1 devices=() key missing=''
  shift
  while (($#)) && [[ $1 != -- ]]; do
    devices+=("$1")
    shift
  done
  shift
  # shellcheck disable=SC2086 # verb and options
  nvme $verb "${devices[@]:0:1}" "$@" -o json 2>/dev/null | sed '1{/^NVMe Identify/d}' | json_keys >/tmp/theirs
  # shellcheck disable=SC2086
  EBOF_RUNTIME_DIR=/tmp/ebof /host/ebof $verb "${devices[@]:1:1}" "$@" -o json 2>/tmp/our-errors | json_keys >/tmp/ours
  while read -r key; do
    is_difference "$verb" "${key%: *}" || missing+="$key"$'\n'
  done < <(comm -23 /tmp/theirs /tmp/ours)
  if [[ $(wc -l </tmp/theirs) -gt 1 && -z $missing ]]; then
    pass "$verb${*:+ $*}: the keys of nvme-cli, $(wc -l </tmp/theirs) of them"
  else
    fail "$verb${*:+ $*}: the keys of nvme-cli"
    note < <(printf '%s' "$missing"; cat /tmp/our-errors)
  fi
}

# ebof's host beside the kernel's, on the same subsystem: each verb by both.
our_host() {
  modprobe ublk_drv
  check "ebof connects" eval "EBOF_RUNTIME_DIR=/tmp/ebof /host/ebof connect -t $transport -a $address -s $port -n $nqn \
    -q $bob -I ${bob##*:} -i 1 -o json >/tmp/connected" || return 1
  ours=$(jq -r .device /tmp/connected)
}
step_json() {
  local theirs=/dev/$controller ours cntlid verb fid
  step "JSON as nvme-cli's"
  our_host || return
  cntlid=$(EBOF_RUNTIME_DIR=/tmp/ebof /host/ebof id-ctrl "$ours" -o json | jq .cntlid)
  check "nvme attach-ns for ebof's host" nvme attach-ns "$theirs" -n 2 -c "$cntlid"
  check "its device appears" until_true 30 eval "EBOF_RUNTIME_DIR=/tmp/ebof /host/ebof id-ns ${ours}n2"
  for verb in list list-subsys "list-subsys -v" show-topology "show-topology -v"; do same_json "$verb" --; done
  for verb in id-ctrl nvm-id-ctrl id-ns-granularity list-endgrp id-iocs show-regs smart-log error-log fw-log effects-log \
    fid-support-effects-log supported-log-pages self-test-log persistent-event-log sanitize-log resv-notif-log; do
    case $verb in
      error-log) same_json $verb "$theirs" "$ours" -- -e 4 ;;
      persistent-event-log)
        nvme $verb "$theirs" -a 1 >/dev/null
        EBOF_RUNTIME_DIR=/tmp/ebof /host/ebof $verb "$ours" -a 1 >/dev/null
        same_json $verb "$theirs" "$ours" -- -a 0
        nvme $verb "$theirs" -a 2 >/dev/null
        ;;
      *) same_json $verb "$theirs" "$ours" -- ;;
    esac
  done
  same_json smart-log "$theirs" "$ours" -- -v
  same_json endurance-log "$theirs" "$ours" -- -g 1
  same_json list-ns "$theirs" "$ours" -- --all
  same_json list-ctrl "$theirs" "$ours" -- -n 2
  same_json get-reg "$theirs" "$ours" -- --csts
  same_json get-property "$theirs" "$ours" -- -O 0x1c
  for fid in 1 2 4 7 0x0b 0x16; do same_json get-feature "$theirs" "$ours" -- -f $fid; done
  same_json get-feature "$theirs" "$ours" -- -f 7 -s 3
  for verb in id-ns ns-descs nvm-id-ns cmdset-ind-id-ns resv-report; do
    same_json $verb "${theirs}n2" "${ours}n2" --
  done
  EBOF_RUNTIME_DIR=/tmp/ebof /host/ebof disconnect-all >/dev/null 2>&1
  check "nvme detach-ns from ebof's host" nvme detach-ns "$theirs" -n 2 -c "$cntlid"
}

# crc32c FILE BYTES: of the first bytes of a file.
crc32c() {
  local crc=$((0xffffffff)) byte bit
  while read -r byte; do
    crc=$((crc ^ byte))
    for bit in {1..8}; do crc=$((crc & 1 ? (crc >> 1) ^ 0x82f63b78 : crc >> 1)); done
  done < <(head -c "$2" "$1" | od -An -v -w1 -tu1)
  echo $((crc ^ 0xffffffff))
}
le32() { printf '%b' "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24 & 255)))"; }
# padded TEXT BYTES
padded() { printf '%s' "$1" && head -c $(($2 - ${#1})) /dev/zero; }
# firmware FILE REVISION PRODUCT PERSONALITY: an image as docs/firmware.md describes it.
firmware() {
  printf '%s' "$4" >/tmp/payload
  {
    printf 'EBOFFW\r\n\x01\x00\x40\x00'
    le32 ${#4}
    le32 "$(crc32c /tmp/payload ${#4})"
    padded "$2" 8
    padded "$3" 32
  } >"$1"
  le32 "$(crc32c "$1" 60)" >>"$1"
  cat /tmp/payload >>"$1"
  truncate -s 4096 "$1"
}

step_firmware() {
  local device=/dev/$controller
  step "firmware"
  firmware /tmp/good 9.9-test ebof-drive '{"model-suffix":""}'
  firmware /tmp/other 9.9-test toaster '{}'
  sed 's/9.9-test/9.9-tesT/' /tmp/good >/tmp/broken
  for image in broken other; do
    check "nvme fw-download of an image that is $image" nvme fw-download "$device" -f "/tmp/$image"
    check_fails "nvme fw-commit refuses it" 'Invalid Firmware Image' nvme fw-commit "$device" -s 2 -a 1
  done
  check "nvme fw-download" nvme fw-download "$device" -f /tmp/good
  check "nvme fw-commit, activated immediately" nvme fw-commit "$device" -s 2 -a 3
  check_says "nvme fw-log has it in slot 2" 'frs2 .*9.9-test' nvme fw-log "$device"
  check_says "nvme id-ctrl shows it" '^fr +: 9.9-test' nvme id-ctrl "$device"
  check "the disks are still there" eval 'namespace_device 1 && namespace_device 2'
  check_says "nvme fw-commit back to slot 1, at the next reset" 'Success|reset' nvme fw-commit "$device" -s 1 -a 2
  check "nvme reset" nvme reset "$device"
  check "$controller is live again" until_true 60 controller_is "$controller" live
  check_fails "the other firmware is active" '.' eval "nvme id-ctrl $device | grep -q '^fr *: 9.9-test' || { echo no longer; false; }"
}

step_after_unplug() {
  step "after the kill"
  check "nvme smart-log" nvme smart-log "/dev/$controller" -o json
  check_equal "smart-log: one more power cycle, one unsafe shutdown" "2 1" "$(jq -r '"\(.power_cycles) \(.unsafe_shutdowns)"' <<<"$out")"
  check_equal "smart-log: counters are kept" true "$(jq '.data_units_written > 50' <<<"$out")"
}

step_remove() {
  local device=/dev/$controller cntlid
  step "detach, delete"
  cntlid=$(number .cntlid nvme id-ctrl "$device")
  check "nvme detach-ns" nvme detach-ns "$device" -n 1 -c "$cntlid"
  check "its disk disappears" until_true 60 has_no_namespace 1
  check "nvme delete-ns" nvme delete-ns "$device" -n 1
  check_equal "namespace 2 is left" "2" "$(nvme list-ns "$device" --all -o json | jq -r '[.nsid_list[].nsid] | join(" ")')"
  check_equal "its capacity is unallocated again" $((256 - 64)) "$(($(number .unvmcap nvme id-ctrl "$device") >> 20))"
}

# write_to DEVICE: a block, without the page cache.
write_to() { dd if=/tmp/pattern of="$1" bs=4k count=1 oflag=direct conv=notrunc; }
path_of() {
  local name
  for name in /sys/class/nvme/"$1"/nvme*n*; do [[ ! -b /dev/${name##*/} ]] || { echo "/dev/${name##*/}"; return; }; done
  return 1
}

# With multipath both connections would be two paths of one host to one disk.
step_two_hosts() {
  local a b first second cntlid ours
  step "two hosts, one namespace, reservations"
  check "the kernel's host is loaded again, without multipath" eval \
    "rmmod nvme-$transport nvme-fabrics nvme-core && modprobe nvme-core multipath=N && modprobe nvme-$transport" || return
  head -c 4096 /dev/urandom >/tmp/pattern
  check "nvme connect as Alice" nvme_connect -q "$alice" -I "${alice##*:}"
  first=$(controllers "$nqn")
  check "her disk appears" until_true 60 path_of "$first" || return
  a=$(path_of "$first")
  check "nvme connect as Bob" nvme_connect -q "$bob" -I "${bob##*:}"
  second=$(controllers "$nqn" | grep -vx "$first")
  cntlid=$(number .cntlid nvme id-ctrl "/dev/$second")
  check "nvme attach-ns for Bob, by Alice" nvme attach-ns "/dev/$first" -n 2 -c "$cntlid"
  check "his disk appears by the event" until_true 60 path_of "$second" || return
  b=$(path_of "$second")
  note < <(echo "Alice has $a, Bob $b"; nvme list-ctrl "/dev/$first" -n 2)

  check "nvme resv-register as Alice" nvme resv-register "$a" --nrkey=0xa11ce --rrega=0 --cptpl=3
  check "nvme resv-register as Bob" nvme resv-register "$b" --nrkey=0xb0b --rrega=0 --cptpl=3
  check "nvme resv-acquire as Alice" nvme resv-acquire "$a" --crkey=0xa11ce --rtype=1 --racqa=0
  check "Alice writes" write_to "$a"
  check_fails "Bob's write is refused: EBADE" 'Invalid exchange' write_to "$b"
  check "Bob reads what Alice wrote" eval "dd if=$b bs=4k count=1 iflag=direct 2>/dev/null | cmp - /tmp/pattern"
  check_fails "nvme resv-acquire as Bob" 'Reservation Conflict' nvme resv-acquire "$b" --crkey=0xb0b --rtype=1 --racqa=0
  check "nvme resv-report" nvme resv-report "$b" --eds -o json
  check_equal "resv-report: type, registrants, persistence" "1 2 1" "$(jq -r '"\(.rtype) \(.regctl // .regstrnt) \(.ptpls)"' <<<"$out")" || note <<<"$out"

  check "the target is killed" target_down
  check "the target is started again" target_up
  check "Alice reconnects" until_true 120 write_to "$a"
  check "Bob reconnects" until_true 120 controller_is "$second" live
  check_fails "the reservation is still held" 'Invalid exchange' write_to "$b"

  check "nvme resv-acquire: Bob preempts" nvme resv-acquire "$b" --crkey=0xb0b --prkey=0xa11ce --rtype=1 --racqa=1
  check_fails "Alice's write is refused" 'Invalid exchange' write_to "$a"
  check "Bob writes" write_to "$b"
  check "nvme resv-release as Bob" nvme resv-release "$b" --crkey=0xb0b --rtype=1 --rrela=0
  check "Alice writes again" write_to "$a"
  # Without multipathing in the kernel namespaces belong to their controllers, as ebof's do.
  if our_host; then # as Bob, who has the namespace
    check "its device appears" until_true 30 eval "EBOF_RUNTIME_DIR=/tmp/ebof /host/ebof id-ns ${ours}n2"
    same_json "list -v" --
    EBOF_RUNTIME_DIR=/tmp/ebof /host/ebof disconnect-all >/dev/null 2>&1
  fi
  check "nvme disconnect" nvme disconnect -n "$nqn"
}
