#!/bin/bash
# setup.sh: builds what the virtual machines need, from Debian's packages.
#
# Under ${EBOF_VM_CACHE:-$HOME/.cache/ebof-vm}:
#   tools/        QEMU and a few programs with all their libraries, unpacked, run by their own loader (bin/NAME)
#   kernel/       vmlinuz, config, initrd.gz
#   root.ext4     the guest's root file system
#   versions      what was unpacked
#   stamp         the hash of this script; while it matches, a run of this script does nothing
#
# Nothing is installed on the machine, and root is not needed: packages are downloaded with apt's
# own settings (mirror, proxy, certificates, credentials) through private package lists and unpacked
# with dpkg -x. No maintainer script runs.
#
# Settings: EBOF_VM_CACHE, EBOF_VM_MIRROR (a Debian mirror, else the one in apt's sources),
# EBOF_VM_BACKPORTS (set: the newest kernel of that release's backports; give it a cache of its
# own).
set -euo pipefail

newest_suite=trixie
cache=${EBOF_VM_CACHE:-${HOME:?}/.cache/ebof-vm}

# What runs on the machine: QEMU, and small things that a bare machine may lack.
tool_packages=(qemu-system-x86 kmod e2fsprogs busybox-static socat xz-utils jq)

# What the guest has. The lines: a shell's surroundings, devices and files, NVMe and load, RDMA for
# links between guests, TLS (the kernel has a program do the handshake), what discovers by itself.
root_packages=(
  base-files bash coreutils findutils grep sed gawk diffutils util-linux mount procps psmisc hostname dash busybox-static
  kmod udev e2fsprogs xfsprogs fdisk
  nvme-cli smartmontools fio jq iproute2 iputils-ping socat strace
  rdma-core ibverbs-providers ibverbs-utils rdmacm-utils perftest
  ktls-utils keyutils tcpdump openssl
  nvme-stas python3-libnvme dbus
)
# What builds soft iWARP, which Debian's kernel has the source of but not the module. Its size is
# why it is unpacked as little of as possible: only the compiler, the headers and the sources of
# siw.
siw_packages=(make bash coreutils sed grep mawk)
siw_unwanted='^(linux-(image|base).*|initramfs.*|klibc.*|libklibc|dracut.*|cpio|kmod|udev|mount|logsave|openssl.*|pahole|lib(.*san[0-9]|itm1|quadmath0|gprofng0|pam.*|seccomp2|apparmor1|audit.*|systemd.*|mount1|bpf1))$'

# The clients of the release before, unpacked to /opt/before with what they need of it.
before_suite=bookworm
before_packages=(nvme-cli)

# Dependencies that only maintainer scripts or plug-ins want, and big ones at that.
unwanted='^(adduser|debconf|dpkg|passwd|tar|systemd|python3.*|libpython3.*|perl-base|gcc-.*-base|libicu.*|ipxe-qemu|media-types|tzdata|login.*|sensible-utils|libdb5.*|libsqlite3-0|pci.ids)$'
# ... of which QEMU's own libraries are wanted nevertheless, and Python for nvme-stas.
tools_need='^(libsqlite3-0|libdb5.*)$'
root_need='^(python3.*|libpython3.*|libsqlite3-0|media-types)$'

# Kernel modules for the guest, as paths below kernel/, and whatever they depend on.
modules='^kernel/(crypto|arch/x86/crypto|lib|security/keys|drivers/nvme|drivers/virtio|drivers/infiniband/(core|sw)'
modules+='|fs/(9p|netfs|ext4|jbd2|xfs|fuse|configfs)|net/(9p|tls|sched)'
modules+='|drivers/block/(brd|loop|nbd|ublk_drv|virtio_blk|null_blk/null_blk)'
modules+='|drivers/char/(virtio_console|hw_random/virtio-rng)|drivers/net/(virtio_net|dummy|veth|tun)'
modules+='|net/ipv4/(tcp_diag|inet_diag)|drivers/md/dm-(mod|flakey|delay))[/.]'
# The initial RAM disk needs these, in this order, each after its dependencies.
boot_modules=(crc32c_generic crc32c_intel virtio_pci virtio_blk ext4 9pnet_virtio 9p)

started=$EPOCHSECONDS
say() { printf 'vm setup %3d s: %s\n' $((EPOCHSECONDS - started)) "$*"; }
die() { printf 'vm setup: %s\n' "$*" >&2; exit 1; }
set -E
trap 'die "failed at line $LINENO: $BASH_COMMAND"' ERR

stamp=$(sha256sum <"${BASH_SOURCE[0]}")${EBOF_VM_BACKPORTS:+ backports}
ready() {
  local file
  [[ -f $cache/stamp && $(<"$cache/stamp") == "$stamp" ]] || return 1
  for file in tools/bin/qemu kernel/vmlinuz kernel/initrd.gz root.ext4; do [[ -s $cache/$file ]] || return 1; done
}
if ready; then
  echo "vm setup: ready in $cache ($(head -n 1 "$cache/versions"))"
  exit 0
fi

[[ $(uname -m) == x86_64 ]] || die "the guests are amd64 and run the machine's binary: this machine is $(uname -m)"
for program in apt-get apt-cache dpkg dpkg-deb flock sha256sum gzip; do
  command -v $program >/dev/null || die "needs $program: run it on Debian or a derivative"
done
mkdir -p "$cache"
exec 9>"$cache/lock"
flock -n 9 || { say "another set-up is running: waiting for it"; flock 9; }
if ready; then
  say "the other one made it"
  exit 0
fi
rm -f "$cache/stamp"
work=$cache/work
mkdir -p "$work"
say "building in $cache from Debian $newest_suite; nothing is installed on this machine"

# use_suite SUITE: has apt work on that suite from now on, with package lists of its own, but the
# machine's configuration.
use_suite() {
  suite=$1 lists=$work/apt-$1
  debs=$work/debs-$1 # what was downloaded stays until the end: an interrupted run goes on from there
  mkdir -p "$debs" "$lists/lists/partial" "$lists/cache/archives/partial"
  apt_options=(
    -q -o Dir::Etc::sourcelist="$lists/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null
    -o Dir::Etc::preferences=/dev/null -o Dir::State::lists="$lists/lists" -o Dir::State::status=/dev/null
    -o Dir::Cache="$lists/cache" -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=
    -o APT::Update::Post-Invoke-Success::= -o APT::Architecture=amd64 -o APT::Architectures=amd64
  )
}
apt() { apt-get "${apt_options[@]}" "$@"; }

# Prints "URI signed-by" for each Debian archive that apt knows, this release's own first.
mirrors() {
  local codename uri release component signed
  # shellcheck source=/dev/null
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-$suite}")
  [[ -z ${EBOF_VM_MIRROR:-} ]] || echo "$EBOF_VM_MIRROR -"
  # The fields that apt does not know are printed as they stand, with a dollar sign.
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(SIGNED_BY)' 'Created-By: Packages' |
    while read -r uri release component signed; do
      [[ $component == main && $release =~ ^($codename|$suite|stable|oldstable|oldoldstable)$ ]] || continue
      [[ $signed == /* ]] || signed=-
      echo "$uri $signed"
    done
}

# Finds a mirror that carries the suite and leaves the package lists ready.
update_lists() {
  local uri signed keyring=/usr/share/keyrings/debian-archive-keyring.gpg log=$lists/update.log
  while read -r uri signed; do
    [[ $signed != - || ! -f $keyring ]] || signed=$keyring
    [[ $signed == - ]] && signed='' || signed=" signed-by=$signed"
    echo "deb [arch=amd64 target=Packages$signed] $uri $suite main" >"$lists/sources.list"
    if [[ -n ${EBOF_VM_BACKPORTS:-} && $suite == "$newest_suite" ]]; then
      echo "deb [arch=amd64 target=Packages$signed] $uri $suite-backports main" >>"$lists/sources.list"
    fi
    say "package lists: $uri $suite"
    if apt update >"$log" 2>&1 && apt-cache "${apt_options[@]}" show linux-image-amd64 >/dev/null 2>&1; then return 0; fi
    sed 's/^/    /' "$log"
  done < <(mirrors)
  say "no mirror in apt's sources carries Debian $suite (set EBOF_VM_MIRROR to one that does)"
  return 1
}

# Downloads the named packages and what they depend on into $debs, but what matches $1 and not $2;
# prints the file names.
download() {
  local drop=$1 keep=$2 wanted file
  shift 2
  wanted=$(apt install -s --no-install-recommends "$@" |
    awk -v drop="$drop" -v keep="$keep" '
      $1 == "Inst" && ($2 !~ drop || (keep != "" && $2 ~ keep)) { sub(/^\(/, "", $3); print $2 "=" $3 }')
  [[ -n $wanted ]] || { echo "apt offers nothing for: $*" >&2; return 1; }
  # shellcheck disable=SC2086 # one word per package
  (cd "$debs" && apt download $wanted) >"$lists/download.log" 2>&1 || { cat "$lists/download.log" >&2; return 1; }
  while IFS='=' read -r name version; do
    for file in "$debs/${name}_${version/:/%3a}"_*.deb; do echo "$file"; done
  done <<<"$wanted"
}

# Unpacks packages into a directory; base-files first, because it brings the links from /bin to
# /usr/bin.
unpack() {
  local into=$1 file
  shift
  for file in "$@"; do [[ $file != */base-files_* ]] || dpkg -x "$file" "$into"; done
  for file in "$@"; do [[ $file == */base-files_* ]] || dpkg -x "$file" "$into"; done
}

describe() { du -cm "$@" | awk -v n=$# 'END { printf "%d packages, %d MB", n, $1 }'; }

# Builds one part in a directory of its own and moves it into place whole.
part() {
  local name=$1 mark=$work/$1.done
  if [[ -f $mark && $(<"$mark") == "$stamp" ]]; then
    say "$name: done by an earlier run"
    return
  fi
  rm -rf "${work:?}/$name"
  mkdir "$work/$name"
  "build_$name" "$work/$name"
  echo "$stamp" >"$mark"
}

build_tools() {
  local out=$1 files name
  mapfile -t files < <(download "$unwanted" "$tools_need" "${tool_packages[@]}")
  ((${#files[@]} > 10)) || die "the tools could not be downloaded"
  unpack "$out" "${files[@]}"
  rm -rf "$out"/usr/share/{doc,man,locale,info,lintian,bug} "$out"/usr/lib/udev
  mkdir "$out/bin"
  # Each program gets a wrapper that starts it with the loader and libraries it was built for, from
  # wherever the tree is.
  for name in mke2fs e2fsck debugfs xz socat jq depmod:kmod qemu:qemu-system-x86_64; do
    local program
    program=$(cd "$out" && find usr -path "usr/*bin/${name#*:}" -print -quit)
    [[ -n $program ]] || die "no ${name#*:} in the unpacked packages"
    cat >"$out/bin/${name%:*}" <<WRAPPER
#!/bin/sh
tree=\$(cd "\$(dirname "\$0")/.." && pwd)
export QEMU_MODULE_DIR="\$tree/usr/lib/x86_64-linux-gnu/qemu"
exec "\$tree/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --argv0 ${name%:*} \\
  --library-path "\$tree/usr/lib/x86_64-linux-gnu" "\$tree/$program" "\$@"
WRAPPER
    chmod +x "$out/bin/${name%:*}"
  done
  "$out/bin/qemu" --version | head -n 1 >"$out/version"
  say "tools: $(describe "${files[@]}"), $(<"$out/version")"
}

# Copies the wanted modules and what they depend on, decompressed: under emulation the guest would
# take long to do it.
prune_modules() {
  local from=$1 into=$2 list=$3 tools=$work/tools/bin
  "$tools/depmod" -b "${from%/lib/modules/*}" "${from##*/}"
  awk -v wanted="$modules" '
    { sub(/:$/, "", $1); needs[$1] = ""; for (i = 2; i <= NF; i++) needs[$1] = needs[$1] " " $i }
    END {
      for (m in needs) if (m ~ wanted) { keep[m]; n = split(needs[m], d, " "); for (i = 1; i <= n; i++) keep[d[i]] }
      for (m in keep) print m
    }' "$from/modules.dep" >"$list"
  mkdir -p "$into"
  cp "$from"/modules.{order,builtin,builtin.modinfo} "$into"
  (cd "$from" && xargs cp --parents -t "$into") <"$list"
  find "$into" -name '*.ko.xz' -print0 | xargs -0 -r -n 40 -P "$(nproc)" "$tools/xz" -d
  "$tools/depmod" -b "${into%/lib/modules/*}" "${into##*/}"
}

# The initial RAM disk: busybox, and the modules that reach the root file system and the shared
# directory, in order.
build_initrd() {
  local modules_dir=$1 into=$2 out=$3 name line file
  mkdir -p "$into"/{bin,dev,proc,sys,newroot,modules}
  cp "$work/tools/usr/bin/busybox" "$into/bin/busybox"
  for name in sh mount insmod switch_root sleep; do ln -s busybox "$into/bin/$name"; done
  : >"$into/modules/order"
  for name in "${boot_modules[@]}"; do
    line=$(grep -E "(^|/)${name//[-_]/[-_]}\.ko:" "$modules_dir/modules.dep" || true)
    # A module lists its dependencies with the deepest last.
    for file in $(tr ' ' '\n' <<<"${line#*:}" | tac) ${line%%:*}; do
      grep -qxF "${file##*/}" "$into/modules/order" && continue
      cp "$modules_dir/$file" "$into/modules/"
      echo "${file##*/}" >>"$into/modules/order"
    done
  done
  cat >"$into/init" <<'INIT'
#!/bin/sh
# Finds the root file system and the control directory, and hands over to the init script that lies
# there.
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
while read -r module; do insmod "/modules/$module" 2>/dev/null; done </modules/order
tries=0
until [ -b /dev/vda ] || [ $tries -ge 100 ]; do sleep 0.1; tries=$((tries + 1)); done
mount -t ext4 -o rw,noatime /dev/vda /newroot &&
  mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=131072 ctl /newroot/ctl &&
  exec switch_root /newroot /ctl/init.sh
echo "initrd: no root file system or no control directory"
exec sh
INIT
  chmod +x "$into/init"
  (cd "$into" && find . | "$work/tools/usr/bin/busybox" cpio -o -H newc 2>/dev/null | gzip -1) >"$out"
}

# linux-image-amd64 is an empty package that depends on the kernel of the day. Of backports, which
# apt prefers less, the newest kernel is taken by its name.
kernel_package() {
  if [[ -n ${EBOF_VM_BACKPORTS:-} ]]; then
    apt-cache "${apt_options[@]}" pkgnames linux-image- | grep -xE 'linux-image-[0-9.]+\+deb[0-9]+-amd64' | sort -V | tail -n 1
  else
    apt-cache "${apt_options[@]}" depends linux-image-amd64 |
      sed -n 's/^ *Depends: \(linux-image-[0-9].*-amd64\)$/\1/p' | head -n 1
  fi
}
build_kernel() {
  local out=$1 package packages files release tree
  package=$(kernel_package)
  [[ -n $package ]] || die "apt-cache knows no kernel behind linux-image-amd64"
  say "kernel: downloading $package"
  release=${package#linux-image-}
  packages=("$package")
  # Up to 6.x it is one package.
  if [[ -n ${EBOF_VM_BACKPORTS:-} ]]; then
    packages+=("linux-binary-$release" "linux-modules-$release")
    apt_options+=(-o APT::Default-Release="$suite-backports")
  fi
  mapfile -t files < <(download '' '^linux-(image|binary|modules|base)-[0-9]' "${packages[@]}")
  tree=$out/unpacked
  unpack "$tree" "${files[@]}"
  # Up to 6.x in /boot, from 7.x on beside the modules.
  cp "$tree/boot/vmlinuz-$release" "$out/vmlinuz" 2>/dev/null || cp "$tree/usr/lib/modules/$release/vmlinuz" "$out/vmlinuz"
  cp "$tree/boot/config-$release" "$out/config" 2>/dev/null || cp "$tree/usr/lib/modules/$release/config" "$out/config"
  prune_modules "$tree/usr/lib/modules/$release" "$out/usr/lib/modules/$release" "$out/modules.list"
  build_initrd "$out/usr/lib/modules/$release" "$out/initrd" "$out/initrd.gz"
  rm -rf "$tree" "$out/initrd"
  echo "$release" >"$out/release"
  dpkg-deb -f "$debs/$package"_*.deb Version >"$out/package-version"
  say "kernel: $(describe "${files[@]}"), $(wc -l <"$out/modules.list") modules kept"
}

# Builds siw.ko with the compiler, headers and source of the kernel's own packages, in a directory
# that looks like a small Debian to them. Where that is impossible there is no siw.ko, but a file
# that says why, which becomes the reason of skipped checks.
build_siw() {
  if ! make_siw "$1"; then
    say "siw: not built: $(<"$1/missing")"
    rm -rf "$1/tree" "$1/siw.ko"
  fi
}
make_siw() {
  local out=$1 tree=$1/tree release version major files source root=/usr/src
  release=$(<"$work/kernel/release") version=$(<"$work/kernel/package-version")
  major=$(cut -d . -f 1,2 <<<"$release")
  echo "the packages to build it could not be downloaded" >"$out/missing"
  say "siw: downloading the kernel's source and a compiler"
  mapfile -t files < <(download "$unwanted|$siw_unwanted" '' "linux-headers-$release" "${siw_packages[@]}")
  source=$(download '' "^linux-source-$major$" "linux-source-$major=$version" | grep /linux-source-) || return
  ((${#files[@]} > 20)) || return
  echo "the kernel module could not be built (setup.sh printed why)" >"$out/missing"
  unpack "$tree" "${files[@]}"
  mkdir -p "$tree"/{dev,tmp,siw}
  [[ -e $tree/usr/bin/sh ]] || ln -s bash "$tree/usr/bin/sh"
  [[ -e $tree/usr/bin/awk ]] || ln -s mawk "$tree/usr/bin/awk"
  dpkg-deb --fsys-tarfile "$source" | tar -xO "./usr/src/linux-source-$major.tar.xz" |
    "$work/tools/bin/xz" -dc | tar -x -C "$tree/siw" --strip-components=5 "linux-source-$major/drivers/infiniband/sw/siw" || return
  # Type information for BPF would need one more program.
  in_tree "$tree" make -s -j "$(nproc)" -C "$root/linux-headers-$release" M=/siw \
    CONFIG_RDMA_SIW=m CONFIG_DEBUG_INFO_BTF_MODULES= modules >"$out/log" 2>&1 &&
    in_tree "$tree" objcopy --strip-debug /siw/siw.ko >>"$out/log" 2>&1 || { sed 's/^/    /' "$out/log"; return 1; }
  mv "$tree/siw/siw.ko" "$out/"
  rm -rf "$tree" "$out/missing"
  say "siw: $(describe "${files[@]}" "$source")"
}
# in_tree DIRECTORY COMMAND...: runs a program of an unpacked Debian with that as its root
# directory, as root or else in a user namespace.
in_tree() {
  if ((EUID == 0)); then
    [[ -c $1/dev/null ]] || mknod -m 666 "$1/dev/null" c 1 3
    chroot "$@"
  else
    : >>"$1/dev/null"
    # shellcheck disable=SC2016 # the other shell expands them
    unshare -rm sh -c 'mount --bind /dev/null "$1/dev/null" && exec chroot "$@"' sh "$@"
  fi
}

build_before() {
  local out=$1 files
  mapfile -t files < <(download "$unwanted" '' "${before_packages[@]}")
  ((${#files[@]} > 3)) || die "the packages of Debian $suite could not be downloaded"
  unpack "$out" "${files[@]}"
  rm -rf "$out"/usr/{share,lib/udev,lib/dracut} "$out"/{etc,var,run}
  say "before: $(describe "${files[@]}"), nvme-cli $(dpkg-deb -f "$debs"/nvme-cli_*.deb Version) of $suite"
}

build_root() {
  local out=$1 files release size
  mapfile -t files < <(download "$unwanted" "$root_need" "${root_packages[@]}")
  ((${#files[@]} > 30)) || die "the guest's packages could not be downloaded"
  unpack "$out/tree" "${files[@]}"
  (
    cd "$out/tree"
    rm -rf usr/share/{doc,man,locale,info,lintian,bug,i18n,zsh,bash-completion} usr/lib/x86_64-linux-gnu/gconv
    mkdir -p ctl host mnt opt proc sys dev run tmp root etc/nvme var/lib
    # What maintainer scripts would have done, as far as anything here needs it.
    [[ -e usr/bin/awk ]] || ln -s gawk usr/bin/awk
    [[ -e usr/bin/sh ]] || ln -s bash usr/bin/sh
    printf '%s\n' 'root:x:0:0:root:/root:/bin/bash' 'messagebus:x:100:100::/nonexistent:/bin/false' >etc/passwd
    printf '%s\n' 'root:x:0:' 'messagebus:x:100:' >etc/group
    echo '127.0.0.1 localhost' >etc/hosts
    ln -sf /proc/mounts etc/mtab
    # Where this was not unpacked by root, the files in the guest are some user's: none may run as
    # that user.
    find . -perm /6000 -type f -exec chmod ug-s {} +
  )
  # Under emulation Python would take minutes to compile what it imports.
  "$out"/tree/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 --library-path "$out/tree/usr/lib/x86_64-linux-gnu" \
    "$out"/tree/usr/bin/python3 -I -c 'import compileall, py_compile, sys
for directory in sys.argv[2:]:
    compileall.compile_dir(directory, quiet=2, stripdir=sys.argv[1],
                           invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)' \
    "$out/tree" "$out"/tree/usr/lib/python3*
  if [[ -d $work/before ]]; then
    cp -a "$work/before" "$out/tree/opt/before"
    # By its own loader and libraries, whatever those of the guest are.
    printf '#!/bin/sh\nexec /opt/before/%s --library-path /opt/before/%s /opt/before/usr/sbin/nvme "$@"\n' \
      lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu:/opt/before/usr/lib/x86_64-linux-gnu >"$out/tree/usr/sbin/nvme-before"
    chmod +x "$out/tree/usr/sbin/nvme-before"
  fi
  release=$(<"$work/kernel/release")
  cp -a "$work/kernel/usr/lib/modules" "$out/tree/usr/lib/"
  if [[ -e $work/siw/siw.ko ]]; then
    install -D -m 644 "$work/siw/siw.ko" "$out/tree/usr/lib/modules/$release/updates/siw.ko"
    "$work/tools/bin/depmod" -b "$out/tree/usr" "$release"
  else
    cp "$work/siw/missing" "$out/tree/etc/siw-missing"
  fi
  # 300 MB of room for what scenarios write; the image is sparse, and a guest's changes go to a
  # temporary overlay.
  size=$(($(du -sm "$out/tree" | cut -f 1) + 300))
  MKE2FS_CONFIG=$work/tools/etc/mke2fs.conf "$work/tools/bin/mke2fs" -q -F -t ext4 -O '^has_journal,^metadata_csum' -b 4096 -m 0 \
    -E lazy_itable_init=1,root_owner=0:0 -d "$out/tree" "$out/root.ext4" "${size}M"
  echo "Debian $suite, Linux $release, nvme-cli $(dpkg-deb -f "$debs"/nvme-cli_*.deb Version)" >"$out/version"
  rm -rf "$out/tree"
  say "guest: $(describe "${files[@]}"), image of $(du -m "$out/root.ext4" | cut -f 1) MB"
}

# The older release may be gone from the mirrors: then there is nothing of it in the guest, and what
# would use it is skipped.
use_suite "$before_suite"
if update_lists; then part before; fi
use_suite "$newest_suite"
update_lists || exit 1
part tools
part kernel
part siw
part root

# All parts exist: put them into place, the stamp last.
rm -rf "$cache/tools" "$cache/kernel"
mv "$work/tools" "$cache/tools"
mkdir "$cache/kernel"
mv "$work"/kernel/{vmlinuz,initrd.gz,config,modules.list} "$cache/kernel/"
mv "$work/root/root.ext4" "$cache/root.ext4"
{
  cat "$work/root/version" "$cache/tools/version"
  (cd "$debs" && printf '%s\n' *.deb)
} >"$cache/versions"
rm -rf "$work"
echo "$stamp" >"$cache/stamp"
say "done: $(head -n 1 "$cache/versions"); $(du -sm "$cache" | cut -f 1) MB in $cache"
