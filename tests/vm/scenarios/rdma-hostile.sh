# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# rdma-hostile: ebof's target over RDMA with the Linux host, which writes and verifies, and with a
# host at another address that breaks all rules meanwhile (crates/server/tests/it/rdma_hostile.rs):
# over soft RoCE, then over soft iWARP. The target rejects and logs what that one does; nothing is
# left of it, and the Linux host notices nothing.

open=nqn.2014-08.org.example:drive0
rude=10.0.2.16 # the other host's address

machine() {
  needs_ebof || return
  needs_server_tests || return
  boot_guest -t 280 -m 1536 --
}

guest() {
  address=10.0.2.15 port=4420 nqn=$open transport=rdma
  ebof_in_guest || return
  check "the tests are in the guest" cp /host/hosts /root/hosts || return
  check "the other host has an address" ip address add "$rude/24" dev eth0
  check "modprobe nvme-rdma" modprobe nvme-rdma || return
  cat >/root/ebof.toml <<TOML
[target]
handshake_timeout = "8s"
max_connections = 100
metrics = "127.0.0.1:9420"
[[ports]]
listen = "rdma://$address:$port"
[[subsystems]]
nqn = "$open"
allow_any_host = true
namespaces = ["mem:64Mi", "mem:64Mi"]
TOML
  export EBOF_RDMA_TARGET=$address:$port EBOF_RDMA_HOST=$rude
  over_link rxe
  if has_siw; then
    over_link siw
  else
    skip "soft iWARP" "$(no_siw_because)"
  fi
}

# What the target holds: RDMA objects, descriptors, connections, memory for capsules.
held() {
  held_objects
  echo "fd $(ls "/proc/${process[target]}/fd" | wc -l)"
  metrics | awk '/^ebof_(connections|rdma_capsule_memory_bytes)[{ ]/ { print $1, $NF }'
}
metrics() (
  exec 3<>/dev/tcp/127.0.0.1/9420
  printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
  cat <&3
)
is_idle() { [[ $(held) == "$idle" ]]; }
# settled: it holds what it held at the last call; `idle` is that.
settled() {
  local before=$idle
  idle=$(held 2>/dev/null) && [[ $idle == *memory* && $idle == "$before" ]]
}

# Verified writes, again and again.
write_on() {
  rm -f /tmp/enough
  while [[ ! -e /tmp/enough ]]; do
    fio --name=verify --filename="$(namespace_device 2)" --rw=randwrite --bs=4k --size=1M --ioengine=libaio --iodepth=4 \
      --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 --randrepeat=0 >/tmp/writer.out 2>&1 || return
    echo .
  done >/tmp/rounds
}

# logged TEXT REGEX: the target has logged it of the other host.
logged() { check "the target logs $1" grep -qE "$2.* peer=$rude:" "$work/target.log"; }

over_link() {
  local link=$1 status=0 writer patient idle=''
  step "a host that breaks the rules, over $link"
  check "an RDMA device of the type $link" rdma_link "$link" eth0 || return
  rm -f "$work/target.log"
  start target "$ebof" serve --config /root/ebof.toml
  check "ebof serve listens" until_true 30 listens rdma "$port" || { note <"$work/target.log"; return; }
  # It listens there before it has opened all that it keeps open.
  # The start is the audit log's first record, which comes after a while.
  until_true 30 eval "ls -l '/proc/${process[target]}/fd' | grep -q /audit-"
  until_true 30 settled
  note <<<"$idle"
  clear_kernel_log
  connects -k 5 -i 2 || return
  write_on &
  writer=$!
  timeout 100 /root/hosts --ignored rdma_hostile::patient >/tmp/patient.out 2>&1 &
  patient=$!
  run_tests "$link" /root/hosts rdma_hostile --skip patient
  status=0 # of the tests
  wait $patient || status=$?
  check_equal "$link: those that say nothing, or take nothing, are given up" 0 $status || note </tmp/patient.out
  touch /tmp/enough
  status=0
  wait $writer || status=$?
  check_equal "the Linux host has written and verified in $(wc -l </tmp/rounds) rounds" 0 $status || note </tmp/writer.out
  check "its controller is live" controller_is "$controller" live
  kernel_log_is_clean "of the Linux host"
  disconnects
  cp "$work/target.log" "/ctl/target-$link.log"
  check_logged "$link"
  check "nothing is left of the connections" until_true 30 is_idle || { held; rdma resource show mr; } | note
  status=0
  stop target TERM 30 || status=$?
  check_equal "SIGTERM ends the target with status 0" 0 $status
  check "it did not panic" eval "! grep -n panicked '$work/target.log'"
  check "the device is removed" rdma link delete "${link}_eth0"
}

check_logged() {
  logged "another record format" 'refused: .*rejected with 2'
  logged "a queue that it does not have" 'refused: .*rejected with 3'
  logged "a queue that is too long" 'refused: .*rejected with 4'
  logged "a queue without receives" 'refused: .*rejected with 5'
  logged "a capsule that is too short" 'a command capsule of 63 bytes'
  logged "a Connect for another queue" 'Connect is for queue 2, and the private data were for 3'
  logged "connections without a Connect" 'no valid Connect within 8000 ms'
  logged "too many connections without a Connect" 'connections from there are not admitted yet'
  if [[ $1 == siw ]]; then
    logged "private data that are too short" 'refused: .*rejected with 1'
    return
  fi
  logged "a key that does not exist" 'the other end refuses the memory key or the range'
  logged "a host that reads nothing" 'the host read nothing for 30000 ms'
}
