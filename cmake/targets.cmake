# oarlock_precompiled_header(NAME HEADERS <header>... DEPS targets...) adds the library NAME, which compiles the headers once
# for all targets that reuse it: one precompiled header per target would be a loss. Headers of Oarlock are not listed, so that
# a change of one does not compile everything again.
function(oarlock_precompiled_header name)
  cmake_parse_arguments(ARG "" "" "HEADERS;DEPS" ${ARGN})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Compiles the precompiled header.\n")
  add_library(${name} STATIC ${source})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE oarlock_warnings)
  if(OARLOCK_PCH)
    target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>) # for ccache
  endif()
endfunction()

# What most files without LibTorch include.
set(OARLOCK_COMMON_HEADERS
  <fmt/format.h>
  <algorithm>
  <chrono>
  <filesystem>
  <functional>
  <map>
  <memory>
  <nlohmann/json.hpp>
  <optional>
  <string>
  <tl/expected.hpp>
  <utility>
  <variant>
  <vector>)
set(OARLOCK_COMMON_HEADERS_DEPS fmt::fmt nlohmann_json::nlohmann_json tl::expected)

# oarlock_reuse_precompiled_header(TARGET NAME) replaces an earlier choice of TARGET.
function(oarlock_reuse_precompiled_header target name)
  if(NOT OARLOCK_PCH)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)  # CMake gives programs -fPIE, but the header was compiled with -fPIC
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  # The header was compiled with these definitions, so a target that does not link {fmt} needs them, too.
  target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
  # With a precompiled header, GCC 12 does not treat <string> as a system header, whose warnings it would suppress.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow$<SEMICOLON>-Wno-stringop-overread$<SEMICOLON>-Wno-array-bounds$<SEMICOLON>-Wno-restrict>)
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()

# oarlock_cold(TARGETS...): the configuration Release compiles code that is never hot with -O1 instead of -O2. Not for
# libraries of the trainer: the linker could take the copy of an inline function from them for code that is hot.
function(oarlock_cold)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-O1>)
  endforeach()
endfunction()

# Records which libraries the directory links: tests/lint/include_direction.py permits the includes that follow them.
function(_oarlock_record target)
  cmake_parse_arguments(ARG "" "" "PUBLIC;PRIVATE" ${ARGN})
  list(JOIN ARG_PUBLIC " " public)
  list(JOIN ARG_PRIVATE " " private)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE directory)
  set_property(GLOBAL APPEND_STRING PROPERTY OARLOCK_LINKS "${target}|${directory}|${public}|${private}\n")
endfunction()

# oarlock_library(NAME SOURCES ... [PUBLIC deps] [PRIVATE deps] [WITHOUT_PCH]) adds a static library with an alias: oarlock_core is also
# oarlock::core. Headers are included from the root of the checkout ("operator/core/model.h").
function(oarlock_library name)
  cmake_parse_arguments(ARG "WITHOUT_PCH" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  string(REGEX REPLACE "^oarlock_" "oarlock::" alias ${name})
  add_library(${alias} ALIAS ${name})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE $<BUILD_INTERFACE:oarlock_warnings> ${ARG_PRIVATE})
  if(NOT ARG_WITHOUT_PCH)
    oarlock_reuse_precompiled_header(${name} oarlock_pch)
  endif()
  _oarlock_record(${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

# oarlock_program(NAME COMPONENT c SOURCES ... DEPS ...) adds a program in bin/ of the build directory, and installs it.
function(oarlock_program name)
  cmake_parse_arguments(ARG "" "COMPONENT" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE oarlock_warnings ${ARG_DEPS})
  oarlock_reuse_precompiled_header(${name} oarlock_pch)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  _oarlock_record(${name} PRIVATE ${ARG_DEPS})
  install(TARGETS ${name} COMPONENT ${ARG_COMPONENT} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()
