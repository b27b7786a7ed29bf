#!/usr/bin/env bash
# Replays a corpus and then fuzzes for OARLOCK_FUZZ_SECONDS (10). An input that fails is kept in a temporary directory,
# whose path is printed; an input that takes longer than 60 s or more than 1 GiB in one allocation fails as well.
# Without OARLOCK_FUZZ_SECONDS the seed is fixed, so that a change is not blamed for what another seed would have found.
# usage: run_fuzzer.sh PROGRAM CORPUS MAX_LEN
set -euo pipefail
program=$1 corpus=$2 max_len=$3 seconds=10 seed=1
[[ -z ${OARLOCK_FUZZ_SECONDS:-} ]] || seconds=$OARLOCK_FUZZ_SECONDS seed=0 # 0: random
[[ -x $program ]] || { echo "$program is not built; scripts/test fuzz builds it" >&2; exit 1; }
[[ -d $corpus && -n $(ls -A "$corpus") ]] || { echo "$corpus is empty: commit at least one input" >&2; exit 1; }

# Files that the readers read are in memory where the machine has room for that.
[[ -w /dev/shm ]] && export TMPDIR=/dev/shm
directory=$(mktemp -d)
mkdir "$directory/new"
# Libraries without instrumentation fill containers that ASan then reports as overflowed.
export ASAN_OPTIONS=detect_container_overflow=0:allocator_may_return_null=1:handle_abort=1:${FUZZER_ASAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
LSAN_OPTIONS=suppressions=$(dirname "${BASH_SOURCE[0]}")/leaks.txt:print_suppressions=0
export LSAN_OPTIONS
symbolizer=$(command -v llvm-symbolizer-19 || true)
[[ -z $symbolizer ]] || export ASAN_SYMBOLIZER_PATH=$symbolizer

if "$program" -max_total_time="$seconds" -seed="$seed" -timeout=60 -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len="$max_len" \
    -use_value_profile=1 -print_final_stats=1 -artifact_prefix="$directory/" "$directory/new" "$corpus" >"$directory/log" 2>&1; then
  grep -E 'stat::(number_of_executed_units|peak_rss_mb)|DONE' "$directory/log" || true
  rm -rf "$directory"
else
  tail -n 60 "$directory/log"
  echo "the input is in $directory; fix the defect and add the input to $corpus" >&2
  exit 1
fi
