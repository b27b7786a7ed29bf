#!/usr/bin/env bash
# Runs a bundle that `scripts/bench gpu bundle` made: tests of the CUDA parts, then timings compared with PyTorch.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
read -r built_for <"$here/torch-version" # as 2.11.0+cu130

usage() {
  cat <<USAGE
usage: run [--check | --tests | --bench] [--json FILE]

  --check   only whether the programs find their libraries, start, and train on the CPU; needs no GPU
  --tests   only the correctness tests
  --bench   only the timings
  --json    write the timings here

LibTorch is that of OARLOCK_TORCH_DIR (a directory \`torch\` as in site-packages), else of \`python3 -c "import torch"\`; set
PYTHON for another interpreter. This bundle was built for PyTorch $built_for.

exit codes: 0 done, 1 a test or a timing failed, 64 wrong arguments, 69 LibTorch, a GPU or a library is not there or does
not fit
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
  [[ -d $torch/lib ]] || fail "OARLOCK_TORCH_DIR is $torch, which has no directory lib: name the directory torch of site-packages"
else
  torch=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null) ||
    fail "$python has no torch: install PyTorch ${built_for%%+*}, or set OARLOCK_TORCH_DIR or PYTHON"
fi

# The C++ interface of LibTorch holds within a minor version; the CUDA libraries are named by their major version.
version=$(sed -nE "s/^__version__ = '([^']*)'.*/\1/p" "$torch/version.py" 2>/dev/null || true)
minor_of() { local number=${1%%+*}; echo "${number%.*}"; }
cuda_of() { [[ $1 == *+cu* ]] || return 0; local cuda=${1##*+cu}; echo "${cuda%?}"; }
[[ $(minor_of "$version") == "$(minor_of "$built_for")" ]] ||
  fail "PyTorch in $torch is ${version:-of an unknown version}, this bundle was built for $built_for: install that, or set OARLOCK_TORCH_DIR to it"
[[ -e $torch/lib/libtorch_cuda.so ]] || fail "PyTorch $version in $torch is without CUDA (no lib/libtorch_cuda.so), this bundle was built for $built_for"
cuda=$(cuda_of "$version")
[[ -z $cuda || $cuda == "$(cuda_of "$built_for")" ]] ||
  fail "PyTorch $version in $torch is for CUDA $cuda, this bundle was built for $built_for: install that, or set OARLOCK_TORCH_DIR to it"
libraries=$torch/lib
for directory in "$torch"/../nvidia/*/lib; do libraries+=:$directory; done
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

check() {
  local program found missing
  for program in "$here"/bin/*; do
    found=$(ldd "$program" 2>&1) || true
    missing=$(sed -nE 's/^\s*(\S+) => not found.*/\1/p; s/.*version .(\S+). not found.*/\1/p' <<<"$found" | sort -u | tr '\n' ' ')
    [[ -z $missing ]] || fail "$(basename "$program") does not find: ${missing% }"
  done
  "$here/bin/oarlock-bench-trainer" --version
  "$here/bin/oarlock-gpu-tests" --gtest_list_tests >/dev/null || fail "oarlock-gpu-tests does not start"
  printf 'task: bench\nsteps: 1\nbatch: {size: 1}\ncuda: {graphs: true, channels_last: true}\nmodel: {name: resnet}\n' >"$scratch/check.yaml"
  "$here/bin/oarlock-bench-trainer" --config "$scratch/check.yaml" --check
  printf 'task: tiny\nsteps: 4\ndevice: cpu\nbatch: {size: 16}\ndata: {samples: 64}\n' >"$scratch/train.yaml"
  "$here/bin/oarlock-test-trainer" --config "$scratch/train.yaml" >"$scratch/train.log" 2>&1 ||
    { cat "$scratch/train.log" >&2; fail "oarlock-test-trainer does not train on the CPU"; }
  printf 'the bundle starts here, with LibTorch %s of %s\n' "$version" "$torch"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
check
[[ $mode == check ]] && exit 0
code=0
"$here/bin/oarlock-gpu-tests" --gtest_filter=-* >/dev/null || code=$? # no test: only whether there is a GPU
[[ $code -eq 0 ]] || exit "$code"
if [[ $mode != bench ]]; then
  "$here/bin/oarlock-gpu-tests" || code=1
  "$python" "$here/python/gpu.py" --bin "$here/bin" --resume || code=1
  "$python" "$here/python/program_checks.py" --bin "$here/bin" || code=1
fi
if [[ $mode != tests ]]; then
  "$python" "$here/python/gpu.py" --bin "$here/bin" --python "$python" ${json:+--json "$json"} || code=1
fi
exit "$code"
