# Support for programs that are copied to another machine (scripts/bench gpu bundle): libraries with a static version in
# Debian are linked statically, and oarlock_bundle() copies the others next to the programs.
oarlock_link_statically(PkgConfig::xxhash xxhash)
oarlock_link_statically(PkgConfig::yaml_cpp yaml-cpp)
oarlock_link_statically(PkgConfig::tcmalloc tcmalloc_minimal)
oarlock_link_statically(ZLIB::ZLIB z)

# oarlock_bundle(TARGETS...) installs programs and their shared libraries as the component `gpu-bundle`. LibTorch and CUDA
# are not included: the other machine provides them.
function(oarlock_bundle)
  set_target_properties(${ARGN} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  install(TARGETS ${ARGN} COMPONENT gpu-bundle EXCLUDE_FROM_ALL RUNTIME DESTINATION bin)
  install(IMPORTED_RUNTIME_ARTIFACTS fmt::fmt prometheus-cpp::core
    COMPONENT gpu-bundle EXCLUDE_FROM_ALL LIBRARY DESTINATION lib RUNTIME DESTINATION lib)
  foreach(name ssl.so.3 crypto.so.3)
    find_file(_runtime_${name} lib${name} PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} REQUIRED)
    file(REAL_PATH ${_runtime_${name}} _real)
    install(FILES ${_real} RENAME lib${name} COMPONENT gpu-bundle EXCLUDE_FROM_ALL DESTINATION lib)
  endforeach()
endfunction()
