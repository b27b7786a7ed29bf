# Language level, warnings, sanitizers, and what makes two cores enough: ccache and mold.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")

find_program(OARLOCK_CCACHE ccache)
if(OARLOCK_CCACHE)
  # What precompiled headers need; no slack for the headers' times, for a header that is edited while it is compiled must
  # not give its old text's object to its new text. The base folder makes two clones share results.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${OARLOCK_CCACHE})
endif()
find_program(OARLOCK_MOLD mold)
if(OARLOCK_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# For Oarlock's own targets only: third-party headers are included as SYSTEM.
add_library(oarlock_warnings INTERFACE)
target_compile_options(oarlock_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual
  $<$<BOOL:${OARLOCK_WERROR}>:-Werror>)

if("thread" IN_LIST OARLOCK_SANITIZE)
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>) # Asio uses fences, which g++ does not instrument
endif()
foreach(sanitizer IN LISTS OARLOCK_SANITIZE)
  add_compile_options(-fsanitize=${sanitizer} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sanitizer})
endforeach()
# Undefined behavior ends the program, so that the test fails: by default it is only printed.
if("undefined" IN_LIST OARLOCK_SANITIZE)
  add_compile_options(-fno-sanitize-recover=undefined)
endif()

# Coverage instrumentation of libFuzzer, whose main() is linked into the fuzzers only (tests/fuzz).
if(OARLOCK_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
