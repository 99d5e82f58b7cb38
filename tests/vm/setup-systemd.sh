#!/bin/bash
# setup-systemd.sh: builds the root file system of guests that systemd runs, beside that of
# setup.sh.
#
# The other guests have unpacked packages and an init of their own. To install ebof's package a
# guest needs configured ones: mmdebstrap makes a small Debian, of the kernel's release, in half a
# minute. It has the modules of setup.sh's guests. What is switched off takes time under emulation
# and does nothing here.
#
# Under ${EBOF_VM_CACHE:-$HOME/.cache/ebof-vm}:
#   systemd/root.ext4   the root file system
#   systemd/stamp       the hash of this script and of what setup.sh unpacked
#
# The status is 0 if there is one, else 1, with the reason in the last line.
# Settings: those of setup.sh.
set -euo pipefail

suite=trixie
packages=systemd-sysv,udev,kmod,e2fsprogs,iproute2,netbase,procps
masked=(
  e2scrub_reap.service e2scrub_all.timer apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer
  getty@tty1.service getty.target serial-getty@ttyS0.service serial-getty@hvc0.service systemd-logind.service
  systemd-random-seed.service systemd-update-utmp.service systemd-pcrphase.service systemd-hwdb-update.service
  systemd-journal-flush.service systemd-journal-catalog-update.service systemd-binfmt.service sys-kernel-debug.mount
  sys-kernel-tracing.mount dev-hugepages.mount dev-mqueue.mount
)

cache=${EBOF_VM_CACHE:-${HOME:?}/.cache/ebof-vm}
out=$cache/systemd
die() { echo "vm setup: no guest with systemd: $*" >&2; exit 1; }
[[ -f $cache/stamp ]] || die "run setup.sh first"
stamp=$(cat "${BASH_SOURCE[0]}" "$cache/stamp" | sha256sum)
ready() { [[ -f $out/stamp && $(<"$out/stamp") == "$stamp" ]]; }
if ready; then
  echo "vm setup: $(<"$out/version") in $out"
  exit 0
fi
mkdir -p "$cache"
exec 9>"$cache/lock-systemd"
flock 9
if ready; then exit 0; fi
((EUID == 0)) || die "mmdebstrap needs root"
command -v mmdebstrap >/dev/null || die "mmdebstrap is not installed (apt-get install mmdebstrap)"

work=$cache/work-systemd
rm -rf "$work" "$out"
mkdir -p "$work/tree"
trap 'rm -rf "$work"' EXIT

# The mirrors of this machine's own releases, as setup.sh takes them.
mirrors() {
  local uri component
  [[ -z ${EBOF_VM_MIRROR:-} ]] || echo "$EBOF_VM_MIRROR"
  # shellcheck disable=SC2016 # apt's fields
  apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' | sort -u |
    while read -r uri component; do
      [[ $component != main || $uri == *security* ]] || echo "$uri"
    done
}

# How apt reaches the network here.
apt-config dump | grep -E '^Acquire::' >"$work/apt.conf" || true
found=''
while read -r uri; do
  echo "vm setup: a small Debian $suite from $uri"
  if mmdebstrap --quiet --mode=root --variant=apt --architectures=amd64 --include="$packages" --aptopt="$work/apt.conf" \
    --aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/ebof/*' \
    "$suite" "$work/root.tar" "deb $uri $suite main" >"$work/log" 2>&1; then
    found=yes
    break
  fi
  tail -n 5 "$work/log" | sed 's/^/    /'
done < <(mirrors)
[[ -n $found ]] || die "no mirror in apt's sources carries Debian $suite (set EBOF_VM_MIRROR to one that does)"

tree=$work/tree
tar -C "$tree" -xf "$work/root.tar"
rm "$work/root.tar"
rm -rf "$tree"/usr/share/{locale,i18n,info,zoneinfo} "$tree"/var/{cache,lib}/apt/*
"$cache/tools/bin/debugfs" -R "rdump /usr/lib/modules $tree/usr/lib" "$cache/root.ext4" >/dev/null 2>&1
[[ -n $(find "$tree/usr/lib/modules" -name 'ublk_drv.ko*' -print -quit) ]] || die "setup.sh's guest has no modules"
mkdir -p "$tree"/{ctl,host}
echo guest >"$tree/etc/hostname"
echo 127.0.0.1 localhost guest >"$tree/etc/hosts"
echo '/dev/vda / ext4 noatime 0 0' >"$tree/etc/fstab"
printf '[Match]\nName=eth0\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\nLinkLocalAddressing=no\n' \
  >"$tree/etc/systemd/network/10-eth0.network"
mkdir -p "$tree/etc/systemd/journald.conf.d"
printf '[Journal]\nStorage=volatile\n' >"$tree/etc/systemd/journald.conf.d/volatile.conf"
cat >"$tree/etc/systemd/system/vm-script.service" <<'UNIT'
[Unit]
Description=The scenario
After=multi-user.target

[Service]
ExecStart=/bin/bash /ctl/systemd.sh
StandardOutput=null
TimeoutStopSec=5
UNIT
mkdir -p "$tree/etc/systemd/system/multi-user.target.wants"
ln -s ../vm-script.service "$tree/etc/systemd/system/multi-user.target.wants/"
for unit in "${masked[@]}"; do ln -sf /dev/null "$tree/etc/systemd/system/$unit"; done
chroot "$tree" systemctl --quiet enable systemd-networkd.service systemd-networkd-wait-online.service
mkdir -p "$out"
MKE2FS_CONFIG=$cache/tools/etc/mke2fs.conf "$cache/tools/bin/mke2fs" -q -F -t ext4 -O '^has_journal,^metadata_csum' -b 4096 -m 0 \
  -E lazy_itable_init=1,root_owner=0:0 -d "$tree" "$out/root.ext4" "$(($(du -sm "$tree" | cut -f 1) + 300))M"
# shellcheck disable=SC2016 # dpkg-query's
echo "Debian $suite with systemd $(chroot "$tree" dpkg-query -W -f '${Version}' systemd)" >"$out/version"
echo "$stamp" >"$out/stamp"
echo "vm setup: $(<"$out/version"), $(du -sm "$out" | cut -f 1) MB in $out"
