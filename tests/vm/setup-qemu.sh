#!/bin/bash
# setup-qemu.sh: unpacks a newer QEMU beside that of setup.sh, for guests with vfio-user devices.
#
# Debian's release has QEMU 10.0; vfio-user-pci came with 10.1. The release's backports have one
# that is built for its libraries, so that it runs by the loader and libraries of setup.sh's tools,
# and 14 MB are downloaded, and 8 MB of UEFI firmware of the release.
#
# Under ${EBOF_VM_CACHE:-$HOME/.cache/ebof-vm}:
#   qemu/         QEMU and its firmware (bin/qemu runs it)
#   qemu/stamp    the hash of this script and of what setup.sh unpacked
#
# The status is 0 if there is one, else 1, with the reason in the last line.
# Settings: those of setup.sh.
set -euo pipefail

suite=trixie
packages=(qemu-system-x86 qemu-system-common qemu-system-data seabios)
packages=("${packages[@]/%//$suite-backports}" ovmf)
firmware='kvmvapic.bin linuxboot_dma.bin multiboot_dma.bin pvh.bin qboot.rom keymaps'

cache=${EBOF_VM_CACHE:-${HOME:?}/.cache/ebof-vm}
out=$cache/qemu
die() { echo "vm setup: no newer QEMU: $*" >&2; exit 1; }
[[ -f $cache/stamp ]] || die "run setup.sh first"
stamp=$(cat "${BASH_SOURCE[0]}" "$cache/stamp" | sha256sum)
ready() { [[ -f $out/stamp && $(<"$out/stamp") == "$stamp" ]]; }
if ready; then
  echo "vm setup: $(<"$out/version") in $out"
  exit 0
fi
exec 9>"$cache/lock-qemu"
flock 9
if ready; then exit 0; fi

work=$cache/work-qemu
rm -rf "$work" "$out"
mkdir -p "$work"/{lists,cache/archives}/partial "$work/debs" "$work/tree"
trap 'rm -rf "$work"' EXIT
apt_options=(
  -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null
  -o Dir::Etc::preferences=/dev/null -o Dir::State::lists="$work/lists" -o Dir::State::status=/dev/null
  -o Dir::Cache="$work/cache" -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=
  -o APT::Update::Post-Invoke-Success::= -o APT::Architecture=amd64 -o APT::Architectures=amd64
)

# The mirrors of this machine's own releases, as setup.sh takes them.
mirrors() {
  local uri component
  [[ -z ${EBOF_VM_MIRROR:-} ]] || echo "$EBOF_VM_MIRROR"
  # shellcheck disable=SC2016 # apt's fields
  apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' | sort -u |
    while read -r uri component; do
      [[ $component != main || $uri == *security* ]] || echo "$uri"
    done
}

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[[ -f $keyring ]] && signed=" signed-by=$keyring" || signed=''
found=''
while read -r uri; do
  printf "deb [arch=amd64 target=Packages$signed] $uri %s main\n" "$suite-backports" "$suite" >"$work/sources.list"
  echo "vm setup: package lists: $uri $suite-backports"
  if apt-get "${apt_options[@]}" update >"$work/log" 2>&1 &&
    (cd "$work/debs" && apt-get "${apt_options[@]}" download "${packages[@]}") >>"$work/log" 2>&1; then
    found=yes
    break
  fi
  sed 's/^/    /' "$work/log"
done < <(mirrors)
[[ -n $found ]] || die "no mirror in apt's sources carries Debian $suite-backports (set EBOF_VM_MIRROR to one that does)"

for file in "$work"/debs/*.deb; do dpkg -x "$file" "$work/tree"; done
mkdir -p "$work"/qemu/{bin,share,modules}
mv "$work/tree/usr/bin/qemu-system-x86_64" "$work/qemu/bin/qemu-system-x86_64"
for file in $firmware; do mv "$work/tree/usr/share/qemu/$file" "$work/qemu/share/"; done
mv "$work"/tree/usr/share/seabios/*.bin "$work"/tree/usr/share/OVMF/OVMF_{CODE,VARS}_4M.fd "$work/qemu/share/"
cat >"$work/qemu/bin/qemu" <<'WRAPPER'
#!/bin/sh
tree=$(cd "$(dirname "$0")/.." && pwd)
libraries=$tree/../tools/usr/lib/x86_64-linux-gnu
export QEMU_MODULE_DIR="$tree/modules"
exec "$libraries/ld-linux-x86-64.so.2" --argv0 qemu --library-path "$libraries" "$tree/bin/qemu-system-x86_64" -L "$tree/share" "$@"
WRAPPER
chmod +x "$work/qemu/bin/qemu"
mv "$work/qemu" "$out"
"$out/bin/qemu" -device vfio-user-pci,help >"$work/log" 2>&1 || die "it does not start: $(head -n 1 "$work/log")"
"$out/bin/qemu" --version | head -n 1 >"$out/version"
echo "$stamp" >"$out/stamp"
echo "vm setup: $(<"$out/version"), $(du -sm "$out" | cut -f 1) MB in $out"
