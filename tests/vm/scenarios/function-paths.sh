# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# function-paths: functions of a drive as paths of the Linux kernel's native multipath in a guest.
# One function is at two ports, leaves one and comes back to it while the guest writes; two
# functions of another drive are controllers of one subsystem, and share a namespace.
# @test drive.function-paths
# @test drive.one-subsystem

apart=nqn.2014-08.org.example:apart
together=nqn.2014-08.org.example:together

machine() {
  needs_ebof || return
  first=$(free_port) second=$(free_port) third=$(free_port)
  configuration >"$work/box.toml"
  start box "$ebof" serve --confine all --state "$work/state" --control "$work/control.sock" --config "$work/box.toml"
  check "ebof serve listens at all ports" until_true 60 reachable "$third" || { note <"$work/box.log"; return; }
  check "a namespace for the function at two ports" target add namespace d0 48Mi --shared --attach d0/vf1
  check "one for two functions of the other drive" target add namespace d1 48Mi --shared --attach d1/vf1 --attach d1/vf2
  check "d0/vf1 is given to fabric0 and fabric1" target assign d0/vf1 --port fabric0,fabric1
  check "d1/vf1 to fabric0" target assign d1/vf1 --port fabric0
  check "d1/vf2 to fabric1" target assign d1/vf2 --port fabric1
  boot_guest -t 600 -- "$first" "$second"
  check "SIGTERM ends the target with status 0" stop box TERM 30
  check "it did not panic" eval "! grep -n panicked '$work/box.log'"
}

target() { "$ebof" target --control "$work/control.sock" "$@"; }

configuration() {
  cat <<TOML
[[ports]]
name = "fabric0"
listen = "tcp://127.0.0.1:$first"
[[ports]]
name = "fabric1"
listen = "tcp://127.0.0.1:$second"
[[ports]]
name = "managers"
listen = "tcp://127.0.0.1:$third"
TOML
  local drive nqn more
  for drive in d0 d1; do
    [[ $drive == d0 ]] && nqn=$apart more= || { nqn=$together more="one_subsystem = true"; }
    cat <<TOML
[[drives]]
name = "$drive"
backing = "mem:128Mi"
functions = 2
$more
[[subsystems]]
nqn = "$nqn"
allow_any_host = true
ports = ["managers"]
drive = "$drive"
TOML
  done
}

# Requests of the guest.
on_assign() { target assign d0/vf1 --port "$1"; }
on_move() { target move d0/vf1 --to "$1" --yes; }

guest() {
  address=10.0.2.2 port=$1 nqn=$apart:vf1
  check "modprobe nvme-tcp" modprobe nvme-tcp || return
  if [[ $(cat /sys/module/nvme_core/parameters/multipath 2>&1) != Y ]]; then
    fail "this kernel has native multipath"
    return
  fi
  step "one function, two ports"
  connects -i 2 -k 5 || return
  one=$controller
  second_path "$2" || return
  disk=$(namespace_device 1)
  check_equal "the namespace is one block device" "1" "$(lsblk -dno NAME | grep -c '^nvme')"
  check_says "nvme list-subsys has both paths" "$other.* live optimized" nvme list-subsys "$disk"
  note <<<"$out"
  kernel_log_is_clean "about the second path"

  step "it leaves ports under verified writes"
  { verified_writes "fio verifies while paths come and go" "$disk" --size=32M --bs=4k --iodepth=16 --time_based --runtime=25 >/tmp/fio 2>&1; echo $? >/tmp/fio.status; } &
  sleep 1
  local turn
  for turn in 1 2 3; do
    check "it leaves fabric1 (turn $turn)" ask move fabric0
    check "commands take fabric0" until_true 10 moves "$one"
    check_equal "the controller there has stayed" live "$(cat "/sys/class/nvme/$one/state")"
    check "it comes back to fabric1" ask assign fabric0,fabric1
    nvme disconnect -d "/dev/$other" >/dev/null 2>&1
    second_path "$2"
  done
  wait %1
  note </tmp/fio
  check_equal "fio has found no error" 0 "$(cat /tmp/fio.status)"
  clear_kernel_log
  check_equal "the kernel has failed no I/O" '' "$(grep -E 'I/O error|Buffer I/O' <<<"$kernel_log")"
  disconnects

  step "two functions, one subsystem"
  nqn=$together
  connects -i 2 -k 5 || return
  one=$controller
  second_path "$2" || return
  disk=$(namespace_device 1)
  check_equal "the namespace that they share is one block device" "1" "$(lsblk -dno NAME | grep -c '^nvme')"
  check_equal "both are paths to it" "2" "$(nvme list-subsys "$disk" | grep -c ' live')"
  clear_kernel_log
  check_equal "the kernel has refused none" '' "$(grep -i 'duplicate IDs' <<<"$kernel_log")"
  check "fio verifies on both" verified_writes "two functions" "$disk" --size=32M --bs=4k --iodepth=16
  disconnects
}

# Connects to the other port, too: its controller is $other.
second_path() {
  check "nvme connect to the second port" nvme connect -t tcp -a $address -s "$1" -n "$nqn" -i 2 -k 5 || return
  other=$(controllers "$nqn" | grep -vx "$one")
  check "$other becomes live" until_true 60 controller_is "$other" live
}

# Whether commands go through that controller now.
moves() {
  local before after stat
  stat=$(echo "/sys/class/nvme/$1/"nvme*c*n*/stat)
  read -ra before <"$stat"
  sleep 0.3
  read -ra after <"$stat"
  ((after[4] > before[4]))
}
