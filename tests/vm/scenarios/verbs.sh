# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of lib.sh, which reads this file
# verbs: the tests of RDMA devices that cargo builds and ignores, each of which is a check: over
# soft RoCE, then over soft iWARP.

machine() {
  needs_verbs_tests || return
  boot_guest -t 300 --
}

guest() {
  check "the tests are in the guest" cp /host/devices /root/devices || return
  tests_over rxe
  if has_siw; then
    tests_over siw
  else
    skip "the tests over soft iWARP" "$(no_siw_because)"
  fi
  kernel_log_is_clean "about RDMA"
}

tests_over() {
  step "queue pairs over $1"
  check "an RDMA device of the type $1" rdma_link "$1" eth0 || return
  run_tests "$1" --skip removal
  # It removes the device.
  run_tests "$1" removal
  check "the device is gone" until_true 20 eval '[[ -z $(rdma link show) ]]'
}

# run_tests LINK ARGUMENT...: a check for each test.
run_tests() {
  local link=$1 line
  shift
  EBOF_RDMA_ADDRESS=10.0.2.15 LIMIT=150 attempt /root/devices --ignored --test-threads=1 "$@"
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
