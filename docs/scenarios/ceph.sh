#!/bin/bash
# ceph.sh: two OSDs of Ceph on namespaces of two boxes; the path to one of them is cut while an RBD
# image is written (ceph.md).
# shellcheck disable=SC2317 # functions are called by check and within
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
needs ceph-mon ceph-osd ceph monmaptool rbd fio
fio --enghelp=rbd 2>/dev/null | grep -q rbdname || skip "this fio has no engine rbd"

machine box1 192.168.13.147
machine box2 192.168.13.148
machine node 192.168.13.146
drives box1 1 1G
drives box2 1 1G

step "two boxes, a drive in each; the node attaches both"
serve box1 'ebof serve /dev/nvme0n1 --nqn nqn.2014-08.org.example:osd0 --listen tcp://192.168.13.147:4420 --host nqn.2014-08.org.example:host:node'
serve box2 'ebof serve /dev/nvme0n1 --nqn nqn.2014-08.org.example:osd1 --listen tcp://192.168.13.148:4420 --host nqn.2014-08.org.example:host:node'
# A device whose target is away for longer than -F fails, instead of waiting: replicas are
# elsewhere.
on node 'ebof connect -t tcp -a 192.168.13.147 -n nqn.2014-08.org.example:osd0 -q nqn.2014-08.org.example:host:node -k 2 -F 1 -c 1 -l -1'
on node 'ebof connect -t tcp -a 192.168.13.148 -n nqn.2014-08.org.example:osd1 -q nqn.2014-08.org.example:host:node -k 2 -F 1 -c 1 -l -1'
disks=("$(disk node nvme0n1)" "$(disk node nvme1n1)")

step "Ceph on the node: a monitor, and an OSD on each device"
dir=$work/node
# Programs that are not installed, but unpacked somewhere, have their modules beside them.
modules=$(echo "$(dirname "$(command -v ceph-osd)")"/../lib/*/rados-classes)
export CEPH_CONF=$dir/ceph.conf
cat >"$CEPH_CONF" <<END
[global]
fsid = 5a7f4ecf-6a52-4a0c-9f0e-8f4f8a1f0e11
mon host = v2:192.168.13.146:3300
mon initial members = a
public network = 192.168.13.0/24
auth cluster required = none
auth service required = none
auth client required = none
auth allow insecure global id reclaim = false
keyring = /dev/null
run dir = $dir
crash dir = $dir
osd class dir = $modules
plugin dir = $(dirname "$modules")/ceph
erasure code dir = $(dirname "$modules")/ceph/erasure-code

[mon]
mon data = $dir/mon
log file = $dir/\$name.log
admin socket = $dir/\$name.asok
mon data avail warn = 1
mon osd min down reporters = 1
osd pool default size = 2
osd pool default min size = 1
osd pool default pg num = 4
osd crush chooseleaf type = 0

[osd]
osd data = $dir/osd\$id
osd objectstore = bluestore
log file = $dir/\$name.log
admin socket = $dir/\$name.asok
osd heartbeat interval = 1
osd heartbeat grace = 4
osd memory target = 939524096
bdev aio poll ms = 10
END
# Daemons end first: they have the devices open.
at_exit 'for daemon in osd0 osd1 mon; do end "$daemon" KILL; done'
on node 'mkdir mon osd0 osd1 && monmaptool --create --fsid 5a7f4ecf-6a52-4a0c-9f0e-8f4f8a1f0e11 --addv a v2:192.168.13.146:3300 monmap && ceph-mon --mkfs -i a --monmap monmap'
start node mon 'ceph-mon -f -i a'
for id in 0 1; do
  on node "ln -s ${disks[id]} osd$id/block"
  on node "ceph osd new 5a7f4ecf-6a52-4a0c-9f0e-00000000000$id && ceph-osd -i $id --mkfs --osd-uuid 5a7f4ecf-6a52-4a0c-9f0e-00000000000$id"
  start node "osd$id" "ceph-osd -f -i $id"
done
up() { [[ $(quiet node 'ceph osd stat') == "2 osds: $1 up"* ]]; }
check "both OSDs are up, on ${disks[0]} and ${disks[1]}" within 20 up 2
on node 'ceph osd pool create rbd && ceph osd pool application enable rbd rbd'
# Without a manager daemon, only the placement groups themselves know their state.
clean() {
  local pg
  for pg in 1.0 1.1 1.2 1.3; do [[ $(quiet node "ceph pg $pg query") == *'"state": "active+clean"'* ]] || return 1; done
}
check "every placement group has its two replicas" within 20 clean
on node 'rbd create rbd/image --size 128M --image-feature layering'

step "an image is written, with a checksum in each block; the path to box2 is cut meanwhile"
start node writer "fio --name=image --ioengine=rbd --clientname=admin --pool=rbd --rbdname=image --rw=randwrite --bs=64k \
--iodepth=8 --rate=8M --verify=crc32c --verify_fatal=1 --write_lat_log=writes --log_unix_epoch=1 --output-format=json --output=fio.json"
sleep 2
unplug box2
cut=$(date +%s%3N)
down() { up 1; }
check "osd.1 gives up, and the monitor notices" within 15 down
check "its process has ended, because its device failed" within 5 gone "${job[osd1]}"
on node 'ceph osd tree'
sleep 3
check "box2 is still away" grep -q connecting <(quiet node 'ebof list-subsys')
plug box2
plugged=$(date +%s%3N)

step "the path is back: the device returns by itself, then the OSD, which catches up"
live() { [[ $(quiet node 'ebof list-subsys') != *connecting* ]]; }
check "the node has reconnected" within 10 live
# Where systemd runs the daemon, it does this (Restart=on-failure).
start node osd1 'ceph-osd -f -i 1'
check "both OSDs are up" within 20 up 2
check "every placement group has its two replicas again" within 30 clean
wait "${job[writer]}"
check "fio wrote 128 MiB, read them back, and every checksum was right" test "$?" = 0
# Lines of fio's log: milliseconds, latency, 1 for a write, bytes, offset.
awk -F', ' -v cut="$cut" -v plugged="$plugged" '
  $3 != 1 { next }
  last && $1 - last > pause { pause = $1 - last }
  { last = $1 }
  $1 > cut + 2000 && $1 < plugged { bytes += $4 }
  END { printf "while the path was cut (%.1f s), %.1f MiB were written; the longest pause was %.1f s\n", (plugged - cut) / 1000, bytes / 1048576, pause / 1000 }
' "$dir"/writes_clat.1.log | tee "$work/pause"
check "writes went on while the path was cut" grep -qv ' 0.0 MiB' "$work/pause"

step "the replica on box2 alone has all of it"
on node 'rbd export --no-progress rbd/image - | sha256sum | tee sum'
end osd0 KILL
check "osd.0 is down" within 15 down
on node 'rbd export --no-progress rbd/image - | sha256sum | tee sum.box2'
check "the image is the same, read from box2 only" cmp "$dir/sum" "$dir/sum.box2"
finish
