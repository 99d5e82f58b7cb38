#!/bin/bash
# tenants.sh: two tenants on one drive, with quotas, functions, shares and limits (tenants.md).
# shellcheck source=docs/scenarios/lib.sh
. "$(dirname "$0")/lib.sh"
needs dd

machine target 192.168.13.147
machine gold 192.168.13.146
machine bronze 192.168.14.146
quiet target 'ip addr add 192.168.14.147/24 dev eth0'
drives target 1 1G
# What is to be shared is the drive, not memory.
quiet target 'dd if=/dev/zero of=probe bs=4k count=1 oflag=direct status=none' 2>/dev/null ||
  skip "files below $work cannot be opened for direct I/O; TMPDIR names another place"

step "the target: one drive, two networks"
cat >"$work/target/tenants.toml" <<'END'
[[ports]]
name = "gold"
listen = "tcp://192.168.13.147:4420"

[[ports]]
name = "bronze"
listen = "tcp://192.168.14.147:4420"

[[hosts]]
nqn = "nqn.2014-08.org.example:host:gold"

[[hosts]]
nqn = "nqn.2014-08.org.example:host:bronze"

[[drives]]
name = "d0"
backing = { path = "/dev/nvme0n1", direct = true }
functions = 2
managers = ["nqn.2014-08.org.example:host:gold", "nqn.2014-08.org.example:host:bronze"]

[drives.quotas]
"nqn.2014-08.org.example:host:gold" = "400M"
"nqn.2014-08.org.example:host:bronze" = "150M"

[[subsystems]]
nqn = "nqn.2014-08.org.example:box:d0"
drive = "d0"
allowed_hosts = ["nqn.2014-08.org.example:host:gold", "nqn.2014-08.org.example:host:bronze"]
END
on target 'ebof config check tenants.toml'
serve target 'ebof serve --config tenants.toml'

step "quotas: each creates namespaces, up to what it has"
gold=nvme+tcp://192.168.13.147/nqn.2014-08.org.example:box:d0
bronze=nvme+tcp://192.168.14.147/nqn.2014-08.org.example:box:d0
on gold "ebof create-ns $gold -S 300M --hostnqn nqn.2014-08.org.example:host:gold"
on bronze "ebof create-ns $bronze -S 100M --hostnqn nqn.2014-08.org.example:host:bronze"
fails bronze "ebof create-ns $bronze -S 100M --hostnqn nqn.2014-08.org.example:host:bronze"
check "bronze has no more than its quota" grep -q 'Namespace Insufficient Capacity' <<<"$output"
on target 'ebof target show'
check "although the drive has more" grep -q ' 594.80 MB unallocated' <<<"$output"

step "functions: each namespace has one, at the port of its tenant"
on target 'ebof target map d0/ns1 --vf d0/vf1 && ebof target assign d0/vf1 --port gold'
on target 'ebof target map d0/ns2 --vf d0/vf2 && ebof target assign d0/vf2 --port bronze'
on gold 'ebof connect -t tcp -a 192.168.13.147 -n nqn.2014-08.org.example:box:d0:vf1 -q nqn.2014-08.org.example:host:gold'
on bronze 'ebof connect -t tcp -a 192.168.14.147 -n nqn.2014-08.org.example:box:d0:vf2 -q nqn.2014-08.org.example:host:bronze'
fails bronze 'ebof connect -t tcp -a 192.168.14.147 -n nqn.2014-08.org.example:box:d0:vf1 -q nqn.2014-08.org.example:host:bronze'
check "the function of gold is not at the port of bronze" grep -q 'knows no subsystem' <<<"$output"
fails bronze 'ebof connect -t tcp -a 192.168.13.147 -n nqn.2014-08.org.example:box:d0:vf1 -q nqn.2014-08.org.example:host:bronze'
check "bronze does not reach the port of gold" grep -q 'there is no way to this address' <<<"$output"
fails bronze 'ebof create-ns nvme0 -S 10M'
check "a function manages nothing" grep -q 'Operation Denied' <<<"$output"
on target 'ebof target show'

step "without weights, both get the same"
for host in gold bronze; do
  [[ $host == gold ]] && device=$(disk gold nvme0n1) || device=$(disk bronze nvme0n2)
  quiet $host "ebof bench $device --rw write --bs 1M --iodepth 4 --overwrite --runtime 0" >/dev/null
done
# together: both load their namespace at once; their operations per second are in $of_gold and
# $of_bronze.
together() {
  local load='--rw randread --bs 128K --iodepth 128 --runtime 1'
  start gold of-gold "ebof bench $gold:vf1/1 --hostnqn nqn.2014-08.org.example:host:gold $load"
  start bronze of-bronze "ebof bench $bronze:vf2/2 --hostnqn nqn.2014-08.org.example:host:bronze $load"
  wait "${job[of-gold]}" "${job[of-bronze]}"
  of_gold=$(grep -oP '\d+(?= IOPS)' "$work/of-gold.log") of_bronze=$(grep -oP '\d+(?= IOPS)' "$work/of-bronze.log")
  unset 'job[of-gold]' 'job[of-bronze]'
  say "gold ${of_gold:-?}, bronze ${of_bronze:-?} operations per second"
}
# ratio FROM TO: whether gold gets so many times what bronze gets, in one of five attempts: others
# use this machine, too. Reads are large and many, so that the drive is what is short, and some wait
# for it always: with a fast drive and a busy processor 32 are on their way most of the time.
ratio() {
  for _ in {1..5}; do
    together >&3
    awk "BEGIN { r = ${of_gold:-0} / (${of_bronze:-0} + 0.001); exit !(r > $1 && r < $2) }" && return
  done
  return 1
}
exec 3>&1
check "gold gets as much as bronze" ratio 0.6 1.6
on target 'ebof target weight d0/vf1 4'
check "gold gets four times as much" ratio 2.5 6

step "a limit: it holds although the drive could do more"
on target 'ebof target limit d0/vf2 --iops 100'
together
check "bronze gets 100" test $((of_bronze > 70 && of_bronze < 110)) = 1
on target 'ebof target show'
finish
