# LibTorch from the unpacked PyPI wheel. find_package(Torch) requires a CUDA toolkit and links all libraries, so this file
# defines its own targets: oarlock_torch is libtorch_cpu + libc10, and never libtorch.so, which loads the CUDA libraries.
if(DEFINED ENV{XDG_CACHE_HOME})
  set(_cache "$ENV{XDG_CACHE_HOME}/oarlock")
else()
  set(_cache "$ENV{HOME}/.cache/oarlock")
endif()
set(OARLOCK_TORCH_DIR "${_cache}/torch-2.11.0/torch" CACHE PATH "The torch directory of an unpacked wheel or of site-packages")
if(NOT EXISTS "${OARLOCK_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch is not in ${OARLOCK_TORCH_DIR}: run scripts/setup build, or set OARLOCK_TORCH_DIR, or turn OARLOCK_TRAINER off")
endif()

# The library and its headers must have the same patch version.
set(OARLOCK_TORCH_VERSION "")
foreach(part MAJOR MINOR PATCH)
  file(STRINGS "${OARLOCK_TORCH_DIR}/include/torch/headeronly/version.h" _line REGEX "define TORCH_VERSION_${part} ")
  string(REGEX MATCH "[0-9]+$" _number "${_line}")
  string(APPEND OARLOCK_TORCH_VERSION ".${_number}")
endforeach()
string(SUBSTRING "${OARLOCK_TORCH_VERSION}" 1 -1 OARLOCK_TORCH_VERSION)

if(TARGET oarlock_torch)  # a second find_package(oarlock)
  return()
endif()
foreach(library torch_cpu c10)
  add_library(oarlock_${library} SHARED IMPORTED)
  set_target_properties(oarlock_${library} PROPERTIES IMPORTED_LOCATION "${OARLOCK_TORCH_DIR}/lib/lib${library}.so")
endforeach()

# The include directory of the wheel contains a newer {fmt} than the linked one, whose headers must be found first. A program
# that links oarlock::ddp alone may be built on a machine without {fmt}.
find_path(OARLOCK_FMT_INCLUDE fmt/format.h)
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/include_first")
if(OARLOCK_FMT_INCLUDE)
  file(CREATE_LINK "${OARLOCK_FMT_INCLUDE}/fmt" "${PROJECT_BINARY_DIR}/include_first/fmt" SYMBOLIC)
endif()

# An imported target is not exported; cmake/install.cmake installs this file instead.
add_library(oarlock_torch INTERFACE IMPORTED)
target_include_directories(oarlock_torch SYSTEM INTERFACE "${PROJECT_BINARY_DIR}/include_first"
  "${OARLOCK_TORCH_DIR}/include" "${OARLOCK_TORCH_DIR}/include/torch/csrc/api/include")
# Without these definitions, the c10d headers are empty.
target_compile_definitions(oarlock_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
target_link_libraries(oarlock_torch INTERFACE oarlock_torch_cpu oarlock_c10)
# Only GNU ld needs the directory of libcudart and libcupti.
target_link_options(oarlock_torch INTERFACE "-Wl,-rpath-link,${OARLOCK_TORCH_DIR}/../nvidia/cu13/lib")

if(OARLOCK_CUDA)
  include(cuda)
endif()
