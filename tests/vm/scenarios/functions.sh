# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# functions: the same story of virtualization management, told by nvme-cli to QEMU's own NVMe device
# with virtual functions, and to a drive of ebof with functions over TCP. Both transcripts are
# compared line by line.
#
# What differs, and is left out or made equal:
# - QEMU's primary controller begins with all flexible resources, ebof's with none: it gives them
#   back first, by an allocation of 0 and a reset.
# - QEMU's functions exist once the guest has enabled them (sriov_numvfs).
# - QEMU needs two private I/O queues of the primary: VQPRT is not compared. VIPRT neither.
# - QEMU does not create namespaces: its namespace comes with the device.
# - QEMU's primary controller is 0, ebof's is the manager's own one.
# - More (the error log has an entry) and Do Not Retry in status codes.

functions_nqn=nqn.2014-08.org.example:functions
functions=4
# As ebof has them: 65 for each function, 129 for one.
resources=$((65 * functions))

machine() {
  needs_ebof || return
  functions_port=$(free_port)
  step "a drive with $functions functions on 127.0.0.1:$functions_port"
  check "ebof serve --drive listens" start_drive || return
  truncate -s 16M "$work/ns1.raw"
  boot_guest -t 300 -- "$functions_port" -- \
    -device pcie-root-port,id=rp1,chassis=1,slot=1 -device nvme-subsys,id=ss0,nqn=subsys0 \
    -device "nvme,id=pf,serial=S1,bus=rp1,subsys=ss0,sriov_max_vfs=$functions,max_ioqpairs=$((resources + 2)),msix_qsize=$((resources + 1)),sriov_vq_flexible=$resources,sriov_vi_flexible=$resources,sriov_max_vq_per_vf=129,sriov_max_vi_per_vf=129" \
    -drive "file=$work/ns1.raw,format=raw,if=none,id=n1" -device nvme-ns,drive=n1,nsid=1,shared=on,detached=on

  step "the machine afterwards"
  check "SIGTERM ends the target with status 0" stop functions TERM 30
  check "it did not panic" eval "! grep -n panicked '$work/functions.log'"
}

start_drive() {
  start functions "$ebof" serve --confine all --listen "tcp://127.0.0.1:$functions_port" --nqn "$functions_nqn" --allow-any-host \
    --drive "name=d0,backing=$work/disk.img,size=64Mi,functions=$functions"
  until_true 60 reachable "$functions_port" || { cat "$work/functions.log"; return 1; }
}
on_restart() {
  stop functions KILL 30
  [[ $? == 137 ]] && start_drive
}

guest() {
  step "QEMU's device"
  check "modprobe nvme nvme-tcp" modprobe -a nvme nvme-tcp || return
  check "it is live" until_true 60 has_qemus || return
  qemus=$(qemus_controller)
  check "its functions are enabled" enable_functions || return
  step "ebof's drive"
  check "nvme connect" nvme connect -t tcp -a 10.0.2.2 -s "$1" -n "$functions_nqn" -l 300 -c 1 || return
  ebofs=$(controllers "$functions_nqn")
  check "$ebofs becomes live" until_true 60 controller_is "$ebofs" live || return
  check_says "nvme id-ctrl -H: virtualization management" 'Virtualization Management Supported' nvme id-ctrl "/dev/$ebofs" -H
  check_says "nvme create-ns" 'created nsid:1$' nvme create-ns "/dev/$ebofs" -s 0x8000 -c 0x8000 -f 0 -d 0 -m 1

  step "one story, two devices"
  tell_story "/dev/$qemus" >/tmp/qemu
  tell_story "/dev/$ebofs" >/tmp/ebof
  check "each has a transcript" eval '(($(wc -l </tmp/qemu) > 100))'
  check "every step has an answer" eval "! grep -n 'no answer' /tmp/qemu /tmp/ebof"
  check "the transcripts are the same" diff /tmp/qemu /tmp/ebof
  cp /tmp/qemu /tmp/ebof /ctl/

  step "what ebof's drive keeps"
  local before after
  before=$(nvme list-secondary "/dev/$ebofs")
  check_says "a function is online" 'Online' echo "$before"
  check "the target is killed and started again" ask restart || return
  check "$ebofs is live again" until_true 60 controller_is "$ebofs" live || return
  after=$(nvme list-secondary "/dev/$ebofs")
  check_equal "nvme list-secondary is the same" "$before" "$after"
  disconnects "$functions_nqn"
}

qemus_controller() { basename "$(dirname "$(grep -lx pcie /sys/class/nvme/nvme*/transport)")"; }
has_qemus() { [[ $(cat "/sys/class/nvme/$(qemus_controller)/state") == live ]]; }

enable_functions() {
  local device=/dev/$qemus pci=/sys/class/nvme/$qemus/device rt
  for rt in 0 1; do
    nvme virt-mgmt "$device" -c 0 -r "$rt" -a 1 -n 0 || return 1
  done
  nvme reset "$device" || return 1
  until_true 60 controller_is "$qemus" live || return 1
  echo 0 >"$pci/sriov_drivers_autoprobe"
  echo "$functions" >"$pci/sriov_numvfs"
}

# The transcript of the story: commands and answers, without what differs (see above).
tell_story() {
  local device=$1 words
  while read -r words; do
    [[ -n $words ]] || continue
    echo "== $words"
    # shellcheck disable=SC2086 # words
    told=$(nvme ${words/DEVICE/$device} 2>&1) || true
    sed -E "s|$device|DEVICE|g; s/\(0x[0-9a-f]+\)/(CODE)/; /^(vq|vi)prt /d; s/(^cntlid|Primary Controller Identifier)( *:).*/\1\2 PRIMARY/" <<<"${told:-no answer}"
  done <<'STORY'
list-secondary DEVICE
primary-ctrl-caps DEVICE
virt-mgmt DEVICE -c 9 -r 0 -a 8 -n 2
virt-mgmt DEVICE -c 0 -r 0 -a 8 -n 2
virt-mgmt DEVICE -c 1 -r 0 -a 8 -n 130
virt-mgmt DEVICE -c 1 -r 5 -a 8 -n 1
virt-mgmt DEVICE -c 1 -a 9
virt-mgmt DEVICE -c 1 -a 3
virt-mgmt DEVICE -c 1 -r 0 -a 8 -n 1
virt-mgmt DEVICE -c 1 -r 1 -a 8 -n 1
virt-mgmt DEVICE -c 1 -a 9
virt-mgmt DEVICE -c 1 -r 0 -a 8 -n 5
virt-mgmt DEVICE -c 1 -r 1 -a 8 -n 3
virt-mgmt DEVICE -c 1 -a 9
virt-mgmt DEVICE -c 1 -a 9
list-secondary DEVICE -e 1
virt-mgmt DEVICE -c 1 -r 0 -a 8 -n 6
virt-mgmt DEVICE -c 2 -r 0 -a 8 -n 129
virt-mgmt DEVICE -c 3 -r 0 -a 8 -n 129
virt-mgmt DEVICE -c 3 -r 0 -a 8 -n 126
virt-mgmt DEVICE -c 4 -r 0 -a 8 -n 1
primary-ctrl-caps DEVICE
virt-mgmt DEVICE -c 0 -r 0 -a 1 -n 261
virt-mgmt DEVICE -c 0 -r 0 -a 1 -n 1
virt-mgmt DEVICE -c 1 -r 0 -a 1 -n 1
virt-mgmt DEVICE -c 0 -r 1 -a 1 -n 10
primary-ctrl-caps DEVICE
virt-mgmt DEVICE -c 3 -a 7
virt-mgmt DEVICE -c 2 -a 7
virt-mgmt DEVICE -c 0 -a 7
virt-mgmt DEVICE -c 2 -a 9
list-secondary DEVICE -c 2
primary-ctrl-caps DEVICE
attach-ns DEVICE -n 1 -c 9
attach-ns DEVICE -n 1 -c 1,2
attach-ns DEVICE -n 1 -c 1
list-ctrl DEVICE -n 1
detach-ns DEVICE -n 1 -c 2
detach-ns DEVICE -n 1 -c 2
list-ctrl DEVICE -n 1
list-ns DEVICE
list-ns DEVICE -a
virt-mgmt DEVICE -c 1 -a 7
virt-mgmt DEVICE -c 1 -r 0 -a 8 -n 2
virt-mgmt DEVICE -c 1 -r 1 -a 8 -n 1
virt-mgmt DEVICE -c 1 -a 9
list-secondary DEVICE
STORY
}
