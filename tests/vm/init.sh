#!/bin/bash
# init.sh: the first process of a guest. vm.sh copies it to the control directory, from where the
# initial RAM disk starts it.
#
# It sets the guest up, runs /ctl/script.sh with its output on the virtio console, and ends
# QEMU with the script's status. Kernel arguments it understands: vm.name=, vm.args= (words joined
# by commas), vm.ip1= (address of a second interface), vm.shell (no script, a shell on the first
# serial port).
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C TERM=linux

# A guest with systemd runs its script itself (systemd.sh).
if [[ -e /proc/cmdline ]] || mount -t proc proc /proc; then
  ! grep -qw vm.systemd /proc/cmdline || exec /usr/lib/systemd/systemd
fi

# Prints the value of one kernel argument.
argument() {
  local word
  for word in $(</proc/cmdline); do
    [[ $word != "$1="* ]] || echo "${word#*=}"
  done
}

# Ends QEMU. Its exit status is twice the value written plus one: bit 5 distinguishes a guest's
# status from an error of QEMU.
finish() {
  local status=$1 code
  ((status <= 31)) || status=31
  sync
  printf -v code '\\x%02x' $((32 | status))
  # shellcheck disable=SC2059 # the format is the byte
  printf "$code" | dd of=/dev/port bs=1 seek=$((0xf4)) conv=notrunc status=none
  echo o >/proc/sysrq-trigger # no debug-exit device: power off
  sleep 10
}

mount -t devtmpfs dev /dev
mountpoint -q /proc || mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
for directory in /dev/shm /run /tmp; do mount -t tmpfs tmp $directory; done
ln -s /proc/self/fd /dev/fd
for number in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${number%:*}" "/dev/${number#*:}"; done
modprobe -a configfs virtio_console virtio_net
mount -t configfs config /sys/kernel/config
mount -t debugfs debug /sys/kernel/debug

name=$(argument vm.name)
hostname "${name:=guest}"
# Host NQN and host identifier are derived from the name, so they are the same in each boot.
id=$(sha256sum <<<"$name")
id=${id:0:8}-${id:8:4}-4${id:13:3}-a${id:17:3}-${id:20:12}
echo "$id" >/etc/nvme/hostid
echo "nqn.2014-08.org.nvmexpress:uuid:$id" >/etc/nvme/hostnqn

/usr/lib/systemd/systemd-udevd --daemon
udevadm trigger --action=add --subsystem-match=block --subsystem-match=misc --subsystem-match=net

# The user network: the machine's 127.0.0.1 is 10.0.2.2 here.
ip link set lo up
if [[ -e /sys/class/net/eth0 ]]; then
  ip address add 10.0.2.15/24 dev eth0
  ip link set eth0 up
  ip route add default via 10.0.2.2
fi
if [[ -e /sys/class/net/eth1 ]]; then
  ip link set eth1 up
  ip1=$(argument vm.ip1)
  [[ -z $ip1 ]] || ip address add "$ip1" dev eth1
fi

! grep -qs host /sys/bus/virtio/drivers/9pnet_virtio/*/mount_tag ||
  mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=131072,ro host /host

# A shell for debugging, on the second serial port; job control needs a terminal of its own.
[[ ! -c /dev/ttyS1 ]] || (while sleep 1; do TERM=dumb setsid --ctty bash -l -i </dev/ttyS1 >/dev/ttyS1 2>&1; done) &

cd /root || finish 31
if grep -qw vm.shell /proc/cmdline; then
  setsid --ctty bash -l -i </dev/ttyS0 >/dev/ttyS0 2>&1
  finish 0
fi
console=/dev/hvc0
[[ -c $console ]] || console=/dev/ttyS0
IFS=, read -ra arguments <<<"$(argument vm.args)"
setsid bash /ctl/script.sh "${arguments[@]}" </dev/null >"$console" 2>&1
finish $?
