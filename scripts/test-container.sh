#!/bin/bash
# test-container.sh: checks packaging/Containerfile as far as that goes without an engine: every
# line is an instruction that there is, what is copied from the repository exists, shell commands
# parse, and the program takes the arguments of CMD and HEALTHCHECK.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
file=packaging/Containerfile
die() { echo "test-container: $file: $*" >&2; exit 1; }
ebof=${EBOF:-${CARGO_TARGET_DIR:-target}/release/ebof}

stages=() copied=0
while read -r instruction rest; do
  case $instruction in
    '' | '#'*) ;;
    FROM)
      [[ $rest =~ ^[a-z0-9./:-]+(\ AS\ ([a-z]+))?$ ]] || die "FROM $rest"
      stages+=("${BASH_REMATCH[2]:-}")
      ;;
    COPY)
      read -ra words <<<"$rest"
      if [[ ${words[0]} == --from=* ]]; then
        [[ " ${stages[*]} " == *" ${words[0]#--from=} "* ]] || die "there is no stage ${words[0]#--from=}"
        continue
      fi
      for path in "${words[@]::${#words[@]}-1}"; do
        [[ -e $path ]] || die "there is no $path to copy"
        git check-ignore -q "$path" && die "$path is not in the repository"
        copied=$((copied + 1))
      done
      ;;
    RUN) bash -n <<<"$rest" || die "RUN $rest" ;;
    WORKDIR | ENV | USER | VOLUME | EXPOSE | STOPSIGNAL) [[ -n $rest ]] || die "$instruction without a value" ;;
    ENTRYPOINT | CMD | HEALTHCHECK)
      list=${rest##*CMD }
      python3 -c 'import json, sys; assert all(isinstance(word, str) for word in json.loads(sys.argv[1]))' "$list" ||
        die "$instruction: $list is no list of words"
      ;;
    *) die "no instruction $instruction" ;;
  esac
done <"$file"
((copied > 4)) || die "too little is copied"
# The workspace that is copied is whole: its members, and what they include.
for path in crates xtask Cargo.lock docs; do
  grep -qE "^COPY .*\b$path\b" "$file" || die "$path is not copied"
done
if [[ -x $ebof ]]; then
  "$ebof" config check packaging/etc/ebof.toml || die "the configuration is refused"
  "$ebof" target status --help >/dev/null || die "HEALTHCHECK's command is not one"
fi
echo "SKIPPED: $file is not built: there is no container engine"
