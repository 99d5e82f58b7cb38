# shellcheck shell=bash source-path=SCRIPTDIR/..
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# self: a test of the rig, with the kernel's own target and host in one guest and without ebof.
#
# The host reaches the target through the machine: guest -> 10.0.2.2 -> the machine's forwarded port
# -> guest. So both directions that the other scenarios use are tested, and their shared steps pass
# with a target that is known to work.

machine() {
  local port
  port=$(free_port)
  boot_guest -t 420 -f "$port:4420" -- "$port"
}

target_down() { rm "$nvmet"/ports/1/subsystems/*; }
target_up() { ln -s "$nvmet/subsystems/$nqn" "$nvmet/ports/1/subsystems/"; }

# A warning in a kernel log: the place that warns, and a function of its trace.
warning() {
  printf '%s\n' "------------[ cut here ]------------" "WARNING: CPU: 1 PID: 31 at $1" \
    "Modules linked in: rdma_rxe" "Call Trace:" " $2" "---[ end trace 0000000000000000 ]---"
}

guest() {
  step "what counts as an error in the kernel's log"
  check_equal "a known defect of soft RoCE does not" '' \
    "$(warning 'drivers/infiniband/sw/rxe/rxe_task.c:267 rxe_sched_task+0x9c/0xb0 [rdma_rxe]' 'retransmit_timer+0x8c/0xa0 [rdma_rxe]' | kernel_errors)"
  check_equal "a warning about NVMe over soft RoCE does" $'WARNING: CPU: 1 PID: 31 at drivers/nvme/host/rdma.c:1 nvme_rdma_free+0x9c/0xb0 [nvme_rdma]\nCall Trace:' \
    "$(warning 'drivers/nvme/host/rdma.c:1 nvme_rdma_free+0x9c/0xb0 [nvme_rdma]' 'rxe_destroy_qp+0x8c/0xa0 [rdma_rxe]' | kernel_errors)"

  address=10.0.2.2 port=$1 nqn=nqn.2014-08.org.example:kernel
  # Linux 6.12 does not have these commands, or completes them with an internal error.
  without='compare temperature range'
  step "the kernel's own target"
  check "modprobe" modprobe -a nvmet nvmet-tcp nvme-tcp
  check "two RAM disks" modprobe brd rd_nr=2 rd_size=$((96 * 1024)) || return
  check "nvmet: a subsystem with two namespaces" nvmet_subsystem "$nqn" /dev/ram0 /dev/ram1
  check "nvmet: a TCP port" nvmet_port 1 tcp 0.0.0.0 4420 "$nqn" || return
  address=127.0.0.1 port=4420 step_discover
  step_refusals
  clear_kernel_log

  step "connection through the machine"
  connects -i 2 -k 10 -c 1 -l 300 || return
  step_identify
  step_filesystem
  step_verify "no digests" 8
  step_commands
  kernel_log_is_clean "so far"
  step_reset
  step_idle
  clear_kernel_log
  step_unplug
  clear_kernel_log
  disconnects

  step "connection with header and data digest"
  connects -i 2 -g -G || return
  step_verify "both digests" 4
  disconnects
  kernel_log_is_clean "about digests"
  nvmet_clear
}
