# oarlock_library(NAME SOURCES ... [PUBLIC deps] [PRIVATE deps]) adds a static library with an alias: oarlock_core is also
# oarlock::core. Headers are included from the root of the checkout ("operator/core/model.h").
function(oarlock_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  string(REGEX REPLACE "^oarlock_" "oarlock::" alias ${name})
  add_library(${alias} ALIAS ${name})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE $<BUILD_INTERFACE:oarlock_warnings> ${ARG_PRIVATE})
endfunction()

# oarlock_program(NAME COMPONENT c SOURCES ... DEPS ...) adds a program in bin/ of the build folder, and installs it.
function(oarlock_program name)
  cmake_parse_arguments(ARG "" "COMPONENT" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE oarlock_warnings ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  install(TARGETS ${name} COMPONENT ${ARG_COMPONENT} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()
