# Support for programs that are copied to another machine (scripts/bench gpu bundle): libraries with a static version in
# Debian are linked statically, and oarlock_bundle() copies the others next to the programs.
oarlock_link_statically(PkgConfig::xxhash xxhash)
oarlock_link_statically(PkgConfig::yaml_cpp yaml-cpp)
oarlock_link_statically(PkgConfig::tcmalloc tcmalloc_minimal)
oarlock_link_statically(ZLIB::ZLIB z)

# oarlock_bundle(TARGETS...) installs programs and their shared libraries as the component `gpu-bundle`. LibTorch, CUDA and the
# libraries of the compiler are not included: the other machine provides them.
function(oarlock_bundle)
  set_target_properties(${ARGN} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  foreach(target IN LISTS ARGN)
    target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)  # also for the libraries that these libraries need
  endforeach()
  install(TARGETS ${ARGN} RUNTIME_DEPENDENCY_SET oarlock_bundled COMPONENT gpu-bundle EXCLUDE_FROM_ALL RUNTIME DESTINATION bin)
  install(RUNTIME_DEPENDENCY_SET oarlock_bundled COMPONENT gpu-bundle EXCLUDE_FROM_ALL DESTINATION lib
    PRE_EXCLUDE_REGEXES "^lib(torch|c10|shm|cu|nccl|nv|caffe2|gomp|stdc\\+\\+|gcc_s|c\\.so|m\\.so|resolv|rt\\.so|dl\\.so|pthread)" "^ld-linux")
endfunction()
