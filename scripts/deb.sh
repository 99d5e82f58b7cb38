#!/bin/bash
# deb.sh: makes Debian packages of what has been built: ebof_VERSION_ARCH.deb and, with the debug
# symbols, ebof-dbgsym_VERSION_ARCH.deb.
#
# deb.sh [-o DIRECTORY] [-v VERSION] [-b PROGRAMS] [-z LEVEL]
#   -o  where the packages are put (default: deb in the target directory)
#   -v  the version (default: that of Cargo.toml)
#   -b  where ebof and libebof_fio.so are (default: release in the target directory)
#   -z  how hard xz tries, 0 to 9 (default: 6)
#   CARGO_TARGET_DIR   as for cargo
#   SOURCE_DATE_EPOCH  the time of all files (default: that of the last commit)
#
# Nothing but dpkg-dev, binutils, gzip and cargo is needed, and no root. The same input makes the
# same packages, byte by byte.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C TZ=UTC

say() { printf 'deb: %s\n' "$*"; }
[[ -d page/dist ]] || say "page/dist is missing: the program was built without its web page (make build says why)"
die() { printf 'deb: %s\n' "$*" >&2; exit 1; }

target=${CARGO_TARGET_DIR:-target}
out=$target/deb release=$target/release version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
level=6
while getopts o:v:b:z: option; do
  case $option in
    o) out=$OPTARG ;;
    v) version=$OPTARG ;;
    b) release=$OPTARG ;;
    z) level=$OPTARG ;;
    *) sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
[[ -n $version ]] || die "Cargo.toml names no version"
for program in dpkg-deb:dpkg dpkg-shlibdeps:dpkg-dev objcopy:binutils readelf:binutils gzip:gzip; do
  command -v "${program%:*}" >/dev/null || die "needs ${program%:*} (apt-get install ${program#*:})"
done
for file in ebof libebof_fio.so; do
  [[ -f $release/$file ]] || die "there is no $release/$file: run make build"
done
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH
architecture=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/ebof symbols=$work/ebof-dbgsym
umask 022

# put MODE SOURCE PATH-IN-THE-PACKAGE
put() { install -D -m "$1" "$2" "$root/$3"; }
# packed PATH-IN-THE-PACKAGE: compresses a document; its text comes from standard input.
packed() {
  mkdir -p "$(dirname "$root/$1")"
  gzip -9n >"$root/$1"
}

# elf SOURCE PATH MODE: a program or library without its debug symbols, which go to the other
# package.
build_ids=()
elf() {
  local id file
  id=$(readelf -n "$1" | sed -n 's/^ *Build ID: //p')
  [[ $id =~ ^[0-9a-f]{16,}$ ]] || die "$1 has no build id"
  file=$symbols/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
  mkdir -p "$(dirname "$file")" "$(dirname "$root/$2")"
  objcopy --only-keep-debug --compress-debug-sections "$1" "$file"
  chmod 644 "$file"
  objcopy --strip-unneeded --remove-section=.comment "$1" "$root/$2"
  chmod "$3" "$root/$2"
  build_ids+=("$id")
}

programs() {
  elf "$release/ebof" usr/bin/ebof 755
  elf "$release/libebof_fio.so" "usr/lib/$multiarch/ebof/libebof_fio.so" 644
}

units() {
  local unit
  for unit in ebof.service ebof-connect.service ebof-connect@.service ebof-unreachable.service; do
    put 644 packaging/systemd/$unit usr/lib/systemd/system/$unit
  done
  put 755 packaging/systemd/ebof-connect-generator usr/lib/systemd/system-generators/ebof-connect-generator
  put 644 packaging/systemd/sysusers.conf usr/lib/sysusers.d/ebof.conf
  put 644 packaging/systemd/tmpfiles.conf usr/lib/tmpfiles.d/ebof.conf
  put 644 packaging/61-ebof.rules usr/lib/udev/rules.d/61-ebof.rules
  put 644 packaging/etc/ebof.toml etc/ebof/ebof.toml
  put 644 packaging/etc/connections.toml etc/ebof/connections.toml
  put 644 packaging/etc/default etc/default/ebof
}

# What the program itself writes.
generated() {
  local page shell
  "$release/ebof" man "$work/man" 2>/dev/null
  for page in "$work"/man/*.[1-8]; do
    packed "usr/share/man/man${page##*.}/${page##*/}.gz" <"$page"
  done
  mkdir -p "$root"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
  for shell in bash:bash-completion/completions/ebof zsh:zsh/vendor-completions/_ebof fish:fish/vendor_completions.d/ebof.fish; do
    "$release/ebof" completions "${shell%%:*}" >"$root/usr/share/${shell#*:}"
  done
}

# The licences of what the embedded page contains, if there is one.
page_licences() {
  local name file
  [[ -d page/dist ]] || return 0
  # Every package of the lock file that is not for building only.
  node -e 'for (const [path, entry] of Object.entries(JSON.parse(require("fs").readFileSync("page/package-lock.json")).packages))
    if (path && !entry.dev && !entry.devOptional && !entry.optional) console.log(path)' |
    while read -r name; do
      printf '\n== %s, in the web page\n' "${name#node_modules/}"
      for file in page/"$name"/{LICENSE,COPYING}*; do [[ ! -f $file ]] || cat "$file"; done
    done
}

# The texts of the licences of all libraries in the programs, each text once.
licences() {
  local sources=${CARGO_HOME:-$HOME/.cargo}/registry/src line name directory file sum
  declare -A seen=()
  echo "The programs of this package contain these Rust libraries:"
  while IFS='|' read -r name line; do
    [[ $name != *'('* ]] || continue # of this repository
    name=${name/ v/-}
    printf '\n== %s: %s\n' "$name" "$line"
    for directory in "$sources"/*/"$name"; do
      for file in "$directory"/{LICEN[SC]E,COPYING,COPYRIGHT,NOTICE}*; do
        [[ -f $file ]] || continue
        sum=$(sha256sum <"$file")
        if [[ -n ${seen[$sum]:-} ]]; then
          printf '%s: as %s\n' "${file##*/}" "${seen[$sum]}"
        else
          seen[$sum]="$name, ${file##*/}"
          printf '%s:\n' "${file##*/}"
          cat "$file"
        fi
      done
    done
  done < <(cargo tree --locked -p ebof -p ebof-fio -e normal --prefix none -f '{p}|{l}' | sed 's/ (\*)$//' | sort -u)
  page_licences
}

documents() {
  local file doc=usr/share/doc/ebof
  put 644 packaging/deb/copyright $doc/copyright
  licences >"$work/licences"
  grep -q '^== clap-' "$work/licences" || die "the list of licences is empty"
  packed $doc/third-party-licences.txt.gz <"$work/licences"
  sed -e "s/@VERSION@/$version/" -e "s/@DATE@/$(date -R -d "@$SOURCE_DATE_EPOCH")/" packaging/deb/changelog |
    packed $doc/changelog.gz
  put 644 crates/manage/examples/ebof.toml $doc/examples/ebof.toml
  # The places of the sources: documents refer to each other.
  while IFS= read -r file; do
    put 644 "$file" "$doc/$file"
  done < <(find docs monitoring README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md SPECIFICATION.md packaging/Containerfile tests/vm/README.md -type f | sort)
  # What is elsewhere in a package.
  find "$root/$doc" -name '*.md' -exec sed -i -e 's,](LICENSE-[A-Z]*),](copyright),g' \
    -e 's,](\(\(\.\./\)*\)crates/manage/examples/ebof\.toml),](\1examples/ebof.toml),g' {} +
  mkdir -p "$symbols/usr/share/doc"
  ln -s ebof "$symbols/usr/share/doc/ebof-dbgsym"
}

# control DIRECTORY TEMPLATE: the control files of a package.
control() {
  local size depends
  mkdir -p "$1/DEBIAN"
  size=$(du -k -s --apparent-size --exclude=DEBIAN "$1" | cut -f 1)
  mkdir -p "$work/shlibs/debian"
  printf 'Source: ebof\n\nPackage: ebof\nArchitecture: any\n' >"$work/shlibs/debian/control"
  depends=$(cd "$work/shlibs" && dpkg-shlibdeps -O -e"$root/usr/bin/ebof" -e"$root/usr/lib/$multiarch/ebof/libebof_fio.so" \
    2>"$work/shlibs.log") || { cat "$work/shlibs.log" >&2; die "dpkg-shlibdeps failed"; }
  sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@SIZE@/$size/" \
    -e "s/@DEPENDS@/${depends#shlibs:Depends=}/" -e "s/@BUILD_IDS@/${build_ids[*]}/" "$2" >"$1/DEBIAN/control"
  # The paths of a package are sorted, and so are these.
  (cd "$1" && find . -path ./DEBIAN -prune -o -type f -print0 | sort -z | xargs -0 md5sum | sed 's,  \./,  ,') >"$1/DEBIAN/md5sums"
}

# package DIRECTORY LEVEL: with that level of compression.
package() {
  find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zxz -z"$2" --build "$1" "$out/${1##*/}_${version}_$architecture.deb" >/dev/null
  say "$out/${1##*/}_${version}_$architecture.deb, $(($(stat -c %s "$out/${1##*/}_${version}_$architecture.deb") / 1024)) KiB"
}

programs
units
generated
documents
control "$root" packaging/deb/control
install -m 644 packaging/deb/conffiles "$root/DEBIAN/conffiles"
install -m 755 packaging/deb/{postinst,prerm,postrm} "$root/DEBIAN/"
control "$symbols" packaging/deb/control-dbgsym
mkdir -p "$out"
package "$root" "$level"
# Its sections are compressed already.
package "$symbols" 0
