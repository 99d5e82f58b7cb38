#!/bin/bash
# packages.sh: installs what is missing of what ebof's tests and demonstration call, from Debian's packages, and says so.
#
# packages.sh test|demo. Not root, or no apt: says what is missing and succeeds, because what needs it then says that it was
# skipped. Rust itself is not installed; its formatter and linter are, where the toolchain lacks them.
set -euo pipefail

say() { printf 'packages: %s\n' "$*"; }

# What is called, and the package that brings it.
case ${1:-} in
  demo) needs=(mkfs.ext4:e2fsprogs losetup:mount mount:mount modprobe:kmod cc:gcc) ;;
  test) needs=(mkfs.ext4:e2fsprogs losetup:mount mount:mount modprobe:kmod cc:gcc strip:binutils xz:xz-utils setsid:util-linux unshare:util-linux ip:iproute2 fio:fio valgrind:valgrind) ;;
  *) echo "usage: packages.sh test|demo" >&2; exit 2 ;;
esac

# Administrators' programs are not on everybody's path.
export PATH=$PATH:/usr/sbin:/sbin
missing=()
for need in "${needs[@]}"; do
  command -v "${need%:*}" >/dev/null || missing+=("${need#*:}")
done
if ((!${#missing[@]})); then
  say "nothing is missing"
else
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
  if ! command -v apt-get >/dev/null; then
    say "missing: ${missing[*]} (no apt-get here to install it with)"
  elif [[ $(id -u) != 0 ]]; then
    say "missing: ${missing[*]} (apt-get install ${missing[*]} as root)"
  else
    say "installing ${missing[*]} with apt-get"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    # The lists of a fresh machine are empty or old, and a mirror fails now and then.
    if ! { apt-get -q update && apt-get -q -o Acquire::Retries=3 install -y --no-install-recommends "${missing[@]}"; } \
      >"$log" 2>&1 </dev/null; then
      tail -n 20 "$log" >&2
      say "apt-get failed: going on without"
    fi
    rm -f "$log"
  fi
fi

if [[ $1 == test ]]; then
  for component in fmt:rustfmt clippy:clippy; do
    if ! cargo "${component%:*}" --version >/dev/null 2>&1 && command -v rustup >/dev/null; then
      say "installing ${component#*:} with rustup"
      rustup --quiet component add "${component#*:}"
    fi
  done
fi
