#!/usr/bin/env bash
# scripts/lib/build_progress.sh: the progress of a build by Ninja on the terminal, and the log with the rest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
source scripts/lib/build_progress.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
broken() { printf 'FAILED: %s\n' "$*" >&2; cat "$work/log" "$work/shown" >&2; exit 1; }

mkdir "$work/build"
cat >"$work/build/build.ninja" <<'NINJA'
rule compile
  command = echo "a warning of the compiler"; touch $out
  description = Building CXX object $out
rule fail
  command = echo "error: no such type"; exit 3
  description = Building CXX object $out
build all: phony nn/CMakeFiles/oarlock_nn.dir/a.cc.o nn/CMakeFiles/oarlock_nn.dir/b.cc.o
build nn/CMakeFiles/oarlock_nn.dir/a.cc.o: compile
build nn/CMakeFiles/oarlock_nn.dir/b.cc.o: compile nn/CMakeFiles/oarlock_nn.dir/a.cc.o
build broken: fail
NINJA

build_with_progress "$work/log" ninja -C "$work/build" all 2>"$work/shown" || broken "the build ended with $?"
grep -qE '^ *50 %  [0-9]+:[0-9]{2}  nn/a.cc$' "$work/shown" || broken "the first file is not shown"
grep -qE '^ *100 %  [0-9]+:[0-9]{2}  nn/b.cc$' "$work/shown" || broken "the last file is not shown"
[[ $(wc -l <"$work/shown") == 2 ]] || broken "the output of the compiler is shown"
grep -q 'a warning of the compiler' "$work/log" || broken "the output of the compiler is not in the log"

status=0
build_with_progress "$work/log" ninja -C "$work/build" broken 2>"$work/shown" || status=$?
[[ $status == 1 ]] || broken "a failed build ended with $status, not with the code of ninja"
grep -q 'error: no such type' "$work/shown" || broken "the error is not shown"

# On a terminal, each line replaces the one before it.
script --quiet --return --command "bash -c 'source scripts/lib/build_progress.sh; for i in \$(seq 30); do echo \"[\$i/30] Linking CXX executable bin/p\$i\"; done | show_build_progress'" "$work/terminal" >/dev/null
[[ $(grep -c 'bin/p[0-9]' "$work/terminal") == 1 ]] || broken "the terminal shows several lines"
grep -q '100 %' "$work/terminal" || broken "the terminal does not show the end"
