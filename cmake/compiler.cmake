# Language level, warnings, sanitizers, compiler cache and linker.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Default flags in place of CMake's own. Flags of the user, and those of an enclosing project, take precedence.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_FLAGS_RELWITHDEBINFO STREQUAL "-O2 -g -DNDEBUG")
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
endif()

find_program(OARLOCK_CCACHE ccache)
set(OARLOCK_CCACHE_EXTRA_FILES "")
if("undefined" IN_LIST OARLOCK_SANITIZE) # ccache does not read the list
  set(OARLOCK_CCACHE_EXTRA_FILES CCACHE_EXTRAFILES=${PROJECT_SOURCE_DIR}/cmake/sanitizer_ignorelist.txt)
endif()
if(OARLOCK_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers need this sloppiness. The times of headers are not ignored, so that a header which is edited during
  # its compilation cannot be cached under its new content. The base directory lets two clones share results.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${OARLOCK_CCACHE_EXTRA_FILES} ${OARLOCK_CCACHE})
endif()
find_program(OARLOCK_MOLD mold)
if(OARLOCK_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Only for Oarlock's targets; third-party headers are included as SYSTEM.
add_library(oarlock_warnings INTERFACE)
target_compile_options(oarlock_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual
  $<$<BOOL:${OARLOCK_WERROR}>:-Werror>)

if("thread" IN_LIST OARLOCK_SANITIZE)
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>) # Asio uses fences, which g++ does not instrument
endif()
if(OARLOCK_SANITIZE)
  add_compile_definitions(OARLOCK_SANITIZED) # clang 19 defines no macro for it
  add_compile_definitions(NDEBUG) # debug assertions in LibTorch's headers read members that only its own debug build sets
endif()
foreach(sanitizer IN LISTS OARLOCK_SANITIZE)
  add_compile_options(-fsanitize=${sanitizer} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sanitizer})
endforeach()
# LibTorch is compiled with g++ 12, which mangles constrained templates as clang did before version 18.
add_compile_options($<$<AND:$<CXX_COMPILER_ID:Clang>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,18>>:-fclang-abi-compat=17>)

# Undefined behavior aborts the program, so that the test fails; by default it is only reported.
if("undefined" IN_LIST OARLOCK_SANITIZE)
  add_compile_options(-fno-sanitize-recover=undefined)
  add_compile_options($<$<CXX_COMPILER_ID:Clang>:-fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/cmake/sanitizer_ignorelist.txt>)
endif()

# Coverage instrumentation for libFuzzer. Only the fuzzers link its main() (tests/fuzz).
if(OARLOCK_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
