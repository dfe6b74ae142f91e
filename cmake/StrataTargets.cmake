# strata_library(NAME SOURCES a.cc b.cc [DEPS x y])
# A static library of ours with the common settings.
function(strata_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  # Built for what links it: a build for thread sanitizer leaves out what goes through gRPC.
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC strata_options ${ARG_DEPS})
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

# strata_test(NAME SOURCES a_test.cc [DEPS x y] [LABELS l] [TIMEOUT s])
# A GoogleTest binary that ctest runs. STRATA_SHARED in its environment is the folder that holds
# golden/ and models/; STRATA_SOURCE is the top of the tree.
function(strata_test name)
  if(NOT STRATA_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(STRATA_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 6")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE strata_options ${ARG_DEPS} strata_test_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(STRATA_SANITIZE STREQUAL "thread" AND "grpc" IN_LIST ARG_LABELS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${ARG_TIMEOUT}
    LABELS "unit;${ARG_LABELS}"
    ENVIRONMENT "STRATA_SOURCE=${CMAKE_SOURCE_DIR};STRATA_BIN=${CMAKE_BINARY_DIR}/bin")
endfunction()
