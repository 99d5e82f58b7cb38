# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# box: one drive with five functions, three of them at direct ports with a guest each, one at a
# fabric port that a guest uses besides. Under their load namespaces and functions come and go, a
# guest starts again, and ebof is killed and comes back. Firmware boots from a function.
#
# Guests "one" (which leads), "two" and "three", at direct1, direct2 and direct3, with functions 1,
# 2 and 3, and namespaces 1, 2 and 3; namespace 4 is function 4's, over TCP. Namespace 5 wanders, 6
# is shared by functions 1 and 2, 7 is booted from. Guest "again" is "three" after its power failed.
# Drive d1 has a namespace 1, too, which must never get what was meant for d0's.

box=nqn.2014-08.org.example:box:d0
other=nqn.2014-08.org.example:box:d1
fabric='' # the TCP port

machine() {
  needs_ebof && needs_vfio_user || return
  fabric=$(free_port)
  configuration >"$work/box.toml"
  check "ebof serve listens" on_target up || return
  check "namespaces are made and given to functions" furnish || return
  step_firmware
  local guest number=0
  for guest in one two three; do
    number=$((number + 1))
    boot_numbered "$guest" "$number"
  done
  serve_guests

  step "the machine afterwards"
  check_says "every function has what it had" 'vf1 .*direct1' target show
  check "SIGTERM ends the target with status 0" stop target TERM 30
  check "the target did not panic" eval "! grep -n panicked '$work/target.log'"
}

# boot_numbered NAME NUMBER. It may start again without a new QEMU. Commands that end by their time
# do so earlier than by default. In guest "one" the driver repeats what it was not answered itself,
# in place of the multipath layer, which waits for a scan.
boot_numbered() {
  local kernel="nvme_core.io_timeout=10 nvme_core.admin_timeout=10"
  [[ $1 != one ]] || kernel+=" nvme_core.multipath=N"
  start_guest "$1" -u "$work/direct$2.sock" -m 448 -t 1200 -n "box-$2" -k "$kernel" \
    -- "$2" "$fabric" -- -action reboot=reset
}

configuration() {
  echo "[target]"
  echo "control = \"$work/control.sock\""
  printf '[[ports]]\nname = "fabric0"\nlisten = "tcp://127.0.0.1:%s"\n' "$fabric"
  printf '[[ports]]\nname = "direct%s"\nlisten = "vfio-user:direct%s.sock"\n' 1 1 2 2 3 3 5 5
  cat <<TOML
[[drives]]
name = "d0"
backing = "d0.img"
size = "512Mi"
functions = 5
[[subsystems]]
nqn = "$box"
drive = "d0"
ports = ["fabric0"]
allow_any_host = true
[[drives]]
name = "d1"
backing = "mem:64Mi"
functions = 1
[[subsystems]]
nqn = "$other"
drive = "d1"
ports = ["fabric0"]
allow_any_host = true
TOML
}

# target WORD...: ebof target.
target() { "$ebof" target --yes --control "$work/control.sock" "$@"; }

furnish() {
  local uri=nvme+tcp://127.0.0.1:$fabric/$box nsid
  for nsid in 1 2 3 4 5; do "$ebof" create-ns "$uri" -S 32Mi || return; done
  "$ebof" create-ns "$uri" -S 16Mi -m 1 || return
  "$ebof" create-ns "nvme+tcp://127.0.0.1:$fabric/$other" -S 16Mi && target map d1/ns1 --vf d1/vf1 || return
  for nsid in 1 2 3 4; do target map "d0/ns$nsid" --vf "d0/vf$nsid" || return; done
  for nsid in 1 2 3; do target assign "d0/vf$nsid" --port "direct$nsid" || return; done
  target assign d0/vf4 --port fabric0 && "$ebof" attach-ns "$uri" -n 6 -c 1,2
}

# A boot sector ends QEMU, with a status that nothing else has. UEFI says which disks it has found.
step_firmware() {
  local uri=nvme+tcp://127.0.0.1:$fabric/$box status=0 path='PciRoot\(0x0\)/Pci\(0x1,0x0\)/Pci\(0x0,0x0\)/NVMe\(0x7'
  step "firmware finds a function, and boots from it"
  { # mov dx, 0xf4; mov al, 0x2a; out dx, al; jmp $
    printf '\xba\xf4\x00\xb0\x2a\xee\xeb\xfe'
    head -c 502 /dev/zero
    printf '\x55\xaa'
  } >"$work/sector"
  check "a namespace is made, and written over the fabric" bootable "$uri" || return
  on_move vf5 direct5
  LIMIT=60 firmware "$work/bios.log" >/dev/null 2>&1 || status=$?
  check_equal "SeaBIOS boots from it" $((2 * 0x2a + 1)) $status
  cp "$EBOF_VM_CACHE/qemu/share/OVMF_VARS_4M.fd" "$work/vars.fd"
  start firmware firmware "$work/uefi.log" -drive "if=pflash,format=raw,readonly=on,file=$EBOF_VM_CACHE/qemu/share/OVMF_CODE_4M.fd" \
    -drive "if=pflash,format=raw,file=$work/vars.fd"
  check "UEFI finds it" until_true 90 grep -aqE "Boot.*UEFI ebof.*$path" "$work/uefi.log"
  stop firmware TERM 10
}
bootable() {
  "$ebof" create-ns "$1" -S 16Mi && target map d0/ns7 --vf d0/vf5 && target assign d0/vf5 --port fabric0 &&
    "$ebof" write "$1:vf5/7" -s 0 -c 0 -z 512 -d "$work/sector"
}
# firmware LOG [ARGUMENT...]: a machine that has nothing but the function.
firmware() {
  timeout "${LIMIT:-120}" "$EBOF_VM_CACHE/qemu/bin/qemu" -machine q35,memory-backend=mem -cpu max -m 256 -accel tcg -nodefaults \
    -display none -vga none -no-reboot -object memory-backend-memfd,id=mem,size=256M,share=on -serial "file:$1" \
    -device isa-debug-exit,iobase=0xf4,iosize=0x04 -device pcie-root-port,id=port0,chassis=1,slot=1 \
    -device '{"driver":"vfio-user-pci","bus":"port0","socket":{"path":"'"$work/direct5.sock"'","type":"unix"}}' "${@:2}"
}

# ---- requests of the guests

on_target() {
  if [[ $1 == down ]]; then
    stop target KILL 30
    [[ $? == 137 ]]
  else
    start target "$ebof" serve --confine all --config "$work/box.toml"
    until_true 60 target show || { cat "$work/target.log"; return 1; }
  fi
}
on_map() { check "ebof target map $*" target map "d0/ns$1" --vf "d0/vf$2"; }
on_unmap() { check "ebof target unmap $*" target unmap "d0/ns$1"; }
on_move() { check "ebof target move $*" target move "d0/$1" --to "$2"; }
on_take() { check "ebof target assign $1 --none" target assign "d0/$1" --none; }
on_give() { check "ebof target assign $*" target assign "d0/$1" --port "$2"; }
# on_swap FROM TO: another function comes to direct1.
on_swap() { check "direct1 has $2 in place of $1" eval "target assign '$1' --none && target assign '$2' --port direct1"; }
# on_untouched TEXT: drive d1 has what was written to it; d0's function goes to direct1 again.
on_untouched() {
  local nqn=nvme+tcp://127.0.0.1:$fabric/$other:vf1/1
  check "drive 1 is read over the fabric" eval "target assign d1/vf1 --none && target assign d1/vf1 --port fabric0 &&
    '$ebof' read '$nqn' -s 0 -c 511 -z 262144 -d '$work/now'"
  yes "$*" | head -c 256K >"$work/before"
  check_equal "blocks of drive 1 that have changed" 0 "$(cmp -l "$work/before" "$work/now" | awk '{ changed[int(($1 - 1) / 4096)] } END { print length(changed) }')"
  target assign d1/vf1 --none && target assign d0/vf1 --port direct1
}
# Power fails at the same time.
on_fails() {
  on_target down
  sleep 1
  power_off three
}
on_again() {
  mkdir "$work/again"
  cp "$work/three/count" "$work/again/"
  boot_numbered again 3
}
on_plug() { check "QEMU puts another device into $1" plug "$1" "$work/direct$2.sock"; }

# ---- the guests

own=0 # the number of the guest's namespace and function

one() {
  begins "$@" || return
  step "several guests on one drive, and one of them over the fabric, too"
  tell two ready && tell three ready && tell three joins_fabric || return
  do_load_begins
  tell two load_begins
  tell three load_begins

  step "a namespace wanders, under load"
  local round
  for round in 1 2; do
    ask map 5 2
    tell two has 5
    tell two writes 5 "round $round"
    ask map 5 1
    tell two lacks 5
    do_has 5
    do_reads 5 "round $round"
  done
  step "it is taken away while it is used"
  do_uses 5
  ask map 5 4
  do_use_ends
  do_lacks 5
  tell three has 5
  tell three reads 5 "round 2"
  ask unmap 5
  tell three lacks 5
  step_reservations
  step "the load ends"
  do_load_ends
  tell two load_ends
  tell three load_ends
  do_calm
  tell two calm
  tell three calm

  step_unplugged
  step_functions
  step_again
  step_killed
}
two() { serves "$@"; }
three() { serves "$@"; }
serves() {
  begins "$@" || return
  # After a reboot, who told it to is waiting.
  [[ ! -e /ctl/reboots ]] || mv /ctl/reboots "/ctl/done.$(</ctl/reboots)"
  obey
}

begins() {
  own=$1 fabric=$2 address=10.0.2.2 port=$2
  check "modprobe nvme" modprobe nvme || return
  do_ready
}
do_ready() {
  check "the controller is live" until_true 60 live && check "its namespace is a block device" until_true 60 disk "$own"
}
live() { [[ $(cat "$(controller)/state") == live ]]; }
# The directory of the controller on the PCI bus.
controller() { dirname "$(grep -lx pcie /sys/class/nvme/nvme*/transport | head -n 1)"; }

# disk NSID: its block device. Numbers of devices may be others than those of the namespaces.
disk() {
  local path
  path=$(grep -lx "$1" /sys/block/nvme*/nsid | grep -v 'nvme[0-9]*c' | head -n 1)
  [[ -n $path ]] && path=$(basename "$(dirname "$path")") && [[ -b /dev/$path ]] && echo "/dev/$path"
}

do_joins_fabric() {
  check "modprobe nvme-tcp" modprobe nvme-tcp || return
  nqn=$box:vf4
  check "nvme connect to function 4" nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" || return
  check "its namespace is a block device" until_true 60 disk 4
}
do_leaves_fabric() { check "nvme disconnect" nvme disconnect -n "$box:vf4"; }

# Files are written to disks and verified until the load ends.
do_load_begins() {
  rm -f /tmp/load.*
  loads "$own" &
  loader=$!
  [[ $own != 3 ]] || { loads 4 & }
}
loads() {
  while [[ ! -e /tmp/load.ends ]]; do
    fio --name=verify --filename="$(disk "$1")" --rw=randwrite --bsrange=4k-64k --size=4M --offset=1M --ioengine=libaio --iodepth=8 \
      --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 --randrepeat=0 >"/tmp/load.out$1" 2>&1 && echo >>"/tmp/load.good$1" && continue
    mv "/tmp/load.out$1" "/tmp/load.bad$1"
    break
  done
  echo >"/tmp/load.over$1"
}
do_load_ends() {
  local nsid
  >/tmp/load.ends
  for nsid in $own $([[ $own != 3 ]] || echo 4); do
    check "the load on namespace $nsid ends" until_true 120 test -e "/tmp/load.over$nsid"
    check "all that was written was read, without an error, $(wc -l <"/tmp/load.good$nsid") times" \
      eval "[[ ! -e /tmp/load.bad$nsid && -s /tmp/load.good$nsid ]]" || cat /tmp/load.bad* | note
  done
}
do_calm() {
  # Not of namespaces, one of which goes away while udev reads it.
  check_equal "no controller complains" '' "$(dmesg | grep -E 'nvme nvme[0-9]+: ' | grep -iE 'timeout|abort|fail|error|warn|bug|reset')"
  dmesg -C
}

do_has() { check "namespace $1 comes" until_true 30 disk "$1"; }
do_lacks() { check "namespace $1 goes" until_true 30 eval "! disk $1"; }
# A pattern that both ends can make of a text.
pattern() { yes "$*" | head -c 1M; }
do_writes() {
  pattern "${@:2}" >/tmp/pattern
  check "namespace $1 is written" dd if=/tmp/pattern of="$(disk "$1")" bs=64k oflag=direct conv=fsync
}
do_reads() {
  pattern "${@:2}" >/tmp/pattern
  check "namespace $1 has what was written: ${*:2}" cmp -n 1048576 /tmp/pattern "$(disk "$1")"
}
do_uses() {
  local device
  device=$(disk "$1")
  (while dd if="$device" of=/dev/null bs=4k count=64 iflag=direct; do :; done 2>/tmp/use; echo ended >/tmp/use.over) &
  sleep 1
}
do_use_ends() { check "who used it gets an error" until_true 30 test -e /tmp/use.over; }

step_reservations() {
  local device
  step "two guests and a reservation of the shared namespace"
  device=$(disk 6)
  do_identifies
  tell two identifies
  check "it registers" nvme resv-register "$device" -n 6 --nrkey=0x11 -r 0 || return
  check "and acquires the namespace" nvme resv-acquire "$device" -n 6 --crkey=0x11 -t 1 -a 0
  tell two is_refused 6
  check "it releases the namespace" nvme resv-release "$device" -n 6 --crkey=0x11 -t 1 -a 0
  tell two writes 6 "after the release"
  do_reads 6 "after the release"
}
# Reservations belong to host identifiers; Linux sets none over PCIe.
do_identifies() {
  head -c 16 /etc/nvme/hostid >/tmp/hostid
  check "Set Features, Host Identifier" nvme set-feature "/dev/$(basename "$(controller)")" -f 0x81 -c 1 -l 16 -d /tmp/hostid
}
do_is_refused() {
  check_fails "a write is refused: Reservation Conflict" 'conflict|Invalid exchange|error' dd if=/dev/zero of="$(disk "$1")" bs=4k count=1 oflag=direct
}

step_unplugged() {
  local way
  step "a function is taken away under writes, and another drive's comes to its port"
  do_writes 1 "of drive 0"
  ask swap d0/vf1 d1/vf1
  do_finds 1
  do_writes 1 "of drive 1"
  ask swap d1/vf1 d0/vf1
  do_finds 1
  for way in reset reset reset function bus time; do
    floods 1
    ask swap d0/vf1 d1/vf1
    tries "$way"
    check "who wrote has ended" until_true 60 test -s /tmp/flood.over
    ask untouched "of drive 1"
    do_finds 1
  done
  ask swap d0/vf1 d1/vf1
  do_finds 1
  do_reads 1 "of drive 1"
  ask swap d1/vf1 d0/vf1
  do_finds 1

  step "a function is taken away under writes, and comes back"
  floods 1 12
  ask swap d0/vf1 d0/vf1
  do_resets 1
  check "who wrote goes on to its end" until_true 60 test -s /tmp/flood.over
  check_equal "and had no error" 0 "$(</tmp/flood.over)"
}
# Writes wait in the driver at any time. What of them came to another disk would be seen.
# floods NSID [SECONDS]
floods() {
  local device stat
  device=$(disk "$1")
  stat=/sys/block/$(basename "$device")/stat
  local before
  before=$(written "$stat")
  rm -f /tmp/flood*
  (fio --name=flood --filename="$device" --rw=randwrite --bs=4k --size=256k --ioengine=libaio --iodepth=16 --direct=1 \
    --buffer_pattern=0xee --time_based --runtime="${2:-200}" >/tmp/flood 2>&1; echo $? >/tmp/flood.over) &
  check "writes are under way" until_true 30 eval "((\$(written '$stat') > $before + 100))"
}
written() { awk '{ print $5 }' "$1"; }
# tries WAY: has the driver do what might bring it a controller, with the writes that wait.
tries() {
  local device
  device=$(controller)
  case $1 in
    reset) check_fails "nvme reset fails" '' nvme reset "/dev/$(basename "$device")" ;;
    function) echo 1 >"$device/device/reset" 2>/tmp/reset ;;
    bus) echo bus >"$device/device/reset_method" && echo 1 >"$device/device/reset" 2>/tmp/reset ;;
    time) ;; # it notices by its command time-out
  esac
  check "the controller is given up ($1)" until_true 60 eval '[[ $(cat "'"$device"'/state") == dead ]]'
}
# The device is taken out, and found again: with the function that is there now.
do_finds() {
  check "the device is removed, and the bus is scanned" eval "echo 1 >'$(controller)/device/remove' && echo 1 >/sys/bus/pci/rescan"
  check "the controller is live" until_true 60 live
  check "namespace $1 comes" until_true 60 disk "$1"
}

step_functions() {
  step "functions change places between the guests one and two"
  do_writes 1 "of function 1"
  tell two writes 2 "of function 2"
  ask take vf2
  ask move vf1 direct2
  ask give vf2 direct1
  do_finds 2
  do_reads 2 "of function 2"
  tell two finds 1
  tell two reads 1 "of function 1"
  ask take vf2
  ask move vf1 direct1
  ask give vf2 direct2
  do_finds 1
  do_reads 1 "of function 1"
  tell two finds 2
  tell two reads 2 "of function 2"

  step "a function goes from a direct port to the fabric, and back"
  tell three writes 3 "at the direct port"
  ask move vf3 fabric0
  do_through_fabric 3
  ask move vf3 direct3
  tell three resets 3
  tell three reads 3 "over the fabric"
}
# resets NSID: the controller, until the namespace is there. Where the driver has given it up, it
# begins anew.
do_resets() {
  check "nvme reset" nvme reset "/dev/$(basename "$(controller)")"
  check "the controller is live" until_true 60 live
  check "namespace $1 comes" until_true 60 disk "$1"
}
# Another host has the function for a while.
do_through_fabric() {
  check "nvme connect to function $1" eval "modprobe nvme-tcp && nvme connect -t tcp -a $address -s $port -n '$box:vf$1'" || return
  check "its namespace is a block device" until_true 60 disk "$1" || return
  do_reads "$1" "at the direct port"
  do_writes "$1" "over the fabric"
  check "nvme disconnect" nvme disconnect -n "$box:vf$1"
}

step_again() {
  step "a guest starts again, QEMU stays"
  tell two reboots
  tell two reads 2 "of function 2"
}
do_reboots() {
  # Who told it to sees that it is done when the guest is there again.
  # shellcheck disable=SC2154 # obey's
  echo "$id" >/ctl/reboots
  sync
  echo b >/proc/sysrq-trigger
  sleep 60
}

# QEMU does not connect again, nor can a vfio-user device be taken out (plug in run.sh): the guest
# gets another device, or QEMU starts again. QEMU 11.1 also aborts if there are messages that the
# killed target has not read: so the guests "one" and "two" are idle at that moment. Guest "three"
# is not: its QEMU is started again.
step_killed() {
  step "the target is killed, and comes back"
  tell three numbers
  do_counts 50
  tell two counts 50
  ask fails
  do_fails
  tell two fails
  ask target up
  local guest number=0
  for guest in one two; do
    number=$((number + 1))
    ask plug "$guest" "$number"
  done
  ask again
  do_ready
  do_counted
  tell two ready
  tell two counted
  tell again counted
  tell again joins_fabric
  tell again leaves_fabric
}
again() { serves "$@"; }
# Writes its number to each block, and remembers the last one that was acknowledged.
do_counts() {
  local device number
  device=$(disk "$own")
  for ((number = 0; number < $1; number++)); do
    printf '%4096d' "$number" | dd of="$device" bs=4096 seek="$number" oflag=direct iflag=fullblock conv=notrunc 2>/dev/null || break
    echo "$number" >>/ctl/count
  done
}
do_numbers() { do_counts 10000 & }
do_fails() {
  local reader ended=0
  dd if="$(disk "$own")" of=/dev/null bs=4k count=8 iflag=direct >/tmp/read 2>&1 &
  reader=$!
  # Linux 6.12 puts a read aside that comes while it resets the controller, and forgets it if that
  # fails, until the controller is removed.
  until_true 30 eval "! kill -0 $reader" || true
  # It keeps a dead controller, and takes the namespaces of another one for its.
  check "the dead controller is removed" eval "echo 1 >'$(controller)/device/remove'"
  wait $reader || ended=$?
  note </tmp/read
  check "a read has ended with an error" test $ended != 0
}
do_counted() {
  local last number
  last=$(tail -n 1 /ctl/count)
  for ((number = 0; number <= last; number++)); do printf '%4096d' "$number"; done >/tmp/expected
  check "all $((last + 1)) blocks whose writes were acknowledged are there" cmp -n $((last * 4096 + 4096)) /tmp/expected "$(disk "$own")"
}
