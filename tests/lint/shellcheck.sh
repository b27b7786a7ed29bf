#!/usr/bin/env bash
# Fails on a shell script with something to say about it.
# usage: shellcheck.sh SOURCE_DIR
set -euo pipefail
cd "$1"
scripts=()
while IFS= read -r -d '' file; do
  if [[ $file == *.sh ]] || { [[ -f $file && -x $file ]] && head -c 64 "$file" | grep -q '^#!.*bash'; }; then scripts+=("$file"); fi
done < <(git ls-files -z --cached --others --exclude-standard -- scripts tests .ci docker)
[[ ${#scripts[@]} -gt 3 ]]
# Sourced parts have no shebang; SC1090/SC1091: shellcheck does not follow the sourced files.
shellcheck --shell=bash --external-sources --exclude=SC1090,SC1091 "${scripts[@]}"
echo "${#scripts[@]} scripts are clean"
