# NCCL and CUDA for the trainer, from header wheels (scripts/setup cuda) or an installed toolkit. There is no CUDA code of
# our own yet, so no nvcc: only the host compiler, the headers, and LibTorch's CUDA libraries to link against.
set(OARLOCK_CUDA_HEADERS "${_cache}/cuda-headers-13.0" CACHE PATH "Where scripts/setup cuda unpacked the header wheels")
set(OARLOCK_CUDA_TOOLKIT "" CACHE PATH "An installed CUDA toolkit to take headers from; empty: the wheels")

add_library(oarlock_torch_with_cuda INTERFACE IMPORTED)
if(OARLOCK_CUDA_TOOLKIT)
  find_path(OARLOCK_NCCL_INCLUDE nccl.h HINTS "${OARLOCK_TORCH_DIR}/../nvidia/nccl/include" "${OARLOCK_CUDA_HEADERS}/nvidia/nccl/include" REQUIRED)
  set(_cuda_include "${OARLOCK_CUDA_TOOLKIT}/include" "${OARLOCK_NCCL_INCLUDE}")
  find_library(OARLOCK_CUDART cudart HINTS "${OARLOCK_CUDA_TOOLKIT}/lib64" REQUIRED)
else()
  if(NOT EXISTS "${OARLOCK_CUDA_HEADERS}/nvidia/nccl/include/nccl.h")
    message(FATAL_ERROR "the CUDA headers are not in ${OARLOCK_CUDA_HEADERS}: run scripts/setup cuda, or set OARLOCK_CUDA_TOOLKIT, or turn OARLOCK_CUDA off")
  endif()
  set(_cuda_include "${OARLOCK_TORCH_DIR}/../nvidia/cu13/include" "${OARLOCK_CUDA_HEADERS}/nvidia/cu13/include"
      "${OARLOCK_CUDA_HEADERS}/nvidia/cu13/include/cccl" "${OARLOCK_CUDA_HEADERS}/nvidia/nccl/include")
  if(EXISTS "${CMAKE_SOURCE_DIR}/trainer/device/cuda_shim")  # not where Oarlock is used from its install tree
    list(APPEND _cuda_include "${CMAKE_SOURCE_DIR}/trainer/device/cuda_shim")
  endif()
  set(OARLOCK_CUDART "${OARLOCK_TORCH_DIR}/../nvidia/cu13/lib/libcudart.so.13")
endif()
target_include_directories(oarlock_torch_with_cuda SYSTEM INTERFACE ${_cuda_include})
target_compile_definitions(oarlock_torch_with_cuda INTERFACE USE_C10D_NCCL)
# LibTorch registers its CUDA kernels when libtorch_cuda is loaded, so it is linked although few of its symbols are named.
# What it needs itself (cuDNN, cuBLAS ...) is looked for when the program starts, not here.
target_link_options(oarlock_torch_with_cuda INTERFACE -Wl,--no-as-needed -Wl,--allow-shlib-undefined)
target_link_libraries(oarlock_torch_with_cuda INTERFACE oarlock_torch "${OARLOCK_TORCH_DIR}/lib/libtorch_cuda.so"
  "${OARLOCK_TORCH_DIR}/lib/libc10_cuda.so" "${OARLOCK_CUDART}")
