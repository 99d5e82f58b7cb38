# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# rdma-shared: ebof's target with shared receives, and the Linux kernel's host in one guest with
# soft RoCE; at the end completions are polled, too.
#
# Two hosts share receives; connections come and go, some of them by force; the device is removed.
# ebof's own host has more commands outstanding than there are receives, which the Linux host over
# soft RoCE cannot: when soft RoCE repeats its messages, it breaks the connection. Nothing may be
# left in the adapter.

open=nqn.2014-08.org.example:open

machine() {
  needs_ebof || return
  boot_guest -t 420 -m 1536 --
}

# One thread, so that all queues share.
receives=1024 polls=false
target_up() {
  cat >/root/ebof.toml <<END
[target]
threads = 1
metrics = "127.0.0.1:9464"
[[ports]]
name = "rdma"
listen = "rdma://$address:4420"
srq_size = $receives
prefer_busy_poll = $polls
[[subsystems]]
nqn = "$open"
allow_any_host = true
namespaces = ["mem:32Mi", "mem:96Mi"]
END
  start target "$ebof" serve --confine all --config /root/ebof.toml
  until_true 30 listens rdma 4420 || { cat "$work/target.log"; return 1; }
}

capsule_memory() {
  exec 3<>/dev/tcp/127.0.0.1/9464 || return
  printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
  awk '$1 == "ebof_rdma_capsule_memory_bytes" { print int($2) }' <&3
  exec 3>&-
}
# processor_ticks: what the target uses of a processor in a second, of 100.
processor_ticks() {
  local before
  before=$(awk '{ print $14 + $15 }' "/proc/${process[target]}/stat")
  sleep 1
  awk -v before="$before" '{ print $14 + $15 - before }' "/proc/${process[target]}/stat"
}
# What ebof's process has of shared receive queues.
shared_queues() { rdma -j resource show srq | jq '[.[] | select(.comm // "" | startswith("ebof"))] | length'; }
holds_nothing() { until_true 30 eval '[[ $(held_objects) == "$idle" && $(capsule_memory) == 0 && $(shared_queues) == 0 ]]'; }

connect_as() {
  local uuid=0000000$1-3c1f-4f7e-9d1e-5a5be6ff0001
  shift
  check "nvme connect as host ${uuid:7:1}" nvme connect -t rdma -a "$address" -s 4420 -n "$nqn" -k 10 \
    -q "nqn.2014-08.org.nvmexpress:uuid:$uuid" -I "$uuid" "$@"
}

guest() {
  address=10.0.2.15 port=4420 nqn=$open transport=rdma
  ebof_in_guest || return
  check "soft RoCE on eth0" rdma_link rxe eth0 || return
  check "modprobe" modprobe -a nvme-rdma || return
  check "ebof serve listens" target_up || return
  idle=$(held_objects)
  step_discover
  step_two_hosts
  step_rounds
  step_removed
  step_few
  step_polled
}

round_robin() {
  local subsystem
  for subsystem in /sys/class/nvme-subsystem/nvme-subsys*; do
    [[ $(<"$subsystem/subsysnqn") != "$nqn" ]] || echo round-robin >"$subsystem/iopolicy"
  done
}

# Two queues of 128 entries of each host.
step_two_hosts() {
  step "two hosts"
  connect_as 1 -i 2 -Q 128
  connect_as 2 -i 2 -Q 128
  until_true 60 namespace_device 2 || { fail "namespace 2 appears"; return 1; }
  udevadm settle
  check_equal "one shared receive queue" 1 "$(shared_queues)"
  echo "capsules: $(capsule_memory) bytes; $(held_objects)" | note
  round_robin
  LIMIT=240 check "fio: 4 KiB random writes, depth 128, verified" fio --name=deep --filename="$(namespace_device 2)" \
    --rw=randwrite --bs=4k --size=4M --io_size=8M --ioengine=libaio --iodepth=128 --numjobs=2 --offset_increment=16M \
    --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 --group_reporting
  grep -E 'IOPS|clat.*avg' <<<"$out" | note
  step_verify "two hosts" 4
  kernel_log_is_clean "with two hosts"
  disconnects
  check "nothing is left" holds_nothing || { held_objects; capsule_memory; shared_queues; } | note
}

step_rounds() {
  local round
  step "one host stays, another one comes and goes during I/O"
  connect_as 1 -i 2
  until_true 60 namespace_device 2 || return
  local stays
  stays=$(controllers "$nqn")
  udevadm settle
  round_robin
  fio --name=verify --filename="$(namespace_device 2)" --rw=randwrite --bs=4k --size=8M --rate_iops=",250" --ioengine=libaio \
    --iodepth=16 --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 >/tmp/load.out 2>&1 &
  local writer=$! status=0 other
  for round in {1..4}; do
    connect_as 2 -i 2
    other=$(controllers "$nqn" | grep -vx "$stays")
    until_true 60 controller_is "$other" live
    sleep 0.5
    if ((round % 2)); then
      check "nvme disconnect during I/O" nvme disconnect -d "$other"
    else
      check "the controller is deleted during I/O" eval "echo 1 >/sys/class/nvme/$other/delete_controller"
    fi
  done
  wait $writer || status=$?
  check_equal "I/O has gone on, and the data are verified" 0 $status || note </tmp/load.out
  disconnects
  check "nothing is left" holds_nothing || { held_objects; capsule_memory; shared_queues; } | note
  clear_kernel_log
}

step_removed() {
  local status=0
  step "the device is removed during I/O"
  connects -i 2 || return
  fio --name=verify --filename="$(namespace_device 2)" --rw=randwrite --bs=4k --size=16M --ioengine=libaio \
    --iodepth=16 --direct=1 >/tmp/load.out 2>&1 &
  local writer=$!
  sleep 1
  rdma link delete rxe_eth0 &
  local removal=$!
  check "the host gives its controller up" until_true 60 no_controllers "$nqn"
  wait $writer
  wait $removal || status=$?
  check_equal "the device is gone" 0 $status
  check_equal "no memory is left" 0 "$(capsule_memory)"
  check "soft RoCE on eth0" rdma_link rxe eth0
  check "the target listens there again" until_true 30 listens rdma 4420 || return
  connects -i 2 || return
  step_verify "RoCE, on the new device" 2
  disconnects
  check "nothing is left in the adapter" holds_nothing || { held_objects; capsule_memory; shared_queues; } | note
  target_ends
  check "the device is removed" rdma link delete rxe_eth0
  clear_kernel_log
}

# 96 commands and 64 receives. Soft RoCE sends everything behind a message again, too: more of them
# would take long.
step_few() {
  local before connected
  step "more commands than there are receives"
  receives=64
  check "soft RoCE on eth0" rdma_link rxe eth0 || return
  check "ebof serve listens" target_up || return
  idle=$(held_objects)
  before=$(rnr_naks) connected=$(connected)
  LIMIT=120 check "ebof bench: 512 B random writes, verified, 4 threads, depth 24" "$ebof" bench \
    "nvme+rdma://$address:4420/$nqn/2" --rw randwrite --bs 512 --iodepth 24 --numjobs 4 --runtime 5 --verify --overwrite
  note <<<"$out"
  check "messages were repeated" test "$(rnr_naks)" -gt "$before"
  check_equal "no connection was lost and made again" $((connected + 5)) "$(connected)"
  check "nothing is left in the adapter" holds_nothing || { held_objects; capsule_memory; shared_queues; } | note
  target_ends
  check "the device is removed" rdma link delete rxe_eth0
  clear_kernel_log
}
connected() { grep -c ' connected peer=' "$work/target.log"; }
rnr_naks() { cat /sys/class/infiniband/rxe_eth0/ports/1/hw_counters/send_rnr_err; }

is_polling() { (($(processor_ticks) >= 40)); }

target_ends() {
  local status=0
  stop target TERM 30 || status=$?
  check_equal "SIGTERM ends the target with status 0" 0 $status || note <"$work/target.log"
  check "it did not panic" eval "! grep -n panicked '$work/target.log'"
}

# Two hosts, and a port that is polled.
step_polled() {
  local ticks
  step "polled"
  receives=1024 polls=true
  check "soft RoCE on eth0" rdma_link rxe eth0 || return
  check "ebof serve listens" target_up || return
  idle=$(held_objects)
  connect_as 1 -i 2 -Q 128
  connect_as 2 -i 2 -Q 128
  until_true 60 namespace_device 2 || { fail "namespace 2 appears"; return 1; }
  udevadm settle
  check_equal "one shared receive queue" 1 "$(shared_queues)"
  echo "capsules: $(capsule_memory) bytes; $(held_objects)" | note
  round_robin
  step_verify "polled" 4
  # Half a second after the host's programs have ended, it knows that it is alone; on a busy machine
  # it may take a program of others for one of them.
  check "a thread polls while there are connections" until_true 20 is_polling || processor_ticks | note
  disconnects
  check "nothing is left in the adapter" holds_nothing || { held_objects; capsule_memory; shared_queues; } | note
  ticks=$(processor_ticks)
  check "and not without them ($ticks %)" test "$ticks" -lt 20
  connect_as 1 -i 2
  disconnects
  check "nothing is left in the adapter" holds_nothing
  target_ends
  clear_kernel_log
}
