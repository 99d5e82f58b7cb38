# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# tls: TLS 1.3 with pre-shared keys and the Linux kernel at the other end: its host and ebof's
# target, then its target and ebof's host. One boot for both.
#
# In the guest tlshd does the kernel's handshakes, with keys that nvme-cli puts into the keyring
# .nvme. nvme-cli 2.13 derives them in a way of its own, later releases as the specification says:
# such keys are derived here. tlshd of Debian trixie (GnuTLS 3.8.9) makes wrong binders for SHA-384,
# so openssl is the host that has a key of 48 bytes.
# @test wire.tls

served=nqn.2014-08.org.example:served
guarded=nqn.2014-08.org.example:guarded # demands TLS of its hosts
kernel=nqn.2014-08.org.example:kernel
discovery=nqn.2014-08.org.nvmexpress.discovery
host=nqn.2014-08.org.example:blade # hosts are ${host}0, ${host}1 ...
hostid=6a1e6a5c-3c1f-4f7e-9d1e-5a5be6ff000
mark=a-mark-that-nobody-may-read

# ---- on the machine

machine() {
  needs_ebof || return
  required=$(free_port) allowed=$(free_port) plain=$(free_port)
  kernel_required=$(free_port) kernel_allowed=$(free_port)
  mkdir "$work/keys" "$work/ctl/keys"
  yes $mark | head -c 256K >"$work/ctl/marked"
  boot_guest -t 900 -f "$kernel_required:4420" -f "$kernel_allowed:4421" -- "$required" "$allowed" "$plain"
  check "SIGTERM ends the target with status 0" stop tls TERM 30
  check "it did not panic" eval "! grep -n panicked '$work/tls.log'"
  # A port has `tls_records = "kernel"`.
  [[ -e /proc/net/tls_stat ]] ||
    check "it said once that this kernel has no TLS" test "$(grep -c "TLS records are not the kernel's.*modprobe tls" "$work/tls.log")" == 1
  check "no key is in what it logged" eval "! grep -nF -f <(cut -d: -f3 '$work'/keys/*) '$work/tls.log'"
}
cleanup() { [[ -z $attached ]] || "$ebof" disconnect -n "$kernel" >/dev/null 2>&1; }

# A request of the guest, which has made the keys: a target that has them.
on_serve() {
  (
    umask 077 # the guest's files can be read by others
    for kind in {0..4}; do cat "$work/ctl/keys/$kind" >"$work/keys/$kind"; done
    "$ebof" gen-dhchap-key --hmac 1 >"$work/keys/secret"
    "$ebof" gen-dhchap-key --hmac 1 >"$work/keys/other-secret"
    # A key that is about to be replaced by another one: the host may have either.
    cat "$work/keys/4" "$work/keys/1" >"$work/keys/both"
  )
  cp "$work"/keys/*secret "$work/ctl/keys/"
  configuration >"$work/tls.toml"
  start tls "$ebof" serve --confine all --config "$work/tls.toml"
  check "ebof serve listens" until_true 60 reachable "$plain" || { note <"$work/tls.log"; return 1; }
}

configuration() {
  cat <<TOML
[target]
control = "$work/control.sock"
[[ports]]
listen = "tcp://127.0.0.1:$required"
tls = "required"
[[ports]]
listen = "tcp://127.0.0.1:$allowed"
tls = "allowed"
tls_records = "kernel"
[[ports]]
listen = "tcp://127.0.0.1:$plain"
[[hosts]]
nqn = "${host}0"
tls_psk = { file = "$work/keys/0" }
[[hosts]]
nqn = "${host}1"
tls_psk = { file = "$work/keys/both" }
[[hosts]]
nqn = "${host}2"
tls_psk = { file = "$work/keys/2" }
dhchap_key = { file = "$work/keys/secret" }
[[hosts]]
nqn = "${host}3"
tls_psk = { file = "$work/keys/3" }
[[subsystems]]
nqn = "$served"
allow_any_host = true
namespaces = ["mem:64Mi"]
[[subsystems]]
nqn = "$guarded"
allow_any_host = true
security = "tls"
namespaces = ["mem:16Mi"]
TOML
}

# The refused connections that the target remembers, one to a line, into $work/refused.
refused() {
  printf 'GET /v1/refused HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' |
    socat -t 0.1 -,ignoreeof "UNIX-CONNECT:$work/control.sock" | sed '1,/^\r$/d' | jq -c '.[]' >"$work/refused"
}
# A request of the guest: that it has refused none.
on_has_refused_none() {
  refused
  check_equal "the target has refused no connection" '' "$(<"$work/refused")"
  : >"$work/refused.before"
}
# A request of the guest: that it has refused one since the request before, and its reason and
# words.
on_has_refused() {
  check "... the target says: $1${2:+, ${*:2}}" until_true 20 is_refused "$1" "${*:2}"
  grep -vxFf "$work/refused.before" "$work/refused" | note
  cp "$work/refused" "$work/refused.before"
}
is_refused() {
  refused
  grep -vxFf "$work/refused.before" "$work/refused" |
    jq -es --arg reason "$1" --arg words "$2" 'any(.reason == $reason and ("\(.detail) \(.advice)" | test($words; "i")))'
}

# A request of the guest, derive VERSION KEY SUBSYSTEM: what the specification makes of a key of the
# host with the same number (NVMe/TCP, TLS PSK and PSK Identity Derivation), in /ctl/identity and
# /ctl/psk.
on_derive() {
  python3 - "$1" "$(<"$work/keys/$2")" "$host$2" "$3" "$work/ctl" <<'PYTHON'
import base64, hmac, sys
version, key, host, subsystem, directory = sys.argv[1:]
_, transform, configured, _ = key.split(":")
configured = base64.b64decode(configured)[:-4] # behind it is its CRC-32
number, name, length = ("02", "sha384", 48) if len(configured) == 48 else ("01", "sha256", 32)
def expand(secret, label, context):
    label = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + bytes([len(context)]) + context
    return hmac.digest(hmac.digest(bytes(length), secret, name), info + b"\1", name)
retained = configured if transform == "00" else expand(configured, b"HostNQN", host.encode())
identity = context = f"NVMe{version}R{number} {host} {subsystem}"
if version == "1":
    digest = hmac.digest(retained, f"{host} {subsystem} NVMe-over-Fabrics".encode(), name)
    digest = base64.b64encode(digest).decode()
    identity, context = f"{identity} {digest}", f"{number} {digest}"
open(f"{directory}/identity", "w").write(identity)
open(f"{directory}/psk", "wb").write(expand(retained, b"nvme-tls-psk", context.encode()))
PYTHON
}

# ---- in the guest

guest() {
  address=10.0.2.2 required=$1 allowed=$2 plain=$3
  # Without aesni_intel, which udev loads elsewhere, AES-GCM takes twice as long.
  check "modprobe" modprobe -a nvme-tcp nvmet nvmet-tcp tls aesni_intel dh_generic || return
  tlshd -s >/ctl/tlshd.log 2>&1 &
  make_keys && ask serve || return
  step_kernels_keys
  step_derived_keys
  step_keyrings
  step_discovery
  ask has_refused_none
  kernel_log_is_clean "about TLS"
  step_refusals
  step_allowed
  step_authenticated
  clear_kernel_log
  step_kernels_target
}

# Keys 0 to 4: of 32 bytes without and with a transformation, another one, one of 48 bytes, and one
# that no host uses.
make_keys() {
  local kind hash
  step "keys"
  for kind in {0..4}; do
    hash=1
    [[ $kind != 3 ]] || hash=2
    check_says "nvme gen-tls-key -m $hash" "^NVMeTLSkey-1:0$hash:" nvme gen-tls-key -m $hash -n "$host$kind" -c $served || return
    echo "$out" >"/ctl/keys/$kind"
  done
  # nvme-cli makes none that is not transformed.
  sed -i 's/^NVMeTLSkey-1:01/NVMeTLSkey-1:00/' /ctl/keys/0
}
key() { cat "/ctl/keys/$1"; }
# named N: the options of nvme connect for one of the hosts.
named() { echo "-q $host$1 -I $hostid$1"; }

serial='' # of the key that was put into the keyring last, in hexadecimal
# keeps VERSION KEY HOST SUBSYSTEM: nvme-cli derives a key and puts it into the keyring.
keeps() {
  check_says "nvme check-tls-key --insert: key $2 of host $3, identity version $1" 'Inserted TLS key' \
    nvme check-tls-key -d "$(key "$2")" -I "$1" -n "$host$3" -c "$4" --insert || return
  serial=${out##* }
}
# keeps_derived VERSION KEY SUBSYSTEM: a key as the specification derives it.
# shellcheck disable=SC2016 # eval expands it
keeps_derived() {
  ask derive "$@" && check "keyctl padd: key $2, identity version $1" eval \
    'keyctl padd psk "$(</ctl/identity)" %:.nvme </ctl/psk' || return
  printf -v serial %08x "$out"
}
forgets() { keyctl clear %:.nvme; }

# connects_secured HOST [FLAG...]: over TLS, by the key that was put into the keyring last.
connects_secured() {
  # shellcheck disable=SC2046 # words
  connects $(named "$1") --tls "${@:2}" || return
  check_equal "$controller has TLS, with that key" "$serial" "$(cat "/sys/class/nvme/$controller/tls_key")"
}
check_reads() { check "it reads" dd if="$(namespace_device 1)" of=/dev/null bs=64k count=2 iflag=direct; }

# The other pairs of key and version are connected in later steps.
step_kernels_keys() {
  local version
  step "the kernel's host, with keys as nvme-cli 2.13 derives them"
  port=$required nqn=$served
  for version in 0 1; do
    forgets
    keeps $version $version $version $served && connects_secured $version -i 1 && check_reads
    disconnects
  done
}

step_derived_keys() {
  step "the kernel's host, with keys as the specification derives them"
  forgets
  keeps_derived 0 1 $served && connects_secured 1 -i 1 && check_reads
  disconnects
  ask derive 1 3 $served && ask key_of_48_bytes
  step "data, by four I/O queues"
  forgets
  # The same name as in nvme-cli's way, for another key.
  keeps_derived 1 0 $served && connects_secured 0 -i 2 -W 2 || return
  verified_writes "fio: random writes of 4 KiB to 1 MiB, CRC32C verified, depth 4" "$(namespace_device 1)" \
    --bssplit=4k/40:64k/30:1m/30 --size=5M --iodepth=4
  check_equal "the kernel logs no error so far" '' "$(dmesg | kernel_errors)"
  check "nvme reset" nvme reset "/dev/$controller"
  check "$controller is live again" until_true 60 controller_is "$controller" live
  check_reads
  clear_kernel_log
  disconnects
}
# openssl takes a key for another hash than SHA-256 only as a session.
on_key_of_48_bytes() {
  python3 - "$work/ctl/psk" >"$work/session" <<'PYTHON'
import base64, sys, time
def element(tag, content): return bytes([tag, 0x81, len(content)]) + content
def number(value): return element(2, value.to_bytes(value.bit_length() // 8 + 1, "big"))
psk = open(sys.argv[1], "rb").read()
session = number(1) + number(0x0304) + element(4, b"\x13\x02") + element(4, b"") + element(4, psk)
session += element(0xA1, number(int(time.time()))) + element(0xA2, number(7200))
session = base64.encodebytes(element(0x30, session)).decode()
print(f"-----BEGIN SSL SESSION PARAMETERS-----\n{session}-----END SSL SESSION PARAMETERS-----")
PYTHON
  check_says "openssl's handshake with a key of 48 bytes" 'Cipher is TLS_AES_256_GCM_SHA384' openssl_connects
}
openssl_connects() {
  timeout 60 openssl s_client -tls1_3 -connect "127.0.0.1:$required" -psk_identity "$(<"$work/ctl/identity")" \
    -psk_session "$work/session" </dev/null
}

# with_keyring HOST [FLAG...]: ebof id-ctrl in the guest, with a key of the kernel's keyring.
with_keyring() {
  ebof id-ctrl "nvme+tcp://$address:$required/$served" --hostnqn "$host$1" --tls "${@:2}"
}
step_keyrings() {
  local own=4470
  step "ebof in the guest, at both ends, with the keys of the kernel's keyring"
  check "ebof runs in the guest" eval 'cp /host/ebof /usr/bin/ebof && ebof --version' || return
  forgets
  keeps 1 1 1 $served
  check_says "ebof id-ctrl with the key of this host and subsystem" "^subnqn .*$served" with_keyring 1
  check_says "... with that of a number" "^subnqn .*$served" with_keyring 1 --tls-key "$((16#$serial))"
  check_fails "... with that of another number" 'has no key' with_keyring 1 --tls-key 1
  check_fails "... with that of another host" 'has no key' with_keyring 2
  check_fails "... of a keyring that is not there" 'no keyring' with_keyring 1 --keyring .other
  step_kernels_records
  cat >/tmp/keyring.toml <<TOML
target = { control = "/tmp/keyring.sock" }
ports = [{ listen = "tcp://127.0.0.1:$own", tls = "required", tls_records = "kernel" }]
hosts = [{ nqn = "${host}1", tls_psk = { keyring = ".nvme" } }]
[[subsystems]]
nqn = "$served"
allow_any_host = true
namespaces = ["mem:16Mi"]
TOML
  ebof serve --confine all --config /tmp/keyring.toml >/tmp/keyring.log 2>&1 &
  process[keyring]=$!
  check "ebof serve listens" until_true 60 reachable "$own" || { note </tmp/keyring.log; return; }
  address=127.0.0.1 port=$own nqn=$served
  if connects_secured 1 -i 2; then
    check_equal "the kernel makes the records of all its queues" "kernel" "$(records_there)"
    captures $own lo
    check "marks are written and read" marks_go "$(namespace_device 1)"
    check_captured hidden
    verified_writes "fio: random writes of 4 KiB to 1 MiB, CRC32C verified, depth 4" "$(namespace_device 1)" \
      --bssplit=4k/40:64k/30:1m/30 --size=3M --iodepth=4
  fi
  disconnects
  check "SIGTERM ends it with status 0" stop keyring TERM 30
  address=10.0.2.2 port=$required
}

# Who makes the records of the queues of the target in the guest.
records_there() {
  printf 'GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' |
    socat -t 0.1 -,ignoreeof UNIX-CONNECT:/tmp/keyring.sock | sed '1,/^\r$/d' |
    jq -r '[.controllers[].queues[].tls_records] | unique | join(" ")'
}

# Connections whose records the guest's kernel has made, so far.
kernels_connections() { awk '$1 == "TlsTxSw" { print $2 }' /proc/net/tls_stat; }

# ebof's host whose records the guest's kernel makes, the target making its own.
step_kernels_records() {
  local before
  before=$(kernels_connections)
  captures "$required"
  writes_and_reads "with records of the kernel at the host" "nvme+tcp://$address:$required/$served/1"
  check_captured hidden
  check "the kernel had the keys of these connections" test "$(kernels_connections)" -gt "$((before + 1))"
}

# writes_and_reads TEXT URI: marks, by ebof in the guest, with records of the kernel.
writes_and_reads() {
  local -a how=("$2" --hostnqn "${host}1" --tls --tls-records kernel -s 0 -c 511 -z 262144)
  check "ebof write, $1" ebof write "${how[@]}" -d /ctl/marked
  check "ebof read" ebof read "${how[@]}" -d /tmp/back
  check "the data read are those written" cmp /ctl/marked /tmp/back
}

# check_record PORT SAYS [FLAG...]: what the discovery log that a port gives says of $served there.
check_record() {
  check "nvme discover -s $1 ${*:3}" nvme discover -t tcp -a "$address" -s "$1" "${@:3}" --raw=/ctl/discovery &&
    ask discovered "$1" "$2"
}
# nvme-cli 2.13 does not know bit 3 of TREQ, and shows nothing of it then.
on_discovered() {
  local says
  says=$(python3 - "$work/ctl/discovery" "$1" $served <<'PYTHON'
import sys
file, port, subsystem = sys.argv[1:]
log = open(file, "rb").read()
for entry in (log[at:at + 1024] for at in range(1024, len(log), 1024)):
    service, nqn = (entry[begin:end].rstrip(b"\0 ").decode() for begin, end in ((32, 64), (256, 512)))
    if (service, nqn) == (port, subsystem):
        print(("not-specified", "required", "not-required", "reserved")[entry[3] & 3], {0: "none", 2: "tls13"}.get(entry[768]), sep=",")
PYTHON
  )
  check_equal "... says of the port: $2" "$2" "$says"
}

step_discovery() {
  step "discovery"
  forgets
  keeps 1 1 1 $discovery
  # shellcheck disable=SC2046 # words
  {
    check_record "$required" required,tls13 $(named 1) --tls
    check_record "$allowed" not-required,tls13 $(named 9)
    check_record "$plain" not-specified,none $(named 9)
  }
}

# refuses TEXT "REASON WORDS..." PORT NQN HOST [FLAG...]: nvme connect fails, and why the target
# says it does.
refuses() {
  # shellcheck disable=SC2046 # words
  check_fails "$1" 'could not add new controller' \
    nvme connect -t tcp -a "$address" -s "$3" -n "$4" $(named "$5") "${@:6}"
  # shellcheck disable=SC2086 # words
  ask has_refused $2
}

step_refusals() {
  step "who is refused"
  refuses "a host without TLS where it is required" 'tls-required' "$required" $served 9
  forgets
  keeps 0 1 1 $served
  refuses "a host with TLS at a port that has none" 'tls' "$plain" $served 1 --tls
  forgets
  keeps 0 2 1 $served # of the same name as the right one
  refuses "a host with another key" 'tls-failed binder' "$required" $served 1 --tls
  forgets
  keeps 1 2 1 $served
  refuses "a host with another key, whose name says so" 'tls-failed no.key' "$required" $served 1 --tls
  forgets
  keeps 0 1 8 $served
  refuses "a host that the target has no key of" 'tls-failed no.key' "$required" $served 8 --tls
  forgets
  keeps 0 0 0 $served
  refuses "a host with the key of another one" 'tls-identity' "$required" $served 1 --tls "--tls-key=0x$serial"
  forgets
  keeps 0 1 1 $guarded
  refuses "a host with its key for another subsystem" 'tls-identity' "$required" $served 1 --tls "--tls-key=0x$serial"
  refuses "a host without TLS, by a subsystem that demands it" 'tls-required' "$allowed" $guarded 9
  check "no controller is left" no_controllers $served
  check "no controller is left" no_controllers $guarded
}

# captures PORT [INTERFACE]: from now on, what goes over the network by this port goes to
# /ctl/capture, too.
captures() {
  tcpdump -Z root -i "${2:-eth0}" --immediate-mode -B 65536 -s 65535 -U -w /ctl/capture "tcp port $1" 2>/tmp/capture.log &
  process[capture]=$!
  check "tcpdump captures" until_true 60 grep -q 'listening on' /tmp/capture.log
}
# check_captured hidden|seen: ends that. Whether the marks, which were written and read, are in it.
check_captured() {
  local size=-1
  until [[ $size == "$(stat -c %s /ctl/capture)" ]]; do
    size=$(stat -c %s /ctl/capture)
    sleep 0.4
  done
  stop capture TERM 30
  ask captured "$1"
}
on_captured() {
  local bytes marks
  bytes=$(stat -c %s "$work/ctl/capture") marks=$(grep -ao $mark "$work/ctl/capture" | wc -l)
  case $1 in
    hidden) check "no mark is seen in the $bytes bytes that were captured" eval "((marks == 0 && bytes > 2 * 256 * 1024))" ;;
    # Some are cut by packets.
    seen) check "without TLS $marks marks are seen" eval "((marks * (${#mark} + 1) > 2 * 256 * 1024 * 9 / 10))" ;;
  esac
}

# Writes the marks and reads them.
marks_go() {
  dd if=/ctl/marked of="$1" bs=64k oflag=direct status=none && dd if="$1" bs=64k count=4 iflag=direct status=none | cmp - /ctl/marked
}

step_allowed() {
  local without
  step "a port that allows TLS"
  port=$allowed nqn=$served
  # shellcheck disable=SC2046 # words
  connects $(named 9) -i 1 || return
  without=$controller
  captures "$allowed"
  check "marks are written and read without TLS" marks_go "$(namespace_device 1)"
  check_captured seen
  forgets
  keeps 1 0 0 $served && connects_secured 0 -i 2 -g -G || return
  check "nvme id-ctrl of the controller without TLS" nvme id-ctrl "/dev/$without"
  check "nvme id-ctrl of the one with TLS" nvme id-ctrl "/dev/$controller"
  check "nvme disconnect of the one without" nvme disconnect -d "$without"
  captures "$allowed"
  check "marks are written and read with TLS" marks_go "$(namespace_device 1)"
  check_captured hidden
  disconnects
  nqn=$guarded
  keeps 1 0 0 $guarded && connects_secured 0 -i 1 && check_reads
  disconnects
}

step_authenticated() {
  step "a host that proves who it is, too"
  port=$required nqn=$served
  forgets
  keeps 1 2 2 $served
  connects_secured 2 -i 1 --dhchap-secret "$(key secret)" || return
  check_reads
  check "the kernel says that it is authenticated" eval 'dmesg | grep "qid 0: authenticated"'
  disconnects
  refuses "a host with the right key and another secret" 'not-authenticated' "$required" $served 2 --tls --dhchap-secret "$(key other-secret)"
  # The host gives up.
  # shellcheck disable=SC2046 # words
  check_fails "a host with the right key and no secret" 'could not add new controller' \
    nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" $(named 2) --tls
}

# ---- the kernel's target

# A port like those of lib.sh's nvmet_port, with TLS.
secured_port() {
  nvmet_port "$1" tcp 0.0.0.0 "$2" && echo tls1.3 >"$nvmet/ports/$1/addr_tsas" &&
    echo "$3" >"$nvmet/ports/$1/addr_treq" && ln -s "$nvmet/subsystems/$kernel" "$nvmet/ports/$1/subsystems/"
}

step_kernels_target() {
  local kind
  step "the kernel's target, with keys as nvme-cli 2.13 derives them"
  check "two RAM disks" modprobe brd rd_nr=2 rd_size=$((16 * 1024)) || return
  check "nvmet: a subsystem" nvmet_subsystem $kernel /dev/ram0 /dev/ram1
  echo 0 >"$nvmet/subsystems/$kernel/attr_allow_any_host"
  for kind in 0 1 2; do
    mkdir "$nvmet/hosts/$host$kind"
    ln -s "$nvmet/hosts/$host$kind" "$nvmet/subsystems/$kernel/allowed_hosts/"
  done
  key secret >"$nvmet/hosts/${host}2/dhchap_key"
  check "nvmet: a port that requires TLS" secured_port 1 4420 required || return
  check "nvmet: a port that allows it" secured_port 2 4421 'not required' || return
  forgets
  for kind in 0 1 2; do keeps 1 $kind $kind $kernel; done
  keeps 1 1 1 $discovery
  ask by_uri
  writes_and_reads "with records of the kernel at both ends" "nvme+tcp://127.0.0.1:4420/$kernel/2"
  captures 4421
  ask writes_marks
  check_captured hidden
  check "the RAM disk has the data" cmp -n $((256 * 1024)) /dev/ram0 /ctl/marked
  ask attach
  if ask is_attached; then
    check "the RAM disk has the data written through the device" cmp -n 4194304 /dev/ram1 /ctl/large
    check "nvmet: the port is closed" rm "$nvmet/ports/1/subsystems/$kernel"
    sleep 1
    check "nvmet: the port is open" ln -s "$nvmet/subsystems/$kernel" "$nvmet/ports/1/subsystems/"
    ask again
  fi
  step "the kernel's target, with keys as the specification derives them"
  forgets
  keeps_derived 1 0 $kernel
  ask by_key 0
  keeps_derived 0 1 $kernel
  ask by_key 1
  check "no connection to the target is left" until_true 60 no_connections
  clear_kernel_log
  nvmet_clear
}
no_connections() { [[ -z $(ss -Htn state established '( sport = :4420 or sport = :4421 )') ]]; }

# with_key HOST KEY: options of ebof's verbs.
with_key() { echo "--hostnqn $host$1 --tls --tls-key-file $work/keys/$2"; }
on_by_key() {
  # shellcheck disable=SC2046 # words
  check_says "ebof id-ctrl with key $1" "^subnqn .*$kernel" "$ebof" id-ctrl "nvme+tcp://127.0.0.1:$kernel_required/$kernel" $(with_key "$1" "$1")
}

on_by_uri() {
  local uri=nvme+tcp://127.0.0.1:$kernel_required/$kernel
  on_by_key 0
  on_by_key 1
  # shellcheck disable=SC2046 # words
  {
    check_says "ebof discover" "$kernel" "$ebof" discover -t tcp -a 127.0.0.1 -s "$kernel_required" $(with_key 1 1)
    check "a host that proves who it is, too" "$ebof" id-ctrl "$uri" $(with_key 2 2) --dhchap-secret-file "$work/keys/secret"
    # A target that is slow closes the connection before it has said why.
    check_fails "with another secret" 'does not take this host for|the target closed the connection' "$ebof" id-ctrl "$uri" $(with_key 2 2) --dhchap-secret-file "$work/keys/other-secret"
    check_fails "with another key" 'agree on no TLS connection' "$ebof" id-ctrl "$uri" $(with_key 1 4)
    check_fails "with no key" 'no keyring|has no key' "$ebof" id-ctrl "$uri" --hostnqn "${host}1" --tls
    check_fails "without TLS" 'may demand TLS|demands TLS' "$ebof" id-ctrl "$uri" --hostnqn "${host}1"
    chmod 644 "$work/keys/1"
    check_fails "with a key that others can read" 'chmod 600' "$ebof" id-ctrl "$uri" $(with_key 1 1)
    chmod 600 "$work/keys/1"
  }
}

# At the port that allows both.
on_writes_marks() {
  local uri=nvme+tcp://127.0.0.1:$kernel_allowed/$kernel
  # shellcheck disable=SC2046 # words
  {
    check "ebof write" "$ebof" write "$uri/1" $(with_key 0 0) -s 0 -c 511 -z 262144 -d "$work/ctl/marked"
    check "ebof read" "$ebof" read "$uri/1" $(with_key 0 0) -s 0 -c 511 -z 262144 -d "$work/back"
  }
  check "the data read are those written" cmp "$work/ctl/marked" "$work/back"
  check "ebof id-ctrl without TLS" "$ebof" id-ctrl "$uri" --hostnqn "${host}0"
}

attached='' device='' # while ebof connect is in effect
on_attach() {
  if ((EUID != 0)); then skip "ebof connect" "not root"; return; fi
  if [[ ! -e /dev/ublk-control && ! (-c /dev/fuse && -e /dev/loop-control) ]]; then
    skip "ebof connect" "neither ublk nor FUSE and loop devices on this machine"
    return
  fi
  head -c 4M /dev/urandom >"$work/ctl/large"
  # shellcheck disable=SC2046 # words
  check "ebof connect" "$ebof" connect -t tcp -a 127.0.0.1 -s "$kernel_required" -n $kernel $(with_key 1 1) -c 1 || return
  note <<<"$out"
  attached=yes
  device=$(grep -oE '/dev/(ublkb|loop)[0-9]+' <<<"$out" | sort -u | sed -n 2p)
  check "two block devices are printed" test -b "$device" || return
  check "dd writes 4 MiB" dd if="$work/ctl/large" of="$device" bs=1M oflag=direct conv=fsync
  check_reads_back
}
check_reads_back() {
  check "... and they read back" eval "dd if=$device bs=1M count=4 iflag=direct status=none | cmp - '$work/ctl/large'"
}
on_is_attached() { [[ -n $attached ]]; }
on_again() {
  step "after the interruption"
  check_reads_back
  check "ebof disconnect" "$ebof" disconnect -n $kernel
  attached=''
}
