#!/bin/bash
# read-mostly.sh: several hosts read one namespace that one host writes (read-mostly.md).
# shellcheck source=docs/scenarios/lib.sh
. "$(dirname "$0")/lib.sh"
needs mkfs.ext4 blockdev cmp dd

machine target 192.168.13.147
machine writer 192.168.13.146
machine reader1 192.168.13.148
machine reader2 192.168.13.149
drives target 1 512M

step "the target: a drive whose namespaces the writer manages"
cat >"$work/target/library.toml" <<'END'
[[ports]]
name = "fabric0"
listen = "tcp://192.168.13.147:4420"

[[hosts]]
nqn = "nqn.2014-08.org.example:host:writer"

[[hosts]]
nqn = "nqn.2014-08.org.example:host:reader1"

[[hosts]]
nqn = "nqn.2014-08.org.example:host:reader2"

[[drives]]
name = "library"
backing = "/dev/nvme0n1"
managers = ["nqn.2014-08.org.example:host:writer"]

[[subsystems]]
nqn = "nqn.2014-08.org.example:library"
drive = "library"
allowed_hosts = [
  "nqn.2014-08.org.example:host:writer",
  "nqn.2014-08.org.example:host:reader1",
  "nqn.2014-08.org.example:host:reader2",
]
END
serve target 'ebof serve --config library.toml'
on target 'ebof target add namespace library 64M --shared --attach "*"'

step "the writer: only it may write, and it prepares the file system"
on writer 'ebof connect -t tcp -a 192.168.13.147 -n nqn.2014-08.org.example:library -q nqn.2014-08.org.example:host:writer'
on writer 'ebof resv-register nvme0n1 --nrkey 0xcafe -p persist'
on writer 'ebof resv-acquire nvme0n1 --crkey 0xcafe -t write-exclusive'
at_writer=$(disk writer nvme0n1)
on writer 'head -c 8M /dev/urandom >version1; head -c 8M /dev/urandom >version2'
on writer "mkfs.ext4 -q $at_writer && mkdir data && mount $at_writer data"
on writer 'cp version1 data/catalogue && umount data'

step "the readers: mounted read-only"
for reader in reader1 reader2; do
  on $reader "ebof connect -t tcp -a 192.168.13.147 -n nqn.2014-08.org.example:library -q nqn.2014-08.org.example:host:$reader"
  on $reader "mkdir data && mount -o ro $(disk $reader nvme0n1) data"
done
same() { cmp "$work/writer/$1" <(quiet "$2" 'cat data/catalogue'); }
# reader1 looks at its beginning only.
check "reader2 reads what the writer wrote" same version1 reader2
check "so does reader1" cmp <(head -c 64K "$work/writer/version1") <(quiet reader1 'head -c 64K data/catalogue')

step "the readers may not write"
fails reader1 'echo hello | ebof write nvme0n1 -s 0 -z 4096 --force'
check "the target refuses it because of the reservation" grep -q 'Reservation Conflict' <<<"$output"
on writer 'ebof resv-report nvme0n1'

step "the writer writes while others read: they see old, new and a mix"
on writer "mount $at_writer data && dd if=version2 of=data/catalogue bs=1M conv=notrunc,fsync status=none"
on writer 'touch data/later && sync -f data'
check "reader2, which has read all of it, reads the old version" same version1 reader2
mixed() { ! same version1 reader1 && ! same version2 reader1; }
check "reader1, which has read some of it, reads a mix of both" mixed
unseen() { quiet reader1 '[[ ! -e data/later ]]' && quiet reader2 '[[ ! -e data/later ]]'; }
check "neither sees the new file" unseen
on reader1 'umount data'
fails reader1 "mount -o ro $(disk reader1 nvme0n1) data"
check "while the writer has it mounted, a reader cannot mount it" grep -q "can't read superblock" <<<"$output"

step "a version is published: the writer unmounts, it is write protected, readers mount it again"
on writer 'umount data'
on target 'ebof target set library/ns1 write-protect=on --yes'
protected() { [[ $(quiet "$1" "blockdev --getro $(disk "$1" nvme0n1)") == 1 ]]; }
for reader in reader1 reader2; do
  check "the block device of $reader is read-only" within 5 protected $reader
done
check "reader2 still has it mounted" quiet reader2 'dd if=data/catalogue of=/dev/null bs=64K iflag=direct'
on reader2 'umount data'
for reader in reader1 reader2; do
  on $reader "mount -o ro $(disk $reader nvme0n1) data"
  check "$reader reads the new version" same version2 $reader
  check "$reader sees the new file" quiet $reader 'test -e data/later'
done
fails writer "echo hello | ebof write nvme0n1 -s 0 -z 4096"
check "now not even the writer may write" grep -q 'Namespace is Write Protected' <<<"$output"

step "what happens without any of this: two hosts write to a second namespace"
on target 'ebof target add namespace library 64M --shared --attach "*"'
second() { disk "$1" nvme0n2; }
appeared() { [[ $(second "$1") ]]; }
for host in writer reader1; do
  check "$host has a second block device" within 5 appeared $host
done
on writer "mkfs.ext4 -q $(second writer) && mkdir both && mount $(second writer) both"
on reader1 "mkdir both && mount $(second reader1) both && touch both/of-reader1"
on writer 'for i in {1..20}; do head -c 10K /dev/urandom >both/of-writer$i; done; sync -f both; umount both'
on reader1 'umount both'
on writer "mount $(second writer) both; ls both"
check "files of the writer are lost, although it has synchronized them" bash -c '[[ $1 != *of-writer* ]]' - "$output"
finish
