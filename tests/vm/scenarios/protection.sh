# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# protection: namespaces with protection information of types 1 to 3, used by nvme-cli over the
# Linux kernel's host. Over TCP the kernel shows them as disks of size 0, but passes commands
# through. Another host, ebof on the machine, checks the result.

drive_nqn=nqn.2014-08.org.example:drive

machine() {
  needs_ebof || return
  drive_port=$(free_port)
  step "a drive of 256 MiB on 127.0.0.1:$drive_port"
  check "ebof serve --drive listens" on_target || return
  boot_guest -t 600 -- "$drive_port"

  step "the machine afterwards"
  check "SIGTERM ends the target with status 0" stop drive TERM 30
  check "it did not panic" eval "! grep -n panicked '$work/drive.log'"
}

on_target() {
  start drive "$ebof" serve --confine all --listen "tcp://127.0.0.1:$drive_port" --nqn "$drive_nqn" --allow-any-host \
    --drive "name=d0,backing=$work/disk.img,size=256Mi,attach=everyone"
  until_true 60 reachable "$drive_port" || { cat "$work/drive.log"; return 1; }
}
# ebof NSID VERB ARGUMENT...
on_ebof() {
  local nsid=$1 verb=$2
  shift 2
  EBOF_RUNTIME_DIR=$work/state "$ebof" "$verb" "nvme+tcp://127.0.0.1:$drive_port/$drive_nqn/$nsid" "$@" >>"$work/verbs.log" 2>&1
}

guest() {
  address=10.0.2.2 port=$1 nqn=$drive_nqn
  check "modprobe nvme-tcp" modprobe nvme-tcp || return
  step "namespaces of each type, and one with metadata only"
  check "nvme connect" nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" || return
  controller=$(controllers "$nqn")
  check "$controller becomes live" until_true 60 controller_is "$controller" live || return
  # Format 2 has blocks of 512 bytes, format 3 of 4096, both with 8 bytes of metadata after each.
  local nsid=0 flbas dps blocks
  while read -r flbas dps blocks; do
    nsid=$((nsid + 1))
    check_says "nvme create-ns -f $flbas -d $dps" "created nsid:$nsid\$" \
      nvme create-ns "/dev/$controller" -s "$blocks" -c "$blocks" -f "$flbas" -d "$dps" -m 1 || return
  done <<<$'0x12 1 65536\n0x13 1 8192\n0x13 2 8192\n0x12 3 65536\n0x12 0 65536'
  check_fails "metadata in a separate buffer are refused" "Invalid Format" nvme create-ns "/dev/$controller" -s 8 -c 8 -f 2 -d 1
  for nsid in 1 2 3 4 5; do
    check "the disk of namespace $nsid appears" until_true 60 namespace_device "$nsid" || return
  done
  check_says "nvme id-ns -H" 'Protection Information Type 3 Supported' nvme id-ns "/dev/$controller" -n 1 -H
  for nsid in 1 2 3 4; do step_commands_of "$nsid"; done
  step_format
  # Reads of the disk during the format may use the old block size: they are refused, which the
  # kernel logs.
  clear_kernel_log
  disconnects
}

# passed OPCODE NSID LBA PRINFO REFERENCE BYTES OPTION...: an I/O command of one block through the
# kernel's pass-through interface.
passed() {
  local opcode=$1 nsid=$2 lba=$3 prinfo=$4 reference=$5 bytes=$6
  shift 6
  nvme io-passthru "$(namespace_device "$nsid")" --opcode="$opcode" --namespace-id="$nsid" --data-len="$bytes" --cdw10="$lba" \
    --cdw12=$((prinfo << 26)) --cdw14="$reference" "$@"
}

# refuses NSID VERB ARGUMENT...: the verb fails on the machine.
refuses() { ! ask ebof "$@"; }

step_commands_of() {
  local nsid=$1 device data=512 type=1 checks=5 reference=9 pattern
  device=$(namespace_device "$nsid")
  case $nsid in
    2) data=4096 ;;
    3) data=4096 type=2 reference=77 ;;
    4) type=3 checks=4 reference=5 ;;
  esac
  step "commands to namespace $nsid, of type $type"
  check_equal "the disk has no size" 0 "$(blockdev --getsize64 "$device")"
  head -c "$data" /usr/bin/bash >/tmp/block
  check "write a block whose protection information the controller inserts (PRACT)" \
    passed 1 "$nsid" 9 8 "$reference" "$data" --write --input-file=/tmp/block
  check "read it, checked and stripped" \
    eval "passed 2 $nsid 9 $((8 | checks)) $reference $data --read --raw-binary 2>/dev/null | cmp - /tmp/block"
  passed 2 "$nsid" 9 "$checks" "$reference" $((data + 8)) --read --raw-binary >/tmp/extended 2>/dev/null
  check_equal "read the extended block: its size" $((data + 8)) "$(stat -c %s /tmp/extended)"
  pattern=$(printf '0000%08x' "$reference")
  check_equal "the tags follow the guard" "$pattern" "$(tail -c 6 /tmp/extended | od -An -tx1 | tr -d ' \n')"
  check "write the extended block, checked" passed 1 "$nsid" 9 "$checks" "$reference" $((data + 8)) --write --input-file=/tmp/extended
  check "nvme verify" nvme verify "$device" -n "$nsid" -s 9 -c 0 -p "$checks" -r "$reference"
  if [[ $nsid != 4 ]]; then
    check_fails "another reference tag does not match" 'REFTAG|Reference Tag|Invalid Protection' \
      nvme verify "$device" -n "$nsid" -s 9 -c 0 -p 1 -r $((reference + 1))
  fi
  printf '\x5a' | dd of=/tmp/extended bs=1 seek=100 conv=notrunc status=none
  check_fails "a block that does not match its guard is refused" 'GUARD|Guard' \
    passed 1 "$nsid" 9 4 "$reference" $((data + 8)) --write --input-file=/tmp/extended
  check "without checks it is written" passed 1 "$nsid" 9 0 0 $((data + 8)) --write --input-file=/tmp/extended
  check_fails "nvme verify detects it" 'GUARD|Guard' nvme verify "$device" -n "$nsid" -s 9 -c 0 -p 4
  check "another host detects it" refuses "$nsid" verify -s 9 --prinfo 4
  check "nvme write-zeroes, with protection information" nvme write-zeroes "$device" -n "$nsid" -s 9 -c 3 -p 8 -r "$reference"
  check "another host verifies it" ask ebof "$nsid" verify -s 9 -c 3 --prinfo "$checks" --ref-tag "$reference"
  check "blocks that were never written are not checked" nvme verify "$device" -n "$nsid" -s 100 -c 1000 -p 4
}

disk_has_a_size() { (($(blockdev --getsize64 "$(namespace_device "$1")") > 0)); }

# Formatted without metadata, the namespace is a disk that the kernel can use.
step_format() {
  local device
  device=$(namespace_device 1)
  step "formatted without metadata"
  check "nvme format -l 1" nvme format "$device" -n 1 -l 1 --force
  check "the disk has a size" until_true 60 disk_has_a_size 1 || return
  verified_writes "fio: 4 KiB to 256 KiB random writes, CRC32C verified" "$device" --bsrange=4k-256k --size=16m --iodepth=8
  udevadm settle
  kernel_log_is_clean "so far"
  check "nvme format -l 2 -m 1 -i 1" nvme format "$device" -n 1 -l 2 -m 1 -i 1 --force
  check "blocks that were never written are not checked" nvme verify "$device" -n 1 -s 0 -c 1000 -p 4
}
