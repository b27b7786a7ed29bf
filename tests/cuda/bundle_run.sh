#!/usr/bin/env bash
# Runs a bundle that `scripts/bench gpu bundle` made: tests of the CUDA parts, then timings beside PyTorch.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'USAGE'
usage: run [--check | --tests | --bench] [--json FILE]

  --check   only whether the programs start and find their libraries; needs no GPU
  --tests   only the correctness tests
  --bench   only the timings
  --json    write the timings here

LibTorch is that of OARLOCK_TORCH_DIR (a folder `torch` as in site-packages), else of `python3 -c "import torch"`; set
PYTHON for another interpreter.
USAGE
}

fail() { printf 'error: %s\n' "$*" >&2; exit 69; }

mode=all json=""
while [[ $# -gt 0 ]]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --check | --tests | --bench) mode=${1#--}; shift ;;
    --json) [[ $# -ge 2 ]] || { usage >&2; exit 64; }; json=$2; shift 2 ;;
    *) usage >&2; exit 64 ;;
  esac
done

python=${PYTHON:-python3}
if [[ -n ${OARLOCK_TORCH_DIR:-} ]]; then
  torch=$OARLOCK_TORCH_DIR
else
  torch=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null) ||
    fail "$python has no torch; install PyTorch 2.11.0, or set OARLOCK_TORCH_DIR"
fi
[[ -e $torch/lib/libtorch_cuda.so ]] || fail "no libtorch_cuda.so in $torch/lib: this needs a PyTorch with CUDA"
version=$(sed -nE "s/^__version__ = '([^']*)'.*/\1/p" "$torch/version.py" 2>/dev/null)
[[ $version == 2.11.* ]] || fail "PyTorch in $torch is ${version:-of an unknown version}; this bundle was built for 2.11"
libraries=$torch/lib
for folder in "$torch"/../nvidia/*/lib; do libraries+=:$folder; done
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

check() {
  local program missing
  for program in "$here"/bin/*; do
    missing=$(ldd "$program" | sed -nE 's/^\s*(\S+) => not found.*/\1/p' | sort -u | tr '\n' ' ')
    [[ -z $missing ]] || fail "$(basename "$program") does not find: $missing"
  done
  "$here/bin/oarlock-bench-trainer" --version
  "$here/bin/oarlock-gpu-tests" --gtest_list_tests >/dev/null || fail "oarlock-gpu-tests does not start"
  printf 'task: bench\nsteps: 1\nbatch: {size: 1}\ncuda: {graphs: true, channels_last: true}\nmodel: {name: resnet}\n' >"$scratch/check.yaml"
  "$here/bin/oarlock-bench-trainer" --config "$scratch/check.yaml" --check
  printf 'the bundle starts here, with LibTorch %s of %s\n' "$version" "$torch"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
check
[[ $mode == check ]] && exit 0
if [[ $mode != bench ]]; then
  "$here/bin/oarlock-gpu-tests"
  "$python" "$here/python/gpu.py" --bin "$here/bin" --resume
fi
if [[ $mode != tests ]]; then
  "$python" "$here/python/gpu.py" --bin "$here/bin" --python "$python" ${json:+--json "$json"}
fi
