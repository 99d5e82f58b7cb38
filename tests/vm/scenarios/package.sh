# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh and run.sh, which read this file
# package: the Debian package in a machine that systemd runs: installed, configured and reloaded,
# upgraded under I/O, connected and mounted at boot, rebooted with the target away, removed and
# purged. Three boots of one guest; $work/ctl/stage says which one it is.
# @test hostile.watchdog
# @test host.forced-disconnect

remote=nqn.2014-08.org.example:remote
local=nqn.2014-08.org.example:local
wanted=/run/systemd/generator/remote-fs.target.wants/ebof-connect.service

# ---- on the machine

machine() {
  needs_ebof || return
  needs_systemd || return
  check "the package is built" build_packages || return
  port=$(free_port)
  echo "$port" >"$work/ctl/port"
  truncate -s 64M "$work/remote.img"
  check "a file system for the remote drive" mke2fs -q -F -t ext4 -L remote "$work/remote.img" || return
  on_start_target || fail "the remote target starts"
  boot_guest -S -t 1200 --
}

# The package of this binary, and the same with a higher version.
build_packages() {
  local deb=$work/deb
  if [[ -n ${EBOF_DEB:-} ]]; then
    cp "$EBOF_DEB" "$work/share/ebof.deb" || return
  else
    "$repository/scripts/deb.sh" -b "$(dirname "$ebof")" -o "$deb" || return
    mv "$deb"/ebof_*.deb "$work/share/ebof.deb"
  fi
  dpkg-deb -R "$work/share/ebof.deb" "$work/next" || return
  sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
  dpkg-deb --root-owner-group -Znone -b "$work/next" "$work/share/next.deb" || return
  rm -r "$work/next" "$deb" 2>/dev/null || true
}

on_start_target() {
  start remote "$ebof" serve --listen "tcp://127.0.0.1:$port" --nqn "$remote" --allow-any-host --control none "$work/remote.img"
  until_true 30 reachable "$port"
}
on_stop_target() { stop remote TERM 20; }

# ---- in the guest

guest() {
  local stage=1
  [[ ! -e /ctl/stage ]] || stage=$(</ctl/stage)
  asked=$((stage * 1000)) # answers of earlier boots are still there
  port=$(</ctl/port)
  check "the machine has booted" until_true 120 booted
  ((stage == 1)) || took_to_shut_down
  "boot_$stage"
  ((failed == 0)) || explain_units
  # Checks that failed in an earlier boot count at the end.
  ((failed == 0)) || touch /ctl/failed
  [[ ! -e /ctl/failed ]] || failed=1
}
# While the remote target is away, the job of its mount waits for it: the system is "starting" for
# as long.
booted() { is_active multi-user.target && { ((stage == 3)) || [[ $(systemctl is-system-running) =~ running|degraded ]]; }; }
# next_boot STAGE: has the guest reboot when this stage has ended.
next_boot() {
  echo "$1" >/ctl/stage
  touch /ctl/rebooting
}
explain_units() { journalctl -b --no-pager -o short-monotonic -u 'ebof*' -u '*.mount' 2>/dev/null | tail -n 60 | note; }

# How long the last shutdown took, by the kernel's clock: from the request to the restart.
took_to_shut_down() {
  local asked_at over_at
  asked_at=$(sed -nE 's/^\[ *([0-9]+)\.[0-9]+\] vm: the reboot is asked for.*/\1/p' /ctl/kernel.log | tail -n 1)
  over_at=$(sed -nE 's/^\[ *([0-9]+)\.[0-9]+\] reboot: Restarting system.*/\1/p' /ctl/kernel.log | tail -n 1)
  check "the shutdown took less than 60 s" test "$((over_at - asked_at))" -lt 60
  echo "it took $((over_at - asked_at)) s" | note
}

pid_of() { systemctl show -P MainPID "$1"; }
is_active() { [[ $(systemctl is-active "$1") == active ]]; }
status_text() { systemctl show -P StatusText ebof; }
mounted() { findmnt -no SOURCE "$1" >/dev/null; }

boot_1() {
  step "installed"
  check "dpkg -i" dpkg -i /host/ebof.deb || return
  note <<<"$out"
  check "the target runs" is_active ebof || { journalctl --no-pager -u ebof | tail -n 30 | note; return; }
  check_equal "it is started at boot" enabled "$(systemctl is-enabled ebof)"
  check_equal "it has a user of its own" ebof "$(stat -c %U "/proc/$(pid_of ebof)")"
  check_equal "it says what it serves" "serving 0 subsystems at 1 port" "$(status_text)"
  check "root can manage it" ebof target status
  check "without connections the boot has nothing to connect" eval '! is_active ebof-connect && ! test -e '"$wanted"
  check "man pages and completions are there" ls /usr/share/man/man1/ebof-connect.1.gz /usr/share/man/man5/ebof.toml.5.gz \
    /usr/share/bash-completion/completions/ebof
  reloads
  managed
  watchdog
  upgrade
  step "connected at boot from now on"
  cat >/etc/ebof/connections.toml <<CONNECTIONS
[[connections]]
name = "remote"
traddr = "10.0.2.2"
trsvcid = $port
nqn = "$remote"
ctrl-loss-tmo = -1
reconnect-delay = 2
CONNECTIONS
  echo "/dev/ebof/by-nqn/$remote-ns1 /mnt/remote ext4 _netdev,nofail,x-systemd.device-timeout=0,x-systemd.requires=ebof-connect.service 0 2" >>/etc/fstab
  mkdir -p /mnt/remote
  next_boot 2
}

reloads() {
  step "reloaded"
  install -o ebof -g ebof -m 600 /dev/null /srv/disk.img
  truncate -s 64M /srv/disk.img
  echo 'options brd rd_nr=1 rd_size=4096' >/etc/modprobe.d/brd.conf
  echo brd >/etc/modules-load.d/brd.conf # at later boots
  modprobe brd
  check "there is a block device of the group disk" until_true 10 eval '[[ $(stat -c %G /dev/ram0) == disk ]]'
  cat >/etc/ebof/ebof.toml <<CONFIG
[[subsystems]]
nqn = "$local"
allow_any_host = true
namespaces = ["/srv/disk.img", "/dev/ram0"]
CONFIG
  check "systemctl reload, with a file and a block device" systemctl reload ebof
  check_equal "it says what it serves now" "serving 1 subsystem at 1 port" "$(status_text)"
  confined
  sed -i 's/^allow_any_host.*/allow_any_hosts = true/' /etc/ebof/ebof.toml
  check_fails "a configuration that is refused fails systemctl reload" 'failed|error' systemctl reload ebof
  check_says "... with the reason in the log" 'allow_any_hosts' journalctl --no-pager -n 40 -u ebof
  check_says "... and in the status" 'serving 1 subsystem.*the last reload was refused' status_text
  check "... and the target goes on" is_active ebof
  sed -i 's/^allow_any_hosts.*/allow_any_host = true/' /etc/ebof/ebof.toml
  check "systemctl reload with the mistake mended" systemctl reload ebof
}

# What it has given up, by its own words and by the kernel's.
# @test hostile.rights
confined() {
  check_says "it has given up what it does not need" \
    'given up: privileges, capabilities, system-calls, paths, dumps' ebof target status
  note <<<"$out"
  check_says "the kernel says so of its first thread" 'CapEff:[[:space:]]*0+ ' eval 'tr "\n" " " <"/proc/$(pid_of ebof)/status"'
  check_equal "... and of all threads" "" "$(grep -Lx $'Seccomp:\t2' /proc/"$(pid_of ebof)"/task/*/status)"
  check "the unit is exposed to 2.0 at most" systemd-analyze security --no-pager --threshold=20 ebof
  sed -i 's|"/dev/ram0"|"/dev/ram0", "/usr/lib/os-release"|' /etc/ebof/ebof.toml
  check_fails "a path that was given up is refused, with what to do" 'failed|error' systemctl reload ebof
  check_says "... in the log" 'add /usr/lib to `confine_paths`' journalctl --no-pager -n 40 -u ebof
  sed -i 's|, "/usr/lib/os-release"||' /etc/ebof/ebof.toml
  check "systemctl reload without it" systemctl reload ebof
}

# Managed over HTTPS, by the file and by the state directory.
managed() {
  local before fingerprint server=(--server https://127.0.0.1:8443)
  step "managed over the network"
  check_equal "the state directory outlives the target" /var/lib/ebof/served.json "$(ls /var/lib/ebof/served.json)"
  echo 'EBOF_OPTIONS="--https 127.0.0.1:8443"' >>/etc/default/ebof
  check "systemctl restart, with HTTPS" systemctl restart ebof
  check_says "the journal has the fingerprint of the certificate" 'SHA-256 [0-9A-F:]{95}' journalctl --no-pager -n 20 -u ebof
  fingerprint=$(journalctl --no-pager -n 20 -u ebof | grep -oE '([0-9A-F]{2}:){31}[0-9A-F]{2}' | tail -n 1)
  server+=(--fingerprint "$fingerprint")
  tail -n 1 /var/lib/ebof/initial-password >/root/first
  echo "correct horse battery" >/root/second
  check "the first password is changed" \
    ebof target account set-password admin "${server[@]}" --password-file /root/first --new-password-file /root/second
  before=$(cksum /var/lib/ebof/tls.pem /var/lib/ebof/accounts.json)
  check "ebof config export" ebof config export /root/ebof.toml
  echo 'EBOF_SOURCE=""' >>/etc/default/ebof
  check "systemctl restart, by the state directory" systemctl restart ebof
  check_equal "the certificate and the accounts are those of before" "$before" \
    "$(cksum /var/lib/ebof/tls.pem /var/lib/ebof/accounts.json)"
  check "the password is that of before, too" ebof target status "${server[@]}" --password-file /root/second
  check_equal "it serves nothing at first" "serving 0 subsystems at 0 ports" "$(status_text)"
  check "ebof config apply" ebof config apply /root/ebof.toml --yes
  check "ebof target add port" ebof target add port tcp://127.0.0.1:4422 --name second
  check "systemctl reload" systemctl reload ebof
  check "systemctl restart" systemctl restart ebof
  check_equal "what was changed is still there" "serving 1 subsystem at 2 ports" "$(status_text)"
  check "ebof config export over the file of the service" ebof config export --force /etc/ebof/ebof.toml
  sed -i "/^EBOF_SOURCE/d; /--https/d" /etc/default/ebof
  check "systemctl restart, by the file again" systemctl restart ebof
  check_equal "which has what was changed" "serving 1 subsystem at 2 ports" "$(status_text)"
  systemctl reset-failed ebof # systemd counts starts, and takes more than 5 in 10 s for a failure
}

watchdog() {
  local before
  step "the watchdog"
  mkdir -p /run/systemd/system/ebof.service.d
  printf '[Service]\nWatchdogSec=8\nTimeoutAbortSec=2\n' >/run/systemd/system/ebof.service.d/watchdog.conf
  systemctl daemon-reload
  check "restart" systemctl restart ebof || return
  before=$(pid_of ebof)
  sleep 10
  check_equal "a target that sleeps gives signs of life" "$before" "$(pid_of ebof)"
  kill -STOP "$before"
  check "one that hangs is started again" until_true 60 eval "is_active ebof && [[ \$(pid_of ebof) != $before ]]"
  rm -r /run/systemd/system/ebof.service.d
  systemctl daemon-reload
  systemctl restart ebof
}

upgrade() {
  local target daemon stall writer status=0
  step "upgraded under I/O"
  cat >/etc/ebof/connections.toml <<CONNECTIONS
[[connections]]
name = "local"
traddr = "127.0.0.1"
nqn = "$local"
boot = false
reconnect-delay = 1
CONNECTIONS
  check "systemctl start ebof-connect@local" systemctl start ebof-connect@local || return
  device=/dev/ebof/by-nqn/$local-ns1
  check "a device with a name that stays" until_true 30 test -b "$device" || return
  check_says "another one by its identifier" "^$(readlink -f "$device")\$" readlink -f /dev/disk/by-id/nvme-uuid.*
  check_says "the journal finds lines by their fields" 'connected' journalctl --no-pager -u ebof "EBOF_SUBSYSTEM=$local"
  check_says "... and by their priority" 'allow_any_hosts' journalctl --no-pager -u ebof -p warning
  target=$(pid_of ebof)
  daemon=$(pgrep -f '^@ebof hold')
  check "the attach daemon is spared at the end of a shutdown" test -n "$daemon"
  check_says "it has a scope of its own" 'ebof-attach-nvme0.scope' cat "/proc/$daemon/cgroup"
  connecting_confined "$daemon" "$device"
  # Few requests: under emulation many would take the processor from dpkg. They go on until it has
  # ended.
  ebof bench "$device" --rw randwrite --overwrite --bs 4K --iodepth 1 --rate-iops 20 --runtime 600 -o json \
    >/root/bench.json 2>/root/bench.log &
  writer=$!
  sleep 3
  check "dpkg -i of the next version" dpkg -i /host/next.deb
  check "I/O goes on all the time" kill -0 $writer
  check "the target was restarted" eval "is_active ebof && [[ \$(pid_of ebof) != $target ]]"
  check_equal "the attach daemon was not" "$daemon" "$(pgrep -f '^@ebof hold')"
  kill -INT $writer
  wait $writer || status=$?
  check_equal "no request has failed" 0 "$status" || note </root/bench.log
  stall=$(sed -n 's/.*"max_us": *\([0-9.]*\).*/\1/p' /root/bench.json | sort -n | tail -n 1)
  echo "the longest stall of a request: ${stall:-unknown} us" | note
  check "the longest stall is below 20 s" test "${stall%.*}" -lt 20000000 || note <<<"$(head -c 2000 /root/bench.json)"
  check "systemctl stop ebof-connect@local" systemctl stop ebof-connect@local
  check "the device is gone" until_true 30 eval "! test -e $device"
  check "no attach daemon is left" until_true 30 eval "! pgrep -f '^@ebof hold'"
}

# beside DAEMON COMMAND...: runs it in the scope of an attach daemon.
beside() {
  local scope
  scope=/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$1/cgroup")
  shift
  sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$scope" "$@"
}
read_block() { dd if="$1" of=/dev/null bs=4096 count=1; }

# What units and daemons that connect may do.
# @test hostile.devices
connecting_confined() {
  local daemon=$1 device=$2 unit
  for unit in ebof-connect:49 ebof-connect@local:49 ebof-unreachable:39; do
    check "${unit%:*} is exposed to ${unit#*:} tenths at most" \
      systemd-analyze security --no-pager --threshold="${unit#*:}" "${unit%:*}" || note <<<"$out"
  done
  check "another disk can be read" read_block /dev/ram0
  check_fails "... but not in the scope of an attach daemon" 'Operation not permitted' \
    beside "$daemon" dd if=/dev/ram0 of=/dev/null bs=4096 count=1
  check_fails "... nor the disk of the machine" 'Operation not permitted' \
    beside "$daemon" dd if=/dev/vda of=/dev/null bs=4096 count=1
  check "... where its own device can" beside "$daemon" dd if="$device" of=/dev/null bs=4096 count=1
}

boot_2() {
  step "booted with the target there"
  check "the file system is mounted" until_true 60 mounted /mnt/remote || return
  check "the file has the boot connect" eval "is_active ebof-connect && test -e $wanted"
  echo "kept" >/mnt/remote/kept && sync -f /mnt/remote
  check "the file system by its UUID and label, too" ls "/dev/disk/by-label/remote"
  check "a device in use is not disconnected" eval '! ebof disconnect -n '"$remote"
  step "the target goes away, and then the machine restarts"
  ask stop_target || fail "the remote target stops"
  echo lost >/mnt/remote/lost
  next_boot 3
}

boot_3() {
  local since
  step "booted with the target away"
  since=$(systemctl show -P ActiveEnterTimestampMonotonic multi-user.target)
  check "the boot did not wait for it: $((since / 1000000)) s" test "$since" -lt 90000000
  check "the service tries again" is_active ebof-connect
  check_says "... and says so" '0 of 1 connected' systemctl show -P StatusText ebof-connect
  check "nothing is mounted" eval '! mounted /mnt/remote'
  ask start_target || fail "the remote target starts again"
  check "it is mounted when the target is back" until_true 90 mounted /mnt/remote || return
  check_equal "with what was written" kept "$(cat /mnt/remote/kept)"
  removed
}

removed() {
  step "removed"
  check "unmount" umount /mnt/remote
  sed -i /remote/d /etc/fstab
  check "dpkg -r" dpkg -r ebof
  note <<<"$out"
  check "nothing of it runs" eval "! pgrep -f '^@?(/usr/bin/)?ebof'"
  check "no device is left" eval '! ls /dev/ublkb* /dev/ebof/by-nqn/* 2>/dev/null | grep .'
  check "the configuration stays" ls /etc/ebof/ebof.toml /etc/ebof/connections.toml
  check "dpkg -P" dpkg -P ebof
  note <<<"$out"
  systemctl daemon-reload
  check_equal "nothing is left but the file that was served" /srv/disk.img \
    "$(ls -d /srv/disk.img /etc/ebof /etc/default/ebof /var/lib/ebof /usr/lib/systemd/system/ebof* /etc/systemd/system/*/ebof* /run/ebof 2>/dev/null)"
}
