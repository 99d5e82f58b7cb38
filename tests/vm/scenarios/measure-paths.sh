# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# measure-paths: how long I/O stands still when a path goes, and what two paths bring, with ebof's
# host and Linux' native multipath at the same target, in the same guest and at the same time. A
# measurement, not a test: it has no limits, and is run by name only.
# shellcheck source=host-paths.sh
. "${BASH_SOURCE[0]%/*}/host-paths.sh"
borrowed=(host-paths.sh)

events=${EBOF_VM_ROUNDS:-50}

guest() {
  ebof_in_guest || return
  check "modprobe" modprobe -a ublk_drv veth sch_netem sch_tbf nvme-tcp || return
  check "a network namespace with two links" links || return
  truncate -s 64M /root/disk.img
  truncate -s 64M /root/linux.img
  check "ebof serve listens on both" target_up || return
  nqn=$served
  check "ebof's host has both paths" eval "'$ebof' connect -t tcp -a 10.1.0.1 -s 4420 -n $nqn -c 1 && '$ebof' connect -t tcp -a 10.2.0.1 -s 4420 -n $nqn -c 1" || return
  device=$("$ebof" list -o json | jq -r '.Devices[] | select(.NameSpace == 1).DevicePath')
  linux_connects && linux=$(namespace_device 2)
  check "so has Linux'" test -b "$linux" || return
  step_stalls "the target closes a path" "$events" closes_one opens_both
  step_stalls "a path becomes inaccessible" "$events" is_inaccessible is_optimized
  step_stalls "a link is cut" 5 is_cut is_whole
  step_bandwidth
  check "nvme disconnect" nvme disconnect -n $nqn
  check "ebof disconnect" "$ebof" disconnect -n $nqn
}

# step_stalls TEXT COUNT BEGIN END: the longest command of each host around each event.
step_stalls() {
  local text=$1 count=$2 begin=$3 end=$4 number began job jobs=()
  step "$text, $count times"
  rm -f /tmp/*_clat.log /tmp/events
  began=$(date +%s%3N)
  for job in ebof linux; do
    fio --name=$job --filename="$([[ $job == ebof ]] && echo "$device" || echo "$linux")" --rw=randwrite --bs=4k --size=16M --iodepth=4 \
      --rate_iops=400 --ioengine=libaio --direct=1 --time_based --runtime=$((count * 12 + 10)) --write_lat_log=/tmp/$job --log_avg_msec=50 \
      --log_max_value=1 >/tmp/$job.out 2>&1 &
    jobs+=($!)
  done
  sleep 2
  for ((number = 0; number < count; number++)); do
    echo $(($(date +%s%3N) - began)) >>/tmp/events
    "$begin" >/dev/null 2>&1
    sleep 1.5
    "$end" >/dev/null 2>&1
    until_true 60 linux_is_live
    sleep 0.5
  done
  kill -INT "${jobs[@]}"
  wait "${jobs[@]}"
  for job in ebof linux; do
    # Nanoseconds, by time in milliseconds; an event's window ends before the next one.
    awk -F', *' 'NR == FNR { at[n++] = $1; next }
      { for (i = 0; i < n; i++) if ($1 >= at[i] - 100 && $1 < at[i] + 9000 && (i + 1 == n || $1 < at[i + 1] - 100) && $2 > most[i]) most[i] = $2 }
      END { for (i = 0; i < n; i++) print most[i] / 1e6 }' /tmp/events /tmp/${job}_clat.1.log | sort -n >/tmp/$job.stalls
    echo "$text: $job: median $(sed -n "$(((count + 1) / 2))p" /tmp/$job.stalls) ms, worst $(tail -n 1 /tmp/$job.stalls) ms" | note
  done
}

# Reads of two paths of a limited bandwidth, beside those of one.
step_bandwidth() {
  local number policy
  step "bandwidth of one and of two links of 200 Mbit/s"
  for number in 1 2; do
    ip netns exec target tc qdisc replace dev t$number root tbf rate 200mbit burst 64k latency 50ms
    tc qdisc replace dev h$number root tbf rate 200mbit burst 64k latency 50ms
  done
  echo round-robin >"$(echo /sys/class/nvme-subsystem/nvme-subsys*/iopolicy)"
  local bs depth
  for bs in 128k:16 4k:128; do
    depth=${bs#*:}
    check "one path" "$ebof" path nvme0 --policy numa
    note <<<"${bs%:*} QD$depth: ebof over one: $(reads "$device" "${bs%:*}" "$depth") MB/s"
    check "both paths" "$ebof" path nvme0 --policy round-robin
    note <<<"${bs%:*} QD$depth: ebof over both: $(reads "$device" "${bs%:*}" "$depth") MB/s, Linux over both: $(reads "$linux" "${bs%:*}" "$depth") MB/s"
  done
}
reads() {
  fio --name=read --filename="$1" --rw=randread --bs="$2" --size=32M --iodepth="$3" --ioengine=libaio --direct=1 --time_based --runtime=6 --output-format=json |
    sed -n '/^{/,$p' | jq '.jobs[0].read.bw_bytes / 1e6 | . * 10 | round / 10'
}
