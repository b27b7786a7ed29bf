#!/usr/bin/env bash
# Executes the commands of the README's cluster block, so that what it shows is what works.
# usage: readme_commands.sh FIRST LAST: from the line that starts with FIRST to the one that starts with LAST
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
first=$1 last=$2

block=$(awk '/^<!-- e2e: executed/ {found = 1; next} found && /^```sh/ {inside = 1; next} inside && /^```/ {exit} inside' README.md)
commands=$(awk -v first="$first" -v last="$last" 'index($0, first) == 1 {on = 1} on {print} on && index($0, last) == 1 {exit}' <<<"$block")
grep -q "^$last" <<<"$commands" || broken "the README has no commands from '$first' to '$last'"
trap - EXIT   # describe_world needs a cluster, which the first of these commands makes
if [[ $first != "scripts/cluster up" ]]; then use_cluster; fi
while IFS= read -r command; do
  printf '$ %s\n' "$command"
  eval "$command" || broken "$command"
done <<<"$commands"
