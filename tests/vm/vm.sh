#!/bin/bash
# vm.sh: boots one guest, runs a script in it, prints its output, and exits with its status.
#
# vm.sh [options] SCRIPT [ARGUMENT...] [-- QEMU-ARGUMENT...]      vm.sh -i [options]      (a shell in the guest)
#   -s DIR        share DIR with the guest, read-only, at /host
#   -c DIR        control directory, read-write in the guest at /ctl (default: a new one, removed after success)
#   -f PORT:PORT  forward a port of the machine's 127.0.0.1 to one of the guest's; may be repeated
#   -e LOCAL:REMOTE:ADDRESS  eth1 on an Ethernet with another guest, which has the ports exchanged: UDP on the machine's
#                 127.0.0.1 carries its frames from port LOCAL to port REMOTE. ADDRESS is like
#                 10.7.0.1/24
#   -t SECONDS    wall-clock limit (300); after it the guest is killed and the status is 124
#   -m MIB        memory (1024)
#   -p            a thread of the machine for each of the guest's two processors, for measurements
#   -u SOCKET     an NVMe controller behind that socket of vfio-user, which is there already; may be repeated. The guest
#                 then runs in the QEMU of setup-qemu.sh, and its memory is shared with the other
#                 end. There is an empty port "spare" for another one, and the control directory has
#                 a socket "qmp"
#   -H            with -u: its memory is in huge pages of 2 MiB, which the machine has to have
#   -S            a guest that systemd runs (setup-systemd.sh), which may reboot: the script runs after each boot
#   -k ARGUMENTS  more kernel arguments
#   -n NAME       the guest's name: host name, host NQN (guest)
#
# The status is the script's (31 if it is higher), 124 after the time limit, 125 if the guest ended
# without one, 134 if QEMU aborted twice (its emulation aborts very rarely: the guest is started
# again, unless EBOF_VM_RETRY=0). After a failure the last lines of the guest's kernel log are
# printed, and the control directory is kept. It has kernel.log and, while the guest runs, the
# sockets "shell" (tools/bin/socat -,raw,echo=0 UNIX-CONNECT:DIR/shell) and "monitor" (QEMU's).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${EBOF_VM_CACHE:-${HOME:?}/.cache/ebof-vm}
share='' control='' forwards='' ethernet='' limit=300 memory=1024 kernel_arguments='' name=guest interactive='' threads=single sockets=() huge='' systemd=''
while getopts is:c:f:e:t:m:pu:HSk:n: option; do
  case $option in
    i) interactive=yes limit=86400 ;;
    s) share=$(cd "$OPTARG" && pwd) ;;
    c) control=$(cd "$OPTARG" && pwd) ;;
    f) forwards+=,hostfwd=tcp:127.0.0.1:${OPTARG%:*}-:${OPTARG#*:} ;;
    e) ethernet=$OPTARG ;;
    t) limit=$OPTARG ;;
    m) memory=$OPTARG ;;
    p) threads=multi ;;
    u) sockets+=("$OPTARG") ;;
    H) huge=,hugetlb=on,hugetlbsize=2M ;;
    S) systemd=yes ;;
    k) kernel_arguments=$OPTARG ;;
    n) name=$OPTARG ;;
    *) sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[[ -f $cache/stamp ]] || { echo "vm.sh: run ${here}/setup.sh first" >&2; exit 2; }

own_control=''
if [[ -z $control ]]; then
  mkdir -p "$cache/run"
  control=$(mktemp -d "$cache/run/$name.XXXXXX")
  own_control=yes
fi
cp "$here"/{init,lib,host,links,systemd}.sh "$control/"
chmod +x "$control/init.sh"
arguments=()
if [[ -z $interactive ]]; then
  cp "${1:?a script to run}" "$control/script.sh"
  shift
  while (($#)) && [[ $1 != -- ]]; do
    arguments+=("$1")
    shift
  done
fi
[[ ${1:-} != -- ]] || shift
kernel_arguments+=" vm.name=$name vm.args=$(IFS=,; echo "${arguments[*]}")"

# One thread emulates both processors: on few cores this is as fast as one thread each, which also
# aborts now and then. But a program that spins then takes the other processor's time, too, for up
# to 100 ms.
# A machine that is busy at the wrong moment has the kernel measure the processor's clock by the PIT
# so wrong that the guest's time passes five times as fast. Without a PIT it uses the HPET.
# shellcheck disable=SC2054 # the commas are QEMU's
# Only disk, network, console and files are paravirtual. Mitigations would only cost time here.
qemu=(
  "$cache/tools/bin/qemu" -L "$cache/tools/usr/share/qemu" -L "$cache/tools/usr/share/seabios"
  -machine q35,pit=off -cpu max -smp 2 -m "$memory" -accel tcg,thread=$threads,tb-size=512
  -nodefaults -display none -vga none -no-reboot
  -kernel "$cache/kernel/vmlinuz" -initrd "$cache/kernel/initrd.gz"
  -drive "file=$cache/root.ext4,format=raw,if=none,id=root,snapshot=on,cache=unsafe" -device virtio-blk-pci,drive=root
  -virtfs "local,path=$control,mount_tag=ctl,security_model=none"
  -netdev "user,id=net0,net=10.0.2.0/24$forwards" -device virtio-net-pci,netdev=net0,mac=52:54:00:00:00:01,romfile=
  -device virtio-serial-pci -device isa-debug-exit,iobase=0xf4,iosize=0x04
)
if [[ -n $systemd ]]; then
  [[ -f $cache/systemd/stamp ]] || { echo "vm.sh: run ${here}/setup-systemd.sh first" >&2; exit 2; }
  qemu=("${qemu[@]/#file=$cache\/root.ext4/file=$cache/systemd/root.ext4}")
  # A reboot stays in this QEMU, and keeps the guest's changes.
  for number in "${!qemu[@]}"; do [[ ${qemu[number]} != -no-reboot ]] || unset "qemu[$number]"; done
  qemu=("${qemu[@]}")
  kernel_arguments+=' vm.systemd'
fi
if [[ -n $ethernet ]]; then
  IFS=: read -r from to ip1 <<<"$ethernet"
  kernel_arguments+=" vm.ip1=$ip1"
  # shellcheck disable=SC2054
  qemu+=(
    -netdev "dgram,id=net1,local.type=inet,local.host=127.0.0.1,local.port=$from,remote.type=inet,remote.host=127.0.0.1,remote.port=$to"
    -device "virtio-net-pci,netdev=net1,mac=52:54:00:00:$(printf '%02x:%02x' $((from >> 8)) $((from & 255))),romfile="
  )
fi
if ((${#sockets[@]})); then
  [[ -x $cache/qemu/bin/qemu ]] || { echo "vm.sh: run ${here}/setup-qemu.sh first" >&2; exit 2; }
  # In place of the other one and its directories.
  qemu=("$cache/qemu/bin/qemu" "${qemu[@]:5}")
  # Sealed against shrinking, which is QEMU's default for such memory.
  qemu+=(-object "memory-backend-memfd,id=mem,size=${memory}M,share=on$huge" -machine memory-backend=mem)
  for number in "${!sockets[@]}"; do
    # shellcheck disable=SC2054
    qemu+=(
      -device "pcie-root-port,id=port$number,chassis=$((number + 1)),slot=$((number + 1))"
      -device "{\"driver\":\"vfio-user-pci\",\"bus\":\"port$number\",\"socket\":{\"path\":\"${sockets[number]}\",\"type\":\"unix\"}}"
    )
  done
  # shellcheck disable=SC2054
  qemu+=(-device pcie-root-port,id=spare,chassis=99,slot=99 -qmp "unix:$control/qmp,server=on,wait=off")
fi
[[ -z $share ]] || qemu+=(-virtfs "local,path=$share,mount_tag=host,security_model=none,readonly=on")
if [[ -n $interactive ]]; then
  qemu+=(-serial mon:stdio)
  kernel_arguments+=' vm.shell'
else
  # shellcheck disable=SC2054
  qemu+=(
    -serial "file:$control/kernel.log" -serial "unix:$control/shell,server=on,wait=off"
    -monitor "unix:$control/monitor,server=on,wait=off"
    -chardev stdio,id=out,signal=off -device virtconsole,chardev=out
  )
fi
qemu+=(
  -append "console=ttyS0 loglevel=6 panic=-1 net.ifnames=0 nokaslr mitigations=off tsc=reliable no_timer_check
 random.trust_cpu=on apparmor=0 audit=0 raid=noautodetect $kernel_arguments"
  "$@"
)

# QEMU runs in the background so that a signal to this script ends it immediately.
boot() {
  local status=0
  if [[ -n $interactive ]]; then
    "${qemu[@]}" || status=$?
    return $status
  fi
  timeout -k 5 "$limit" "${qemu[@]}" </dev/null &
  qemu_pid=$!
  wait $qemu_pid || status=$?
  qemu_pid=''
  return $status
}
qemu_pid=''
trap '[[ -z $qemu_pid ]] || kill "$qemu_pid"' EXIT
trap 'exit 143' INT TERM HUP

status=0
boot || status=$?
if [[ $status == 134 && ${EBOF_VM_RETRY:-1} != 0 ]]; then
  echo "vm.sh: QEMU aborted; trying again" >&2
  status=0
  boot || status=$?
fi
case $status in
  124 | 137) echo "vm.sh: $name did not end within $limit s" >&2; status=124 ;;
  134) echo "vm.sh: QEMU aborted" >&2 ;;
  0) [[ -n $interactive ]] || { echo "vm.sh: $name ended without a status" >&2; status=125; } ;;
  *)
    if ((status >= 65 && status <= 127 && status % 2)); then
      status=$((status / 2 - 32))
    else
      echo "vm.sh: QEMU failed with status $status" >&2
      status=125
    fi
    ;;
esac
if ((status != 0)) && [[ -s $control/kernel.log ]]; then
  echo "vm.sh: the end of $name's kernel log ($control/kernel.log):" >&2
  tail -n 40 "$control/kernel.log" | sed 's/^/    | /' >&2
elif [[ -n $own_control ]]; then
  rm -rf "$control"
fi
exit $status
