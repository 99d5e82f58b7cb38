# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# direct: ebof's direct port, and a guest that finds an NVMe controller on its PCI bus.
#
# The guest's kernel and its firmware use the controller. The guest is started anew; the target is
# killed and comes back.

nqn=nqn.2014-08.org.example:direct

machine() {
  needs_ebof || return
  image=$work/disk.img socket=$work/direct.sock
  truncate -s 256M "$image"
  configuration >"$work/direct.toml"
  check "ebof serve listens" on_target up || return
  check_equal "only its owner may use the socket" 600 "$(stat -c %a "$socket")"
  boot_guest -u "$socket" -t 400 -- first
  check "the target did not panic" eval "! grep -n panicked '$work/target.log'"

  step "the target is killed under a guest, and comes back"
  boot_guest -u "$socket" -k "nvme_core.io_timeout=4 nvme_core.admin_timeout=4 nvme_core.multipath=N" -t 300 -- orphan
  check "the socket is still there" test -S "$socket"
  check "ebof serve replaces it" on_target up
  local huge=()
  if reserve_huge_pages 512; then huge=(-H); fi
  boot_guest -u "$socket" "${huge[@]}" -t 300 -- second
  if ((${#huge[@]})); then
    check "the target has seen memory in huge pages" grep -q 'could be shortened (no F_SEAL_SHRINK, or huge pages)' "$work/target.log"
    echo 0 >/proc/sys/vm/nr_hugepages
  else
    skip "a guest in huge pages" "the machine gives none"
  fi

  step "the machine afterwards"
  check "SIGTERM ends the target with status 0" stop target TERM 30
  check "the socket is gone" eval "! test -e '$socket'"
  check "the target did not panic" eval "! grep -n panicked '$work/target.log'"
  check "e2fsck finds the file system in the file clean" e2fsck -fn "$image"
}

configuration() {
  cat <<TOML
[[ports]]
name = "direct"
listen = "vfio-user:direct.sock"
max_io_queues = 4

[[subsystems]]
nqn = "$nqn"
allow_any_host = true
ports = ["direct"]
namespaces = [{ drive = "disk.img" }, { drive = "mem:64Mi" }]
TOML
}

# So many of 2 MiB, if the machine has them to give and nobody else uses any.
reserve_huge_pages() {
  local pages=/proc/sys/vm/nr_hugepages
  [[ -w $pages && $(cat $pages) == 0 ]] || return
  echo "$1" >$pages
  (($(cat $pages) == $1)) || { echo 0 >$pages; return 1; }
}

on_target() {
  if [[ $1 == down ]]; then
    stop target KILL 30
    [[ $? == 137 ]]
  else
    start target "$ebof" serve --confine all --config "$work/direct.toml"
    until_true 60 connectable || { cat "$work/target.log"; return 1; }
  fi
}
connectable() { grep -q "listening on" "$work/target.log"; }

guest() {
  if [[ $1 == first ]]; then
    finds_controller || return
    step_files
    step_reset
    step_module
    step_queues
  elif [[ $1 == orphan ]]; then
    finds_controller || return
    step_orphan
    return
  else
    finds_controller || return
    check "the file system is still there" mount "/dev/$(disk 1)" /mnt
    check "and its file" eval "cd /mnt && sha256sum -c /mnt/sums"
    check "fio writes and verifies" fio --name=verify --directory=/mnt --size=16M --bs=16k --rw=randrw \
      --verify=crc32c --ioengine=libaio --iodepth=16 --direct=1 --output=/ctl/fio.log
    check "umount" eval "cd / && umount /mnt"
  fi
  check_equal "the kernel complains about nothing" "" "$(dmesg | grep -iE 'nvme.*(timeout|abort|fail|error|warn|bug|reset)' | grep -v 'resetting controller')"
}

# The block device of a namespace: their numbers may be others than those of the namespaces.
disk() { basename "$(dirname "$(grep -lx "$1" /sys/block/nvme*/nsid)")"; }

finds_controller() {
  step "the kernel finds the controller"
  check "modprobe nvme" modprobe nvme || return
  check "its namespaces are block devices" until_true 60 test -b /dev/nvme0n2 || { dmesg | tail -n 40 | note; return 1; }
  check_equal "its transport" pcie "$(cat /sys/class/nvme/nvme0/transport)"
  check_says "nvme list" 'nvme0n1' nvme list
  check_equal "the class of the PCI function" 0x010802 "$(cat /sys/class/nvme/nvme0/device/class)"
  check "interrupts are MSI-X" grep -q 'nvme0q' /proc/interrupts
  check_equal "its subsystem" "$nqn" "$(cat /sys/class/nvme/nvme0/subsysnqn)"
}

step_files() {
  step "a file system, and fio with verification"
  check "mkfs.ext4" mkfs.ext4 -q "/dev/$(disk 1)"
  check "mount" mount "/dev/$(disk 1)" /mnt
  check "fio writes and verifies, direct" fio --name=verify --directory=/mnt --size=24M --bs=4k --rw=randrw \
    --verify=crc32c --ioengine=libaio --iodepth=16 --direct=1 --output=/ctl/fio.log
  check "fio writes and verifies a memory drive" fio --name=raw --filename="/dev/$(disk 2)" --size=24M --bs=64k --rw=write \
    --verify=crc32c --ioengine=libaio --iodepth=8 --direct=1 --output=/ctl/fio2.log
  check "a file with a checksum" eval "dd if=/dev/urandom of=/mnt/data bs=1M count=8 && sha256sum /mnt/data >/mnt/sums && sync"
  check "umount" umount /mnt
}

step_reset() {
  step "a reset, and a function-level reset, while fio runs"
  fio --name=load --filename="/dev/$(disk 2)" --size=32M --bs=4k --rw=randread --ioengine=libaio --iodepth=16 --direct=1 \
    --time_based --runtime=8 --output=/ctl/fio3.log >/dev/null && echo done >/tmp/load &
  sleep 2
  check "nvme reset" nvme reset /dev/nvme0
  sleep 2
  check "a reset of the function" eval "echo 1 >/sys/class/nvme/nvme0/device/reset"
  check "fio goes on, and has had no error" until_true 60 test -s /tmp/load
  check "the controller is live" until_true 30 eval '[[ $(cat /sys/class/nvme/nvme0/state) == live ]]'
  check "Identify" nvme id-ctrl /dev/nvme0
}

step_module() {
  step "the driver goes and comes back"
  check "rmmod nvme" modprobe -r nvme
  check "no block device is left" eval "! test -e /dev/nvme0n1"
  check "modprobe nvme" modprobe nvme
  check "its namespaces are back" until_true 60 test -b /dev/nvme0n2
}

step_orphan() {
  # Without multipath: a multipath disk waits for another path for ever.
  step "the target is killed under the guest"
  local disk
  disk=/dev/$(disk 2)
  check "a read" dd if="$disk" of=/dev/null bs=4k count=8 iflag=direct
  check "SIGKILL of the target" ask target down
  check_fails "a read ends with an error" 'error|No such' timeout 200 dd if="$disk" of=/dev/null bs=4k count=8 iflag=direct
  check "the guest goes on" uname -a
}

step_queues() {
  step "what a driver may ask for"
  check_says "Get Features, Number of Queues" '0x00010001' nvme get-feature /dev/nvme0 -f 7
  check "nvme smart-log" nvme smart-log /dev/nvme0
  check "nvme error-log" nvme error-log /dev/nvme0
  check_fails "a Fabrics command is refused" 'Invalid' nvme admin-passthru /dev/nvme0 --opcode=0x7f
  check "nvme flush" nvme flush "/dev/$(disk 1)"
  check "nvme dsm" nvme dsm "/dev/$(disk 2)" -n 2 -d -s 1024 -b 8
  check "nvme write-zeroes" nvme write-zeroes "/dev/$(disk 2)" -s 0 -c 15
  check "nvme compare" eval "dd if=/dev/zero of=/tmp/zeros bs=8192 count=1 && nvme compare /dev/$(disk 2) -s 0 -c 15 -z 8192 -d /tmp/zeros"
}
