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
  export EBOF_RDMA_ADDRESS=10.0.2.15
  run_tests "$1" /root/devices --skip removal
  # They remove the device.
  run_tests "$1" /root/devices removal
  check "the device is gone" until_true 20 eval '[[ -z $(rdma link show) ]]'
}
