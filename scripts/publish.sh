#!/bin/bash
# publish.sh [-n]: shows that the crates of the library could be published: `ebof` and what it
# depends on. Nothing is uploaded.
#
# A copy of what is committed or would be, in which `publish = false` is taken out, is given to
# `cargo publish --dry-run`: cargo makes the package of each crate and compiles it from nothing but
# the packages of the others and the registry that it is configured with. Needs cargo 1.90 or later.
#
#   -n  only make the packages, without compiling them
#
# Build results and packages stay in target/publish (CARGO_TARGET_DIR).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

verify=()
case ${1:-} in
  '') ;;
  -n) verify=(--no-verify) ;;
  *) echo "usage: publish.sh [-n]" >&2; exit 2 ;;
esac
say() { printf 'publish: %s\n' "$*"; }

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/publish
export CARGO_TARGET_DIR=$target CARGO_TERM_COLOR=never
# Whoever has a token here does not need it for this.
unset CARGO_REGISTRY_TOKEN

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard |
  while IFS= read -r -d '' file; do [[ ! -e $file && ! -L $file ]] || printf '%s\0' "$file"; done |
  tar --null --files-from=- --create | tar --extract --directory "$copy"
cd "$copy"
sed -i '/^\[workspace.package\]/,/^\[/s/^publish = false$/publish = true/' Cargo.toml
mapfile -t crates < <(cargo tree --locked -p ebof --all-features -e normal,build --prefix none -f '{p}' |
  sed -n "s|^\(ebof[a-z-]*\) v[^ ]* (.*|\1|p" | sort -u)
((${#crates[@]})) || { say "no crates were found"; exit 1; }
say "${#crates[@]} crates: ${crates[*]}"

# progress WHAT NUMBER CRATE...
progress() { say "$(printf '%s %2d of %d: %s' "$1" "$2" ${#crates[@]} "${3% (*}")"; }
log=$target/publish.log status=0 packed=0 compiled=0
mkdir -p "$target"
cargo publish --dry-run --locked "${verify[@]}" "${crates[@]/#/-p}" 2>&1 | tee "$log" |
  while IFS= read -r line; do
    case $line in
      *' Packaging ebof'*) progress packaging $((++packed)) "${line##* Packaging }" ;;
      *' Verifying ebof'*) progress compiling $((++compiled)) "${line##* Verifying }" ;;
      error*) printf 'publish: %s\n' "$line" ;;
    esac
  done || status=$?
if ((status)); then
  tail -n 40 "$log" >&2
  say "FAILED; the log is $log"
  exit 1
fi
uploads=$(grep -c 'aborting upload due to dry run' "$log" || true)
if ((uploads != ${#crates[@]})); then
  say "FAILED: $uploads of ${#crates[@]} crates came to their upload; the log is $log"
  exit 1
fi
grep -q '^repository = "REPOSITORY"' Cargo.toml && say "to be decided by a person before anything is published: repository, publish (Cargo.toml)"
what="have a package each that compiles"
((!${#verify[@]})) || what="have a package each; none was compiled"
say "${#crates[@]} crates $what; nothing was uploaded, the packages are in $target/package/tmp-registry"
