# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# rdma-two: ebof's target and the Linux kernel's host, then ebof's host, in two guests with soft
# RoCE, so that packets cross an Ethernet: some get lost, its link goes down and up, the host loses
# its power, the target is killed. Nothing hangs, data are verified, and the target holds what it
# did before.
#
# Three guests: "target", "host", which loses its power, and "again", which is that host after it.
# @test rdma.two-machines

nqn=nqn.2014-08.org.example:two

machine() {
  needs_ebof || return
  one=$(free_port) two=$(free_port)
  start_guest target -t 600 -e "$one:$two:10.7.0.1/24" --
  boot_host host
  serve_guests
}
# boot_host NAME: the same host NQN for both.
boot_host() { start_guest "$1" -t 250 -n rdma-two-host -e "$two:$one:10.7.0.2/24" --; }
# A guest hangs: the emulation's fault if the target serves. A teardown of the Linux host over soft
# RoCE does not always end when a packet of it is lost.
hung() { [[ $1 != target ]] && on_tell target serve; }

# A request of the guest "host": it ends as if its power failed, then boots.
on_power_fails() {
  power_off host
  boot_host again
}

# A request of the guest "host": the target's cable, which is off or on. With "ip link set down"
# soft RoCE could not send what ends a connection, and would then not connect until it is set up
# again.
on_cable() { check "the target's cable is $1" eval "echo set_link net1 $1 | socat -t 2 - UNIX-CONNECT:'$work/target/monitor'"; }

# ---- the guest "target"

target() {
  ebof_in_guest || return
  check "soft RoCE on eth1" rdma_link rxe eth1 || return
  truncate -s 64M /root/disk.img
  check "ebof serve listens over RDMA" target_up || return
  serve_link_tests 10.7.0.1
  obey
  local status=0
  stop target TERM 30 || status=$?
  check_equal "SIGTERM ends the target with status 0" 0 $status
  check "it did not panic" eval "! grep -n panicked /target.log"
  cp /target.log /ctl/
}
target_up() {
  start target "$ebof" serve --listen rdma://10.7.0.1:4420 --metrics 127.0.0.1:9420 --nqn "$nqn" --allow-any-host \
    /root/disk.img mem:64Mi
  until_true 30 listens rdma 4420 || { cat /target.log; return 1; }
}
metric() {
  exec 3<>/dev/tcp/127.0.0.1/9420 || return
  printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
  awk -v name="$1" '$1 == name { print $2 }' <&3
}
# What the target has of connections, by its metrics, by the kernel, and by its descriptors.
holds() {
  echo "connections $(metric ebof_connections) controllers $(metric ebof_controllers) $(held_objects)" \
    "descriptors $(find "/proc/${process[target]}/fd" -type l | wc -l)"
}
holds_as_before() { [[ $(holds) == "$held" ]]; }
do_remember() {
  until_true 30 no_queue_pairs
  sleep 3 # what ends a connection ends
  held=$(holds)
  note <<<"the target holds: $held"
}
no_queue_pairs() { [[ $(held_objects) == *" qp 0 "* && $(metric ebof_connections) == 0 ]]; }
do_forgotten() {
  check "the target holds as much as before" until_true 30 holds_as_before || note <<<"before: $held"$'\n'"now: $(holds)"
}
# The host that is gone sends no keep alive.
do_notice() { check "the target ends the connections of the host that is gone" until_true 60 no_queue_pairs; }
# Nobody serves over a soft RoCE that hangs, too: whether it does is said by another program.
do_serve() {
  note <<<"$(ip -br link show eth1; rdma link show; holds)"
  if answers_itself; then
    check "the target serves others" "$ebof" discover -t rdma -a 10.7.0.1 -s 4420
  else
    note <<<"rping does not reach this guest's own address: its soft RoCE hangs"
  fi
}
answers_itself() {
  local server status=0
  timeout 30 rping -s -a 10.7.0.1 -p 7999 -C 1 &>/dev/null &
  server=$!
  sleep 1
  timeout 20 rping -c -a 10.7.0.1 -p 7999 -C 1 &>/dev/null || status=$?
  kill "$server" 2>/dev/null
  return "$status"
}
do_lose() { check "$1 of the packets are lost" tc qdisc replace dev eth1 root netem loss "$1"; }
do_kill() {
  stop target KILL 30
  check_equal "the target is killed" 137 $?
}
do_start() { check "the target is started again" target_up; }

# ---- the guests "host" and "again"

joins() {
  address=10.7.0.1 port=4420 transport=rdma
  check "modprobe nvme-rdma" modprobe nvme-rdma || return
  check "soft RoCE on eth1" rdma_link rxe eth1 || return
  check "the other guest is reached" until_true 60 ping -c 1 -W 1 "$address" || return
}

host() {
  joins || return
  step_link "$address"
  step_discover
  tell target serve
  without_loss || return
  # On a busy machine a queue pair of soft RoCE fails by itself now and then: the host's kernel
  # reports work requests that were flushed, without a disconnect of the target's.
  if dmesg | grep -q 'starting error recovery'; then
    step "the same again: a queue pair of the host has failed"
    clear_kernel_log
    without_loss || return
  fi
  kernel_log_is_clean "so far"

  connects -i 2 -c 1 -k 5 -l 300 || return
  tell target lose 1%
  do_lose 1%
  step_verify "packet loss" 1
  do_lose 0%
  tell target lose 0%
  unplugged "$(namespace_device 2)"
  check "$controller is live" until_true 60 controller_is "$controller" live
  clear_kernel_log
  step "the host loses its power during I/O"
  writes 20M "$(namespace_device 2)"
  sleep 1
  ask power_fails
  sleep 60
}

without_loss() {
  connects -i 2 -c 1 -k 5 -l 300 || return
  step_verify "no loss" 2
  disconnects
  tell target remember
}

# writes SIZE FILE: starts verified writes, at a rate of 100 a second.
writes() {
  fio --name=verify --filename="$2" --rw=randwrite --bs=4k --size="$1" --rate_iops=,100 --ioengine=libaio --iodepth=8 \
    --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 >/tmp/writes.out 2>&1 &
  writer=$!
}
written() {
  local status=0
  wait $writer || status=$?
  check_equal "I/O has resumed, and the data are verified" 0 $status || note </tmp/writes.out
}

# unplugged FILE: for longer than the keep-alive time-out, after which the target ends the
# connections.
unplugged() {
  step "the target's cable is unplugged for 8 s during I/O to $1"
  writes 2M "$1"
  sleep 1
  ask cable off
  sleep 8
  ask cable on
  written
}

again() {
  joins || return
  tell target notice
  connects -i 2 -c 1 -k 5 -l 300 || return
  step_verify "after the power failure" 1
  step "the target is killed and started again"
  disconnects
  tell target forgotten
  connects -i 2 -c 1 -k 5 -l 300 || return
  writes 2M "$(namespace_device 1)"
  sleep 1
  tell target kill
  check "$controller detects the loss" until_true 60 controller_is "$controller" connecting
  tell target start
  written
  check "$controller is live" until_true 60 controller_is "$controller" live
  disconnects
  clear_kernel_log
  step_own_host
}

# ebof's host at this end, too, through a block device.
step_own_host() {
  local device
  step "ebof's host"
  ebof_in_guest || return
  check "modprobe ublk_drv" modprobe ublk_drv || return
  tell target remember
  check "ebof connect" "$ebof" connect -t rdma -a "$address" -s 4420 -n "$nqn" -c 1 || return
  note <<<"$out"
  device=$(grep -oE '/dev/ublkb[0-9]+' <<<"$out" | sort -u | sed -n 2p)
  check "the second device printed is a ublk device" test -b "$device" || return
  tell target lose 1%
  do_lose 1%
  verified_writes "fio with packet loss: 4 KiB to 256 KiB random writes, CRC32C verified" "$device" --bsrange=4k-256k --size=2M --iodepth=8
  do_lose 0%
  tell target lose 0%
  unplugged "$device"
  check "ebof disconnect" "$ebof" disconnect -n "$nqn"
  check "the host has no queue pair" until_true 30 eval '[[ $(held_objects) == *" qp 0 "* ]]'
  tell target forgotten
}
