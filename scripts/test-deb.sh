#!/bin/bash
# test-deb.sh DIRECTORY PROGRAMS: makes the Debian packages of what was built in the directory
# PROGRAMS (such as target/release), in DIRECTORY, and checks them: a second time they are the same,
# lintian finds no error and no warning, every page and completion is there, units and the container
# file are valid.
#
# What cannot be checked on this machine is told in a line that begins with "SKIPPED:".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$1 programs=$2
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
die() { echo "test-deb: $*" >&2; exit 1; }

rm -rf "$out"
# What compression saves is not tested.
scripts/deb.sh -o "$out" -b "$programs" -z 1 &
scripts/deb.sh -o "$again" -b "$programs" -z 1
wait $!
for package in "$out"/*.deb; do
  cmp "$package" "$again/${package##*/}" || die "${package##*/} differs when it is made again"
done
main=$(find "$out" -name 'ebof_*.deb')

if command -v lintian >/dev/null; then
  # As root it warns that it is root.
  lintian --allow-root --fail-on error,warning "$out"/*.deb || die "lintian is not content"
else
  echo "SKIPPED: lintian is not installed"
fi

dpkg-deb -x "$main" "$again/tree"
tree=$again/tree
for page in man1/ebof.1 man5/ebof.toml.5 man5/ebof-connections.toml.5 man8/ebof.service.8; do
  [[ -s $tree/usr/share/man/$page.gz ]] || die "there is no $page"
done
# Documents lead to nothing that the package lacks.
doc=$tree/usr/share/doc/ebof
while IFS=: read -r file link; do
  link=${link#](} link=${link%%#*} link=${link%)}
  [[ -z $link || $link == *:* || -e $(dirname "$file")/$link ]] || die "${file#"$doc"/} leads to $link, which is not in the package"
done < <(grep -oE '\]\([^) ]+' --include='*.md' -r "$doc")
[[ -s $doc/monitoring/grafana/ebof.json && -s $doc/monitoring/prometheus/alerts.yml ]] || die "monitoring/ is not in the package"
# Every verb has a page.
"$tree/usr/bin/ebof" --help | sed -nE 's/^  ([a-z][a-z-]+) .*/\1/p' | while read -r verb; do
  [[ $verb != ebof ]] || continue # an example
  [[ -s $tree/usr/share/man/man1/ebof-$verb.1.gz ]] || die "the verb $verb has no page"
done
bash -n "$tree/usr/share/bash-completion/completions/ebof"
"$tree/usr/bin/ebof" config check "$tree/etc/ebof/ebof.toml"
EBOF_RUNTIME_DIR=$again/state "$tree/usr/bin/ebof" connect-all --connections "$tree/etc/ebof/connections.toml"
# The symbols belong to the program.
id=$(readelf -n "$tree/usr/bin/ebof" | sed -n 's/^ *Build ID: //p')
dpkg-deb -c "$out"/ebof-dbgsym_*.deb >"$again/symbols"
grep -q "/${id:0:2}/${id:2}.debug$" "$again/symbols" || die "the debug symbols are of another program"

if command -v systemd-analyze >/dev/null; then
  # The programs that units name are in the package; the users of the machine do not matter.
  sed -i "s,/usr/bin/ebof,$tree/usr/bin/ebof," "$tree"/usr/lib/systemd/system/*.service
  problems=$(SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no "$tree"/usr/lib/systemd/system/ebof*.service 2>&1 |
    grep -F "$tree" || true)
  [[ -z $problems ]] || die "a unit is not valid: $problems"
else
  echo "SKIPPED: systemd-analyze is not installed"
fi
scripts/test-container.sh
echo "the packages are as they should be"
