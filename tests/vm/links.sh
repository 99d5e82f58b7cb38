# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # scenarios read variables; those of lib.sh come from there
# links.sh: RDMA links in a guest, which are soft RoCE (rxe) or soft iWARP (siw) on its network
# interfaces, and programs that listen there.

# rdma_link TYPE INTERFACE: an RDMA device TYPE_INTERFACE (like rxe_eth0) on that interface, for the
# kernel and for programs.
rdma_link() {
  local type=$1 interface=$2 module=$1
  [[ $type != rxe ]] || module=rdma_rxe
  modprobe -a "$module" ib_uverbs rdma_ucm && rdma link add "${type}_$interface" type "$type" netdev "$interface"
}

# Whether there is soft iWARP, which Debian's kernel lacks and setup.sh may have failed to build.
has_siw() { [[ ! -e /etc/siw-missing ]]; }
no_siw_because() { cat /etc/siw-missing; }

# listens tcp|rdma PORT: whether somebody listens there, the kernel or a program.
listens() {
  case $1 in
    tcp) [[ -n $(ss -Hltn "( sport = :$2 )") ]] ;;
    rdma) rdma resource show cm_id | grep -qE "state LISTEN .*src-addr [^ ]*:$2 " ;;
  esac
}

# What ebof's processes hold of RDMA: contexts, protection domains, queue pairs, regions.
held_objects() {
  local kind
  for kind in ctx pd qp mr; do
    printf '%s %d ' "$kind" "$(rdma -j resource show $kind | jq '[.[] | select(.comm // "" | startswith("ebof"))] | length')"
  done
}

# ebof_in_guest: copies the program into the guest, because every page read from the shared
# directory is a request to the machine. Afterwards the guest is a machine of its own: what a
# scenario asks the machine for is done here.
ebof_in_guest() {
  ebof=/usr/bin/ebof work=''
  check "ebof runs in the guest" eval 'cp /host/ebof /usr/bin/ebof && ebof version'
}

# rping and perftest's ib_send_bw, from address to itself or to another guest, whose end of it is
# serve_link_tests.
serve_link_tests() {
  (while :; do timeout 60 rping -s -a "$1" -C 5; done >/dev/null 2>&1) &
  (while :; do timeout 60 ib_send_bw -R -F -n 100 -s 65536; done >/dev/null 2>&1) &
}
step_link() {
  check "rping: RDMA reads and writes" until_true 30 timeout 20 rping -c -a "$1" -C 5 -V
  check_says "ib_send_bw" '^ *65536 ' until_says "$1"
}
until_says() {
  local try
  for try in {1..5}; do
    if timeout 60 ib_send_bw -R -F -n 100 -s 65536 "$1"; then return 0; fi
    sleep 1
  done
  return 1
}

# run_tests LINK PROGRAM ARGUMENT...: runs those tests of a program that cargo builds and ignores; a
# check for each.
run_tests() {
  local link=$1 program=$2 line
  shift 2
  LIMIT=150 attempt "$program" --ignored --test-threads=1 "$@"
  while read -r line; do
    case $line in
      "test "*" ... ok") line=${line#test } && pass "$link: ${line% ... ok}" ;;
      "test "*" ... FAILED") line=${line#test } && fail "$link: ${line% ... FAILED}" ;;
    esac
  done <<<"$out"
  # With the output of those that failed; also if it has ended before they did.
  if ((status != 0)) || ! grep -q '^test result: ok' <<<"$out"; then
    fail "$link: the tests end with the status 0: it is $status"
    sed -n '/^failures:/,$p' <<<"$out" | head -c 6000 | note
  fi
}
