#!/usr/bin/env bash
# Fails on a shell script with warnings.
# usage: shellcheck.sh SOURCE_DIR
set -euo pipefail
cd "$1"
scripts=()
while IFS= read -r -d '' file; do
  if [[ $file == *.sh ]] || { [[ -f $file && -x $file ]] && head -c 64 "$file" | grep -q '^#!.*bash'; }; then scripts+=("$file"); fi
done < <(git ls-files -z --cached --others --exclude-standard -- scripts tests .ci docker)
[[ ${#scripts[@]} -gt 3 ]]
# SC1090, SC1091, SC2034, SC2154: sourced parts are not followed, so what they set and use is not seen. SC2164: it sets strict mode, so a failed cd ends the script.
shellcheck --severity=warning --shell=bash --external-sources --exclude=SC1090,SC1091,SC2034,SC2154,SC2164 "${scripts[@]}"
echo "${#scripts[@]} scripts are clean"
