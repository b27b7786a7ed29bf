# scripts/setup cuda: the headers with which the NCCL and CUDA files of the trainer compile, on a machine without a GPU.
# Running them needs a driver and the CUDA libraries that PyTorch brings (about 2 GB), which are not fetched here.
source "$OARLOCK_ROOT/scripts/lib/setup_build.sh"

kCudaWheels=(
  "nvidia-cuda-crt 13.0.88 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4"
  "nvidia-cuda-cccl 13.0.85 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649"
  "nvidia-nccl-cu13 2.28.9 e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42"
)
kCudaHeaders=$OARLOCK_CACHE/cuda-headers-13.0
if [[ ! -d $kCudaHeaders ]]; then
  kWheels=("${kCudaWheels[@]}")
  with_lock torch bash -c '[[ -d $1 ]]' _ "$kCudaHeaders" || with_lock torch unpack_wheels "$kCudaHeaders"
fi
