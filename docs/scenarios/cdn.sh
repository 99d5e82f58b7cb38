#!/bin/bash
# cdn.sh: the cache of a CDN's edge on a namespace, compared with one on a local disk (cdn.md).
# shellcheck disable=SC2317 # functions are called by check and within
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
needs nginx python3 mkfs.ext4 losetup
objects=400 kib=256 # 100 MiB, of which a cache holds 60; forgotten after 3 s
chmod 755 "$work" # nginx' processes are not root's

machine box 192.168.13.147
machine origin 192.168.13.148
machine edge 192.168.13.146
machine client 192.168.13.149
drives box 1 512M
chmod 755 "$work/origin" "$work/edge"

step "the origin has $objects objects of $kib KiB"
python3 - "$work/origin/www" "$objects" "$kib" <<'END'
import pathlib, sys
folder, objects, kib = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
folder.mkdir()
for number in range(objects):
    (folder / str(number)).write_bytes((f"{number:015d}\n" * 64).encode() * kib)
END
cat >"$work/origin/nginx.conf" <<END
daemon off;
pid nginx.pid;
error_log stderr;
worker_processes 1;
events {}
http {
  access_log off;
  sendfile on;
  client_body_temp_path tmp;
  proxy_temp_path tmp;
  fastcgi_temp_path tmp;
  uwsgi_temp_path tmp;
  scgi_temp_path tmp;
  server {
    listen 192.168.13.148:80;
    root www;
    expires 1d;
    keepalive_requests 1000000;
  }
}
END
start origin origin 'nginx -p ./ -e stderr -c nginx.conf'

step "the edge: a cache on a namespace of the box, and one on a disk of its own"
# Without page caches below the file systems, where the directory of this run permits that.
direct=yes loop=on
dd if=/dev/zero of="$work/probe" bs=4096 count=1 oflag=direct 2>/dev/null || direct=no loop=off
target="ebof serve /dev/nvme0n1,direct=$direct --nqn nqn.2014-08.org.example:cache --listen tcp://192.168.13.147:4420 --host nqn.2014-08.org.example:host:edge"
serve box "$target"
on edge 'ebof connect -t tcp -a 192.168.13.147 -n nqn.2014-08.org.example:cache -q nqn.2014-08.org.example:host:edge -k 2 -c 1 -l -1'
on edge "mkfs.ext4 -q $(disk edge nvme0n1) && mkdir remote && mount -o noatime $(disk edge nvme0n1) remote"
on edge "truncate -s 512M disk && losetup --direct-io=$loop -f disk && losetup -j disk"
local=${output%%:*}
on edge "mkfs.ext4 -q $local && mkdir local && mount -o noatime $local local && losetup -d $local"
quiet edge 'chmod 777 remote local'
cat >"$work/edge/nginx.conf" <<END
daemon off;
pid nginx.pid;
error_log stderr;
worker_processes 1;
events { worker_connections 256; }
http {
  access_log off;
  aio threads;
  sendfile off;
  output_buffers 2 256k;
  client_body_temp_path tmp;
  proxy_temp_path tmp;
  fastcgi_temp_path tmp;
  uwsgi_temp_path tmp;
  scgi_temp_path tmp;
  keepalive_requests 1000000;
  upstream origin.example { server 192.168.13.148:80; keepalive 16; keepalive_requests 1000000; }
  proxy_http_version 1.1;
  proxy_set_header Connection "";
  proxy_cache_lock on;
  add_header X-Cache \$upstream_cache_status;
  proxy_cache_path remote/cache levels=1:2 keys_zone=remote:1m max_size=60m manager_sleep=20ms inactive=3s use_temp_path=off;
  proxy_cache_path local/cache levels=1:2 keys_zone=local:1m max_size=60m manager_sleep=20ms inactive=3s use_temp_path=off;
  server { listen 192.168.13.146:8001; location / { proxy_pass http://origin.example; proxy_cache remote; } }
  server { listen 192.168.13.146:8002; location / { proxy_pass http://origin.example; proxy_cache local; } }
}
END
start edge edge 'nginx -p ./ -e stderr -c nginx.conf'
# Before its file systems are unmounted; while the device has no target, it lasts until that is
# disconnected.
at_exit 'kill "${job[edge]:-}" && within 3 gone "${job[edge]}"'
answers() { quiet client "exec 3<>/dev/tcp/192.168.13.146/$1"; }
check "the edge answers" within 10 answers 8001
# An edge has less memory than cache: what nginx reads comes from the device, because the pages of
# its files are dropped all the time.
cat >"$work/edge/forget.py" <<'END'
import itertools, os, time
while True:
    for folder, _, names in itertools.chain(os.walk("remote/cache"), os.walk("local/cache")):
        for name in names:
            try:
                file = os.open(f"{folder}/{name}", os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)
            except FileNotFoundError:
                pass
    time.sleep(0.02)
END
start edge forget 'python3 forget.py'

step "the same requests to both, by turns"
declare -A port=([remote]=8001 [local]=8002) device=([remote]=$(disk edge nvme0n1) [local]=$local)
cp "$(dirname "$0")/cdn-load.py" "$work/client/load.py"
load="python3 load.py"
# measure CACHE REQUESTS SEED
measure() {
  local result before after
  before=$(awk '{ print $3 }' "/sys/block/${device[$1]#/dev/}/stat")
  result=$(quiet client "$load http://192.168.13.146:${port[$1]} $objects $kib $2 $3") || give_up "requests to the $1 cache: $result"
  after=$(awk '{ print $3 }' "/sys/block/${device[$1]#/dev/}/stat")
  echo "$1 $3 $result $(((after - before) / 2048))" >>"$work/results"
}
for run in 1 2 3; do
  for cache in remote local; do measure "$cache" 2000 "$run"; done
done
awk '
  BEGIN { print "cache   run   hits ratio   MB/s  hit, median      99 %  read from the device" }
  { printf "%-7s %3d %6d %5.3f %6d %9d us %6d us  %d MiB\n", $1, $2, $4, $5, $6, $7, $8, $9 }' "$work/results"
median() { awk -v cache="$1" -v column="$2" '$1 == cache { print $column }' "$work/results" | sort -n | sed -n 2p; }
awk -v remote="$(median remote 6)" -v local="$(median local 6)" \
  'BEGIN { printf "bandwidth, namespace to local disk (medians): %d to %d MB/s, %.2f\n", remote, local, remote / local }'
# The same requests; only what was evicted at which moment differs.
alike() { awk '{ sum[$1] += $5 / 3 } END { d = sum["remote"] - sum["local"]; exit !(sum["remote"] > 0.5 && d < 0.1 && d > -0.1) }' "$work/results"; }
check "both caches have the same hit ratio, give or take 0.1" alike
from_device() { awk '$9 < 10 { exit 1 }' "$work/results"; }
check "what they hit came from the devices" from_device
small() { quiet edge '[[ $(du -sm remote/cache | cut -f 1) -le 62 && $(du -sm local/cache | cut -f 1) -le 62 ]]'; }
check "the edge evicts: no cache is larger than its 60 MiB" within 10 small

step "the target is killed and started again while the edge uses its cache"
start client during "$load http://192.168.13.146:8001 $objects $kib 5000 4"
sleep 0.5
end box KILL
check "requests wait meanwhile" kill -0 "${job[during]}"
sleep 1
serve box "$target"
wait "${job[during]}"
check "every request was answered, with what the origin has" test "$?" = 0
finish
