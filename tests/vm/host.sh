# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # scenarios set and read variables; those of lib.sh come from there
# host.sh: steps of the Linux host in a guest, which scenarios combine.
#
# The target is at $address:$port over $transport. It has the subsystem $nqn for any host, with two
# namespaces: 1 is for a file system, 2 is overwritten freely. A scenario may define target_down and
# target_up, which stop the target without a shutdown and start it again.

address='' port='' nqn=''
without=''    # features that the target lacks, words like compare: their checks are skipped
controller='' # the last one that was connected, like nvme0

# lacks WORD TEXT: whether the target lacks this feature; then the check TEXT is skipped.
lacks() { [[ " $without " == *" $1 "* ]] && skip "$2" "the target lacks it"; }

# Prints the controllers (nvmeN) that are connected to an NQN.
controllers() {
  local path
  for path in /sys/class/nvme/nvme*; do
    [[ ! -e $path/subsysnqn || $(<"$path/subsysnqn") != "$1" ]] || echo "${path##*/}"
  done
}

# Prints the block device of namespace $1. With native multipath it belongs to the subsystem, not to
# a controller.
namespace_device() {
  local path nsid
  for path in /sys/class/nvme-subsystem/nvme-subsys*; do
    [[ -e $path/subsysnqn && $(<"$path/subsysnqn") == "$nqn" ]] || continue
    for nsid in "$path"/nvme*n*/nsid; do
      if [[ -e $nsid && $nsid != */nvme*c*n*/nsid && $(<"$nsid") == "$1" ]]; then
        nsid=${nsid%/nsid}
        [[ -b /dev/${nsid##*/} ]] || return 1
        echo "/dev/${nsid##*/}"
        return
      fi
    done
  done
  return 1
}

controller_is() { [[ $(cat "/sys/class/nvme/$1/state") == "$2" ]]; }
no_controllers() { [[ -z $(controllers "$1") ]]; }

# connects [FLAG...]: nvme connect, until the first namespace's device is there. Sets $controller.
connects() {
  check "nvme connect -n $nqn $*" nvme connect -t "$transport" -a "$address" -s "$port" -n "$nqn" "$@" || return 1
  controller=$(controllers "$nqn" | tail -n 1)
  [[ -n $controller ]] || { fail "a controller appears for $nqn"; return 1; }
  until_true 60 controller_is "$controller" live || { fail "$controller becomes live"; return 1; }
  until_true 60 namespace_device 1 || { fail "the first namespace of $nqn appears"; return 1; }
  udevadm settle
}

disconnects() {
  udevadm settle # udev may still read the device after the last write
  check "nvme disconnect -n $nqn" nvme disconnect -n "$nqn"
  check "its controllers are gone" until_true 60 no_controllers "$nqn"
}

# verified_writes TEXT FILE [FIO-ARGUMENT...]: random writes, read back and compared by CRC32C.
verified_writes() {
  local text=$1 file=$2
  shift 2
  LIMIT=240 check "$text" fio --name=verify --filename="$file" --rw=randwrite --ioengine=libaio --direct=1 \
    --verify=crc32c --do_verify=1 --verify_fatal=1 --randrepeat=0 "$@"
}

# Reads a kernel log and prints it without the warnings about defects of the kernel that are known,
# which nobody outside of it can cause or prevent. Each is a block from "cut here" to "end trace".
# - Soft RoCE uses a queue pair that its own count says nobody has, while it is destroyed: seen with
#   Linux 6.12.117, which has the mend of one such race, CVE-2026-45910.
without_known_warnings() {
  awk '
    function close_block() { if (block !~ known) printf "%s", block; block = "" }
    BEGIN { known = "WARNING:[^\n]*/sw/rxe/rxe_task[.]c|refcount_t: [^\n]*\n.*\n[^\n]* do_(task|work)[+][^\n]*[[]rdma_rxe]" }
    /-[[] cut here ]-/ { close_block(); inside = 1 }
    inside { block = block $0 "\n"; if (/-[[] end trace /) { close_block(); inside = 0 }; next }
    { print }
    END { close_block() }'
}

# Clears the kernel's log and prints the lines about NVMe; the whole log is in $kernel_log.
kernel_log=''
clear_kernel_log() {
  kernel_log=$(dmesg)
  dmesg -C
  grep -E 'nvm|ublk' <<<"$kernel_log" | note
}
# Prints the lines of a kernel log on standard input that tell of errors and warnings.
kernel_errors() {
  local errors='WARNING:|BUG:|Oops|Call Trace|blocked for more than|I/O error|Buffer I/O'
  errors+='|nvme.*(error|fail|invalid|time ?out|mismatch|ignor|unexpected|duplicate|bogus|not compliant|reset|unable|not support)'
  # A slow emulation causes a warning at boot. A Keep Alive that is outstanding at a disconnect is
  # logged as failed; if the connection had ended by itself, other lines would say so.
  without_known_warnings | grep -iE "$errors" | grep -vE 'calibrate_delay|failed nvme_keep_alive_end_io error=4'
}
# kernel_log_is_clean TEXT: clears it, too, and checks that there are no errors and warnings.
kernel_log_is_clean() {
  clear_kernel_log
  check_equal "the kernel logs no error $1" '' "$(kernel_errors <<<"$kernel_log")"
}

# Discovery: the log has the subsystem and the port; -p keeps a discovery controller, which can be
# disconnected.
step_discover() {
  local discovery=nqn.2014-08.org.nvmexpress.discovery
  step "discovery of $address:$port"
  check "nvme discover" nvme discover -t "$transport" -a "$address" -s "$port" || return
  note <<<"$out"
  check "nvme discover -o json" nvme discover -t "$transport" -a "$address" -s "$port" -o json
  check_equal "the log page has the subsystem with its type and port" "nvme subsystem $port $transport" \
    "$(jq -r --arg nqn "$nqn" '.records[] | select(.subnqn == $nqn) | "\(.subtype) \(.trsvcid) \(.trtype)"' <<<"$out" | head -n 1)"
  check "nvme discover -p (persistent)" nvme discover -p -t "$transport" -a "$address" -s "$port"
  check "the discovery controller is kept" test -n "$(controllers $discovery)"
  check "nvme disconnect -n of the discovery controller" nvme disconnect -n $discovery
  check "the discovery controller is gone" until_true 30 no_controllers $discovery
}

# Every Identify structure, log page, feature and register that nvme-cli decodes and a fabrics
# target has.
step_identify() {
  local device=/dev/$controller namespace feature
  step "identify, log pages, features, registers"
  namespace=$(namespace_device 1)
  check_says "nvme list has $namespace" "^$namespace " nvme list
  note <<<"$out"
  check_says "nvme list-subsys has the path" "$controller $transport traddr=$address,trsvcid=$port.* live" nvme list-subsys
  note <<<"$out"
  check "nvme id-ctrl" nvme id-ctrl "$device" -o json
  jq -c '{sn, mn, fr, cntlid, ver, oacs, oncs, nn, mnan, mdts, sgls, ioccsz, iorcsz, kas, vwc, cntrltype}' <<<"$out" | note
  check_equal "id-ctrl: the NQN" "$nqn" "$(jq -r .subnqn <<<"$out")"
  check_equal "id-ctrl: serial, model and firmware are set, 0 < MNAN <= NN or MNAN = 0, KAS > 0, an I/O controller" true \
    "$(jq '(.sn | test("[^ ]")) and (.mn | test("[^ ]")) and (.fr | test("[^ ]")) and .mnan <= .nn and .kas > 0 and .cntrltype <= 1' <<<"$out")"
  check "nvme id-ns" nvme id-ns "$namespace" -o json
  check_equal "id-ns: the size is the block device's" "$(blockdev --getsize64 "$namespace")" \
    "$(jq '.nsze * $lbs' --argjson lbs "$(blockdev --getss "$namespace")" <<<"$out")"
  check_says "nvme ns-descs has an identifier" '(uuid|nguid|eui64)' nvme ns-descs "$namespace"
  check_says "nvme list-ns has both namespaces" ':0x2$' nvme list-ns "$device"
  check "nvme id-ns-ind or id-ns -n 2" nvme id-ns "$device" -n 2
  check_says "nvme smart-log" '^critical_warning' nvme smart-log "$device"
  check_says "nvme error-log" '^Error Log Entries' nvme error-log "$device"
  check_says "nvme effects-log" '(ACS|IOCS|Admin Commands|Supported)' nvme effects-log "$device"
  check_says "nvme fw-log" '^(Firmware Log|afi|frs1)' nvme fw-log "$device"
  check_says "nvme show-regs" '^cap ' nvme show-regs "$device"
  lacks temperature "nvme get-feature of the temperature threshold" ||
    check_says "nvme get-feature of the temperature threshold" '[Cc]urrent value:' nvme get-feature "$device" -f 0x4
  for feature in 0x7:queues 0xb:events 0xf:keep-alive; do
    check_says "nvme get-feature of ${feature#*:}" '[Cc]urrent value:' nvme get-feature "$device" -f "${feature%:*}"
  done
  # In its 128 bit form, which is the only one for fabrics.
  check_says "nvme get-feature of the host identifier" 'get-feature:0x81' nvme get-feature "$device" -f 0x81 -l 16 -c 1
  check "nvme ns-rescan" nvme ns-rescan "$device"
  check "the limits of the block device are sane" eval "(( $(cat "/sys/block/${namespace#/dev/}/queue/max_hw_sectors_kb") >= 64 ))"
}

# Files survive a remount; their checksums go to /ctl/sums, for checks of the medium after the
# guest has ended.
step_filesystem() {
  local device
  device=$(namespace_device 1)
  step "a file system on $device"
  check "mkfs.ext4" mkfs.ext4 -q -F -E nodiscard "$device" || return
  check "mount" mount "$device" /mnt || return
  mkdir /mnt/files
  check "copy files, many small and some large" cp -r /etc /usr/lib/udev/rules.d /usr/bin/{bash,fio} /usr/sbin/nvme /mnt/files/
  check "sync" sync -f /mnt
  (cd /mnt && find files -type f -exec sha256sum {} + | sort -k 2 >/ctl/sums)
  check "unmount" umount /mnt
  check "mount again" mount "$device" /mnt || return
  check "the checksums of $(wc -l </ctl/sums) files match" eval 'cd /mnt && sha256sum --quiet -c /ctl/sums'
  check_says "fstrim" 'trimmed' fstrim -v /mnt
  check "the checksums match after the trim" eval 'echo 3 >/proc/sys/vm/drop_caches; cd /mnt && sha256sum --quiet -c /ctl/sums'
  check "unmount again" umount /mnt
  check "e2fsck finds no errors" e2fsck -fn "$device"
}

# step_verify TEXT MEBIBYTES: writes of all sizes up to the largest request; a tenth of that amount
# in small ones.
step_verify() {
  local device kib=$(($2 * 100))
  device=$(namespace_device 2)
  step "verified writes to $device ($1)"
  verified_writes "fio: 4 KiB random writes, CRC32C verified, depth 16" "$device" --bs=4k --size="${kib}k" --iodepth=16
  verified_writes "fio: 4 KiB to 1 MiB random writes, CRC32C verified, depth 4" "$device" --bsrange=4k-1m --size="$2M" --iodepth=4
}

# The I/O commands that a file system seldom sends.
step_commands() {
  local device lbs size=65536 blocks
  device=$(namespace_device 2)
  lbs=$(blockdev --getss "$device")
  blocks=$((size / lbs - 1))
  step "single commands to $device ($lbs byte blocks)"
  head -c $size /dev/urandom >/tmp/pattern
  tr '\0-\377' '\1-\377\0' </tmp/pattern >/tmp/other
  check "nvme write" nvme write "$device" -s 16 -c $blocks -z $size -d /tmp/pattern
  check "nvme write with FUA" nvme write "$device" -f -s 16 -c $blocks -z $size -d /tmp/pattern
  check "nvme flush" nvme flush "$device" -n 2
  check "nvme read" nvme read "$device" -s 16 -c $blocks -z $size -d /tmp/back
  check "the data read are those written" cmp /tmp/pattern /tmp/back
  if ! lacks compare "nvme compare and verify"; then
    check "nvme compare with the same data" nvme compare "$device" -s 16 -c $blocks -z $size -d /tmp/pattern
    check_fails "nvme compare with other data fails" 'compare' nvme compare "$device" -s 16 -c $blocks -z $size -d /tmp/other
    check "nvme verify" nvme verify "$device" -s 16 -c $blocks
  fi
  check "nvme write-zeroes" nvme write-zeroes "$device" -s 16 -c $blocks
  check "... and zeros are read" eval "nvme read $device -s 16 -c $blocks -z $size -d /tmp/back && cmp -n $size /tmp/back /dev/zero"
  check "nvme dsm --ad (deallocate)" nvme dsm "$device" --ad -s 16 -b 16
  lacks range "a read beyond the end is LBA Out of Range" || check_fails "a read beyond the end is LBA Out of Range" 'LBA|range' \
    nvme read "$device" -s $(($(blockdev --getsize64 "$device") / lbs)) -c 0 -z "$lbs" -d /tmp/back
  check "dd writes 8 MiB" dd if=/dev/urandom of="$device" bs=1M count=8 oflag=direct
  check "blkdiscard -z (write zeroes) of 8 MiB" blkdiscard -z -l 8M "$device"
  check "... and zeros are read" eval "dd if=$device bs=1M count=8 iflag=direct status=none | cmp -n 8388608 - /dev/zero"
  check "blkdiscard of the whole device" blkdiscard "$device"
}

# A controller reset by the host.
step_reset() {
  step "reset"
  check "nvme reset" nvme reset "/dev/$controller"
  check "$controller is live again" until_true 60 controller_is "$controller" live
  check "namespace 2 can be read" dd if="$(namespace_device 2)" of=/dev/null bs=64k count=16 iflag=direct
}

# Idle time longer than the keep-alive time-out.
step_idle() {
  step "keep alive"
  sleep 12 # the keep-alive time-out is 10 s, the host sends every 5 s
  check "$controller is live after 12 s without I/O" controller_is "$controller" live
}

# The target ends while a file is being written and verified, and is started again.
step_unplug() {
  local device writer status=0
  device=$(namespace_device 1)
  step "the target ends without a shutdown, and is started again"
  check "mount" mount "$device" /mnt || return
  # At this rate the writes last about 7 s.
  fio --name=verify --filename=/mnt/unplug --rw=randwrite --bs=4k --size=4M --rate_iops=,150 --ioengine=libaio --iodepth=8 \
    --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 >/tmp/unplug.out 2>&1 &
  writer=$!
  sleep 3
  check "the target ends" target_down
  # An idle host would notice only by keep alive; this one has outstanding commands.
  check "$controller detects the loss" until_true 60 controller_is "$controller" connecting
  check "the target is started again" target_up
  check "$controller reconnects" until_true 120 controller_is "$controller" live
  wait $writer || status=$?
  check_equal "I/O has resumed, and the data are verified" 0 $status || note </tmp/unplug.out
  check "the checksums of the files match" eval 'cd /mnt && sha256sum --quiet -c /ctl/sums'
  check "unmount" umount /mnt
}

# What the target must refuse, and what the host reports.
step_refusals() {
  step "refusals"
  # The status is printed by the kernel's name or number, depending on the versions of kernel and
  # nvme-cli.
  check_fails "nvme connect to an NQN that does not exist" 'fail|invalid|could not|input/output' \
    nvme connect -t "$transport" -a "$address" -s "$port" -n nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-a000-000000000000
  check "no controller is left" no_controllers nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-a000-000000000000
}
