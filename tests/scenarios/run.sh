#!/bin/bash
# run.sh: runs the scripts of docs/scenarios, and compares the pages with what they did.
#
# run.sh [NAME...]        without a name, all of them
#   EBOF   the program under test (default: target/debug/ebof of this repository)
#   EBOF_SCENARIO_PROGRAMS  programs of services, unpacked by scripts/packages.sh
#
# A script has 360 seconds, or what its line "# time limit: N s" says. Each of its checks counts as
# a test, and so does its page: every line in its console blocks has to be a line that the script
# printed, except for "..."; numbers of devices may differ, in output all numbers; the
# directory of a machine is /srv/NAME on pages. Every line in its
# blocks of configuration has to be in the script. A failure is repeated as "FAILED  NAME: check". The
# last line is "N passed, M failed, K skipped"; the status is 0 if nothing failed.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scenarios=$(cd "$here/../../docs/scenarios" && pwd)
export EBOF=${EBOF:-${CARGO_TARGET_DIR:-$here/../../target}/debug/ebof}
logs=$(mktemp -d) passed=0 failed=0 skipped=0 child=''
trap 'rm -rf "$logs"' EXIT
# timeout passes it on; the script cleans up.
trap '[[ -z $child ]] || kill "$child"; wait; exit 130' INT TERM HUP

fail() {
  failed=$((failed + 1))
  printf 'FAILED  %s\n' "$*"
}

# missing NAME LOG: the lines of the page's blocks that are not in the script's output, or in the
# script.
missing() {
  awk '
    # What differs from run to run.
    function normal(line) {
      sub(/ &$/, "", line)
      gsub(/\/dev\/(loop|ublkb)[0-9]+/, "DEVICE", line)
      if (line !~ /^[a-z0-9]+# /) {
        gsub(/\/[^ ]*\/ebof-scenario\.[A-Za-z0-9]+\//, "/srv/", line)
        gsub(/EBOF[0-9A-F]+/, "SERIAL", line)
        gsub(/[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+/, "UUID", line)
        gsub(/[0-9]+/, "N", line)
        gsub(/---+/, "---", line)
      } else sub(/  +# .*$/, "", line)
      gsub(/[ \t]+/, " ", line)
      sub(/ $/, "", line)
      return line
    }
    FILENAME == ARGV[1] { printed[normal($0)]; next }
    FILENAME == ARGV[2] { written[$0]; next }
    /^```/ { block = block == "" ? substr($0, 4) : ""; next }
    /^$/ || $0 == "..." { next }
    block == "console" && !(normal($0) in printed) { print FNR ": " $0 }
    block == "toml" && !($0 in written) { print FNR ": " $0 }
  ' "$2" "$scenarios/$1.sh" "$scenarios/$1.md"
}

page() {
  local name=$1 log=$2 wrong
  wrong=$(
    for file in "$name.md" "$name.svg"; do [[ -f $scenarios/$file ]] || echo "there is no $file"; done
    [[ ! -f $scenarios/$name.md ]] || {
      grep -qF "]($name.svg)" "$scenarios/$name.md" || echo "$name.md does not show $name.svg"
      missing "$name" "$log"
    }
    grep -qF "]($name.md)" "$scenarios/README.md" || echo "README.md does not name $name.md"
  )
  if [[ $wrong ]]; then
    printf '%s\n' "$wrong"
    fail "$name: the page says what the script does"
  else
    passed=$((passed + 1))
  fi
}

scenario() {
  local name=$1 log=$logs/$1.log status=0 limit line began=$EPOCHREALTIME seconds
  limit=$(sed -n 's/^# time limit: \([0-9]*\) s$/\1/p' "$scenarios/$name.sh")
  timeout --kill-after=30 "${limit:-360}" bash "$scenarios/$name.sh" >"$log" 2>&1 </dev/null &
  child=$!
  wait "$child" || status=$?
  child=''
  seconds=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $began }")
  printf '== %s, %s s\n' "$name" "$seconds"
  grep -E '^(ok|FAILED|SKIPPED): ' "$log"
  passed=$((passed + $(grep -c '^ok: ' "$log")))
  skipped=$((skipped + $(grep -c '^SKIPPED: ' "$log")))
  while IFS= read -r line; do fail "$name: $line"; done < <(sed -n 's/^FAILED: //p' "$log")
  if ((status == 77)) && grep -q '^SKIPPED: ' "$log"; then
    : # what is skipped did not print everything: its page is not compared
  elif ((status != 0)); then
    sed 's/^/  | /' "$log" | tail -n 60
    ((status != 124 && status != 137)) || fail "$name: the time limit of ${limit:-360} s was exceeded"
    grep -q '^FAILED: ' "$log" || ((status == 124 || status == 137)) || fail "$name: exit status $status"
  else
    page "$name" "$log"
  fi
}

names=("$@")
if ((!${#names[@]})); then
  for name in "$scenarios"/*.sh; do
    name=$(basename "$name" .sh)
    [[ $name == lib ]] || names+=("$name")
  done
fi
for name in "${names[@]}"; do
  if [[ -f $scenarios/$name.sh ]]; then
    scenario "$name"
  else
    fail "$name: there is no docs/scenarios/$name.sh"
  fi
done
((passed + failed + skipped > 0)) || fail "no scenario was run"
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
exit $((failed > 0))
