# Runs at the time of installation: installs `headers`, which include each other by their paths in `source`, so that they
# include each other as <oarlock/...>. A program's own common/error.h therefore never takes the place of ours. `stage` is a
# directory for the changed copies; `destination` is relative to the prefix.
foreach(header IN LISTS headers)
  file(READ "${source}/${header}" text)
  string(REGEX REPLACE "#include \"([a-z_]+/[^\"]+)\"" "#include <oarlock/\\1>" text "${text}")
  file(WRITE "${stage}/${header}" "${text}")
  cmake_path(GET header PARENT_PATH directory)
  file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/${destination}/${directory}" TYPE FILE FILES "${stage}/${header}")
endforeach()
