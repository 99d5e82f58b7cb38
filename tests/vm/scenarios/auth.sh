# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# auth: in-band authentication (DH-HMAC-CHAP) with the Linux kernel at the other end: its host and
# ebof's target, then its target and ebof's host. One boot for both.
# @test wire.authentication

served=nqn.2014-08.org.example:served
kernel=nqn.2014-08.org.example:kernel
host=nqn.2014-08.org.example:blade
hostid=6a1e6a5c-3c1f-4f7e-9d1e-5a5be6ff000

machine() {
  needs_ebof || return
  port=$(free_port) kernel_port=$(free_port)
  step "keys of all kinds, and a target on 127.0.0.1:$port that has them"
  local kind
  mkdir "$work/keys" "$work/ctl/keys"
  for kind in 0 1 2 3; do
    (umask 077; "$ebof" gen-dhchap-key --hmac "$kind" >"$work/keys/$kind")
  done
  (umask 077; "$ebof" gen-dhchap-key --hmac 1 >"$work/keys/other"; "$ebof" gen-dhchap-key >"$work/keys/subsystem")
  check "keys are made" test -s "$work/keys/subsystem" || return
  cp "$work/keys"/* "$work/ctl/keys/"
  configuration >"$work/auth.toml"
  start auth "$ebof" serve --confine all --config "$work/auth.toml"
  check "ebof serve listens" until_true 60 reachable "$port" || { note <"$work/auth.log"; return; }
  boot_guest -t 900 -f "$kernel_port:4420" -- "$port"
  check "SIGTERM ends the target with status 0" stop auth TERM 30
  check "it did not panic" eval "! grep -n panicked '$work/auth.log'"
  check "no key is in what it logged" eval "! grep -nF -f <(cut -d: -f3 '$work/keys'/*) '$work/auth.log'"
}

configuration() {
  local kind
  echo "ports = [{ listen = \"tcp://127.0.0.1:$port\" }]"
  for kind in 0 1 2 3; do
    cat <<TOML
[[hosts]]
nqn = "$host$kind"
dhchap_key = { file = "$work/keys/$kind" }
dhchap_ctrl_key = { file = "$work/keys/subsystem" }
TOML
  done
  cat <<TOML
[[subsystems]]
nqn = "$served"
allow_any_host = true
security = "authenticated"
namespaces = ["mem:64Mi"]
TOML
}

guest() {
  address=10.0.2.2 port=$1 nqn=$served
  check "modprobe" modprobe -a nvme-tcp nvmet nvmet-tcp dh_generic || return
  step_kernels_host
  step_again
  step_refusals
  clear_kernel_log
  step_kernels_target
}

# named KIND: the options of nvme connect for one of the hosts.
named() { echo "-q $host$1 -I $hostid$1"; }
key() { cat "/ctl/keys/$1"; }

step_kernels_host() {
  local kind
  step "the kernel's host, with keys of all kinds"
  for kind in 0 1 2 3; do
    # shellcheck disable=SC2046 # words
    connects $(named "$kind") -i 2 --dhchap-secret "$(key "$kind")" || return
    check "it reads" dd if="$(namespace_device 1)" of=/dev/null bs=64k count=4 iflag=direct
    disconnects
  done
  step "with a proof of the target"
  # shellcheck disable=SC2046 # words
  connects $(named 1) -i 2 --dhchap-secret "$(key 1)" --dhchap-ctrl-secret "$(key subsystem)" || return
  kernel_log_is_clean "about authentication"
}

authenticated_again() { (($(dmesg | grep -c 're-authenticating controller') >= $1)) && ! dmesg | grep -q 'authentication failed'; }

step_again() {
  local writer disk
  step "authenticated again, while it writes"
  disk=$(namespace_device 1)
  fio --name=again --filename="$disk" --rw=randwrite --bs=4k --ioengine=libaio --iodepth=8 --direct=1 --size=32M \
    --verify=crc32c --verify_state_save=0 --time_based --runtime=20 >/tmp/again.log 2>&1 &
  writer=$!
  sleep 3
  check "a new secret is set" eval "key 1 >/sys/class/nvme/$controller/dhchap_secret"
  check "the controller is authenticated again" until_true 60 authenticated_again 1
  check "the writes end without an error" wait_for "$writer" || note </tmp/again.log
  check "$controller is live" controller_is "$controller" live
  disconnects
}
# A function, since the process is a child of this shell alone.
wait_for() { wait "$1"; }

step_refusals() {
  step "who is refused"
  # shellcheck disable=SC2046 # words
  {
    check_fails "a host with another secret" 'fail|denied|could not|rejected|input/output|not permitted' \
      nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" $(named 1) --dhchap-secret "$(key other)"
    check_fails "a host without one" 'fail|denied|could not|required|input/output|not permitted' \
      nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" $(named 1)
    check_fails "a host that the target has no secret of" 'fail|denied|could not|invalid|input/output|not permitted' \
      nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" $(named 9) --dhchap-secret "$(key 1)"
    check_fails "a target with another secret" 'fail|denied|could not|rejected|input/output|not permitted' \
      nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" $(named 1) --dhchap-secret "$(key 1)" \
      --dhchap-ctrl-secret "$(key other)"
  }
  check "no controller is left" no_controllers "$nqn"
}

# The kernel's target: hash, group, kind of the key, whether it proves itself.
cells=(
  "sha256 null 0 no" "sha384 null 1 yes" "sha512 ffdhe2048 2 no" "sha256 ffdhe3072 3 yes"
  "sha384 ffdhe4096 0 yes" "sha512 ffdhe6144 1 no" "sha256 ffdhe8192 2 yes"
)

step_kernels_target() {
  local cell at=0 hash group kind mutual name
  step "the kernel's target"
  check "a RAM disk" modprobe brd rd_nr=1 rd_size=$((64 * 1024)) || return
  check "nvmet: a subsystem" nvmet_subsystem "$kernel" /dev/ram0
  echo 0 >"$nvmet/subsystems/$kernel/attr_allow_any_host"
  for cell in "${cells[@]}"; do
    read -r hash group kind mutual <<<"$cell"
    name=$host-cell$at
    mkdir "$nvmet/hosts/$name"
    key "$kind" >"$nvmet/hosts/$name/dhchap_key"
    echo "hmac($hash)" >"$nvmet/hosts/$name/dhchap_hash"
    echo "$group" >"$nvmet/hosts/$name/dhchap_dhgroup"
    [[ $mutual == no ]] || key subsystem >"$nvmet/hosts/$name/dhchap_ctrl_key"
    ln -s "$nvmet/hosts/$name" "$nvmet/subsystems/$kernel/allowed_hosts/"
    at=$((at + 1))
  done
  check "nvmet: a TCP port" nvmet_port 1 tcp 0.0.0.0 4420 "$kernel" || return
  ask kernels_target
  check "no connection to the target is left" until_true 60 no_connections
  nvmet_clear
}
no_connections() { [[ -z $(ss -Htn state established '( sport = :4420 )') ]]; }

on_kernels_target() {
  local cell at=0 hash group kind mutual uri=nvme+tcp://127.0.0.1:$kernel_port/$kernel options
  for cell in "${cells[@]}"; do
    read -r hash group kind mutual <<<"$cell"
    options=(--hostnqn "$host-cell$at" --dhchap-secret-file "$work/keys/$kind")
    [[ $mutual == no ]] || options+=(--dhchap-ctrl-secret-file "$work/keys/subsystem")
    check_says "ebof id-ctrl: $hash, $group, key $kind, proof of the target: $mutual" "^subnqn .*$kernel" \
      "$ebof" id-ctrl "$uri" "${options[@]}"
    check "ebof read" "$ebof" read "$uri/1" "${options[@]}" -s 0 -c 7 -z 4096 -d "$work/back"
    at=$((at + 1))
  done
  options=(--hostnqn "$host-cell0")
  check_fails "without a secret" 'wants this host to authenticate' "$ebof" id-ctrl "$uri" "${options[@]}"
  check_fails "with another secret" 'does not take this host for' \
    "$ebof" id-ctrl "$uri" "${options[@]}" --dhchap-secret-file "$work/keys/other"
  options=(--hostnqn "$host-cell1" --dhchap-secret-file "$work/keys/1")
  check_fails "a target with another secret" "the controller's response is wrong" \
    "$ebof" id-ctrl "$uri" "${options[@]}" --dhchap-ctrl-secret-file "$work/keys/other"
  chmod 644 "$work/keys/1"
  check_fails "a secret that others can read" 'chmod 600' "$ebof" id-ctrl "$uri" "${options[@]}"
  chmod 600 "$work/keys/1"
}
