#!/bin/bash
# bench.sh: measures ebof's target beside the kernel's, over RDMA and TCP, in a guest with soft
# RoCE.
#
# bench.sh [options] [PART...]   the parts (default: all): rdma, tcp, document, link
#   -o json       the results as JSON instead of a table (docs/performance.md)
#   -r ROUNDS     how often everything is measured, in turns (5)
#   -s SECONDS    for each measurement (2)
#   EBOF          the binary (default: target/release/ebof, else target/debug/ebof, of this repository)
#
# The guest is emulated: only ratios count. Everything takes about 25 minutes. A thread of the
# machine emulates each of its two processors; other load on the machine makes the figures useless.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
export EBOF_VM_CACHE=${EBOF_VM_CACHE:-${HOME:?}/.cache/ebof-vm}
PATH=$PATH:$EBOF_VM_CACHE/tools/bin

format=table rounds=5 seconds=2
while getopts o:r:s: option; do
  case $option in
    o) format=$OPTARG ;;
    r) rounds=$OPTARG ;;
    s) seconds=$OPTARG ;;
    *) sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
parts=("$@")
((${#parts[@]})) || parts=(rdma tcp document link)
[[ $format == table || $format == json ]] || { echo "bench.sh: -o $format: table or json" >&2; exit 2; }

ebof=${EBOF:-}
for candidate in "${CARGO_TARGET_DIR:-$repository/target}"/{release,debug}/ebof; do
  [[ -n $ebof || ! -x $candidate ]] || ebof=$candidate
done
[[ -x $ebof ]] || { echo "bench.sh: no ebof binary: build it, or set EBOF" >&2; exit 2; }
"$here/setup.sh" >&2

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mkdir "$directory/share" "$directory/ctl"
strip -o "$directory/share/ebof" "$ebof" 2>/dev/null || cp "$ebof" "$directory/share/ebof"
limit=$((300 + rounds * (seconds + 3) * 60))
"$here/vm.sh" -p -n bench -t "$limit" -m 2048 -c "$directory/ctl" -s "$directory/share" "$here/bench-guest.sh" "$rounds" "$seconds" "${parts[@]}" >&2

# For each row and subject the median of its runs, the least and the most; for each row the ratios
# of ebof to the others, as the median of those of each round.
# shellcheck disable=SC2016 # jq's variables
summarize='
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def spread: {median: median, min: min, max: max};
  def ratio($runs; $of; $to): [$of, $to] | map(. as $subject | $runs | map(select(.subject == $subject)))
    | . as [$a, $b] | [$a[] | . as $run | $b[] | select(.round == $run.round) | $run.value / .value] | spread;
  {schema: "ebof/bench-vm/1", rounds: $rounds, seconds: $seconds,
   rows: (split("\n") | map(select(. != "") | split("\t") | {part: .[0], row: .[1], subject: .[2], round: (.[3] | tonumber), value: (.[4] | tonumber)})
    | group_by([.part, .row]) | map(. as $runs | {part: .[0].part, row: .[0].row,
      unit: (.[0] | if .row | endswith("-latency") then "us" elif .part == "link" or (.row | startswith("seq")) then "bytes/s" else "operations/s" end),
      subjects: (group_by(.subject) | map({key: .[0].subject, value: (map(.value) | spread + {runs: .})}) | from_entries),
      ratios: ([["ebof", "nvmet"], ["ebof", "local"], ["nvmet", "local"], ["ebof", "perftest"]]
        | map(select(. as $pair | [$runs[].subject] | contains($pair)) | {key: join("/"), value: ratio($runs; .[0]; .[1])}) | from_entries)}))}'
jq -Rs --argjson rounds "$rounds" --argjson seconds "$seconds" "$summarize" "$directory/ctl/results" >"$directory/results.json"
if [[ $format == json ]]; then
  cat "$directory/results.json"
  exit
fi
jq -r '
  # The document: sequential in MB/s, random in thousands of operations per second, local and over
  # RoCE.
  {seqwrite: (2031 / 2035), seqread: (2889 / 3374), randwrite: (48.4 / 51.6), randread: (557 / 571)} as $document
  | .rows[] | . as $row | .ratios | to_entries[] | [$row.part, $row.row, .key, .value.median, .value.min, .value.max,
    (if $row.part == "document" and (.key | endswith("/local")) then $document[$row.row] else "" end)] | @tsv' "$directory/results.json" |
  awk -F '\t' 'BEGIN { printf "%-12s %-14s %-12s %7s  %s\n", "part", "row", "ratio", "median", "spread" }
    { printf "%-12s %-14s %-12s %7.2f  %.2f to %.2f%s\n", $1, $2, $3, $4, $5, $6, $7 == "" ? "" : sprintf("  (the document: %.2f)", $7) }'
