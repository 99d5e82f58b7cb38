# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# ublk: ebof at both ends in a guest whose kernel has ublk: the block device, its attach daemon, and
# what is left when that is killed.

nqn=nqn.2014-08.org.example:ublk

machine() {
  needs_ebof || return
  boot_guest -t 420 -m 1536 --
}

serve() {
  ebof serve --listen tcp://127.0.0.1:4420 --nqn "$nqn" --allow-any-host /root/disk.img mem:64Mi >>/tmp/serve.log 2>&1 &
  server=$!
  until_true 30 eval ': </dev/tcp/127.0.0.1/4420'
}

# connects_device [FLAG...]: ebof connect; sets $device to the block device of namespace 1.
device=''
connects_device() {
  check "ebof connect $*" ebof connect -t tcp -a 127.0.0.1 -s 4420 -n "$nqn" "$@" || return 1
  note <<<"$out"
  device=$(grep -oE '/dev/ublkb[0-9]+' <<<"$out" | sort -u | head -n 1)
  check "the first device printed is a ublk device" test -b "$device"
}
read_only() { [[ $(blockdev --getro "$device") == "$1" ]]; }
no_ublk() { ! ls /dev/ublkb* >/dev/null 2>&1; }
# The attach daemons: every process of ebof but the server.
daemons() { pgrep -x ebof | grep -vx "$server"; }
no_daemons() { [[ -z $(daemons) ]]; }

guest() {
  # Copied into the guest: every page read from the shared directory is a request to the machine.
  check "ebof runs in the guest" eval 'cp /host/ebof /usr/bin/ebof && ebof --version' || return
  check "modprobe ublk_drv" modprobe ublk_drv || return
  truncate -s 128M /root/disk.img
  check "ebof serve disk.img mem:64Mi listens" serve || { note </tmp/serve.log; return; }

  step "a device"
  connects_device || return
  check_equal "its size" $((128 << 20)) "$(blockdev --getsize64 "$device")"
  check_equal "every thread of its daemon has a filter of system calls" "" \
    "$(grep -Lx $'Seccomp:\t2' /proc/"$(daemons | head -n 1)"/task/*/status)"
  check_says "... and seven of root's capabilities" 'CapEff:[[:space:]]*0000000000a87002' \
    grep CapEff "/proc/$(daemons | head -n 1)/status"
  check_says "ebof list shows it" "$device" ebof list
  note <<<"$out"
  check "ebof list -o json is JSON" eval 'ebof list -o json | jq -e .'
  check_says "ebof list-subsys shows the path" '127.0.0.1' ebof list-subsys
  check_says "ebof id-ctrl nvme0" "$nqn" ebof id-ctrl nvme0
  check_says "ebof id-ns nvme0n1" '^nsze ' ebof id-ns nvme0n1
  check "ebof smart-log nvme0" ebof smart-log nvme0
  check "mkfs.ext4" mkfs.ext4 -q -F "$device"
  check "mount" mount "$device" /mnt || return
  check "copy files" cp /usr/bin/{bash,fio} /usr/sbin/nvme /mnt/
  (cd /mnt && sha256sum bash fio nvme >/tmp/sums)
  check "unmount" umount /mnt
  verify_second
  step_tune

  step "a device that somebody uses stays"
  exec 5<"$device"
  check_fails "ebof disconnect of a device that is open" 'is open in process' ebof disconnect -n "$nqn"
  exec 5<&-
  unshare --mount --propagation private sh -c "mount '$device' /mnt && touch /tmp/mounted && sleep 3" &
  local elsewhere=$!
  check "it is mounted in another mount namespace" until_true 10 test -e /tmp/mounted
  check_fails "ebof disconnect of it" 'mount namespace of process' ebof disconnect -n "$nqn"
  wait "$elsewhere"
  check "the device can be read" dd if="$device" of=/dev/null bs=64k count=16 iflag=direct

  step "write protection, while the device is in use"
  check "mount read-only" mount -o ro "$device" /mnt || return
  check "the namespace is write protected" ebof target set namespace "$nqn/1" write_protect=true --yes
  check "the device becomes read-only" until_true 10 read_only 1
  check "and can be read" eval 'echo 3 >/proc/sys/vm/drop_caches; cd /mnt && sha256sum --quiet -c /tmp/sums'
  check "the protection is removed" ebof target set namespace "$nqn/1" write_protect=false --yes
  check "the device becomes writable" until_true 10 read_only 0
  check "unmount" umount /mnt

  step "the target is killed and started again"
  check "mount" mount "$device" /mnt || return
  # At this rate the writes last about 7 s.
  fio --name=verify --filename=/mnt/unplug --rw=randwrite --bs=4k --size=4M --rate_iops=,150 --ioengine=libaio --iodepth=8 \
    --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 >/tmp/unplug.out 2>&1 &
  local writer=$! status=0
  sleep 3
  kill -KILL "$server"
  wait "$server" 2>/dev/null
  sleep 1
  check "the target is started again" serve
  wait $writer || status=$?
  check_equal "I/O has resumed, and the data are verified" 0 $status || note </tmp/unplug.out
  check "the checksums of the files match" eval 'echo 3 >/proc/sys/vm/drop_caches; cd /mnt && sha256sum --quiet -c /tmp/sums'
  check "unmount" umount /mnt
  check "e2fsck finds no errors" e2fsck -fn "$device"
  check "ebof disconnect -n" ebof disconnect -n "$nqn"
  check "no device and no daemon is left" eval 'until_true 30 no_ublk && until_true 30 no_daemons'

  step "the attach daemon is killed"
  connects_device -g -G || return
  verify_second
  # shellcheck disable=SC2046 # one word per process
  check "kill -9 of the daemon" kill -KILL $(daemons)
  check "it has ended" until_true 30 no_daemons
  check "ebof list works" ebof list
  # It may print that it removed them; entries of the list start at the beginning of a line.
  check_equal "ebof list shows no device" '' "$(grep -o '^/dev/ublkb.*' <<<"$out")"
  # Both commands clean up; disconnect may report that nothing was connected.
  attempt ebof disconnect -n "$nqn"
  check "no device is left" until_true 30 no_ublk
  connects_device || return
  check "the device can be read" dd if="$device" of=/dev/null bs=64k count=16 iflag=direct
  check "ebof disconnect-all" ebof disconnect-all
  check "no device and no daemon is left" eval 'until_true 30 no_ublk && until_true 30 no_daemons'

  step "the end"
  kill -TERM "$server"
  local status=0
  wait "$server" || status=$?
  check_equal "SIGTERM ends the target with status 0" 0 "$status"
  check "the target did not panic" eval '! grep -n panicked /tmp/serve.log'
  clear_kernel_log
}

# What ebof tune may change here: the guest's card has one queue, many0 has four and no interrupts.
tuned() { ebof tune -I eth0 -I many0 -d "$device" --mtu 1400 "$@"; }
settings() {
  grep -s . /proc/sys/net/core/{busy_poll,busy_read,rmem_max,wmem_max} /proc/sys/net/ipv4/tcp_{rmem,wmem} \
    /proc/irq/*/smp_affinity_list /sys/class/net/{eth0,many0}/{mtu,queues/*/{rps,xps}_cpus} "/sys/block/${device##*/}/queue/scheduler"
}
step_tune() {
  local before applied result refused others='.[("steps", "settings")] |= map(select(.setting != "adaptive-rx"))'
  step "settings of the machine"
  check "a card with four queues" eval 'modprobe dummy && ip link add many0 numtxqueues 4 numrxqueues 4 type dummy && ip link set many0 up' ||
    return
  check "a scheduler for the device" eval "echo mq-deadline >/sys/block/${device##*/}/queue/scheduler"
  before=$(settings)
  check_says "ebof tune shows what differs" '^differs +socket-buffers +net.core.rmem_max +212992 +16777216$' tuned
  note <<<"$out"
  check_equal "nothing was changed" "$before" "$(settings)"
  check_equal "no directory was made" no "$([[ -e /run/ebof/tune ]] && echo yes || echo no)"
  attempt tuned --apply -o json
  applied=$out result=$status
  # The card of QEMU accepts adaptive coalescing, and has none.
  check "every setting was set that can be" jq -e "$others"' | (.steps | length > 9) and all(.steps[]; .outcome == "done")' <<<"$applied"
  refused=$(jq '[.steps[] | select(.outcome == "failed")] | length' <<<"$applied")
  check_equal "the exit status tells whether all were" $((refused > 0)) "$result"
  check_equal "net.core.rmem_max" 16777216 "$(sysctl -n net.core.rmem_max)"
  check_equal "the MTU of eth0" 1400 "$(</sys/class/net/eth0/mtu)"
  check_equal "the receive steering of eth0" 3 "$(</sys/class/net/eth0/queues/rx-0/rps_cpus)"
  check_equal "the transmit steering of many0" '1 2' "$(cat /sys/class/net/many0/queues/tx-{0,1}/xps_cpus | xargs)"
  check_says "the device's scheduler" '\[none\]' cat "/sys/block/${device##*/}/queue/scheduler"
  check_equal "the cores of the card's interrupts" '0 0' "$(queue_interrupts | xargs cat | xargs)"
  attempt tuned -o json
  check "ebof tune finds nothing else that differs" jq -e "$others"' | all(.settings[]; .outcome != "differs")' <<<"$out"
  check "another goal" tuned --apply --goal latency
  check_equal "net.core.busy_read" 50 "$(sysctl -n net.core.busy_read)"
  check "somebody sets net.core.busy_read" sysctl -q net.core.busy_read=20
  check_says "ebof tune --undo leaves it alone" 'net.core.busy_read: somebody has set 20' ebof tune --undo
  sysctl -q net.core.busy_read=0
  check_equal "everything else is as it was" "$before" "$(settings)"
  check_says "once more, there is nothing to undo" '^There is nothing to undo' ebof tune --undo
  check_fails "an unknown interface is an error" 'there are: .*eth0' ebof tune -I eth7
  check_fails "another user may not set anything" 'root may' setpriv --reuid 65534 --clear-groups \
    env XDG_RUNTIME_DIR=/tmp/nobody ebof tune --apply
  check_equal "and has not" "$before" "$(settings)"
  ip link delete many0
}
# The files of the cores of eth0's interrupts.
queue_interrupts() {
  local irq
  for irq in /sys/class/net/eth0/device/../msi_irqs/*; do
    ! grep -qE '(in|out)put' "/sys/kernel/irq/${irq##*/}/actions" || echo "/proc/irq/${irq##*/}/smp_affinity_list"
  done
}

# The second namespace is a drive in memory.
verify_second() {
  local second
  second=$(printf '%s\n' /dev/ublkb* | grep -vx "$device" | head -n 1)
  verified_writes "fio on ${second:-the second device}: 4 KiB random writes, CRC32C verified" "$second" --bs=4k --size=8M --iodepth=16
  verified_writes "fio on ${second:-the second device}: 4 KiB to 1 MiB, CRC32C verified" "$second" --bsrange=4k-1m --size=32M --iodepth=4
}
