# shellcheck shell=bash
# scripts/bench operator: set-up, build, and the programs in tests/bench/operator.

bench_operator_truth() {
  local argument program=tests/bench/operator/truth.py
  for argument in "$@"; do
    [[ $argument == -h || $argument == --help ]] && exec python3 $program --bin . --help
  done
  scripts/setup build cluster kwok
  configure release
  cmake --build build/release --target oarlock-operator >&2 || die "the build of the operator failed"
  with_lock bench-operator /usr/bin/python3 $program --bin build/release/bin "$@"
}

bench_operator() {
  local argument rivals name programs=(kwok training-operator jobset) parts=(build cluster rivals)
  if [[ ${1:-} == truth ]]; then bench_operator_truth "${@:2}"; return; fi
  for argument in "$@"; do
    [[ $argument == -h || $argument == --help ]] && exec python3 tests/bench/operator/benchmark.py --bin . --help
  done
  # shellcheck source=scripts/lib/cluster/versions.sh
  source "$OARLOCK_ROOT/scripts/lib/cluster/versions.sh"
  if [[ $* == *queued* ]]; then programs+=(kueue) parts+=(kueue); fi
  scripts/setup "${parts[@]}"
  configure release
  cmake --build build/release --target oarlock-operator oarlock-bench-load >&2 || die "the build of the benchmark failed"
  rivals=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$rivals'" EXIT
  for name in "${programs[@]}"; do ln -s "$(program "$name")" "$rivals/$name"; done
  with_lock bench-operator /usr/bin/python3 tests/bench/operator/benchmark.py --bin build/release/bin --rivals "$rivals" "$@"
}
