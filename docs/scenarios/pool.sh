#!/bin/bash
# pool.sh: four drives of a machine are lent to two blades that have none (pool.md).
# shellcheck source=docs/scenarios/lib.sh
. "$(dirname "$0")/lib.sh"
needs mkfs.ext4 cmp

machine target 192.168.13.147
machine blade1 192.168.13.146
machine blade2 192.168.13.148
drives target 4 128M

step "the target: two drives for each blade"
cat >"$work/target/pool.toml" <<'END'
[[ports]]
name = "fabric0"
listen = "tcp://192.168.13.147:4420"

[[hosts]]
nqn = "nqn.2014-08.org.example:host:blade1"

[[hosts]]
nqn = "nqn.2014-08.org.example:host:blade2"

[[subsystems]]
nqn = "nqn.2014-08.org.example:pool:blade1"
allowed_hosts = ["nqn.2014-08.org.example:host:blade1"]
namespaces = ["/dev/nvme0n1", "/dev/nvme1n1"]

[[subsystems]]
nqn = "nqn.2014-08.org.example:pool:blade2"
allowed_hosts = ["nqn.2014-08.org.example:host:blade2"]
namespaces = ["/dev/nvme2n1", "/dev/nvme3n1"]
END
on target 'ebof config check pool.toml'
serve target 'ebof serve --config pool.toml'

step "the blades: each finds and connects its own drives"
on blade1 'ebof connect-all -t tcp -a 192.168.13.147 -s 4420 -q nqn.2014-08.org.example:host:blade1 -c 1 -k 2'
on blade2 'ebof connect-all -t tcp -a 192.168.13.147 -s 4420 -q nqn.2014-08.org.example:host:blade2 -c 1 -k 2'
devices() { quiet "$1" 'ebof list' | grep -cE '^/dev/(loop|ublkb)'; }
check "blade1 has two block devices" test "$(devices blade1)" = 2
check "blade2 has two block devices" test "$(devices blade2)" = 2

step "each blade may connect its own subsystem only"
fails blade2 'ebof connect -t tcp -a 192.168.13.147 -n nqn.2014-08.org.example:pool:blade1 -q nqn.2014-08.org.example:host:blade2'
check "the target does not admit blade2 to drives of blade1" grep -q 'does not admit this host' <<<"$output"
on blade2 'ebof discover -t tcp -a 192.168.13.147 -s 4420 -q nqn.2014-08.org.example:host:blade2'
check "blade2 does not hear of them either" bash -c '[[ $1 == *:pool:blade2* && $1 != *:pool:blade1* ]]' - "$output"

step "file systems on them, as on drives of the blades' own"
first=$(disk blade1 nvme0n1) second=$(disk blade2 nvme0n1)
on blade1 "mkfs.ext4 -q $first && mkdir data && mount $first data"
on blade2 "mkfs.ext4 -q $second && mkdir data && mount $second data"
on blade1 'head -c 20M /dev/urandom >data/file && sync && sha256sum data/file >sums'
on blade2 'head -c 20M /dev/urandom >data/file && sync && sha256sum data/file >sums'
on target 'ebof target show'

step "the cable of blade1 is pulled: it waits, and blade2 does not notice"
unplug blade1
start blade1 writer "sh -c 'head -c 4M /dev/urandom >data/during && sync -f data && sha256sum data/during >>sums'"
lost() { quiet blade1 'ebof list-subsys' | grep -q ' connecting'; }
check "blade1 reports that it is connecting again" within 10 lost
on blade2 'echo 3 >/proc/sys/vm/drop_caches; sha256sum -c sums'
check "the writes of blade1 wait" kill -0 "${job[writer]}"
plug blade1
check "they are done when the cable is back" within 15 gone "${job[writer]}"
on blade1 'echo 3 >/proc/sys/vm/drop_caches; sha256sum -c sums'
check "what blade1 wrote before and meanwhile is whole" grep -q 'data/during: OK' <<<"$output"

step "blade1 needs more, blade2 less: a drive moves while everything runs"
on target 'ebof target remove namespace nqn.2014-08.org.example:pool:blade2/2 --yes'
on target 'ebof target add namespace nqn.2014-08.org.example:pool:blade1 /dev/nvme3n1'
has() { [[ $(devices "$1") == "$2" ]]; }
check "blade1 has three block devices" within 10 has blade1 3
check "blade2 has one block device" within 10 has blade2 1
on blade1 'ebof list'
on blade2 'sha256sum -c sums'

step "what a person does before a blade is switched off"
on blade1 'umount data && ebof disconnect-all'
on blade2 'umount data && ebof disconnect-all'
on target 'ebof target status'
check "no host is left" grep -q ', 0 of at most' <<<"$output"
finish
