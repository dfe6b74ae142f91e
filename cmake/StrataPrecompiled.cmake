# The headers of other projects that most sources include are read once for all of them, which takes a
# fifth of the time of compiling. Not where a source is to be compiled by itself (STRATA_UNITS): there it
# has only what it includes. Sanitizers' builds have their flags by folder, and GCC wants the same ones for all.
if(STRATA_UNITS AND NOT STRATA_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(STRATA_PRECOMPILED ON)
else()
  set(STRATA_PRECOMPILED OFF)
endif()

set(STRATA_PRECOMPILED_HEADERS
  <algorithm> <array> <atomic> <chrono> <cmath> <cstddef> <cstdint> <cstring> <deque> <filesystem> <fstream>
  <functional> <limits> <map> <memory> <optional> <set> <span> <sstream> <string> <string_view> <thread> <tuple>
  <unordered_map> <utility> <variant> <vector>
  <absl/container/flat_hash_map.h> <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
  <absl/strings/str_format.h> <absl/strings/str_join.h> <absl/synchronization/mutex.h>)

# strata_precompiled(NAME HEADERS h... [DEPS x y]): for targets of this folder and of those below it, which take
# the same flags, to name in strata_use_precompiled.
function(strata_precompiled name)
  cmake_parse_arguments(ARG "" "" "HEADERS;DEPS" ${ARGN})
  if(NOT STRATA_PRECOMPILED)
    return()
  endif()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// There is no target without a source.\n")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE strata_options ${ARG_DEPS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  # Compiling the same headers twice does not give the same file. ccache goes by what was compiled (CCACHE_PCH_EXTSUM,
  # which ./dev sets), so that what uses it is not compiled again in another folder.
  set(headers ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx)
  add_custom_command(OUTPUT ${headers}.gch.sum
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -w -E -P -x c++ -MD -MF ${headers}.gch.sum.d -MT ${headers}.gch.sum
            -o ${headers}.text ${headers}
    COMMAND sha256sum < ${headers}.text > ${headers}.gch.sum
    DEPENDS ${headers} DEPFILE ${headers}.gch.sum.d VERBATIM)
  add_custom_target(${name}_sum DEPENDS ${headers}.gch.sum)
  add_dependencies(${name} ${name}_sum)
endfunction()

# strata_use_precompiled(TARGET NAME): where NAME is, and the folder's flags are its own.
function(strata_use_precompiled target name)
  if(STRATA_PRECOMPILED AND TARGET ${name})
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()
