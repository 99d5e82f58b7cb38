# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# rdma-host: ebof's host over RDMA in one guest with soft RoCE: with the kernel's target by URI and
# as a block device, whose data are compared on the disks behind it; then with ebof's target, which
# is killed; in short over soft iWARP.
#
# The guest is its own machine: what the scenario nvmet asks of the machine is done here.
# shellcheck source=nvmet.sh
. "${BASH_SOURCE[0]%/*}/nvmet.sh"
borrowed=(nvmet.sh)

kernel=$nqn
own=nqn.2014-08.org.example:own

machine() {
  needs_ebof || return
  boot_guest -t 400 -m 1536 --
}
cleanup() { :; }
ask() {
  local verb=$1
  shift
  "on_$verb" "$@"
}

guest() {
  address=10.0.2.15 port=4420 transport=rdma
  ebof_in_guest || return
  check "modprobe" modprobe -a nvmet-rdma ublk_drv || return
  check "soft RoCE on eth0" rdma_link rxe eth0 || return
  step_kernel_target
  clear_kernel_log
  nqn=$own
  step_own_target
  if ! has_siw; then
    skip "soft iWARP" "$(no_siw_because)"
    return
  fi
  # A program keeps a device for as long as it runs, and the kernel keeps it as long.
  target_ends
  check "the soft RoCE device is removed" rdma link delete rxe_eth0
  check "soft iWARP on eth0" rdma_link siw eth0 || return
  step_siw
}

no_queue_pairs() { [[ $(rdma -j resource show qp | jq '[.[] | select(.type == "RC")] | length') == 0 ]]; }
no_ublk() { ! ls /dev/ublkb* >/dev/null 2>&1; }

# attaches: ebof connect; sets $device to the block device of namespace 1.
attaches() {
  check "ebof connect -n $nqn" "$ebof" connect -t rdma -a "$address" -s 4420 -n "$nqn" -c 1 || return 1
  note <<<"$out"
  device=$(grep -oE '/dev/ublkb[0-9]+' <<<"$out" | sort -u | head -n 1)
  check "the first device printed is a ublk device" test -b "$device"
}
detaches() {
  check "ebof disconnect" "$ebof" disconnect -n "$nqn"
  check "no device is left" until_true 30 no_ublk
  check "nor a queue pair" until_true 30 no_queue_pairs
}

# By URI and through the block device.
step_verified() {
  step "verified I/O ($1)"
  local uri=nvme+rdma://$address:4420/$nqn
  check "ebof bench --verify, 4 KiB" "$ebof" bench --overwrite --verify --rw randrw --bs 4k --iodepth 16 --size 8M --runtime 2 "$uri/1"
  check "ebof bench --verify, 1 MiB" "$ebof" bench --overwrite --verify --rw randrw --bs 1M --iodepth 4 --size 16M --runtime 2 "$uri/1"
  attaches || return
  verified_writes "fio on $device: 4 KiB random writes, CRC32C verified" "$device" --bs=4k --size=400k --iodepth=16
  verified_writes "fio on $device: 4 KiB to 1 MiB, CRC32C verified" "$device" --bsrange=4k-1m --size=4M --iodepth=4
}

step_kernel_target() {
  check "two RAM disks" modprobe brd rd_nr=2 rd_size=$((64 * 1024)) || return
  check "nvmet: a subsystem with two namespaces" nvmet_subsystem "$kernel" /dev/ram0 /dev/ram1
  check "nvmet: an RDMA port" nvmet_port 1 rdma "$address" 4420 "$kernel" || return
  on_by_uri
  check "the RAM disk has the data written by URI" eval \
    "dd if=/dev/ram0 iflag=direct bs=64k skip=16 count=1 status=none | cmp - /ctl/pattern"
  step_verified "the kernel's target" || return
  head -c 8M /dev/urandom >/tmp/large
  check "dd writes 8 MiB" dd if=/tmp/large of="$device" bs=1M oflag=direct conv=fsync
  check "the RAM disk has them" eval "dd if=/dev/ram0 iflag=direct bs=1M count=8 status=none | cmp - /tmp/large"
  step "the port is closed and opened again"
  check "nvmet: the port is closed" rm "$nvmet/ports/1/subsystems/$kernel"
  sleep 2
  check "nvmet: the port is open" ln -s "$nvmet/subsystems/$kernel" "$nvmet/ports/1/subsystems/"
  check "8 MiB are read back" eval "dd if=$device bs=1M count=8 iflag=direct status=none | cmp - /tmp/large"
  detaches
  nvmet_clear
}

target_up() {
  start target "$ebof" serve --confine all --listen "rdma://$address:4420" --nqn "$own" --allow-any-host /root/disk.img mem:64Mi
  until_true 30 listens rdma 4420 || { cat "$work/target.log"; return 1; }
}
target_down() { stop target KILL 30; [[ $? == 137 ]]; }

step_own_target() {
  local status=0 writer
  step "ebof's target and host"
  truncate -s 64M /root/disk.img
  check "ebof serve listens" target_up || return
  check_says "ebof discover has the port" "rdma" "$ebof" discover -t rdma -a "$address" -s 4420
  check "ebof connect-all" "$ebof" connect-all -t rdma -a "$address" -s 4420
  check_says "ebof list-subsys shows the path" "rdma.*$address" "$ebof" list-subsys
  detaches
  step_verified "ebof's target" || return
  check "mkfs.ext4" mkfs.ext4 -q -F "$device"
  check "mount" mount "$device" /mnt || return
  check "copy files" cp /usr/bin/{bash,fio} /usr/sbin/nvme /mnt/
  (cd /mnt && sha256sum bash fio nvme >/tmp/sums)
  fio --name=verify --filename=/mnt/unplug --rw=randwrite --bs=4k --size=4M --rate_iops=,200 --ioengine=libaio --iodepth=8 \
    --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 >/tmp/unplug.out 2>&1 &
  writer=$!
  sleep 2
  check "the target is killed" target_down
  sleep 1
  check "the target is started again" target_up
  wait $writer || status=$?
  check_equal "I/O has resumed, and the data are verified" 0 $status || note </tmp/unplug.out
  check "the checksums of the files match" eval 'echo 3 >/proc/sys/vm/drop_caches; cd /mnt && sha256sum --quiet -c /tmp/sums'
  check "unmount" umount /mnt
  check "e2fsck finds no errors" e2fsck -fn "$device"
  detaches
}

step_siw() {
  check "ebof serve listens" target_up || return
  step_verified "ebof's target over soft iWARP" && detaches
  target_ends
}
target_ends() {
  local status=0
  stop target TERM 30 || status=$?
  check_equal "SIGTERM ends the target with status 0" 0 $status
  check "it did not panic" eval "! grep -n panicked '$work/target.log'"
}
