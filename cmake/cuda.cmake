# NCCL and CUDA for the trainer, from header wheels (scripts/setup cuda) or an installed toolkit. Oarlock has no CUDA
# kernels, so it needs only the host compiler, the headers, and the CUDA libraries of LibTorch, but not nvcc.
set(OARLOCK_CUDA_HEADERS "${_cache}/cuda-headers-13.0" CACHE PATH "Directory of the header wheels that scripts/setup cuda unpacks")
set(OARLOCK_CUDA_TOOLKIT "" CACHE PATH "Installed CUDA toolkit to take headers from; empty: the wheels")

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
  if(EXISTS "${PROJECT_SOURCE_DIR}/cmake/cuda_declarations.h")  # absent in the install tree
    foreach(header cublas_v2.h cublasLt.h cusolver_common.h cusolverDn.h cusparse.h)
      configure_file("${PROJECT_SOURCE_DIR}/cmake/cuda_declarations.h" "${PROJECT_BINARY_DIR}/cuda-declarations/${header}" COPYONLY)
    endforeach()
    list(APPEND _cuda_include "${PROJECT_BINARY_DIR}/cuda-declarations")
  endif()
  set(OARLOCK_CUDART "${OARLOCK_TORCH_DIR}/../nvidia/cu13/lib/libcudart.so.13")
endif()
target_include_directories(oarlock_torch_with_cuda SYSTEM INTERFACE ${_cuda_include})
target_compile_definitions(oarlock_torch_with_cuda INTERFACE USE_C10D_NCCL)
# LibTorch registers its CUDA kernels when libtorch_cuda is loaded, so it is linked although few of its symbols are used.
# Its own dependencies (cuDNN, cuBLAS ...) are resolved when the program starts.
target_link_options(oarlock_torch_with_cuda INTERFACE -Wl,--no-as-needed -Wl,--allow-shlib-undefined)
target_link_libraries(oarlock_torch_with_cuda INTERFACE oarlock_torch "${OARLOCK_TORCH_DIR}/lib/libtorch_cuda.so"
  "${OARLOCK_TORCH_DIR}/lib/libc10_cuda.so" "${OARLOCK_CUDART}")
