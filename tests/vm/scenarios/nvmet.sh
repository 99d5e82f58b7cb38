# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# nvmet: the kernel's target in a guest, ebof's initiator on the machine: commands by URI, and an
# attached block device.
#
# What ebof wrote is checked in the guest, on the RAM disks behind the target, without ebof.
# @test wire.linux-target

nqn=nqn.2014-08.org.example:kernel

machine() {
  needs_ebof || return
  address=127.0.0.1 port=$(free_port)
  boot_guest -t 420 -f "$port:4420" -- "$port"
}
cleanup() { [[ -z $attached ]] || "$ebof" disconnect -n "$nqn" >/dev/null 2>&1; }

guest() {
  check "modprobe" modprobe -a nvmet nvmet-tcp
  check "two RAM disks" modprobe brd rd_nr=2 rd_size=$((64 * 1024)) || return
  check "nvmet: a subsystem with two namespaces" nvmet_subsystem "$nqn" /dev/ram0 /dev/ram1
  check "nvmet: a TCP port" nvmet_port 1 tcp 0.0.0.0 4420 "$nqn" || return
  ask by_uri
  check "the RAM disk has the data written by URI" eval \
    "dd if=/dev/ram0 iflag=direct bs=64k skip=16 count=1 status=none | cmp - /ctl/pattern"
  ask attach
  # If the machine cannot have a block device, the rest is skipped.
  if ask is_attached; then
    check "the RAM disk has the data written through the device" eval \
      "dd if=/dev/ram1 iflag=direct bs=1M count=8 status=none | cmp - /ctl/large"
    step "the namespaces are inaccessible for two seconds"
    check "nvmet: inaccessible" eval "echo inaccessible >'$nvmet/ports/1/ana_groups/1/ana_state'"
    ask begins_to_write
    sleep 2
    check "nvmet: optimized" eval "echo optimized >'$nvmet/ports/1/ana_groups/1/ana_state'"
    ask has_written
    step "the port is closed and opened again"
    check "nvmet: the port is closed" rm "$nvmet/ports/1/subsystems/$nqn"
    sleep 2
    check "nvmet: the port is open" ln -s "$nvmet/subsystems/$nqn" "$nvmet/ports/1/subsystems/"
    ask again
  fi
  check "no connection to the target is left" until_true 60 no_connections
  clear_kernel_log
  nvmet_clear
}
no_connections() { [[ -z $(ss -Htn state established '( sport = :4420 )') ]]; }

on_by_uri() {
  local size=65536 uri=nvme+$transport://$address:$port/$nqn
  step "ebof to the kernel's target at $uri"
  # QEMU accepts connections before the guest listens, but the guest sends this request afterwards.
  check_says "ebof discover lists the subsystem" "$nqn" "$ebof" discover -t "$transport" -a "$address" -s "$port"
  note <<<"$out"
  check "ebof discover -o json is JSON" eval "'$ebof' discover -t $transport -a $address -s $port -o json | jq -e ."
  check_says "ebof id-ctrl" "^subnqn .*$nqn" "$ebof" id-ctrl "$uri"
  check_says "ebof id-ns" '^nsze ' "$ebof" id-ns "$uri/1"
  check_says "ebof list-ns has both namespaces" '0x2$' "$ebof" list-ns "$uri"
  check "ebof smart-log" "$ebof" smart-log "$uri"
  check "ebof error-log" "$ebof" error-log "$uri"
  check_says "ebof show-regs" '^cap ' "$ebof" show-regs "$uri"
  head -c $size /dev/urandom >"$work/ctl/pattern"
  check "ebof write" "$ebof" write "$uri/1" -s 2048 -c 127 -z $size -d "$work/ctl/pattern"
  check "ebof flush" "$ebof" flush "$uri/1"
  check "ebof read" "$ebof" read "$uri/1" -s 2048 -c 127 -z $size -d "$work/back"
  check "the data read are those written" cmp "$work/ctl/pattern" "$work/back"
  if [[ $transport == tcp ]]; then
    local digests=(--hdr-digest --data-digest)
    check "ebof write with digests" "$ebof" write "$uri/1" "${digests[@]}" -s 2048 -c 127 -z $size -d "$work/ctl/pattern"
    check "ebof read with digests" "$ebof" read "$uri/1" "${digests[@]}" -s 2048 -c 127 -z $size -d "$work/back"
    check "the data read are those written" cmp "$work/ctl/pattern" "$work/back"
  fi
  # Linux 6.12 has no Compare: ebof must not report that the data differ.
  check_fails "ebof compare reports that the target does not support it" 'invalid.*opcode|not supported' \
    "$ebof" compare "$uri/1" -s 2048 -c 127 -z $size -d "$work/ctl/pattern"
  check "ebof write-zeroes" "$ebof" write-zeroes "$uri/1" -s 4096 -c 127
  check "ebof read of the zeros" "$ebof" read "$uri/1" -s 4096 -c 127 -z $size -d "$work/back"
  check "they are zeros" cmp -n $size "$work/back" /dev/zero
  check_fails "a read beyond the end fails" 'error|range' "$ebof" read "$uri/1" -s 131072 -c 0 -z 512 -d "$work/back"
  check_fails "a namespace that does not exist is reported" 'namespace' "$ebof" id-ns "$uri/77"
  check_fails "an unknown NQN is reported" 'nqn.2014-08.org.example:wrong' "$ebof" id-ctrl "nvme+$transport://$address:$port/nqn.2014-08.org.example:wrong"
}

attached='' # not empty while ebof connect is in effect
# connects_device [FLAG...]: ebof connect; sets $device to the block device of namespace 2.
device=''
connects_device() {
  check "ebof connect -n $nqn $*" "$ebof" connect -t "$transport" -a "$address" -s "$port" -n "$nqn" "$@" || return 1
  note <<<"$out"
  attached=yes
  device=$(grep -oE '/dev/(ublkb|loop)[0-9]+' <<<"$out" | sort -u | sed -n 2p)
  [[ -b $device ]] || { fail "two block devices are printed"; return 1; }
}

on_attach() {
  local flags
  step "ebof connect on the machine"
  if ((EUID != 0)); then skip "ebof connect" "not root"; return; fi
  if [[ ! -e /dev/ublk-control && ! (-c /dev/fuse && -e /dev/loop-control) ]]; then
    skip "ebof connect" "neither ublk nor FUSE and loop devices on this machine"
    return
  fi
  head -c 8M /dev/urandom >"$work/ctl/large"
  for flags in '' '-g -G'; do
    # shellcheck disable=SC2086 # words
    connects_device $flags || return
    check_equal "$device has the namespace's size" $((64 << 20)) "$(blockdev --getsize64 "$device")"
    check_says "ebof list shows it" "$device" "$ebof" list
    check "dd writes 8 MiB" dd if="$work/ctl/large" of="$device" bs=1M oflag=direct conv=fsync
    check "... and they read back" eval "dd if=$device bs=1M count=8 iflag=direct status=none | cmp - '$work/ctl/large'"
    [[ -z $flags ]] || break
    check "ebof disconnect" "$ebof" disconnect -n "$nqn"
    check "$device is gone" until_true 30 is_gone "$device"
    attached=''
  done
}
# The node of a loop device stays, without a backing file.
is_gone() { [[ ! -b $1 || $(blockdev --getsize64 "$1") == 0 ]]; }
on_is_attached() { [[ -n $attached ]]; }

writer=''
on_begins_to_write() {
  # Reads, too: after their status a file system would be read-only.
  { dd if="$device" of=/dev/null bs=64k count=4 iflag=direct status=none && dd if="$work/ctl/large" of="$device" bs=1M oflag=direct conv=fsync; } \
    >"$work/writer.out" 2>&1 &
  writer=$!
}
on_has_written() {
  check "what was read and written meanwhile has waited, and no request failed" writer_succeeds || note <"$work/writer.out"
}
# A function, since the writer is a child of this shell alone.
writer_succeeds() { wait "$writer"; }

on_again() {
  check "after the interruption 8 MiB are read back" eval "dd if=$device bs=1M count=8 iflag=direct status=none | cmp - '$work/ctl/large'"
  check "ebof disconnect" "$ebof" disconnect -n "$nqn"
  check "$device is gone" until_true 30 is_gone "$device"
  check_equal "ebof list does not show it" '' "$("$ebof" list | grep -F "$device")"
  attached=''
}
