# oarlock_link_statically(TARGET LIBRARY) makes the imported TARGET the static LIBRARY. Compile options do not change, so that
# other builds share the objects.
function(oarlock_link_statically target library)
  find_library(OARLOCK_STATIC_${library} NAMES lib${library}.a REQUIRED)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL INTERFACE_LIBRARY)
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${OARLOCK_STATIC_${library}}")
  else()
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${OARLOCK_STATIC_${library}}"
      IMPORTED_LOCATION_RELEASE "${OARLOCK_STATIC_${library}}")
  endif()
endfunction()

# oarlock_openssl and oarlock_yaml_cpp are static in programs with the property OARLOCK_STATIC_LIBRARIES, and otherwise what was
# found. The property is read of the program that is linked, not of the libraries that it consists of.
function(oarlock_add_choice name target library)
  set(choice ${target})
  if(OARLOCK_STATIC_LIBRARIES)
    find_library(OARLOCK_STATIC_${library} NAMES lib${library}.a REQUIRED)
    set(choice $<IF:$<BOOL:$<TARGET_PROPERTY:OARLOCK_STATIC_LIBRARIES>>,${OARLOCK_STATIC_${library}},${target}>)
  endif()
  target_link_libraries(${name} INTERFACE ${choice})
endfunction()
add_library(oarlock_openssl INTERFACE)
oarlock_add_choice(oarlock_openssl OpenSSL::SSL ssl)
oarlock_add_choice(oarlock_openssl OpenSSL::Crypto crypto)
add_library(oarlock_yaml_cpp INTERFACE)
oarlock_add_choice(oarlock_yaml_cpp PkgConfig::yaml_cpp yaml-cpp)

# oarlock_fmt is the same choice for {fmt}, of which Debian has no static library: it is compiled from the headers.
add_library(oarlock_fmt INTERFACE)
if(OARLOCK_STATIC_LIBRARIES)
  add_library(oarlock_static_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/static_fmt.cc)
  target_link_libraries(oarlock_fmt INTERFACE $<IF:$<BOOL:$<TARGET_PROPERTY:OARLOCK_STATIC_LIBRARIES>>,oarlock_static_fmt,fmt::fmt>)
else()
  target_link_libraries(oarlock_fmt INTERFACE fmt::fmt)
endif()
# The library that links oarlock_fmt also uses spdlog's headers, which would bring the shared {fmt} back.
set_target_properties(spdlog::spdlog_header_only PROPERTIES INTERFACE_LINK_LIBRARIES Threads::Threads)

# oarlock_static_libraries(PROGRAM COMPONENT [LIBRARY...]) links those libraries statically into PROGRAM if
# OARLOCK_STATIC_LIBRARIES is set, and installs PROGRAM.packages: the dpkg records of the packages whose static libraries, these
# and each LIBRARY, the program contains. It is empty if there are none. The images have them where scanners look.
function(oarlock_static_libraries program component)
  set(records ${PROJECT_BINARY_DIR}/${program}.packages)
  set(libraries "")
  if(OARLOCK_STATIC_LIBRARIES)
    set_target_properties(${program} PROPERTIES OARLOCK_STATIC_LIBRARIES ON)
    get_target_property(headers fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
    set(libraries ${OARLOCK_STATIC_ssl} ${OARLOCK_STATIC_crypto} ${OARLOCK_STATIC_yaml-cpp} ${headers}/fmt/format-inl.h ${ARGN})
  endif()
  set(script ${PROJECT_SOURCE_DIR}/cmake/static_packages.sh)
  add_custom_command(OUTPUT ${records} DEPENDS ${script} ${libraries} VERBATIM
    COMMAND sh ${script} ${records} ${libraries})
  target_sources(${program} PRIVATE ${records})
  install(FILES ${records} COMPONENT ${component} DESTINATION ${CMAKE_INSTALL_DATADIR}/oarlock)
endfunction()
