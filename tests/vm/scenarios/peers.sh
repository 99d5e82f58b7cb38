# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of lib.sh, host.sh and run.sh, which read this file
# peers: hosts other than this release's nvme-cli, and the Linux host when the configuration changes
# while it is connected.
#
# One target on the machine: a port for discovery only, and a port with small queues for three
# subsystems (one has a drive). In the guest: nvme-cli of this Debian release and of the previous
# one, libnvme's Python bindings, nvme-stas with its defaults, the kernel's persistent reservations,
# namespaces that get other identifiers or that another host replaces, and a host that is removed
# from the list of allowed hosts.
# @test wire.nvme-cli
# @test data.replaced-namespace

discovery=nqn.2014-08.org.nvmexpress.discovery
plain=nqn.2014-08.org.example:plain
closed=nqn.2014-08.org.example:closed
later=nqn.2014-08.org.example:later
drive=nqn.2014-08.org.example:drive
allowed=nqn.2014-08.org.nvmexpress:uuid:6a1e6a5c-3c1f-4f7e-9d1e-5a5be6ff0001
another=nqn.2014-08.org.example:another
first=11111111-1111-4111-8111-111111111111
second=22222222-2222-4222-8222-222222222222

machine() {
  needs_ebof || return
  discovery_port=$(free_port) port=$(free_port)
  step "a target on 127.0.0.1:$discovery_port (discovery) and :$port (queues of 16 entries)"
  configuration "$first" "$allowed"
  check "ebof serve --config listens" serve || return
  check "a namespace on the drive" manages create-ns -S 16Mi -m 1
  boot_guest -t 900 -- "$discovery_port" "$port"

  step "the machine afterwards"
  check "SIGTERM ends the target with status 0" stop peers TERM 30
  check "it did not panic" eval "! grep -n panicked '$work/peers.log'"
}

serve() {
  start peers "$ebof" serve --config "$work/peers.toml"
  until_true 60 reachable "$port" || { cat "$work/peers.log"; return 1; }
}

# configuration UUID HOST [later]: the UUID of the plain namespace, and the allowed host; with a
# subsystem more.
configuration() {
  cat >"$work/peers.toml.new" <<TOML
ports = [
  { name = "discovery", listen = "tcp://127.0.0.1:$discovery_port", advertise = "10.0.2.2", discovery_only = true },
  { name = "data", listen = "tcp://127.0.0.1:$port", advertise = "10.0.2.2", max_queue_size = 16 },
]
hosts = [{ nqn = "$allowed" }, { nqn = "$another" }]
[[drives]]
name = "d0"
backing = "mem:64Mi"
attach = "everyone"
[[subsystems]]
nqn = "$plain"
allow_any_host = true
namespaces = [{ nsid = 1, drive = "mem:32Mi", uuid = "$1" }, { nsid = 2, drive = "mem:16Mi" }]
[[subsystems]]
nqn = "$closed"
allowed_hosts = ["$2"]
namespaces = ["mem:16Mi"]
[[subsystems]]
nqn = "$drive"
allow_any_host = true
drive = "d0"
TOML
  [[ -z ${3:-} ]] || cat >>"$work/peers.toml.new" <<TOML
[[subsystems]]
nqn = "$later"
allow_any_host = true
namespaces = ["mem:16Mi"]
TOML
  mv "$work/peers.toml.new" "$work/peers.toml"
}

# A request of the guest: another configuration. The guest itself waits until it is in force.
on_reload() {
  configuration "$@"
  kill -HUP "${process[peers]}"
}

# A verb for the drive's subsystem, with its arguments. The machine is another host than the guest.
manages() {
  EBOF_RUNTIME_DIR="$work/state" "$ebof" "$1" "nvme+tcp://127.0.0.1:$port/$drive" "${@:2}"
}
# A request of the guest: another namespace with the NSID of the first one. The guest is paused
# meanwhile, so it sees only the result.
on_replace() {
  local status=0
  monitor stop paused || return
  manages delete-ns -n 1 --force && manages create-ns -S 24Mi -m 1 || status=$?
  monitor cont running && return "$status"
}
# monitor COMMAND STATE: a command of QEMU's monitor; waits until the guest is in that state.
monitor() {
  until_true 30 eval "printf '%s\ninfo status\n' '$1' | socat - 'UNIX-CONNECT:$work/ctl/monitor' | grep -q 'VM status: $2'"
}

guest() {
  discovery_port=$1 port=$2 address=10.0.2.2
  check "modprobe nvme-tcp" modprobe nvme-tcp || return
  step_small_queues
  step_release_before
  step_libnvme
  step_stas
  step_reservations
  clear_kernel_log
  step_identifiers
  step_replaced
  step_taken_off
}

step_small_queues() {
  step "queues of 16 entries (max_queue_size)"
  nqn=$plain
  check "nvme discover at the discovery port" nvme discover -t tcp -a "$address" -s "$discovery_port" -o json
  check_equal "the log page has the subsystem with its port" "$port" \
    "$(jq -r --arg nqn "$nqn" '.records[] | select(.subnqn == $nqn) | .trsvcid' <<<"$out")"
  connects || return
  check_says "CAP announces 16 entries, and all I/O command sets" '^cap .*82[0-9a-f]*01000f$' nvme show-regs "/dev/$controller"
  check_equal "the kernel's queues have 16 entries" 15 "$(cat "/sys/class/nvme/$controller/sqsize")"
  check_says "nvme cmdset-ind-id-ns" 'nsfeat|nmic' nvme cmdset-ind-id-ns "/dev/$controller" -n 1
  verified_writes "fio: 4 KiB random writes, CRC32C verified, depth 32" "$(namespace_device 2)" --bs=4k --size=2M --iodepth=32
  kernel_log_is_clean "about small queues"
  disconnects
  clear_kernel_log
}

step_release_before() {
  step "nvme-cli of the previous Debian release"
  if ! [[ -x /usr/sbin/nvme-before ]]; then
    skip "nvme-cli of the previous release" "setup.sh found no mirror that has it"
    return
  fi
  nqn=$plain
  check_says "nvme version" '^nvme version 2\.' nvme-before version
  check "nvme discover" nvme-before discover -t tcp -a "$address" -s "$discovery_port" -o json
  check_equal "the log page has the subsystem" 1 "$(jq --arg nqn "$nqn" '[.records[] | select(.subnqn == $nqn)] | length' <<<"$out")"
  check "nvme connect-all through the discovery port" nvme-before connect-all -t tcp -a "$address" -s "$discovery_port"
  check "the subsystem is connected" until_true 60 namespace_device 1 || return
  controller=$(controllers "$nqn" | tail -n 1)
  check "nvme id-ctrl" nvme-before id-ctrl "/dev/$controller"
  check "nvme list" nvme-before list
  check_says "nvme list-subsys" "$plain" nvme-before list-subsys
  check_says "nvme id-ns" '^nsze' nvme-before id-ns "$(namespace_device 1)"
  check_says "nvme error-log" 'Error Log Entries' nvme-before error-log "/dev/$controller"
  udevadm settle
  check "nvme disconnect-all" nvme-before disconnect-all
  check "no controller is left" until_true 60 no_controllers "$nqn"
}

step_libnvme() {
  step "libnvme's Python bindings"
  cat >/tmp/bindings.py <<'PYTHON'
import sys
from libnvme import nvme
address, port, plain = sys.argv[1:]
root = nvme.root()
host = nvme.host(root)
discovery = nvme.ctrl(root, subsysnqn=nvme.NVME_DISC_SUBSYS_NAME, transport='tcp', traddr=address, trsvcid=port)
discovery.connect(host, {})
pages = discovery.supported_log_pages()
assert pages[nvme.NVME_LOG_LID_DISCOVER] >> 16 & nvme.NVMF_LOG_DISC_LID_PLEOS, hex(pages[nvme.NVME_LOG_LID_DISCOVER])
entries = discovery.discover(nvme.NVMF_LOG_DISC_LSP_PLEO)
discovery.disconnect()
(entry,) = [entry for entry in entries if entry['subnqn'] == plain]
ctrl = nvme.ctrl(root, subsysnqn=entry['subnqn'], transport=entry['trtype'], traddr=entry['traddr'], trsvcid=entry['trsvcid'])
ctrl.connect(host, {'hdr_digest': True, 'data_digest': True})
print(ctrl.name)
ctrl.disconnect()
PYTHON
  check "port local entries of the discovery port; connect to one; disconnect" \
    python3 /tmp/bindings.py "$address" "$discovery_port" "$plain"
  check "no controller is left" until_true 60 no_controllers "$plain"
}

step_stas() {
  step "nvme-stas with its defaults"
  mkdir -p /run/dbus /run/stafd /run/stacd /var/lib/dbus
  printf '%s\n' '[Controllers]' "controller = transport=tcp;traddr=$address;trsvcid=$discovery_port" >>/etc/stas/stafd.conf
  dbus-uuidgen >/etc/machine-id
  check "dbus-daemon" dbus-daemon --system --fork --nopidfile || return
  PYTHONUNBUFFERED=1 RUNTIME_DIRECTORY=/run/stafd stafd >/ctl/stafd.log 2>&1 &
  local daemons=$!
  PYTHONUNBUFFERED=1 RUNTIME_DIRECTORY=/run/stacd stacd >/ctl/stacd.log 2>&1 &
  daemons+=" $!"
  check "stafd has the discovery controller" until_true 240 no_error controller_there "$discovery"
  check "stacd connects the subsystem" until_true 240 no_error controller_there "$plain" || { tail -n 20 /ctl/stafd.log /ctl/stacd.log | note; }
  check "stacd connects the drive" until_true 120 no_error controller_there "$drive"
  controller=$(controllers "$discovery" | tail -n 1)
  check "its registration (TP8010) is refused, and no more than a warning" grep -qF 'Invalid Command Opcode' /ctl/stafd.log
  check_fails "nvme dim is refused" 'invalid.*(opcode|command)' nvme dim --task register --device "$controller"
  check "the discovery controller is there as before" controller_is "$controller" live
  check "reload with a subsystem more" ask reload "$first" "$allowed" later
  check "its event has stafd read the log, and stacd connect it" until_true 120 no_error controller_there "$later" ||
    { tail -n 20 /ctl/stafd.log /ctl/stacd.log | note; }
  check "reload without it" ask reload "$first" "$allowed"
  check "stacd disconnects it" until_true 120 no_controllers "$later" || { tail -n 20 /ctl/stafd.log /ctl/stacd.log | note; }
  check "the others are still there" eval "controller_there '$plain' && controller_there '$drive'"
  check "stafd still has its discovery controller" controller_is "$controller" live
  # shellcheck disable=SC2086 # one word per process
  kill $daemons && wait $daemons
  check "nvme disconnect-all" nvme disconnect-all
  check "no controller is left" until_true 60 no_controllers "$plain"
}
controller_there() { [[ -n $(controllers "$1") ]]; }
no_error() { "$@" 2>/dev/null; }

step_reservations() {
  step "the kernel's persistent reservations"
  nqn=$drive
  connects || return
  cat >/tmp/reserve.py <<'PYTHON'
import fcntl, os, struct, sys
device = os.open(sys.argv[1], os.O_RDWR)
def ask(number, form, *fields):
    data = struct.pack(form, *fields)
    fcntl.ioctl(device, 1 << 30 | len(data) << 16 | ord('p') << 8 | number, data)
register = lambda old, new: ask(200, '=QQII', old, new, 0, 0)
reserve = lambda key, kind: ask(201, '=QII', key, kind, 0)
release = lambda key, kind: ask(202, '=QII', key, kind, 0)
clear = lambda key: ask(205, '=QII', key, 0, 0)
for kind in range(1, 7):
    register(0, 0xabc)
    reserve(0xabc, kind)
    release(0xabc, kind)
    reserve(0xabc, kind)
    clear(0xabc)
PYTHON
  check "register, reserve, release and clear by ioctl, of each type" python3 /tmp/reserve.py "$(namespace_device 1)"
  check_equal "no host is registered" 0 "$(nvme resv-report "$(namespace_device 1)" -e -o json | jq .regctl)"
  disconnects
}

uuid_of() { cat "/sys/block/$(basename "$(namespace_device 1)")/uuid" 2>/dev/null; }
has_uuid() { [[ $(uuid_of) == "$1" ]]; }

step_identifiers() {
  step "a namespace gets other identifiers in one reload"
  nqn=$plain
  connects || return
  check_equal "its UUID" "$first" "$(uuid_of)"
  check "reload with another UUID" ask reload "$second" "$allowed"
  check "the disk has the other UUID, without a rescan" until_true 60 has_uuid "$second"
  check "the new disk can be read" until_true 30 eval "dd if=\$(namespace_device 1) of=/dev/null bs=1M count=4 iflag=direct"
  check "the other namespace is still there" dd if="$(namespace_device 2)" of=/dev/null bs=1M count=4 iflag=direct
  check "reload with the first UUID" ask reload "$first" "$allowed"
  check "the disk has the first UUID again" until_true 60 has_uuid "$first"
  kernel_log_is_clean "about identifiers"
  disconnects
  clear_kernel_log
}

step_replaced() {
  step "another host deletes a namespace and creates one with the same NSID"
  local before
  nqn=$drive
  connects || return
  before=$(uuid_of)
  check "its disk has a UUID" test -n "$before"
  check "delete-ns and create-ns" ask replace
  check "the disk is the new namespace, without a rescan" until_true 60 is_another "$before"
  check_equal "the disk has the new size" $((24 << 20)) "$(blockdev --getsize64 "$(namespace_device 1)")"
  check "the new disk can be written and read" until_true 30 eval "dd if=/dev/zero of=\$(namespace_device 1) bs=1M count=4 oflag=direct &&
    dd if=\$(namespace_device 1) of=/dev/null bs=1M count=4 iflag=direct"
  kernel_log_is_clean "about another namespace"
  disconnects
  clear_kernel_log
}
is_another() { local now; now=$(uuid_of) && [[ -n $now && $now != "$1" ]]; }

step_taken_off() {
  step "a connected host is removed from the list of allowed hosts"
  nqn=$closed
  connects -q "$allowed" -I "${allowed##*:}" -c 1 || return
  check "reload with another host on the list" ask reload "$first" "$another"
  # The Connect is refused with Do Not Retry; ctrl_loss_tmo is ten minutes.
  check "the controller is gone" until_true 60 no_controllers "$nqn"
  clear_kernel_log
}
