# XGrammar, which makes token masks, as a static library from its published source package: no Python, no
# torch. It makes the target `strata_xgrammar`, about three minutes of one processor once. The sources are in
# STRATA_XGRAMMAR_SOURCE (a folder with include/ and cpp/), or are fetched once to the user's cache.
set(STRATA_XGRAMMAR auto CACHE STRING "Token masks by XGrammar: on, off, or auto (on where its sources can be had)")
set_property(CACHE STRATA_XGRAMMAR PROPERTY STRINGS auto on off)
set(STRATA_XGRAMMAR_SOURCE "" CACHE PATH "XGrammar 0.2.8's sources; empty: fetched from PyPI once")

if(NOT STRATA_XGRAMMAR MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "STRATA_XGRAMMAR is '${STRATA_XGRAMMAR}'; it may be auto, on or off")
endif()
set(source "")
if(NOT STRATA_XGRAMMAR STREQUAL off)
  set(source ${STRATA_XGRAMMAR_SOURCE})
  set(why "${source} has no include/xgrammar/xgrammar.h")
  if(NOT source)
    find_program(PYTHON3 NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
    set(why "its sources could not be fetched")
    execute_process(COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/fetch_xgrammar.py
      OUTPUT_VARIABLE source OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  endif()
  if(NOT EXISTS "${source}/include/xgrammar/xgrammar.h")
    set(wanted "unpack xgrammar-0.2.8.tar.gz of PyPI and set -DSTRATA_XGRAMMAR_SOURCE=FOLDER")
    if(STRATA_XGRAMMAR STREQUAL on)
      message(FATAL_ERROR "XGrammar: ${why}; ${wanted}, or build with -DSTRATA_XGRAMMAR=off")
    endif()
    message(STATUS "Without XGrammar (${why}): the coordinator refuses constraints; ${wanted}")
    set(source "")
  endif()
endif()

if(source)
  # Its own CMakeLists.txt wants Python's headers, link-time optimization and no warnings of any compiler.
  file(GLOB_RECURSE sources ${source}/cpp/*.cc)
  list(FILTER sources EXCLUDE REGEX "/cpp/tvm_ffi/")
  add_library(strata_xgrammar STATIC EXCLUDE_FROM_ALL ${sources})
  target_include_directories(strata_xgrammar SYSTEM PUBLIC ${source}/include ${source}/3rdparty/dlpack/include)
  target_include_directories(strata_xgrammar SYSTEM PRIVATE ${source}/3rdparty/picojson)
  target_compile_definitions(strata_xgrammar PUBLIC XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
  target_compile_options(strata_xgrammar PRIVATE -w -O2)
  target_link_libraries(strata_xgrammar PUBLIC Threads::Threads)
  set_target_properties(strata_xgrammar PROPERTIES
    CXX_STANDARD 17 POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF CXX_CLANG_TIDY "")
endif()
