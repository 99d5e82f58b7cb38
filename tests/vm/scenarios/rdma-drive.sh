# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# rdma-drive: the scenario drive once more over RDMA: ebof's drive and the Linux kernel's host in
# one guest with soft RoCE. Namespace management, events, logs, firmware, a killed target,
# reservations between two hosts.
# shellcheck source=drive.sh
# @test rdma.drive-verbs
. "${BASH_SOURCE[0]%/*}/drive.sh"
borrowed=(drive.sh)
# Not paths: the drive is in the root directory.
confine=privileges,capabilities,system-calls,dumps

machine() {
  needs_ebof || return
  boot_guest -t 600 -m 1536 --
}
# The guest is its own machine.
ask() {
  local verb=$1
  shift
  "on_$verb" "$@"
}
drive_listens() { listens rdma "$drive_port"; }

guest() {
  address=10.0.2.15 port=4420 transport=rdma nqn=$drive_nqn
  drive_address=$address drive_port=$port
  ebof_in_guest || return
  check "soft RoCE on eth0" rdma_link rxe eth0 || return
  check "modprobe nvme-rdma" modprobe nvme-rdma || return
  step "a drive of 256 MiB on $address:$port"
  check "ebof serve --drive listens" on_target up || return
  step_empty || return
  step_create || return
  step_event
  kernel_log_is_clean "so far"
  step_reset_keeps
  step_logs_after_io
  step_firmware
  clear_kernel_log
  step_remove
  clear_kernel_log
  disconnects
  step_two_hosts
  clear_kernel_log
  check "SIGTERM ends the target with status 0" stop drive TERM 30
  check "it did not panic" eval "! grep -n panicked '$work/drive.log'"
}

# The counters that step_logs expects come from I/O.
step_logs_after_io() {
  verified_writes "fio: 4 KiB to 256 KiB random writes, CRC32C verified" "$(namespace_device 2)" --bsrange=4k-256k --size=32M --iodepth=8
  step_logs
}
