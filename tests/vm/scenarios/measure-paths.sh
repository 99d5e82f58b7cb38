# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# measure-paths: how long I/O stands still when a path goes, and what two paths bring, with ebof's
# host and Linux' native multipath at the same target, in the same guest and at the same time. A
# measurement, not a test: it has no limits, and is run by name only. EBOF_VM_ROUNDS is how often
# each short story is told (50).
# shellcheck source=host-paths.sh
. "${BASH_SOURCE[0]%/*}/host-paths.sh"
borrowed=(host-paths.sh)

events=${EBOF_VM_ROUNDS:-50}

machine() {
  needs_ebof || return
  boot_guest -p -t 3000 -m 1536 --
}

guest() {
  ebof_in_guest || return
  check "modprobe" modprobe -a ublk_drv veth sch_netem sch_tbf nvme-tcp || return
  check "a network namespace with two links" links || return
  truncate -s 64M /root/disk.img
  truncate -s 64M /root/linux.img
  check "ebof serve listens on both" target_up || return
  nqn=$served
  check "ebof's host has a path" "$ebof" connect -t tcp -a 10.1.0.1 -s 4420 -n $nqn -k 5 -c 1 || return
  check "and a second one" "$ebof" connect -t tcp -a 10.2.0.1 -s 4420 -n $nqn -k 5 -c 1 || return
  device=$("$ebof" list -o json | jq -r '.Devices[] | select(.NameSpace == 1).DevicePath')
  linux_connects && linux=$(namespace_device 2)
  check "so has Linux'" test -b "$linux" || return
  # The other path is taken by both from the beginning: the first one is the better one.
  check "the first link is the one to use" target_set port fabric1 ana.1=non-optimized
  step_stalls "nothing happens" $((events < 20 ? events : 20)) 1 true true
  step_stalls "the target closes a path" "$events" 1 closes_one opens_both
  step_stalls "a path becomes inaccessible" "$events" 1 is_inaccessible is_optimized
  step_stalls "a link is silent" $(((events + 4) / 5)) 12 is_cut is_whole
  check "both links are as good" target_set port fabric1 ana.1=
  step_bandwidth
  check "nvme disconnect" nvme disconnect -n $nqn
  check "ebof disconnect" "$ebof" disconnect -n $nqn
}

# step_stalls TEXT COUNT SECONDS BEGIN END: the longest command of each host from BEGIN until END,
# which is done so much later, and of those that begin afterwards.
step_stalls() {
  local text=$1 count=$2 seconds=$3 begin=$4 end=$5 number at job jobs=()
  step "$text, $count times"
  rm -f /tmp/*_clat.*log /tmp/events
  for job in ebof linux; do
    fio --name=$job --filename="$([[ $job == ebof ]] && echo "$device" || echo "$linux")" --rw=randwrite --bs=4k --size=16M --iodepth=1 \
      --rate_iops=50 --ioengine=libaio --direct=1 --time_based --runtime=$((count * (seconds + 60) + 60)) --write_lat_log=/tmp/$job \
      --log_unix_epoch=1 >/tmp/$job.out 2>&1 &
    jobs+=($!)
  done
  sleep 5
  for ((number = 0; number < count; number++)); do
    at=$(date +%s%3N)
    "$begin" >/tmp/begin.out 2>&1 || note </tmp/begin.out
    sleep "$seconds"
    echo "$at $(date +%s%3N)" >>/tmp/events
    "$end" >/tmp/end.out 2>&1 || note </tmp/end.out
    until_true 60 linux_returns || { fail "Linux has both paths again"; cat /sys/class/nvme/nvme*/state | note; break; }
    sleep 0.7
  done
  date +%s%3N >>/tmp/events
  kill -INT "${jobs[@]}"
  wait "${jobs[@]}"
  for job in ebof linux; do
    ! grep -iE 'error' /tmp/$job.out || fail "$job: commands have failed"
    stalls $job 1 && echo "$text: $job: longest commands: $(median_of /tmp/stalls)" | note
    stalls $job 2 && echo "$text: $job: when it is as before: $(median_of /tmp/stalls)" | note
  done
}
# Linux gives a controller up whose subsystem is not at its port.
linux_returns() {
  linux_is_live && return
  [[ $(cat /sys/class/nvme/nvme*/state) != live ]] || linux_connects_over 1
  linux_is_live
}
# stalls JOB PART: the longest commands in milliseconds, one of each event: those under way at its
# begin or begun until its end (1), or begun later (2). Commands are logged when they complete.
stalls() {
  awk -F'[, ]+' -v part="$2" -v n=0 -v at=0 '
    NR == FNR { if (NF > 1) { begin[n] = $1; end[n++] = $2 } else begin[n] = $1; next }
    { started = $1 - $2 / 1e6
      while (at + 1 < n && started > begin[at + 1]) at++
      for (i = at; i < n && begin[i] < $1; i++) {
        is_of_first = started < end[i]
        is_of_second = !is_of_first && $1 < begin[i + 1]
        if ((part == 1 ? is_of_first : is_of_second) && $2 > most[i]) most[i] = $2
      } }
    END { for (i = 0; i < n; i++) printf "%.1f\n", most[i] / 1e6 }' /tmp/events /tmp/"$1"_clat.1.log | sort -n >/tmp/stalls
  [[ -s /tmp/stalls ]]
}
median_of() {
  local count
  count=$(wc -l <"$1")
  echo "median $(sed -n "$(((count + 1) / 2))p" "$1") ms, worst $(tail -n 1 "$1") ms of $count"
}

# Reads of two paths of a limited bandwidth, beside those of one. The bandwidth is such that an
# emulated processor does more.
step_bandwidth() {
  local rate bs depth
  step "bandwidth of one and of two links"
  for bs in 4k:128:8 128k:16:40; do
    IFS=: read -r bs depth rate <<<"$bs"
    check "each link has $rate Mbit/s" links_are_limited "$rate"
    check "one path" eval "'$ebof' path nvme0 --policy numa && linux_policy numa"
    measured ebof "$device" 1 && measured linux "$linux" 1
    check "both paths" eval "'$ebof' path nvme0 --policy round-robin && linux_policy round-robin"
    measured ebof "$device" 2 && measured linux "$linux" 2
    jq -nr --arg text "$bs QD$depth, $rate Mbit/s each" --argjson e1 "${rates[ebof1]}" --argjson e2 "${rates[ebof2]}" --argjson l1 "${rates[linux1]}" \
      --argjson l2 "${rates[linux2]}" 'def r: . * 100 | round / 100; "\($text): ebof \($e1 | r) and \($e2 | r) MB/s: \($e2 / $e1 | r); Linux \($l1 | r) and \($l2 | r) MB/s: \($l2 / $l1 | r)"' | note
  done
}
declare -A rates=()
measured() { rates[$1$3]=$(reads "$2" "$bs" "$depth"); }
links_are_limited() {
  local number
  for number in 1 2; do
    ip netns exec target tc qdisc replace dev t$number root tbf rate "$1"mbit burst 32k latency 400ms || return 1
  done
}
linux_policy() { echo "$1" >"$(grep -l $served /sys/class/nvme-subsystem/nvme-subsys*/subsysnqn | xargs dirname)/iopolicy"; }
reads() {
  fio --name=read --filename="$1" --rw=randread --bs="$2" --size=48M --iodepth="$3" --ioengine=libaio --direct=1 --time_based --ramp_time=2 \
    --runtime=7 --output-format=json | sed -n '/^{/,$p' | jq '.jobs[0].read.bw_bytes / 1e6'
}
