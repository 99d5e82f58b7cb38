# shellcheck shell=bash
# bench-tls-guest.sh: TLS with own records and with those of the kernel, side by side: ebof's target
# and host in one guest, a processor for each.
#
#   tests/vm/vm.sh -t 1200 -s target/release \
#     tests/vm/bench-tls-guest.sh [ROUNDS [SECONDS]] -- -icount shift=0,sleep=off
#
# With -icount a nanosecond of the guest is an instruction, and its processors take turns; without,
# and with -p, it is the machine's time. Prints operations in a second of each round, then the
# medians, with the smallest and the largest.
. /ctl/lib.sh

rounds=${1:-5} seconds=${2:-3} results=/ctl/results
loads=(
  "--rw randread --bs 4k --iodepth 1"
  "--rw randread --bs 4k --iodepth 32"
  "--rw randwrite --bs 4k --iodepth 32"
  "--rw read --bs 128k --iodepth 8"
  "--rw write --bs 128k --iodepth 8"
)
nqn=nqn.2014-08.org.example:served host=nqn.2014-08.org.example:blade

prepare() {
  local kind port=4470
  modprobe -a tls aesni_intel
  cp /host/ebof /usr/bin/ebof
  (umask 077 && ebof gen-tls-key --hmac 1 >/root/key)
  for kind in plain own kernel; do
    {
      printf 'target = { threads = 1, control = "/tmp/%s.sock" }\n' $kind
      printf '[[ports]]\nlisten = "tcp://127.0.0.1:%s"\n' $port
      [[ $kind == plain ]] || printf 'tls = "required"\ntls_records = "%s"\n' $kind
      printf '[[hosts]]\nnqn = "%s"\ntls_psk = { file = "/root/key" }\n' $host
      printf '[[subsystems]]\nnqn = "%s"\nallow_any_host = true\nnamespaces = ["mem:64Mi"]\n' $nqn
    } >/tmp/$kind.toml
    taskset -c 0 ebof serve --config /tmp/$kind.toml >/tmp/$kind.log 2>&1 &
    until reachable $port; do sleep 0.2; done
    port=$((port + 1))
  done
}

# measure LOAD KIND PORT
measure() {
  local -a secured=()
  [[ $2 == plain ]] || secured=(--tls --tls-key-file /root/key --tls-records "$2")
  # shellcheck disable=SC2086 # words
  taskset -c 1 ebof bench "nvme+tcp://127.0.0.1:$3/$nqn/1" --hostnqn $host "${secured[@]}" ${loads[$1]} --overwrite \
    --runtime ${seconds} --ramp-time 1 -o json 2>/dev/null | jq -r --arg load "${loads[$1]}" --arg kind "$2" \
    '[$load, $kind, ([.reports[0].read.iops, .reports[0].write.iops] | map(. // 0) | add | round)] | @tsv'
}

prepare
for ((round = 0; round < rounds; round++)); do
  for load in "${!loads[@]}"; do
    # In turns, from another one each time.
    for at in 0 1 2; do
      kinds=(plain own kernel) kind=$(((round + at) % 3))
      measure "$load" "${kinds[kind]}" $((4470 + kind)) | tee -a $results
    done
  done
done
echo
jq -rRs 'split("\n") | map(select(. != "") | split("\t")) | group_by([.[0], .[1]])[]
  | (map(.[2] | tonumber) | sort) as $sorted
  | "\(.[0][0])  \(.[0][1])  \($sorted[($sorted | length) / 2 | floor])  (\($sorted[0]) to \($sorted[-1]))"' $results
grep -E 'TlsTxSw|TlsDecrypt' /proc/net/tls_stat
