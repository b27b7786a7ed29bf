# LibTorch from the unpacked PyPI wheel. find_package(Torch) wants a CUDA toolkit and links everything, so the targets
# are ours: oarlock_torch is libtorch_cpu + libc10, never libtorch.so, which would pull in the CUDA libraries.
if(DEFINED ENV{XDG_CACHE_HOME})
  set(_cache "$ENV{XDG_CACHE_HOME}/oarlock")
else()
  set(_cache "$ENV{HOME}/.cache/oarlock")
endif()
set(OARLOCK_TORCH_DIR "${_cache}/torch-2.11.0/torch" CACHE PATH "The torch folder of an unpacked wheel or a site-packages")
if(NOT EXISTS "${OARLOCK_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch is not in ${OARLOCK_TORCH_DIR}: run scripts/setup build, or set OARLOCK_TORCH_DIR, or turn OARLOCK_TRAINER off")
endif()

# Library and headers belong together to the patch.
set(OARLOCK_TORCH_VERSION "")
foreach(part MAJOR MINOR PATCH)
  file(STRINGS "${OARLOCK_TORCH_DIR}/include/torch/headeronly/version.h" _line REGEX "define TORCH_VERSION_${part} ")
  string(REGEX MATCH "[0-9]+$" _number "${_line}")
  string(APPEND OARLOCK_TORCH_VERSION ".${_number}")
endforeach()
string(SUBSTRING "${OARLOCK_TORCH_VERSION}" 1 -1 OARLOCK_TORCH_VERSION)

foreach(library torch_cpu c10)
  add_library(oarlock_${library} SHARED IMPORTED)
  set_target_properties(oarlock_${library} PROPERTIES IMPORTED_LOCATION "${OARLOCK_TORCH_DIR}/lib/lib${library}.so")
endforeach()

# The wheel's include folder has a {fmt} of its own, newer than the one we link: ours must be found before it.
find_path(OARLOCK_FMT_INCLUDE fmt/format.h REQUIRED)
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/include_first")
file(CREATE_LINK "${OARLOCK_FMT_INCLUDE}/fmt" "${CMAKE_BINARY_DIR}/include_first/fmt" SYMBOLIC)

# Imported, so that it is no part of what is installed: cmake/install.cmake installs this file instead.
add_library(oarlock_torch INTERFACE IMPORTED)
target_include_directories(oarlock_torch SYSTEM INTERFACE "${CMAKE_BINARY_DIR}/include_first"
  "${OARLOCK_TORCH_DIR}/include" "${OARLOCK_TORCH_DIR}/include/torch/csrc/api/include")
# Without these the c10d headers are empty.
target_compile_definitions(oarlock_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
target_link_libraries(oarlock_torch INTERFACE oarlock_torch_cpu oarlock_c10)
# Only GNU ld needs to be told where libcudart and libcupti lie.
target_link_options(oarlock_torch INTERFACE "-Wl,-rpath-link,${OARLOCK_TORCH_DIR}/../nvidia/cu13/lib")

if(OARLOCK_CUDA)
  include(cuda)
endif()
