#!/bin/bash
# try.sh: runs one program of this machine in a guest with an RDMA link, and exits with its status.
#
# try.sh [options] PROGRAM [ARGUMENT...]
#   -l TYPE     the link on eth0, 10.0.2.15: rxe (RoCE v2, the default), siw (iWARP) or none
#   -e WORDS    assignments for its environment, like "RUST_LOG=debug RUST_BACKTRACE=1"; may be repeated
#   -b COMMAND  a shell command in the guest before it, like "tc qdisc add dev eth0 root netem loss 1%"
#   -t SECONDS  time limit (300)
#
# The program is copied without debug information (the guest reads it through a slow file system)
# and runs as root in /root; it may write to /ctl. A test program of cargo:
#
#   program=$(cargo test --no-run -p ebof-verbs --message-format=json |
#     jq -r 'select(.executable).executable' | tail -n 1)
#   tests/vm/try.sh "$program" --nocapture --ignored
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
link=rxe environment='' before='' limit=300
while getopts l:e:b:t: option; do
  case $option in
    l) link=$OPTARG ;;
    e) environment+=" $OPTARG" ;;
    b) before=$OPTARG ;;
    t) limit=$OPTARG ;;
    *) sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
program=${1:?a program to run}
shift

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mkdir "$directory/share"
strip -o "$directory/share/program" "$program" 2>/dev/null || cp "$program" "$directory/share/program"
{
  echo '. /ctl/lib.sh; . /ctl/links.sh'
  [[ $link == none ]] || printf 'rdma_link %q eth0 || exit 1\n' "$link"
  printf '%s\n' "$before"
  printf '%s /host/program' "$environment"
  ((!$#)) || printf ' %q' "$@"
  echo
} >"$directory/script.sh"
"$here/vm.sh" -t "$limit" -s "$directory/share" "$directory/script.sh"
