# scripts/setup trainer: everything that compiling and running oarlock and oarlock-trainer needs, and the data of the example.

apt_install \
  build-essential cmake ninja-build ccache mold pkg-config ca-certificates python3 python3-pip zlib1g-dev libssl-dev \
  libexpected-dev nlohmann-json3-dev libfmt-dev libspdlog-dev libcli11-dev libyaml-cpp-dev libxxhash-dev \
  libhdf5-dev libblosc-dev libzstd-dev libboost-dev libprotozero-dev prometheus-cpp-dev libgloo-dev libgoogle-perftools-dev dataset-fashion-mnist

# LibTorch is the PyPI wheel of torch, unpacked next to the two small CUDA wheels whose libraries libtorch_cpu.so names.
# The Python tag does not matter to C++, so that one file serves every host. Pins: name version sha256.
kTorchVersion=2.11.0
kWheels=(
  "torch $kTorchVersion 7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a"
  "nvidia-cuda-runtime 13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
  "nvidia-cuda-cupti 13.0.85 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8"
)

unpack_wheels() {
  local target=$1 work entry name version hash quiet=--quiet
  [[ ! -t 1 ]] || quiet=--progress-bar=on
  work=$(mktemp -d "$OARLOCK_CACHE/wheels.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  mkdir -p "$work/site"
  for entry in "${kWheels[@]}"; do
    read -r name version hash <<<"$entry"
    say "downloading $name $version"
    printf '%s==%s --hash=sha256:%s\n' "$name" "$version" "$hash" >"$work/requirement.txt"
    python3 -m pip download "$quiet" --no-deps --require-hashes --only-binary=:all: --python-version 311 \
      --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux_2_18_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
      -d "$work" -r "$work/requirement.txt" || die -c 69 "pip could not download $name $version"
    python3 -m zipfile -e "$work"/"${name//-/_}"-*.whl "$work/site"
    rm -f "$work"/*.whl
  done
  rm -rf "$target"
  mkdir -p "$(dirname "$target")"
  mv "$work/site" "$target"   # the rename is what makes it be there: an interrupted unpack leaves nothing
}

kTorchSite=$OARLOCK_CACHE/torch-$kTorchVersion
if [[ ! -d $kTorchSite ]]; then
  [[ $(uname -m) == x86_64 ]] || die -c 69 "the LibTorch wheels pinned here are for x86_64, this machine is $(uname -m)"
  with_lock torch bash -c '[[ -d $1 ]]' _ "$kTorchSite" || with_lock torch unpack_wheels "$kTorchSite"
fi
