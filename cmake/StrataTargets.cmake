# Sources of a target are compiled several at a time (CMAKE_UNITY_BUILD), which takes two thirds of
# the time, but those behind APART: their anonymous namespaces have names that others' have too.
# cmake/check_units.py finds these.

# strata_library(NAME SOURCES a.cc b.cc [APART c.cc] [DEPS x y])
# A static library of ours with the common settings.
function(strata_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;APART;DEPS" ${ARGN})
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # Built for what links it: a build for thread sanitizer leaves out what goes through gRPC.
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${ARG_SOURCES} ${ARG_APART})
  target_link_libraries(${name} PUBLIC strata_options ${ARG_DEPS})
  if(NOT CMAKE_CURRENT_SOURCE_DIR MATCHES "^${CMAKE_SOURCE_DIR}/tests/")
    strata_use_precompiled(${name} strata_library_headers)
  endif()
endfunction()

# strata_binary(NAME SOURCES main.cc [DEPS x y]) leaves bin/NAME.
function(strata_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE strata_options ${ARG_DEPS})
  if(STRATA_SANITIZE STREQUAL "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# After so many seconds ctest ends a test, which takes far less on any machine, however busy. It is
# there only so that a run with one that hangs still ends, and says which.
set(STRATA_TEST_HANGS_S 1800)
if(STRATA_SANITIZE)
  math(EXPR STRATA_TEST_HANGS_S "${STRATA_TEST_HANGS_S} * 4")
endif()

# The tests of text, common and the cores, which `./dev test` runs under address sanitizer too.
add_custom_target(core_tests)
set(STRATA_CORE_TESTS "^tests/(text|common|coordinator/(cluster|deployment|engine|members|planner|prefix)|worker/(node|runner|sampler))(/|$)")

# strata_core_label(OUT NAME) sets OUT to `core` if the test NAME of this folder is one of them.
function(strata_core_label out name)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE folder)
  set(${out} "" PARENT_SCOPE)
  if(folder MATCHES "${STRATA_CORE_TESTS}")
    add_dependencies(core_tests ${name})
    set(${out} core PARENT_SCOPE)
  endif()
endfunction()

# The programs of which every test is long: built for `./dev test --all` alone.
add_custom_target(long_tests)

# strata_test(NAME SOURCES a_test.cc [APART b_test.cc] [DEPS x y] [LABELS l] [COST seconds] [PROCESSORS n])
# A GoogleTest binary that ctest runs. STRATA_SHARED in its environment is the folder that holds
# golden/ and models/; STRATA_SOURCE is the top of the tree. ctest begins with those of the highest
# cost, about the seconds that they take, so that none runs alone at the end. PROCESSORS is how many it
# wants for itself: threads that share a step wait for one another at every turn of a busy processor.
function(strata_test name)
  if(NOT STRATA_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "COST;PROCESSORS" "SOURCES;APART;DEPS;LABELS" ${ARGN})
  if(NOT ARG_COST)
    set(ARG_COST 1)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_executable(${name} ${ARG_SOURCES} ${ARG_APART})
  target_link_libraries(${name} PRIVATE strata_options ${ARG_DEPS} strata_test_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  strata_use_precompiled(${name} strata_test_headers)
  if(STRATA_SANITIZE STREQUAL "thread" AND "grpc" IN_LIST ARG_LABELS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  if("long" IN_LIST ARG_LABELS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    add_dependencies(long_tests ${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  strata_core_label(core ${name})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${STRATA_TEST_HANGS_S}
    COST ${ARG_COST}
    PROCESSORS ${ARG_PROCESSORS}
    LABELS "unit;${core};${ARG_LABELS}"
    ENVIRONMENT "STRATA_SOURCE=${CMAKE_SOURCE_DIR};STRATA_BIN=${CMAKE_BINARY_DIR}/bin")
endfunction()

# strata_results_by_name(NAME) has one of several tests of a program write its results under its own name,
# where GTEST_OUTPUT is a folder: they may run at once.
function(strata_results_by_name name)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT_MODIFICATION "GTEST_OUTPUT=string_append:${name}.xml")
endfunction()

# strata_test_some(NAME FILTER [THREADS FILTER]) has a GoogleTest binary of strata_test run what the
# filter takes, and all of it as NAME_all, which is long. A filter may be a list. Under thread sanitizer,
# which makes kernels slower by tens of times, THREADS is what is run: which threads compute is the same
# for all models and formats.
function(strata_test_some name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "THREADS")
  if(NOT STRATA_TESTS)
    return()
  endif()
  if(STRATA_SANITIZE STREQUAL thread AND THREADS IN_LIST ARGN)
    set(ARG_UNPARSED_ARGUMENTS ${ARG_THREADS})
  endif()
  list(JOIN ARG_UNPARSED_ARGUMENTS : filter)
  get_test_property(${name} ENVIRONMENT environment)
  get_test_property(${name} TIMEOUT timeout)
  get_test_property(${name} PROCESSORS processors)
  add_test(NAME ${name}_all COMMAND ${name})
  set_tests_properties(${name}_all PROPERTIES
    PROCESSORS ${processors} TIMEOUT ${timeout} LABELS "unit;long" ENVIRONMENT "${environment}")
  strata_results_by_name(${name}_all)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=${filter}")
endfunction()
