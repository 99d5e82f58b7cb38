#!/bin/bash
# systemd.sh: what a guest with systemd runs when it has booted (vm-script.service). It runs
# /ctl/script.sh with its output on the virtio console, and ends QEMU with the script's status,
# unless that has the guest reboot: the next boot runs the script again.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C TERM=linux

# Ends QEMU, as init.sh does.
finish() {
  local status=$1 code
  ((status <= 31)) || status=31
  sync
  printf -v code '\\x%02x' $((32 | status))
  # shellcheck disable=SC2059 # the format is the byte
  printf "$code" | dd of=/dev/port bs=1 seek=$((0xf4)) conv=notrunc status=none
}

modprobe -q -a virtio_console 9pnet_virtio
until [[ -c /dev/hvc0 ]]; do sleep 0.1; done
mountpoint -q /host || mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=131072,ro host /host
status=0
bash /ctl/script.sh </dev/null >/dev/hvc0 2>&1 || status=$?
if [[ -e /ctl/rebooting ]]; then
  rm /ctl/rebooting
  echo 'vm: the reboot is asked for' >/dev/kmsg
  systemctl --no-block reboot
else
  finish $status
fi
