# oarlock_test(NAME LANE lane ROWS rows... SOURCES ... DEPS ... [ARGS ...] [TIMEOUT s] [ENV ...] [ON_SSE])
# adds one test program and one ctest entry. LANE is a lane of scripts/test; ROWS are the requirement rows that the test
# proves (docs/requirements.md), so that scripts/test --row K09 finds it. With ON_SSE, a second entry NAME_on_sse runs the
# program with the kernels of a CPU that has neither AVX2 nor AVX-512.
#
# The target unit_tests consists of the programs that the lane unit runs. The other lanes run installed programs too, and
# need the target all.
add_custom_target(unit_tests)
set(OARLOCK_SSE_ENVIRONMENT ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE)

function(oarlock_test name)
  cmake_parse_arguments(ARG "SERIAL;ON_SSE" "LANE;TIMEOUT" "ROWS;SOURCES;DEPS;ARGS;ENV" ${ARGN})
  if(NOT ARG_SOURCES)
    set(ARG_SOURCES ${name}.cc)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE oarlock_warnings ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  oarlock_reuse_precompiled_header(${name} oarlock_test_pch)
  oarlock_cold(${name})
  target_compile_definitions(${name} PRIVATE OARLOCK_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data" OARLOCK_BIN="${PROJECT_BINARY_DIR}/bin"
    OARLOCK_SOURCE="${PROJECT_SOURCE_DIR}")
  if(ARG_LANE STREQUAL "unit")
    add_dependencies(unit_tests ${name})
  endif()
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  oarlock_test_properties(${name} "${ARG_LANE}" "${ARG_ROWS}" "${ARG_TIMEOUT}" "${ARG_ENV}" "${ARG_SERIAL}")
  if(ARG_ON_SSE)
    add_test(NAME ${name}_on_sse COMMAND ${name} ${ARG_ARGS})
    oarlock_test_properties(${name}_on_sse "${ARG_LANE}" D13 "${ARG_TIMEOUT}" "${ARG_ENV};${OARLOCK_SSE_ENVIRONMENT}" "${ARG_SERIAL}")
  endif()
endfunction()

# oarlock_script_test(NAME LANE lane ROWS rows... COMMAND ...) does the same for a script.
function(oarlock_script_test name)
  cmake_parse_arguments(ARG "SERIAL" "LANE;TIMEOUT" "ROWS;COMMAND;ENV" ${ARGN})
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  list(APPEND ARG_ENV "OARLOCK_BIN=${PROJECT_BINARY_DIR}/bin")
  oarlock_test_properties(${name} "${ARG_LANE}" "${ARG_ROWS}" "${ARG_TIMEOUT}" "${ARG_ENV}" "${ARG_SERIAL}")
endfunction()

function(oarlock_test_properties name lane rows timeout env serial)
  if(NOT lane)
    message(FATAL_ERROR "test ${name} names no LANE")
  endif()
  if(NOT timeout)
    set(timeout 600)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${lane};${rows}" TIMEOUT ${timeout})
  if(env)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${env}")
  endif()
  if(serial)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()
