# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# concat: secure channel concatenation with the Linux kernel at the other end: its host and ebof's
# target, then its target and ebof's host. Linux has it from 6.15 on: run it with a kernel of
# Debian's backports (README.md).
# @test wire.secure-channel

served=nqn.2014-08.org.example:served
kernel=nqn.2014-08.org.example:kernel
host=nqn.2014-08.org.example:blade
hostid=6a1e6a5c-3c1f-4f7e-9d1e-5a5be6ff0001
mark=a-mark-that-nobody-may-read

machine() {
  needs_ebof || return
  port=$(free_port) kernel_port=$(free_port)
  mkdir "$work/keys" "$work/ctl/keys"
  (umask 077; for kind in secret other subsystem; do "$ebof" gen-dhchap-key --hmac 1 >"$work/keys/$kind"; done)
  cp "$work"/keys/* "$work/ctl/keys/"
  yes $mark | head -c 256K >"$work/ctl/marked"
  configuration >"$work/concat.toml"
  start concat "$ebof" serve --confine all --config "$work/concat.toml"
  check "ebof serve listens" until_true 60 reachable "$port" || { note <"$work/concat.log"; return; }
  boot_guest -t 900 -f "$kernel_port:4420" -- "$port"
  check "SIGTERM ends the target with status 0" stop concat TERM 30
  check "it did not panic" eval "! grep -n panicked '$work/concat.log'"
  check "no key is in what it logged" eval "! grep -nF -f <(cut -d: -f3 '$work'/keys/*) '$work/concat.log'"
}

configuration() {
  cat <<TOML
[[ports]]
listen = "tcp://127.0.0.1:$port"
tls = "allowed"
[[hosts]]
nqn = "$host"
dhchap_key = { file = "$work/keys/secret" }
dhchap_ctrl_key = { file = "$work/keys/subsystem" }
[[subsystems]]
nqn = "$served"
allow_any_host = true
security = "authenticated+tls"
namespaces = ["mem:64Mi"]
TOML
}

guest() {
  address=10.0.2.2 port=$1 nqn=$served
  check "modprobe" modprobe -a nvme-tcp nvmet nvmet-tcp tls aesni_intel dh_generic || return
  if ! grep -q concat /dev/nvme-fabrics; then
    skip "secure channel concatenation" "Linux $(uname -r) has none"
    return
  fi
  tlshd -s >/ctl/tlshd.log 2>&1 &
  step_kernels_host
  step_kernels_target
}

key() { cat "/ctl/keys/$1"; }
generated() { keyctl show %:.nvme | grep -c "NVMe1G0[12] $host $1 "; }

step_kernels_host() {
  local before
  step "the kernel's host"
  connects -q "$host" -I "$hostid" -i 2 --dhchap-secret "$(key secret)" --concat || return
  check_equal "a key was generated" 1 "$(generated $served)"
  check "it has TLS with that key" eval "[[ -n \$(cat /sys/class/nvme/$controller/tls_key) ]]"
  tcpdump -Z root -i eth0 --immediate-mode -B 65536 -s 65535 -U -w /ctl/capture "tcp port $port" 2>/tmp/capture.log &
  process[capture]=$!
  check "tcpdump captures" until_true 60 grep -q 'listening on' /tmp/capture.log
  check "marks are written and read" eval "dd if=/ctl/marked of=$(namespace_device 1) bs=64k oflag=direct status=none &&
    dd if=$(namespace_device 1) bs=64k count=4 iflag=direct status=none | cmp - /ctl/marked"
  sleep 1
  stop capture TERM 30
  check_equal "no mark is seen on the wire" 0 "$(grep -ao $mark /ctl/capture | wc -l)"
  step "its key is replaced"
  before=$(cat "/sys/class/nvme/$controller/tls_key")
  check "a new key is wanted" eval "echo 0 >/sys/class/nvme/$controller/tls_configured_key"
  check "$controller is live" until_true 60 controller_is "$controller" live
  check "it has another key" eval "[[ \$(cat /sys/class/nvme/$controller/tls_key) != '$before' ]]"
  check "it reads" dd if="$(namespace_device 1)" of=/dev/null bs=64k count=2 iflag=direct
  check "nvme reset" nvme reset "/dev/$controller"
  check "$controller is live again" until_true 60 controller_is "$controller" live
  check "it reads again" dd if="$(namespace_device 1)" of=/dev/null bs=64k count=2 iflag=direct
  disconnects
  step "who is refused"
  check_fails "a host that does not go on over TLS" 'could not|fail|not supported' \
    nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" -q "$host" -I "$hostid" --dhchap-secret "$(key secret)"
  check_fails "a host with another secret" 'could not|fail|denied' \
    nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" -q "$host" -I "$hostid" --dhchap-secret "$(key other)" --concat
  check "no controller is left" no_controllers "$nqn"
}

step_kernels_target() {
  local hash
  step "the kernel's target"
  check "a RAM disk" modprobe brd rd_nr=1 rd_size=$((16 * 1024)) || return
  check "nvmet: a subsystem" nvmet_subsystem "$kernel" /dev/ram0
  echo 0 >"$nvmet/subsystems/$kernel/attr_allow_any_host"
  mkdir "$nvmet/hosts/$host"
  key secret >"$nvmet/hosts/$host/dhchap_key"
  echo ffdhe3072 >"$nvmet/hosts/$host/dhchap_dhgroup"
  ln -s "$nvmet/hosts/$host" "$nvmet/subsystems/$kernel/allowed_hosts/"
  check "nvmet: a port that allows TLS" eval "nvmet_port 1 tcp 0.0.0.0 4420 && echo tls1.3 >$nvmet/ports/1/addr_tsas &&
    echo 'not required' >$nvmet/ports/1/addr_treq && ln -s $nvmet/subsystems/$kernel $nvmet/ports/1/subsystems/" || return
  # tlshd of Debian trixie makes wrong binders for SHA-384.
  echo 'hmac(sha256)' >"$nvmet/hosts/$host/dhchap_hash"
  ask kernels_target
  key subsystem >"$nvmet/hosts/$host/dhchap_ctrl_key"
  ask kernels_target_proves
  ask wrong_subsystem
  nvmet_clear
}

on_kernels_target() {
  local uri=nvme+tcp://127.0.0.1:$kernel_port/$kernel
  local options=(--hostnqn "$host" --dhchap-secret-file "$work/keys/secret" --concat)
  check_says "ebof id-ctrl --concat" "^subnqn .*$kernel" "$ebof" id-ctrl "$uri" "${options[@]}"
  check "ebof write" "$ebof" write "$uri/1" "${options[@]}" -s 0 -c 511 -z 262144 -d "$work/ctl/marked"
  check "ebof read" "$ebof" read "$uri/1" "${options[@]}" -s 0 -c 511 -z 262144 -d "$work/back"
  check "the data read are those written" cmp "$work/ctl/marked" "$work/back"
  check_says "ebof reauthenticate" 'the key for TLS is replaced' "$ebof" reauthenticate "$uri" "${options[@]}"
}
# Linux 7.3 makes no key if it has to prove itself, too ("failed to generate PSK").
on_kernels_target_proves() {
  attempt "$ebof" id-ctrl "nvme+tcp://127.0.0.1:$kernel_port/$kernel" --hostnqn "$host" --concat \
    --dhchap-secret-file "$work/keys/secret" --dhchap-ctrl-secret-file "$work/keys/subsystem"
  if ((status == 0)); then
    check "a target that proves itself, too" true
  else
    skip "a target that proves itself, too" "this kernel generates no key then"
  fi
}
on_wrong_subsystem() {
  check_fails "a target with another secret of the subsystem" "the controller's response is wrong" "$ebof" id-ctrl \
    "nvme+tcp://127.0.0.1:$kernel_port/$kernel" --hostnqn "$host" --dhchap-secret-file "$work/keys/secret" --concat \
    --dhchap-ctrl-secret-file "$work/keys/other"
}
