# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# host-paths: ebof's host with two paths to one block device, in one guest: with ebof's target in a
# network namespace, behind two links that are cut, lose packets or go one way only, and that is
# stopped and killed; and with the kernel's target and its ANA groups.
# @test paths.links
# @test paths.late-writes
# @test host.persistent-discovery

served=nqn.2014-08.org.example:paths
kernel=nqn.2014-08.org.example:kernel

machine() {
  needs_ebof || return
  boot_guest -t $((600 + 60 * rounds)) -m 1536 --
}

guest() {
  local link
  ebof_in_guest || return
  check "modprobe" modprobe -a ublk_drv veth sch_netem nvmet nvmet-tcp || return
  check "a network namespace with two links" links || return
  truncate -s 64M /root/disk.img
  truncate -s 16M /root/linux.img
  check "ebof serve listens on both" target_up || { note </target.log; return; }
  nqn=$served
  # Of rounds the next one begins sooner where no attempt was made in the middle of one.
  local delay=1
  [[ -z ${EBOF_VM_ROUNDS:-} ]] || delay=9
  check "ebof connect over the first link" "$ebof" connect -t tcp -a 10.1.0.1 -s 4420 -n $nqn -k 5 -c $delay || return
  device=$(grep -oE '/dev/ublkb[0-9]+' <<<"$out" | head -n 1)
  check "it makes a block device" test -b "$device" || return
  check_says "ebof connect over the second link makes a path of it" 'nvme0c1, a path of nvme0' \
    "$ebof" connect -t tcp -a 10.2.0.1 -s 4420 -n $nqn -k 5 -c 1 || return
  check_equal "there is one block device for each namespace" 2 "$(lsblk -dno NAME | grep -c ublkb)"
  check_says "ebof list-subsys has both paths" 'nvme0c1 tcp traddr=10.2.0.1,trsvcid=4420 live optimized' "$ebof" list-subsys
  note <<<"$out"
  check_says "ebof show-topology, too" 'nvme0c0 tcp traddr=10.1.0.1,trsvcid=4420 live optimized /dev/ublkb' "$ebof" show-topology
  check_fails "a third time over the same link is refused" 'already connected' "$ebof" connect -t tcp -a 10.2.0.1 -s 4420 -n $nqn
  if [[ ${EBOF_VM_ROUNDS:-} ]]; then step_late_writes; else step_own_target; fi
  check "ebof disconnect" "$ebof" disconnect -n $nqn
  check "SIGTERM ends the target with status 0" stop target TERM 30
  check "it did not panic" eval "! grep -n panicked /target.log"
  [[ ${EBOF_VM_ROUNDS:-} ]] || step_kernel_target
}

# Two links between this namespace (host ends h1, h2) and one of the target's.
links() {
  ip netns add target && ip -n target link set lo up || return 1
  local number
  for number in 1 2; do
    ip link add h$number type veth peer name t$number netns target &&
      ip addr add 10.$number.0.2/24 dev h$number && ip link set h$number up &&
      ip -n target addr add 10.$number.0.1/24 dev t$number && ip -n target link set t$number up || return 1
  done
}
target_up() {
  cat >/root/paths.toml <<TOML
[[ports]]
name = "fabric0"
listen = "tcp://10.1.0.1:4420"
[[ports]]
name = "fabric1"
listen = "tcp://10.2.0.1:4420"
[[subsystems]]
nqn = "$served"
allow_any_host = true
cntlid_max = 1000
namespaces = ["/root/disk.img", "/root/linux.img"]
TOML
  start target ip netns exec target "$ebof" serve --confine all --state /root/state --control /root/control.sock --config /root/paths.toml
  until_true 30 eval "reached 1 && reached 2"
}
reached() { timeout 1 bash -c "</dev/tcp/10.$1.0.1/4420"; }

# during TEXT LIMIT-MS BEGIN END: what is written during it reads back, and nothing takes longer.
# BEGIN is done after a second, and END three seconds later.
during() {
  local text=$1 limit=$2 begin=$3 end=$4 status=0 longest job
  step "$text"
  fio --name=paths --filename="$device" --rw=randwrite --bs=4k --size=8M --iodepth=8 --rate_iops=2000 --time_based --runtime=6 \
    --ioengine=libaio --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 --output-format=json --output=/tmp/fio.json >/tmp/fio.out 2>&1 &
  job=$!
  sleep 1
  check "it begins" "$begin"
  sleep 3
  check "it ends" "$end"
  wait $job || status=$?
  check_equal "no command has failed, and what was written reads back" 0 $status || note </tmp/fio.out
  # Remarks are before the JSON.
  longest=$(sed -n '/^{/,$p' /tmp/fio.json | jq '.jobs[0].write.clat_ns.max / 1e6 | floor')
  note <<<"the longest write: $longest ms"
  check "no write has taken longer than $limit ms" test "$longest" -le "$limit"
}
target_set() { "$ebof" target --control /root/control.sock set "$@"; }
is_inaccessible() { target_set port fabric0 ana.1=inaccessible --yes; }
is_optimized() { target_set port fabric0 ana.1=; }
closes_one() { target_set subsystem $served ports='["fabric1"]' --yes; }
opens_both() { target_set subsystem $served ports='["fabric0","fabric1"]' --yes && until_true 60 both_live; }
both_live() { [[ $("$ebof" path nvme0 -o json | jq -c '[.Paths[].State]') == '["live","live"]' ]]; }
here() { tc qdisc replace dev h1 root netem "$@"; }
there() { ip netns exec target tc qdisc replace dev t1 root netem "$@"; }
is_cut() { here loss 100% && there loss 100%; }
goes_one_way() { there loss 100%; }
loses_packets() { here loss 5% && there loss 5%; }
is_whole() {
  tc qdisc del dev h1 root 2>/dev/null
  ip netns exec target tc qdisc del dev t1 root 2>/dev/null
  until_true 60 both_live
}
stops() { kill -STOP "${process[target]}"; }
continues() { kill -CONT "${process[target]}" && until_true 60 both_live; }
dies() {
  stop target KILL 30
  sleep 1
  target_up
}
is_back() { until_true 60 both_live; }

step_own_target() {
  during "the access changes" 1000 is_inaccessible is_optimized
  during "the target closes a path" 1500 closes_one opens_both
  during "a link is cut" 4000 is_cut is_whole
  during "a link goes one way only" 4000 goes_one_way is_whole
  during "a link loses packets" 4000 loses_packets is_whole
  during "the target stops for a while" 8000 stops continues
  during "the target is killed, and started again" 8000 dies is_back
  step_late_writes
  local policy
  for policy in round-robin queue-depth latency numa; do
    check "ebof path --policy $policy" "$ebof" path nvme0 --policy $policy
    verified_writes "fio verifies with it" "$device" --bsrange=4k-128k --size=16M --iodepth=16
  done
  note < <("$ebof" path nvme0)
}

# Writes that a link delays until after they were repeated over the other one, and the blocks were
# written again: they must not be executed then. With Linux' host they are, on its own namespace.
rounds=${EBOF_VM_ROUNDS:-1}
step_late_writes() {
  local round linux jobs stale_rounds=0 linux_rounds=0 stale arrived byte seen=0
  step "late writes"
  check "modprobe nvme-tcp" modprobe nvme-tcp
  check "the first link is the one to use" target_set port fabric1 ana.1=non-optimized
  linux_kato=30 linux_connects && linux=$(namespace_device 2)
  check "Linux' host has its namespace over both links" test -b "$linux" || return
  for byte in 0x00 0xaa 0xbb; do head -c 20k /dev/zero | tr '\0' "\\$(printf %o $byte)" >"/tmp/$byte"; done
  # Whoever looks at new devices has looked at them then.
  filled "$device" 0x00
  filled "$linux" 0x00
  udevadm settle
  for ((round = 1; round <= rounds; round++)); do
    check "ebof's host uses the first link" until_true 60 ebof_uses_first
    here delay 8s limit 10000
    arrived=$((EPOCHSECONDS + 10))
    jobs=()
    filled "$device" 0xaa &
    jobs+=($!)
    # Linux' host needs longer.
    if ((round % 5 == 1)); then
      linux_rounds=$((linux_rounds + 1))
      filled "$linux" 0xaa &
      jobs+=($!)
    fi
    # Seen while nobody else needs the processor.
    ! until_true 5 ebof_sends || seen=$((seen + 1))
    # What was sent is on its way; what tells of the end comes after it. Ours notices by itself.
    if ((round % 5 == 1)) && until_true 20 linux_sends; then
      linux_has_sent=yes
      check "Linux' host has sent writes over the first link, and gives it up" linux_gives_up
    fi
    wait "${jobs[@]}"
    filled "$device" 0xbb
    if ((round % 5 == 1)); then
      filled "$linux" 0xbb
      arrived=$((EPOCHSECONDS + 9))
    fi
    until_true 20 eval "((EPOCHSECONDS >= arrived))"
    check_equal "round $round: no block of $device is an old one" 0 "$(old_blocks "$device")"
    if ((round % 5 == 1)); then
      stale=$(old_blocks "$linux")
      note <<<"of 50 blocks that Linux' host wrote in the same way, $stale are old ones"
      ((stale == 0)) || stale_rounds=$((stale_rounds + 1))
    fi
    check "the link is as before" is_whole
    check "Linux has both paths" until_true 60 linux_is_live
  done
  check "both links are" target_set port fabric1 ana.1=
  note <<<"writes of ebof's host were seen on their way over the first link in $seen of $rounds rounds"
  check "in some of them" test $seen -gt 0
  note <<<"Linux' host has old blocks after $stale_rounds of $linux_rounds rounds"
  # It does in about half of the rounds.
  if [[ ${linux_has_sent:-no} == yes ]] && ((stale_rounds > 0 || linux_rounds >= 10)); then
    check "the trial is one: Linux' host has old blocks" test "$stale_rounds" -gt 0
  else
    skip "Linux' host in the same trial" "its writes were not late in $linux_rounds rounds: EBOF_VM_ROUNDS=50 shows it"
  fi
  check "nvme disconnect" nvme disconnect -n $served
}
linux_connects() {
  nqn=$served
  local link
  for link in 1 2; do
    check "nvme connect over link $link" linux_connects_over $link || return
  done
  until_true 60 linux_is_live && until_true 30 namespace_device 2
}
linux_connects_over() {
  nvme connect -t tcp -a "10.$1.0.1" -s 4420 -n $served -q nqn.2014-08.org.example:linux -I 00112233-4455-6677-8899-aabbccddeeff \
    -k "${linux_kato:-5}" -c 1 -i 1
}
linux_is_live() { [[ $(cat /sys/class/nvme/nvme*/state | sort | uniq -c | xargs) == "2 live" ]]; }
# 50 blocks by 10 writes at once, quickly: of the byte $2.
filled() {
  local number writes=()
  for number in {0..9}; do
    timeout 60 dd if="/tmp/$2" of="$1" bs=20k seek="$number" oflag=direct status=none &
    writes+=($!)
  done
  wait "${writes[@]}" || echo "$1 is not filled"
}
ebof_first() { "$ebof" path nvme0 -o json | jq ".Paths[] | select(.Address | contains(\"10.1.0.1\")) | .$1"; }
ebof_uses_first() {
  local before
  before=$(ebof_first Completed)
  # Behind the blocks that are judged.
  dd if=/dev/zero of="$device" bs=4k seek=60 count=4 oflag=direct status=none
  [[ $(ebof_first Completed) -gt $before ]]
}
ebof_sends() { [[ $(ebof_first Outstanding) -gt 0 ]]; }
linux_first() { grep -l traddr=10.1.0.1 /sys/class/nvme/nvme*/address | xargs dirname; }
# Numbers of devices are not those of namespaces. Linux 7.3 counts at the device over all paths
# only.
linux_sends() {
  local nsid
  [[ $(awk '{ print $2 }' "/sys/block/${linux##*/}/inflight") == 0 ]] || return 0
  for nsid in "$(linux_first)"/nvme*c*n*/nsid; do
    [[ $(<"$nsid") != 2 ]] || [[ $(awk '{ print $2 }' "${nsid%nsid}inflight") -gt 0 ]] || return 1
  done
}
linux_gives_up() { echo 1 >"$(linux_first)/reset_controller" & }
old_blocks() { dd if="$1" bs=4k count=50 iflag=direct status=none | od -An -v -tx1 -w4096 | grep -c '^ aa'; }

step_kernel_target() {
  step "the kernel's target with ANA groups"
  nqn=$kernel
  check "a RAM disk" modprobe brd rd_nr=1 rd_size=$((64 * 1024)) || return
  check "nvmet: a subsystem" nvmet_subsystem $nqn /dev/ram0
  check "nvmet: two ports" eval "nvmet_port 1 tcp 127.0.0.1 4421 $nqn && nvmet_port 2 tcp 127.0.0.1 4422 $nqn" || return
  check "ebof connect to the first" "$ebof" connect -t tcp -a 127.0.0.1 -s 4421 -n $nqn -c 1 || return
  device=$(grep -oE '/dev/ublkb[0-9]+' <<<"$out" | head -n 1)
  check "ebof connect to the second" "$ebof" connect -t tcp -a 127.0.0.1 -s 4422 -n $nqn -c 1 || return
  during "the access changes" 1000 kernel_inaccessible kernel_optimized
  during "the kernel closes a path" 1500 kernel_closes kernel_opens
  check "the RAM disk has what is read" eval "cmp $device /dev/ram0"
  check "ebof disconnect" "$ebof" disconnect -n $nqn
  step_kernel_discovery
  nvmet_clear
}

# The kernel's discovery service, held by connect-all: its events add and remove paths and
# subsystems. Its first port refers to the second.
step_kernel_discovery() {
  step "the kernel's discovery service, held by connect-all --persistent"
  local later=nqn.2014-08.org.example:later referral=$nvmet/ports/1/referrals/second
  check "nvmet: the second port has no subsystem, and the first one refers to it" eval "rm $nvmet/ports/2/subsystems/$nqn &&
    mkdir $referral && echo tcp >$referral/addr_trtype && echo ipv4 >$referral/addr_adrfam &&
    echo 127.0.0.1 >$referral/addr_traddr && echo 4422 >$referral/addr_trsvcid && echo 1 >$referral/enable" || return
  start held "$ebof" connect-all --persistent --vanished disconnect -t tcp -a 127.0.0.1 -s 4421 -c 1
  check "it connects what is listed" until_true 60 paths_are 127.0.0.1:4421 || { note </held.log; return; }
  check "it holds the service that is referred to" until_true 60 grep -q 'port 4422' /held.log
  check "nvmet: the subsystem is at the second port, too" ln -s "$nvmet/subsystems/$nqn" "$nvmet/ports/2/subsystems/"
  check "another path is added" until_true 90 paths_are 127.0.0.1:4421 127.0.0.1:4422 || note </held.log
  check "nvmet: another subsystem, at the first port" eval "nvmet_subsystem $later /dev/ram0 && ln -s $nvmet/subsystems/$later $nvmet/ports/1/subsystems/"
  check "its event has it connected" until_true 20 is_listed $later || note </held.log
  udevadm settle # it reads what is new, and what is open is not taken away
  check "nvmet: it is taken from the port" rm "$nvmet/ports/1/subsystems/$later"
  check "its event has it disconnected" until_true 20 eval "! is_listed $later" || note </held.log
  check "the paths of the first one are as before" paths_are 127.0.0.1:4421 127.0.0.1:4422
  note </held.log
  check "SIGTERM ends it with status 0" stop held TERM 30
  check "what is connected stays" paths_are 127.0.0.1:4421 127.0.0.1:4422
  check "ebof disconnect-all" "$ebof" disconnect-all
  rmdir "$referral"
}
paths_are() {
  local there
  there=$("$ebof" list-subsys | grep " live" | grep -oE 'traddr=[^ ]*' | sed 's/traddr=//; s/,trsvcid=/:/' | sort | xargs)
  [[ $there == "$*" ]]
}
is_listed() { "$ebof" list-subsys | grep -qF "$1"; }
kernel_inaccessible() { echo inaccessible >"$nvmet/ports/1/ana_groups/1/ana_state"; }
kernel_optimized() { echo optimized >"$nvmet/ports/1/ana_groups/1/ana_state"; }
kernel_closes() { rm "$nvmet/ports/1/subsystems/$kernel"; }
kernel_opens() { ln -s "$nvmet/subsystems/$kernel" "$nvmet/ports/1/subsystems/" && until_true 60 both_live; }
