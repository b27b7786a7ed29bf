#!/usr/bin/env bash
# Makes the bundle of scripts/bench gpu, moves it, and checks that it starts with the PyTorch of Python, and its messages if
# it cannot start. Needs no GPU; the first build takes minutes.
set -euo pipefail
source "$OARLOCK_SOURCE/scripts/lib/common.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# Runs a command without the environment of the machine that built the bundle.
bare() { env -i PATH=/usr/bin:/bin HOME=/nowhere "$@"; }

# expect CODE WORDS COMMAND...: checks the exit code of a command, and that a line of its output contains the words.
expect() {
  local wanted=$1 words=$2 code=0 output
  shift 2
  output=$("$@" 2>&1) || code=$?
  [[ $code -eq $wanted && $output == *"$words"* ]] && return 0
  printf 'FAILED: %s\n  exit code %s, wanted %s; wanted the words: %s\n%s\n' "$*" "$code" "$wanted" "$words" "$output" >&2
  failures=$((failures + 1))
}

# pretend DIRECTORY VERSION: a PyTorch of another kind.
pretend() { mkdir -p "$work/$1/torch/lib" && echo "__version__ = '$2'" >"$work/$1/torch/version.py"; }

cd "$OARLOCK_SOURCE"
mkdir "$work/other" && touch "$work/other/file"
expect 73 "exists and is not a bundle" scripts/bench gpu bundle "$work/other"
scripts/bench gpu bundle ${OARLOCK_GPU_BUILD:+--build-dir "$OARLOCK_GPU_BUILD"} "$work/made"
mkdir "$work/a place"
mv "$work/made" "$work/a place/bundle"
run=$work/a\ place/bundle/run

python=$OARLOCK_CACHE/python-torch-2.11.0/bin/python
torch=$(compgen -G "$OARLOCK_CACHE/python-torch-2.11.0/lib/python3.*/site-packages/torch")
expect 0 "the bundle starts here, with LibTorch 2.11.0+cu130" bare OARLOCK_TORCH_DIR="$torch" "$run" --check
expect 0 "the bundle starts here, with LibTorch 2.11.0+cu130" bare PYTHON="$python" "$run" --check
expect 0 "the bundle starts here" env OARLOCK_TORCH_DIR="$torch" scripts/bench gpu check "$work/a place/bundle"
expect 69 "this machine shows no CUDA device" bare OARLOCK_TORCH_DIR="$torch" CUDA_VISIBLE_DEVICES= "$run" --tests

expect 69 "OARLOCK_TORCH_DIR is /nowhere" bare OARLOCK_TORCH_DIR=/nowhere "$run" --check
expect 69 "has no torch: install PyTorch 2.11.0" bare PYTHON=/nowhere/python "$run" --check
pretend old 2.9.1+cu128
expect 69 "is 2.9.1+cu128, this bundle was built for 2.11.0+cu130" bare OARLOCK_TORCH_DIR="$work/old/torch" "$run" --check
pretend cpu 2.11.0+cpu
expect 69 "is without CUDA" bare OARLOCK_TORCH_DIR="$work/cpu/torch" "$run" --check
pretend cu12 2.11.0+cu128
touch "$work/cu12/torch/lib/libtorch_cuda.so"
expect 69 "is for CUDA 12, this bundle was built for 2.11.0+cu130" bare OARLOCK_TORCH_DIR="$work/cu12/torch" "$run" --check
pretend alone 2.11.0+cu130 # LibTorch without the wheels of the CUDA libraries next to it
ln -s "$torch"/lib/* "$work/alone/torch/lib"
expect 69 "does not find: " bare OARLOCK_TORCH_DIR="$work/alone/torch" "$run" --check
expect 69 "libcudart.so.13" bare OARLOCK_TORCH_DIR="$work/alone/torch" "$run" --check
expect 64 "usage: run" bare OARLOCK_TORCH_DIR="$torch" "$run" --chekc
expect 66 "is not a bundle" scripts/bench gpu check "$work/other"

[[ $failures -eq 0 ]] || die "$failures expectations failed"
echo "the bundle can be carried"
