# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and links.sh
# bench-guest.sh: the measurements of bench.sh, which runs it in the guest.
#
# bench-guest.sh ROUNDS SECONDS PART...
#
# Results are lines in /ctl/results: part, row, subject, round, value, separated by tabs. Values are
# operations per second, bytes per second (sequential, and the link), or microseconds (latency).
. /ctl/lib.sh
. /ctl/host.sh
. /ctl/links.sh

address=10.0.2.15
files=/mnt/files
mebibytes=48 # of each disk
drive=nqn.2014-08.org.example:

# must COMMAND...: what the measurements cannot do without.
must() {
  local output
  output=$("$@" 2>&1) || { printf 'bench: %s failed:\n%s\n' "$*" "$output"; exit 1; }
}

# The disks: ram0 is the kernel's memory drive, ram1 has files for all, ram2 to ram4 are for file
# systems.
set_up_disks() {
  must modprobe brd rd_nr=5 rd_size=$((384 * 1024))
  must mkfs.ext4 -q -F /dev/ram1
  mkdir -p "$files"
  must mount /dev/ram1 "$files"
  local name
  for name in {nvmet,ebof-rdma,ebof-tcp}{,-buffered}; do
    must dd if=/dev/urandom of="$files/$name" bs=1M count=$mebibytes oflag=direct
  done
}

# Both targets, each over both transports: subsystem TARGET-TRANSPORT, with memory as namespace 1, a
# file past the page cache as 2 (the default of the kernel's target), one through it as 3, a RAM
# disk as 4.
set_up_targets() {
  local transport port=4430 disk=()
  must modprobe -a nvme-rdma nvme-tcp nvmet-rdma nvmet-tcp
  for transport in rdma tcp; do
    port=$((port + 1))
    disk=()
    [[ $transport != rdma ]] || disk=(/dev/ram4)
    must nvmet_subsystem "${drive}nvmet-$transport" /dev/ram0 "$files/nvmet" "$files/nvmet-buffered" /dev/ram3
    nvmet_buffered "${drive}nvmet-$transport" 3
    must nvmet_port $port "$transport" "$address" $port "${drive}nvmet-$transport"
    connect nvmet "$transport" $port
    port=$((port + 1))
    ebof serve --listen "$transport://$address:$port" --nqn "${drive}ebof-$transport" --allow-any-host \
      mem:${mebibytes}Mi "$files/ebof-$transport,direct" "$files/ebof-$transport-buffered" "${disk[@]}" >"/ctl/ebof-$transport.log" 2>&1 &
    until_true 30 listens "$transport" $port || { echo "bench: ebof does not listen"; cat "/ctl/ebof-$transport.log"; exit 1; }
    connect ebof "$transport" $port
  done
}

# nvmet_buffered NQN NSID: the page cache is used for a namespace that is a file.
nvmet_buffered() {
  local namespace=$nvmet/subsystems/$1/namespaces/$2 step
  for step in enable=0 buffered_io=1 enable=1; do echo "${step#*=}" >"$namespace/${step%=*}"; done
}

# connect TARGET TRANSPORT PORT: with one queue for each of the guest's processors.
declare -A device=() # by namespace/target/transport
connect() {
  nqn=$drive$1-$2
  must nvme connect -t "$2" -a "$address" -s "$3" -n "$nqn" -i 2
  until_true 60 namespace_device 2 || { echo "bench: namespace 2 of $nqn does not appear"; exit 1; }
  udevadm settle
  device[memory/$1/$2]=$(namespace_device 1)
  device[file/$1/$2]=$(namespace_device 2)
  device[buffered/$1/$2]=$(namespace_device 3)
  device[disk/$1/$2]=$(namespace_device 4)
  must dd if=/dev/urandom of="${device[memory/$1/$2]}" bs=1M count=$mebibytes oflag=direct
}

# measure PART ROW ROUND FIO-OPTIONS SUBJECT=FILE...: runs fio on one after the other, in the other
# order every second round.
measure() {
  local part=$1 row=$2 round=$3 options subjects=() word index
  read -ra options <<<"$4"
  shift 4
  for word in "$@"; do
    if ((round % 2)); then subjects+=("$word"); else subjects=("$word" "${subjects[@]}"); fi
  done
  local command=(
    fio --output-format=json --ioengine=libaio --direct=1 --time_based --runtime="$seconds" --ramp_time=300ms --norandommap
    --randrepeat=0 --size="${mebibytes}M" --group_reporting "${options[@]}"
  )
  for word in "${subjects[@]}"; do command+=(--name="${word%%=*}" --filename="${word#*=}" --stonewall --new_group); done
  if ! timeout 300 "${command[@]}" >/tmp/fio.json 2>/tmp/fio.error; then
    echo "bench: fio fails for $part, $row:"
    cat /tmp/fio.error
    return
  fi
  # fio may print warnings before its document.
  sed -n '/^{/,$p' /tmp/fio.json |
    jq -r --arg part "$part" --arg row "$row" --arg round "$round" --argjson bytes "$([[ $row == seq* ]] && echo true || echo false)" \
      '.jobs[] | [$part, $row, .jobname, $round, (.read, .write | select(.io_bytes > 0) | if $bytes then .bw_bytes else .iops end)] | @tsv' |
    tee -a /ctl/results | awk -F '\t' '{ printf "%-16s %-14s %-12s round %d  %.0f\n", $1, $2, $3, $4, $5 }'
}

rows=(
  'randread-qd1:--rw=randread --bs=4k --iodepth=1' 'randwrite-qd1:--rw=randwrite --bs=4k --iodepth=1'
  'randread-qd32:--rw=randread --bs=4k --iodepth=32' 'randwrite-qd32:--rw=randwrite --bs=4k --iodepth=32'
  'seqread:--rw=read --bs=128k --iodepth=8' 'seqwrite:--rw=write --bs=128k --iodepth=8'
)
# bench_targets TRANSPORT ROUND: the kernel's target and ebof's.
bench_targets() {
  local storage row of
  for storage in memory file buffered; do
    of=("${rows[@]}")
    [[ $storage != buffered ]] || of=("${rows[@]:0:4}")
    for row in "${of[@]}"; do
      measure "$1-$storage" "${row%%:*}" "$2" "${row#*:}" \
        "nvmet=${device[$storage/nvmet/$1]}" "ebof=${device[$storage/ebof/$1]}"
    done
  done
}

corners=(
  'seqwrite:--rw=write --bs=128k' 'seqread:--rw=read --bs=128k' 'randwrite:--rw=randwrite --bs=4k' 'randread:--rw=randread --bs=4k'
)
# The table of the document: an ext4 file system on a local disk, and on the same one over RoCE.
set_up_document() {
  local subject
  device[local]=/dev/ram2 device[nvmet]=${device[disk/nvmet/rdma]} device[ebof]=${device[disk/ebof/rdma]}
  for subject in local nvmet ebof; do
    mkdir -p "/mnt/$subject"
    must mkfs.ext4 -q -F "${device[$subject]}"
    must mount "${device[$subject]}" "/mnt/$subject"
    must dd if=/dev/urandom of="/mnt/$subject/file" bs=1M count=$mebibytes oflag=direct
  done
}
bench_document() {
  local row
  for row in "${corners[@]}"; do
    measure document "${row%%:*}" "$1" "${row#*:} --iodepth=128 --numjobs=4" \
      local=/mnt/local/file nvmet=/mnt/nvmet/file ebof=/mnt/ebof/file
  done
}

# The link alone, by perftest and by ebof: bandwidth in transfers of 64 KiB, latency of 2 bytes.
bench_link() {
  local round=$1 operation tool bytes
  for operation in send write read; do
    for tool in bw lat; do
      bytes=2
      [[ $tool == lat ]] || bytes=65536
      "ib_${operation}_$tool" -R -F -n 300 -s $bytes >/dev/null 2>&1 &
      sleep 1
      # The average of the bandwidth, in MiB/s; half of the typical round trip, in microseconds.
      timeout 60 "ib_${operation}_$tool" -R -F -n 300 -s $bytes "$address" 2>&1 |
        awk -v row="$operation" -v tool=$tool -v bytes=$bytes -v round="$round" '$1 == bytes && NF >= 5 {
          printf "link\t%s\tperftest\t%d\t%.3f\n", row (tool == "lat" ? "-latency" : ""), round, tool == "lat" ? $5 : $4 * 1048576 }'
      wait $!
    done
    ebof rdma-check --listen "$address" >/dev/null 2>&1 &
    sleep 1
    ebof rdma-check "$address" -t "$operation" -n 300 -o json | jq -r --arg round "$round" '.measured[]
      | ["link", .operation, "ebof", $round, .bytes_per_second], ["link", .operation + "-latency", "ebof", $round, .latency_median_ns / 1000] | @tsv'
    kill $!
    wait $!
  done 2>/dev/null | tee -a /ctl/results
}

rounds=$1 seconds=$2
shift 2
cp /host/ebof /usr/bin/ebof
must rdma_link rxe eth0
: >/ctl/results
if [[ $* != link ]]; then
  set_up_disks
  set_up_targets
fi
[[ " $* " != *" document "* ]] || set_up_document
for ((round = 1; round <= rounds; round++)); do
  for part in "$@"; do
    case $part in
      rdma | tcp) bench_targets "$part" "$round" ;;
      link) bench_link "$round" ;;
      document) bench_document "$round" ;;
    esac
  done
done
exit 0
