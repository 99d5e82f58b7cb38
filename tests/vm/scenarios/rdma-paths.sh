# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# rdma-paths: ebof's host with two paths to one block device, one over RDMA (soft RoCE) and one over
# TCP, in one guest with ebof's target.
# @test paths.transports
# shellcheck source=host-paths.sh
. "${BASH_SOURCE[0]%/*}/host-paths.sh"
borrowed=(host-paths.sh)

guest() {
  ebof_in_guest || return
  check "modprobe" modprobe ublk_drv || return
  check "soft RoCE on eth0" rdma_link rxe eth0 || return
  truncate -s 64M /root/disk.img
  check "ebof serve listens over RDMA and TCP" target_up || { note </target.log; return; }
  nqn=$served
  check "ebof connect over RDMA" "$ebof" connect -t rdma -a 10.0.2.15 -s 4420 -n $nqn -k 5 -c 1 || return
  device=$(grep -oE '/dev/ublkb[0-9]+' <<<"$out" | head -n 1)
  check "it makes a block device" test -b "$device" || return
  check_says "ebof connect over TCP makes a path of it" 'nvme0c1, a path of nvme0' \
    "$ebof" connect -t tcp -a 10.0.2.15 -s 4421 -n $nqn -k 5 -c 1 || return
  check_says "ebof list-subsys has both" 'nvme0c0 rdma traddr=10.0.2.15,trsvcid=4420 live optimized' "$ebof" list-subsys
  note <<<"$out"
  local policy
  for policy in round-robin queue-depth; do
    check "ebof path --policy $policy" "$ebof" path nvme0 --policy $policy
    verified_writes "fio verifies with it" "$device" --bsrange=4k-128k --size=16M --iodepth=16
  done
  check_equal "both have taken commands" true "$("$ebof" path nvme0 -o json | jq '[.Paths[].Completed > 100] | all')"
  check "ebof path --policy numa" "$ebof" path nvme0 --policy numa
  during "the access over RDMA changes" 1000 is_inaccessible is_optimized
  during "the target closes the path over RDMA" 2500 closes_one opens_both
  during "the target closes the path over TCP" 2500 closes_other opens_both
  during "the target stops for a while" 9000 stops continues
  during "the target is killed, and started again" 9000 dies is_back
  check_says "connect-all finds nothing more" 'already connected' "$ebof" connect-all -t tcp -a 10.0.2.15 -s 4421
  note <<<"$out"
  check_equal "there is one block device" 1 "$(lsblk -dno NAME | grep -c ublkb)"
  check "ebof disconnect" "$ebof" disconnect -n $nqn
  check "SIGTERM ends the target with status 0" stop target TERM 30
  check "it did not panic" eval "! grep -n panicked /target.log"
}

target_up() {
  cat >/root/paths.toml <<TOML
[[ports]]
name = "fabric0"
listen = "rdma://10.0.2.15:4420"
[[ports]]
name = "fabric1"
listen = "tcp://10.0.2.15:4421"
[[subsystems]]
nqn = "$served"
allow_any_host = true
cntlid_max = 1000
namespaces = ["/root/disk.img"]
TOML
  start target "$ebof" serve --confine all --state /root/state --control /root/control.sock --config /root/paths.toml
  until_true 30 eval "listens rdma 4420 && listens tcp 4421"
}
closes_other() { target_set subsystem $served ports='["fabric0"]' --yes; }
