# Cross compilation for arm64 on Debian 12 for amd64. `scripts/setup arm64` installs the compiler, and unpacks Debian's arm64
# libraries into the cache, so that the machine itself has no packages of another architecture.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)

if(DEFINED ENV{XDG_CACHE_HOME})
  set(CMAKE_SYSROOT "$ENV{XDG_CACHE_HOME}/oarlock/sysroot-arm64")
else()
  set(CMAKE_SYSROOT "$ENV{HOME}/.cache/oarlock/sysroot-arm64")
endif()
if(NOT EXISTS "${CMAKE_SYSROOT}/usr/include/fmt/format.h")
  message(FATAL_ERROR "the arm64 libraries are not in ${CMAKE_SYSROOT}: run scripts/setup arm64")
endif()

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")

# The cross compiler searches for its linkers under a prefix that Debian's mold does not have.
set(OARLOCK_MOLD "" CACHE FILEPATH "Linker; empty: that of the compiler")
