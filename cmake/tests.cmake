# oarlock_test(NAME LANE lane ROWS rows... SOURCES ... DEPS ... [ARGS ...] [TIMEOUT s] [PROCESSORS n] [ENV ...] [ON_SSE] [HOT]
# [SANITIZE]) adds one test program and one ctest entry. LANE is a lane of scripts/test; ROWS are the requirement rows that the
# test proves (docs/requirements.md), so that scripts/test --row K09 finds it. PROCESSORS is the number of places that ctest
# gives the test (1). With ON_SSE, a second entry NAME_on_sse in the lane repeats runs the program with the kernels of a CPU that
# has neither AVX2 nor AVX-512. The lanes asan and tsan run all unit tests, and the other ones with SANITIZE. The configuration
# Release compiles tests with -Og, which takes a fifth less time than -O1, or with -O2 if they are HOT: those that explore
# millions of states.
#
# oarlock_test_program(PROGRAM DEPS ... [TORCH]) adds a program of several test files: each later oarlock_test(NAME LANE lane
# PROGRAM program ...) adds NAME.cc to it and registers its tests. The headers of LibTorch, which take seconds to read, are
# then read once (see CMAKE_UNITY_BUILD), so that the names in the anonymous namespaces of the files must be distinct. It is worth
# it for files that test the same component. TORCH: they include heavy headers of LibTorch.
#
# The targets unit_tests, integration_tests and repeats_tests build what these lanes run, and sanitized_tests what asan and tsan run.
add_custom_target(unit_tests)
add_custom_target(integration_tests)
add_custom_target(repeats_tests DEPENDS unit_tests integration_tests)
add_custom_target(sanitized_tests DEPENDS unit_tests)
set(OARLOCK_SSE_ENVIRONMENT ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE)

function(oarlock_test name)
  cmake_parse_arguments(ARG "ON_SSE;HOT;SANITIZE" "LANE;TIMEOUT;PROCESSORS;PROGRAM" "ROWS;SOURCES;DEPS;ARGS;ENV" ${ARGN})
  if(ARG_PROGRAM)
    target_sources(${ARG_PROGRAM} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cc)
    add_custom_target(${name} DEPENDS ${ARG_PROGRAM})
    set(command ${ARG_PROGRAM} --file=${name}.cc ${ARG_ARGS})
  else()
    if(NOT ARG_SOURCES)
      set(ARG_SOURCES ${name}.cc)
    endif()
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
    oarlock_test_target(${name})
    if(NOT ARG_HOT)
      oarlock_compile_for_debugging(${name})
    endif()
    set(command ${name} ${ARG_ARGS})
  endif()
  add_dependencies(${ARG_LANE}_tests ${name})
  set(labels ${ARG_LANE})
  if(ARG_SANITIZE)
    add_dependencies(sanitized_tests ${name})
    list(APPEND labels sanitized)
  endif()
  add_test(NAME ${name} COMMAND ${command})
  oarlock_test_properties(${name} "${labels}" "${ARG_ROWS}" "${ARG_TIMEOUT}" "${ARG_PROCESSORS}" "${ARG_ENV}")
  if(ARG_ON_SSE)
    add_test(NAME ${name}_on_sse COMMAND ${command})
    oarlock_test_properties(${name}_on_sse repeats D13 "${ARG_TIMEOUT}" "${ARG_PROCESSORS}" "${ARG_ENV};${OARLOCK_SSE_ENVIRONMENT}")
  endif()
endfunction()

function(oarlock_test_program name)
  cmake_parse_arguments(ARG "TORCH" "" "DEPS" ${ARGN})
  add_executable(${name} ${PROJECT_SOURCE_DIR}/tests/support/test_program.cc)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${OARLOCK_UNITY_TEST_PROGRAMS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  oarlock_test_target(${name})
  oarlock_compile_for_debugging(${name})
  if(ARG_TORCH)
    oarlock_torch_headers(${name})
  endif()
endfunction()

function(oarlock_test_target name)
  target_link_libraries(${name} PRIVATE oarlock_warnings oarlock_test_paths GTest::gmock)
  oarlock_reuse_precompiled_header(${name} oarlock_test_pch)
endfunction()

function(oarlock_compile_for_debugging name)
  # With -Og, GCC 12 takes members of std::regex for uninitialized. In the lane sanitize, -O0 halves the time of the build;
  # the tests take hardly longer.
  target_compile_options(${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Og$<SEMICOLON>-Wno-maybe-uninitialized>
    $<$<CONFIG:Fuzz>:-O0>)
endfunction()

# oarlock_script_test(NAME LANE lane ROWS rows... COMMAND ...) does the same for a script.
function(oarlock_script_test name)
  cmake_parse_arguments(ARG "" "LANE;TIMEOUT;PROCESSORS" "ROWS;COMMAND;ENV" ${ARGN})
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  list(APPEND ARG_ENV "OARLOCK_BIN=${PROJECT_BINARY_DIR}/bin")
  oarlock_test_properties(${name} "${ARG_LANE}" "${ARG_ROWS}" "${ARG_TIMEOUT}" "${ARG_PROCESSORS}" "${ARG_ENV}")
endfunction()

function(oarlock_test_properties name labels rows timeout processors env)
  if(NOT labels)
    message(FATAL_ERROR "test ${name} names no LANE")
  endif()
  if(NOT timeout)
    set(timeout 600)
  endif()
  if(NOT processors)
    set(processors 1)
  endif()
  if(OARLOCK_SANITIZE)
    math(EXPR timeout "4 * ${timeout}")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels};${rows}" TIMEOUT ${timeout} PROCESSORS ${processors})
  if("thread" IN_LIST OARLOCK_SANITIZE)
    # A race ends the process, so that the tests of programs notice it. LibTorch and OpenMP are not instrumented, so that
    # their own synchronization is not seen. A test allocates too much.
    list(APPEND env TSAN_OPTIONS=halt_on_error=1:suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan_suppressions.txt:ignore_noninstrumented_modules=1:allocator_may_return_null=1)
  endif()
  if(env)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${env}")
  endif()
endfunction()
