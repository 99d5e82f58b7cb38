# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# paths: one subsystem at two ports of ebof's target, and the Linux kernel's native multipath in a
# guest. The states of ANA groups change while it reads and writes.
# @test wire.ana

served=nqn.2014-08.org.example:paths

machine() {
  needs_ebof || return
  image=$work/disk.img first=$(free_port) second=$(free_port)
  truncate -s 64M "$image"
  configuration >"$work/paths.toml"
  start paths "$ebof" serve --confine all --state "$work/state" --control "$work/control.sock" --config "$work/paths.toml"
  check "ebof serve listens at both ports" until_true 60 reachable "$second" || { note <"$work/paths.log"; return; }
  boot_guest -t 600 -- "$first" "$second"
  check "SIGTERM ends the target with status 0" stop paths TERM 30
  check "it did not panic" eval "! grep -n panicked '$work/paths.log'"
}

configuration() {
  cat <<TOML
[[ports]]
name = "fabric0"
listen = "tcp://127.0.0.1:$first"
referrals = ["tcp://192.0.2.7", { address = "tcp://192.0.2.8:4420", tls = "required" }]
[[ports]]
name = "fabric1"
listen = "tcp://127.0.0.1:$second"
ana = { 1 = "non-optimized" }
[[subsystems]]
nqn = "$served"
allow_any_host = true
namespaces = ["$image", { drive = "mem:32Mi", ana_group = 2 }]
[[drives]]
name = "d0"
backing = "mem:64Mi"
attach = "everyone"
[[subsystems]]
nqn = "$served-drive"
drive = "d0"
allow_any_host = true
TOML
}

# Requests of the guest: a state of a group at a port, a group of a namespace, one more namespace;
# what ebof's host reads.
on_set() { "$ebof" target --control "$work/control.sock" set "$@"; }
on_log() {
  "$ebof" ana-log "nvme+tcp://127.0.0.1:$second/$served" -o json >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
  [[ $(jq -c '[.groups[] | [.grpid, .state]]' "$work/log") == '[[1,"non-optimized"],[2,"optimized"]]' ]]
}
on_refused() {
  ! "$ebof" read "nvme+tcp://127.0.0.1:$second/$served/3" -s 0 -c 7 -z 4096 -d "$work/read" >"$work/refused" 2>&1 || return 1
  cat "$work/refused"
  grep -q 'Asymmetric Access Inaccessible' "$work/refused"
}
on_add() { "$ebof" target --control "$work/control.sock" add namespace "$served" mem:16Mi "$@"; }

guest() {
  address=10.0.2.2 port=$1 nqn=$served
  check "modprobe nvme-tcp" modprobe nvme-tcp || return
  if [[ $(cat /sys/module/nvme_core/parameters/multipath 2>&1) != Y ]]; then
    fail "this kernel has native multipath"
    return
  fi
  step "discovery"
  check "nvme discover" nvme discover -t tcp -a $address -s "$port" -o json
  note <<<"$out"
  check_equal "the log refers to other discovery controllers" '192.0.2.7:8009 192.0.2.8:4420' \
    "$(jq -r '[.records[] | select(.subtype == "referral" or .subtype == "discovery subsystem referral") | "\(.traddr):\(.trsvcid)"] | join(" ")' <<<"$out")"

  step "two paths"
  connects -i 2 -k 5 || return
  first=$controller
  check "nvme connect to the second port" nvme connect -t tcp -a $address -s "$2" -n $nqn -i 2 -k 5 || return
  second=$(controllers $nqn | grep -vx "$first")
  check "$second becomes live" until_true 60 controller_is "$second" live || return
  check_equal "each namespace is one block device" "2" "$(lsblk -dno NAME | grep -c '^nvme')"
  disk=$(namespace_device 1) other=$(namespace_device 2)
  check "the states are those of the configuration" until_true 30 eval "in_state $first 1 optimized && in_state $second 1 non-optimized"
  check_says "nvme list-subsys tells them" "$first.* live optimized" nvme list-subsys "$disk"
  note <<<"$out"
  check_says "nvme ana-log" '^state[[:space:]]*:[[:space:]]*non-optimized' nvme ana-log "/dev/$second" -o normal
  note <<<"$out"
  check "nvme ana-log -o json" nvme ana-log "/dev/$second" -o json
  check_equal "it has both groups with their namespaces" '[[1,"non-optimized",[1]],[2,"optimized",[2]]]' \
    "$(jq -c '[."ANA DESC LIST "[] | [.grpid, .state, [.NSIDS[] | .nsid // .]]]' <<<"$out" 2>&1)"
  check "ebof ana-log has the same" ask log
  check_equal "id-ctrl announces it" '[true,31,128,128]' \
    "$(nvme id-ctrl "/dev/$first" -o json | jq -c '[((.cmic / 8 | floor) % 2 == 1), .anacap, .anagrpmax, .nanagrpid]')"
  check_equal "id-ns has the groups" "1 2" "$(echo "$(nvme id-ns "$disk" -o json | jq .anagrpid)" "$(nvme id-ns "$other" -o json | jq .anagrpid)")"
  kernel_log_is_clean "about the second path"

  step "states change under verified writes"
  { verified_writes "fio verifies while the states change" "$disk" --size=32M --bs=4k --iodepth=16 --time_based --runtime=25 >/tmp/fio 2>&1; echo $? >/tmp/fio.status; } &
  sleep 1
  local turn
  for turn in 1 2 3; do
    check "fabric0 is inaccessible (turn $turn)" ask set port fabric0 ana.1=inaccessible --yes
    check "the kernel knows it" until_true 10 in_state "$first" 1 inaccessible
    check "commands take the other path" until_true 10 moves "$second" "$disk"
    check "fabric0 is optimized again" ask set port fabric0 ana.1=
    check "the kernel knows it" until_true 10 in_state "$first" 1 optimized
    check "commands come back" until_true 10 moves "$first" "$disk"
  done
  check "a transition, on both paths" eval "ask set port fabric0 ana.1=change --yes && ask set port fabric1 ana.1=change --yes"
  check "the kernel knows it" until_true 10 in_state "$second" 1 change
  sleep 2
  check "it ends within ANATT" eval "ask set port fabric0 ana.1= && ask set port fabric1 ana.1=non-optimized"
  check "the kernel knows it" until_true 10 in_state "$first" 1 optimized
  wait %1
  note </tmp/fio
  check_equal "fio has found no error" 0 "$(cat /tmp/fio.status)"
  check_equal "both controllers have stayed" "live live" "$(echo $(cat /sys/class/nvme/{$first,$second}/state))"
  clear_kernel_log
  check_equal "the kernel has failed no I/O" '' "$(grep -E 'I/O error|failing I/O|Buffer I/O' <<<"$kernel_log")"

  step "another group, and a namespace that is added"
  check "namespace 2 gets group 3" ask set namespace $nqn/2 ana_group=3
  check "the kernel knows it" until_true 10 in_group 2 3
  check "a namespace of group 4 is added, which is inaccessible at fabric1" eval "ask set port fabric1 ana.4=inaccessible --yes && ask add ana_group=4"
  check "it has a block device" until_true 20 namespace_device 3
  check "its states are known" until_true 10 eval "in_state $first 3 optimized && in_state $second 3 inaccessible"
  check "it can be read" dd if="$(namespace_device 3)" of=/dev/null bs=4k count=16 iflag=direct
  check "on the path that is not there for it, ebof's host is refused in words" ask refused
  disconnects

  kernel_log_is_clean "at the end of that"

  # Not asked for what follows: a queue may learn of a new namespace after its host does, and
  # refuses the kernel's look at its partitions then.
  step "a drive: its host chooses the group of what it creates"
  nqn=$served-drive
  check "nvme connect" nvme connect -t tcp -a $address -s "$port" -n $nqn -i 2 -k 5 || return
  first=$(controllers $nqn)
  check "$first becomes live" until_true 60 controller_is "$first" live || return
  check "nvme connect to the second port" nvme connect -t tcp -a $address -s "$2" -n $nqn -i 2 -k 5 || return
  second=$(controllers $nqn | grep -vx "$first")
  check "$second becomes live" until_true 60 controller_is "$second" live || return
  check_equal "id-ctrl says that it may" 159 "$(nvme id-ctrl "/dev/$first" -o json | jq .anacap)"
  check "nvme create-ns in group 5" nvme create-ns "/dev/$first" --nsze=0x4000 --ncap=0x4000 --flbas=0 --nmic=1 --anagrp-id=5
  check "it is in that group on both paths" until_true 20 eval "in_group 1 5 && in_state $second 1 optimized"
  check "the box puts it into another group" ask set d0/ns1 ana-group=6
  check "the kernel knows it" until_true 10 in_group 1 6
  check_equal "so does nvme id-ns" 6 "$(nvme id-ns "$(namespace_device 1)" -o json | jq .anagrpid)"
  check "the group is inaccessible at fabric1" ask set port fabric1 ana.6=inaccessible --yes
  check "the kernel knows it" until_true 10 in_state "$second" 1 inaccessible
  check_says "nvme ana-log" '^state[[:space:]]*:[[:space:]]*inaccessible' nvme ana-log "/dev/$second" -o normal
  note <<<"$out"
  check "group 129 is refused" eval "! nvme create-ns /dev/$first --nsze=0x800 --ncap=0x800 --flbas=0 --nmic=1 --anagrp-id=129"
  disconnects
}

# The path device of namespace $2 at controller $1 is in state $3, and $2 in group $3.
# Which number its device has depends on which namespace was found first.
path_of() {
  local nsid
  for nsid in "/sys/class/nvme/$1/"nvme*c*n*/nsid; do
    [[ $(<"$nsid") != "$2" ]] || { echo "${nsid%/nsid}"; return; }
  done
  return 1
}
in_state() { [[ $(cat "$(path_of "$1" "$2")/ana_state") == "$3" ]]; }
in_group() { [[ $(cat "$(path_of "$first" "$1")/ana_grpid") == "$2" ]]; }
# Whether commands go through that controller now.
moves() {
  local before after stat
  stat=$(path_of "$1" 1)/stat
  read -ra before <"$stat"
  sleep 0.3
  read -ra after <"$stat"
  ((after[4] > before[4]))
}
