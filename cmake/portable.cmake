# Programs that run on other distributions than the one that built them: they need no shared library but glibc's. Included
# after the dependencies were found.
#
# Debian has neither a static {fmt} nor a static spdlog. Both are compiled from their headers, and the shared libraries, which
# remain on the command line of the linker, are then not needed.
set_target_properties(fmt::fmt PROPERTIES INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
set_target_properties(spdlog::spdlog PROPERTIES INTERFACE_COMPILE_DEFINITIONS SPDLOG_FMT_EXTERNAL)
find_library(OARLOCK_STATIC_YAML_CPP NAMES libyaml-cpp.a REQUIRED)
set_target_properties(PkgConfig::yaml_cpp PROPERTIES INTERFACE_LINK_LIBRARIES "${OARLOCK_STATIC_YAML_CPP}")

find_library(OARLOCK_STATIC_SSL NAMES libssl.a REQUIRED)
find_library(OARLOCK_STATIC_CRYPTO NAMES libcrypto.a REQUIRED)
set_target_properties(OpenSSL::SSL PROPERTIES IMPORTED_LOCATION "${OARLOCK_STATIC_SSL}")
set_target_properties(OpenSSL::Crypto PROPERTIES IMPORTED_LOCATION "${OARLOCK_STATIC_CRYPTO}")

# Without its unused functions, the static libstdc++ needs glibc 2.35 instead of 2.36. mold and gold keep the symbols that only
# unused functions need, so GNU's linker is used; the last option takes precedence.
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-fuse-ld=bfd -static-libstdc++ -static-libgcc -Wl,--gc-sections -Wl,--as-needed)
