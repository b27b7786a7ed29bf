# scripts/bench gpu: a bundle that is made here and runs on a machine with a GPU.
kBundleLimitMb=60

bench_gpu() {
  case ${1:-} in
    bundle) shift; make_gpu_bundle "$@" ;;
    run | check)
      [[ $# -ge 2 ]] || die -c 64 "scripts/bench gpu $1 needs the directory of a bundle"
      [[ -x $2/run ]] || die -c 66 "$2 is not a bundle: create one with scripts/bench gpu bundle"
      local mode=$1 directory=$2
      shift 2
      if [[ $mode == check ]]; then "$directory/run" --check "$@"; else "$directory/run" "$@"; fi ;;
    *) usage >&2; die -c 64 "scripts/bench gpu: bundle, run or check?" ;;
  esac
}

make_gpu_bundle() {
  local build=build/gpu-bundle-build directory=build/gpu-bundle size
  if [[ ${1:-} == --build-dir ]]; then build=${2:?--build-dir needs a directory}; shift 2; fi
  directory=${1:-$directory}
  [[ ! -e $directory || -x $directory/run || -z $(ls -A "$directory" 2>/dev/null) ]] ||
    die -c 73 "$directory exists and is not a bundle: name another directory, or remove it"
  scripts/setup build cuda
  mkdir -p "$OARLOCK_LOGS"
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DOARLOCK_CUDA=ON -DOARLOCK_BUNDLE=ON -DOARLOCK_OPERATOR=OFF \
    >"$OARLOCK_LOGS/cmake-gpu-bundle.log" 2>&1 || { tail -n 30 "$OARLOCK_LOGS/cmake-gpu-bundle.log" >&2; die "cmake failed"; }
  cmake --build "$build" --target gpu-bundle-programs >&2 || die "the build of the bundle failed"
  rm -rf "$directory"
  cmake --install "$build" --component gpu-bundle --prefix "$directory" --strip >/dev/null || die "the bundle could not be put together"
  size=$(du -sm "$directory" | cut -f1)
  [[ $size -lt $kBundleLimitMb ]] || die "the bundle is $size MB; the limit is $kBundleLimitMb"
  say "$directory: $size MB; copy it to the machine with the GPU and start ./run there"
}
