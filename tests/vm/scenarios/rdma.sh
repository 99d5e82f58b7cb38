# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# rdma: ebof's target over RDMA and the Linux kernel's host in one guest: with soft RoCE, in short
# with soft iWARP.
#
# The target has one subsystem on an RDMA and a TCP port, which are used at once. It is killed and
# started again during I/O, has many queues, and loses its RDMA device. Nothing may be left in the
# adapter.
# @test rdma.linux-host

open=nqn.2014-08.org.example:open

machine() {
  needs_ebof || return
  boot_guest -t 420 -m 1536 --
}

# With iWARP both transports have the port numbers of TCP.
tcp_port=4420
target_up() {
  start target "$ebof" serve --confine all --listen "rdma://$address:4420" --listen "tcp://$address:$tcp_port" --nqn "$open" \
    --allow-any-host /root/disk.img mem:96Mi
  until_true 30 listens rdma 4420 || { cat "$work/target.log"; return 1; }
}
target_down() {
  stop target KILL 30
  [[ $? == 137 ]]
}

guest() {
  address=10.0.2.15 port=4420 nqn=$open transport=rdma
  ebof_in_guest || return
  # Before the kernel's host: of a device that is removed, the last ones to have it are the first
  # to give it up, and the kernel waits for programs.
  check "soft RoCE on eth0" rdma_link rxe eth0 || return
  check "modprobe" modprobe -a nvme-rdma nvme-tcp || return
  step "ebof's target on an RDMA and a TCP port"
  truncate -s 128M /root/disk.img
  check "ebof serve listens" target_up || return
  check_equal "it has given up system calls" 2 "$(awk '/^Seccomp:/ { print $2 }' "/proc/${process[target]}/status")"
  idle=$(held_objects)
  step_discover
  step_refusals
  clear_kernel_log
  connects -k 10 -c 1 -l 300 || return
  step_identify
  step_filesystem
  step_verify "RoCE" 8
  step_commands
  kernel_log_is_clean "so far"
  step_reset
  step_unplug
  clear_kernel_log
  step_both_ports
  step_deleted
  step_many_queues
  step_device_removed
  step_iwarp
}

# holds_nothing: no queue pair and no memory of a connection is left.
holds_nothing() { until_true 30 eval '[[ $(held_objects) == "$idle" ]]'; }

# The kilobytes that a controller's paths to namespaces have transferred.
transferred() { cat /sys/class/nvme/"$1"/nvme*c*n*/stat | awk '{ sectors += $3 + $7 } END { print int(sectors / 2) }'; }

round_robin() {
  local subsystem
  for subsystem in /sys/class/nvme-subsystem/nvme-subsys*; do
    [[ $(<"$subsystem/subsysnqn") != "$nqn" ]] || echo round-robin >"$subsystem/iopolicy"
  done
}

# load MEBIBYTES RATE: verified writes in the background, RATE requests of 4 KiB per second.
load() {
  fio --name=verify --filename="$(namespace_device 2)" --rw=randwrite --bs=4k --size="$1M" --rate_iops=",$2" --ioengine=libaio \
    --iodepth=8 --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 >/tmp/load.out 2>&1 &
  writer=$!
}
loaded() {
  local status=0
  wait "$writer" || status=$?
  check_equal "$1, and the data are verified" 0 $status || note </tmp/load.out
}

step_both_ports() {
  local rdma=$controller tcp before after
  step "the same subsystem over RDMA and TCP at once"
  check "nvme connect over TCP" nvme connect -t tcp -a "$address" -s $tcp_port -n "$nqn" -k 10 || return
  tcp=$(controllers "$nqn" | grep -vx "$rdma")
  check "$tcp becomes live beside $rdma" until_true 60 controller_is "$tcp" live || return
  udevadm settle
  check_says "nvme list-subsys has both paths" "$tcp tcp traddr=$address.* live" nvme list-subsys
  note <<<"$out"
  round_robin
  before="$(transferred "$rdma") $(transferred "$tcp")"
  step_verify "both paths in turn" 4
  after="$(transferred "$rdma") $(transferred "$tcp")"
  echo "KiB by RDMA and TCP: $before, then $after" | note
  check "both have carried data" awk -v before="$before" -v after="$after" \
    'BEGIN { split(before, b); split(after, a); exit !(a[1] - b[1] > 1024 && a[2] - b[2] > 1024) }'
  load 3 250
  sleep 1
  check "nvme disconnect of the TCP path during I/O" nvme disconnect -d "$tcp"
  loaded "I/O has continued over RDMA"
}

step_deleted() {
  step "the host deletes its controller during I/O"
  load 16 2000
  sleep 1
  check "the controller is deleted" eval "echo 1 >/sys/class/nvme/$controller/delete_controller"
  wait "$writer"
  check "nothing is left of it in the adapter" holds_nothing || held_objects | note
  clear_kernel_log
}

# For each of eight hosts an Admin Queue and six small I/O queues.
step_many_queues() {
  local host uuid pairs
  step "eight hosts, 56 queues"
  for host in {1..8}; do
    uuid=0000000$host-3c1f-4f7e-9d1e-5a5be6ff0001
    check "nvme connect as host $host" nvme connect -t rdma -a "$address" -s 4420 -n "$nqn" -i 2 -W 2 -P 2 -Q 16 \
      -q "nqn.2014-08.org.nvmexpress:uuid:$uuid" -I "$uuid"
  done
  check_equal "so many are connected" 8 "$(controllers "$nqn" | wc -l)"
  pairs=$(held_objects)
  check_says "the target has a queue pair for each queue" 'qp 56 ' echo "$pairs"
  udevadm settle
  round_robin
  step_verify "eight paths in turn" 4
  disconnects
  check "nothing is left of them in the adapter" holds_nothing || held_objects | note
  clear_kernel_log
}

# Linux' host gives up controllers whose device goes. The target goes on, and uses the device that
# comes in its place.
step_device_removed() {
  local removal status=0
  step "the RDMA device is removed during I/O, and comes back"
  connects -i 2 || return
  load 16 2000
  sleep 1
  rdma link delete rxe_eth0 &
  removal=$!
  check "the host gives its controller up" until_true 60 no_controllers "$nqn"
  wait "$writer"
  wait $removal || status=$?
  check_equal "the device is gone" 0 $status
  check "the target logs it" until_true 30 grep -q 'RDMA device of the port was removed' "$work/target.log"
  check "the target serves TCP" nvme discover -t tcp -a "$address" -s $tcp_port
  check "soft RoCE on eth0" rdma_link rxe eth0
  check "the target listens there again" until_true 30 listens rdma 4420 || return
  connects -i 2 || return
  step_verify "RoCE, on the new device" 2
  disconnects
  check "nothing is left in the adapter" holds_nothing || held_objects | note
  target_ends
  check "the device is removed" rdma link delete rxe_eth0
  clear_kernel_log
}

target_ends() {
  local status=0
  stop target TERM 30 || status=$?
  check_equal "SIGTERM ends the target with status 0" 0 $status || note <"$work/target.log"
  check "it did not panic" eval "! grep -n panicked '$work/target.log'"
}

step_iwarp() {
  if ! has_siw; then
    skip "soft iWARP" "$(no_siw_because)"
    return
  fi
  step "soft iWARP"
  tcp_port=4421
  check "soft iWARP on eth0" rdma_link siw eth0 || return
  check "ebof serve listens" target_up || return
  idle=$(held_objects)
  step_discover
  connects -i 2 || return
  step_verify "iWARP" 4
  disconnects
  check "nothing is left in the adapter" holds_nothing || held_objects | note
  target_ends
  clear_kernel_log
}
