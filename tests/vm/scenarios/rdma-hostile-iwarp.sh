# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# rdma-hostile-iwarp: the scenario rdma-hostile over soft iWARP.
#
# Not run by default: hosts and target are in one guest, where now and then a connection of the host
# that breaks the rules stalls for seconds. Nothing of it reaches the target then, and the target's
# other hosts are served; it looks as if soft iWARP's threads that send, one for each processor,
# wait for a peer that takes nothing.
# shellcheck source=rdma-hostile.sh
. "${BASH_SOURCE[0]%/*}/rdma-hostile.sh"
borrowed=(rdma-hostile.sh)

over_links() {
  if has_siw; then
    over_link siw
  else
    skip "soft iWARP" "$(no_siw_because)"
  fi
}
