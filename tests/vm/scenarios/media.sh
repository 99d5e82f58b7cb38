# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# media: an encrypted drive with checksums, and commands for its media, by nvme-cli through the
# Linux kernel's host in a guest.
#
# Copy, Verify, Compare, Write Uncorrectable, Get LBA Status, deallocation; self-tests, telemetry;
# formats with another block size and with secure erase; sanitize. The machine checks that the
# backing file does not contain the data in plain text.

media_nqn=nqn.2014-08.org.example:media
media_text='only the host should be able to read this'

machine() {
  needs_ebof || return
  local port
  port=$(free_port)
  head -c 32 /dev/urandom >"$work/drive.key"
  chmod 600 "$work/drive.key"
  step "an encrypted drive of 256 MiB with checksums on 127.0.0.1:$port"
  start media "$ebof" serve --confine all --listen "tcp://127.0.0.1:$port" --nqn "$media_nqn" --allow-any-host \
    --drive "name=d0,backing=$work/media.img,size=256Mi,checksums,encryption,key-file=$work/drive.key,attach=everyone"
  check "ebof serve --drive listens" until_true 60 reachable "$port" || { note <"$work/media.log"; return 1; }
  boot_guest -t 900 -- "$port"

  step "the machine afterwards"
  check "SIGTERM ends the target with status 0" stop media TERM 30
  check "it did not panic" eval "! grep -n panicked '$work/media.log'"
}

# A request of the guest: whether the text is not in the backing file.
on_secret() { ! grep -qF "$media_text" "$work/media.img"; }

guest() {
  address=10.0.2.2 port=$1 nqn=$media_nqn
  check "modprobe nvme-tcp" modprobe nvme-tcp || return
  check "nvme connect" nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" -l 300 || return
  controller=$(controllers "$nqn")
  check "$controller becomes live" until_true 60 controller_is "$controller" live || return
  step_namespace || return
  step_secret
  step_ranges
  kernel_log_is_clean "so far"
  step_uncorrectable
  step_self_test
  step_telemetry
  step_format
  step_sanitize
  clear_kernel_log
  disconnects
}

step_namespace() {
  local device=/dev/$controller
  step "a namespace that is attached to all controllers"
  check_says "nvme id-ctrl -H: crypto erase" 'Crypto Erase Supported' nvme id-ctrl "$device" -H
  check_says "nvme create-ns" 'created nsid:1$' nvme create-ns "$device" -s 0x40000 -c 0x40000 -f 0 -d 0 -m 1 || return
  check "its disk appears" until_true 60 namespace_device 1 || return
  disk=$(namespace_device 1)
  lbs=$(blockdev --getss "$disk")
  verified_writes "fio: 4 KiB to 128 KiB random writes, CRC32C verified" "$disk" --bsrange=4k-128k --size=24M --iodepth=8
}

step_secret() {
  step "encryption"
  yes "$media_text" | head -c 1M >/tmp/secret
  check "a text is written" dd if=/tmp/secret of="$disk" bs=1M oflag=direct
  check "it is read" eval "dd if=$disk bs=1M count=1 iflag=direct status=none | cmp - /tmp/secret"
  check "the backing file does not contain it" ask secret
}

step_ranges() {
  step "copy, compare, verify, zeroes"
  head -c 65536 /dev/urandom >/tmp/pattern
  tr '\0-\377' '\1-\377\0' </tmp/pattern >/tmp/other
  check "nvme write" nvme write "$disk" -s 0 -c 127 -z 65536 -d /tmp/pattern
  check "nvme copy of two ranges" nvme copy "$disk" --sdlba=2048 --slbs=0,64 --blocks=63,63
  check "nvme compare: the copy equals the original" nvme compare "$disk" -s 2048 -c 127 -z 65536 -d /tmp/pattern
  check_fails "nvme compare with other data fails" 'compare' nvme compare "$disk" -s 2048 -c 127 -z 65536 -d /tmp/other
  check "nvme verify" nvme verify "$disk" -s 2048 -c 127
  check "nvme write-zeroes --deac" nvme write-zeroes "$disk" --deac -s 2048 -c 63
  check "nvme dsm --ad" nvme dsm "$disk" --ad -s 2112 -b 64
  check "zeros are read" eval "nvme read $disk -s 2048 -c 127 -z 65536 -d /tmp/back && cmp -n 65536 /tmp/back /dev/zero"
  check "the original is unchanged" nvme compare "$disk" -s 0 -c 127 -z 65536 -d /tmp/pattern
  check_fails "nvme copy beyond the end" 'LBA' nvme copy "$disk" --sdlba=0 --slbs=262143 --blocks=7
}

step_uncorrectable() {
  step "blocks that cannot be read"
  check "nvme write-uncor" nvme write-uncor "$disk" -s 40 -c 7
  check_fails "nvme read fails" 'Unrecovered|nrecovered' nvme read "$disk" -s 40 -c 0 -z 512 -d /tmp/back
  check_fails "nvme verify fails" 'Unrecovered|nrecovered' nvme verify "$disk" -s 32 -c 15
  check "the blocks before them are read" nvme read "$disk" -s 0 -c 39 -z 20480 -d /tmp/back
  check "nvme get-lba-status" nvme get-lba-status "$disk" -n 1 -s 0 -m 1023 -a 0x10 -l 64
  note <<<"$out"
  # nvme-cli 2.13 aborts when it prints the descriptors as JSON.
  check_equal "get-lba-status: eight blocks from 40 on" 1 "$(grep -ciE 'DSLBA: 0x0*28, NLB: 0x0*8,' <<<"$out")"
  check_equal "smart-log: media errors" true "$(jq '.media_errors > 0' <<<"$(nvme smart-log "/dev/$controller" -o json)")"
  check "nvme write makes them readable again" nvme write "$disk" -s 40 -c 7 -z 4096 -d /tmp/pattern
  check "nvme read" nvme read "$disk" -s 40 -c 7 -z 4096 -d /tmp/back
}

step_self_test() {
  local device=/dev/$controller code
  step "device self-test"
  for code in 1 2; do
    check "nvme device-self-test -s $code" nvme device-self-test "$device" -n 0xffffffff -s $code
    check "nvme self-test-log: it has ended" until_true 120 eval \
      "nvme self-test-log $device -o json | jq -e '.[\"Current Device Self-Test Operation\"] == 0'"
    check_equal "self-test-log: passed" "0 $code" "$(nvme self-test-log "$device" -o json |
      jq -r '.["List of Valid Reports"][0] | "\(."Self test result") \(."Self test code")"')" ||
      nvme self-test-log "$device" -o json | note
  done
}

step_telemetry() {
  step "telemetry and other logs"
  check "nvme telemetry-log" nvme telemetry-log "/dev/$controller" --output-file=/tmp/telemetry
  check "it is a telemetry log" eval '[[ $(od -An -tx1 -N1 /tmp/telemetry) == " 07" ]] && (($(stat -c %s /tmp/telemetry) > 512))'
  check "nvme telemetry-log, controller-initiated" nvme telemetry-log "/dev/$controller" --controller-init --output-file=/tmp/telemetry
  check_says "nvme sanitize-log: never" '(SPROG|Sanitize Progress).*65535' nvme sanitize-log "/dev/$controller"
  check_says "nvme supported-log-pages" 'Sanitize' nvme supported-log-pages "/dev/$controller"
}

# Without the page cache, which a format does not invalidate.
is_empty() { dd if="$disk" bs=1M count=16 iflag=direct status=none | cmp -n 16777216 - /dev/zero; }

# is_formatted SECTOR-SIZE
is_formatted() { disk=$(namespace_device 1) && [[ $(blockdev --getss "$disk") == "$1" && $(blockdev --getsize64 "$disk") -gt 0 ]]; }

step_format() {
  local device=/dev/$controller
  step "format"
  check "nvme format to 4 KiB" nvme format "$device" -n 1 -l 1 -s 0 --force
  check "the disk has blocks of 4 KiB" until_true 60 is_formatted 4096
  check "it reads as zeros" is_empty
  check "a text is written" dd if=/tmp/secret of="$disk" bs=1M oflag=direct
  check "nvme format with user data erase" nvme format "$device" -n 1 -l 0 -s 1 --force
  check "the disk has blocks of 512 bytes" until_true 60 is_formatted 512
  check "it reads as zeros" is_empty
  check "a text is written" dd if=/tmp/secret of="$disk" bs=1M oflag=direct
  check "nvme format with cryptographic erase" nvme format "$device" -n 1 -l 0 -s 2 --force
  check "it reads as zeros" is_empty
  check_fails "nvme format to a format that does not exist" 'Format' nvme format "$device" -n 1 -l 9 --force
}

step_sanitize() {
  local device=/dev/$controller action
  step "sanitize"
  for action in start-block-erase start-crypto-erase; do
    check "a text is written" dd if=/tmp/secret of="$disk" bs=1M oflag=direct
    check "nvme sanitize -a $action" nvme sanitize "$device" -a "$action"
    check_says "nvme sanitize-log: done" '(SPROG|Sanitize Progress).*65535' until_says 120 65535 nvme sanitize-log "$device"
    check_says "nvme sanitize-log: Global Data Erased" 'Global Data Erased *: 0x1' nvme sanitize-log "$device" -H
    check "the disk is empty" until_true 60 is_empty
  done
  check "nvme sanitize: overwrite, one pass" nvme sanitize "$device" -a start-overwrite --owpass=1 --ovrpat=0x5aa5f00f
  check_fails "a write is refused during the sanitize, unless that has ended already" '.' eval "dd if=/tmp/secret of=$disk bs=4k count=1 oflag=direct && echo over; false"
  check "it has ended" until_says 300 65535 nvme sanitize-log "$device"
  check "the disk is empty" until_true 60 is_empty
}

# until_says SECONDS REGEX COMMAND...: waits until the output matches; prints it.
until_says() {
  local seconds=$1 regex=$2
  shift 2
  until_true "$seconds" eval "$(printf '%q ' "$@") 2>&1 | grep -qE $(printf %q "$regex")" && "$@"
}
