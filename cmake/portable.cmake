# Programs that run on other distributions than the one that built them: they need no shared library but glibc's. Included
# after the dependencies were found.
#
# Debian has neither a static {fmt} nor a static spdlog. Both are compiled from their headers, and the shared libraries, which
# remain on the command line of the linker, are then not needed.
set_target_properties(fmt::fmt PROPERTIES INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
set_target_properties(spdlog::spdlog PROPERTIES INTERFACE_COMPILE_DEFINITIONS SPDLOG_FMT_EXTERNAL)
oarlock_link_statically(PkgConfig::yaml_cpp yaml-cpp)
oarlock_link_statically(OpenSSL::SSL ssl)
oarlock_link_statically(OpenSSL::Crypto crypto)

# Without its unused functions, the static libstdc++ needs glibc 2.35 instead of 2.36. mold and gold keep the symbols that only
# unused functions need, so GNU's linker is used; the last option takes precedence.
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-fuse-ld=bfd -static-libstdc++ -static-libgcc -Wl,--gc-sections -Wl,--as-needed)
