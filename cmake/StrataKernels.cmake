# Which tables of CPU kernels are compiled: they take most of the time of a build.

set(STRATA_KERNELS all CACHE STRING
    "all, or native: the scalar kernels and those that this machine would choose of all")
set_property(CACHE STRATA_KERNELS PROPERTY STRINGS all native)

# strata_native_kernels(OUT) sets OUT to the source file, without its ending, of the kernels that a
# worker chooses on this machine.
function(strata_native_kernels out)
  if(CMAKE_CROSSCOMPILING)
    message(FATAL_ERROR "STRATA_KERNELS is native, but this is a build for another machine; say all")
  endif()
  if(NOT DEFINED STRATA_NATIVE_KERNELS)
    get_target_property(include PkgConfig::HWY INTERFACE_INCLUDE_DIRECTORIES)
    if(NOT include)
      set(include "")
    endif()
    try_run(ran compiled ${CMAKE_BINARY_DIR}/native_kernels
      ${CMAKE_SOURCE_DIR}/worker/backend/cpu/kernels/native_kernels.cc
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${CMAKE_SOURCE_DIR};${include}"
      LINK_LIBRARIES ${HWY_LINK_LIBRARIES}
      CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON
      COMPILE_OUTPUT_VARIABLE said
      RUN_OUTPUT_VARIABLE name)
    if(NOT compiled OR NOT ran EQUAL 0)
      message(FATAL_ERROR "which kernels this machine chooses is not known; say STRATA_KERNELS=all. ${said}")
    endif()
    string(STRIP "${name}" name)
    set(STRATA_NATIVE_KERNELS ${name} CACHE INTERNAL "the kernels that this machine chooses")
  endif()
  set(${out} ${STRATA_NATIVE_KERNELS} PARENT_SCOPE)
endfunction()

# The parts in which a table is compiled, as parts.h numbers them.
set(STRATA_KERNEL_PARTS table floats ints supers codes wide)

# strata_kernel_parts(OUT FILE) sets OUT to the sources of the table in isa/FILE.cc: itself, which
# has the first part, and one for each other part.
function(strata_kernel_parts out file)
  set_source_files_properties(isa/${file}.cc PROPERTIES COMPILE_DEFINITIONS STRATA_KERNELS_PART=1)
  set(sources isa/${file}.cc)
  set(part 0)
  foreach(name IN LISTS STRATA_KERNEL_PARTS)
    math(EXPR part "${part} + 1")
    if(part GREATER 1)
      file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${file}_${name}.cc @ONLY CONTENT
"// Made by CMake: a part of a table.
#define STRATA_KERNELS_PART @part@
#include \"worker/backend/cpu/kernels/isa/@file@.cc\"
")
      list(APPEND sources ${CMAKE_CURRENT_BINARY_DIR}/${file}_${name}.cc)
    endif()
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# strata_kernels(OUT FILE FUNCTION ...) sets OUT to the sources of the tables that are compiled, of
# all that are given by their file in isa/, without its ending, and the function that returns it. The
# functions of the others return null.
function(strata_kernels out)
  if(STRATA_KERNELS STREQUAL "native")
    strata_native_kernels(native)
  elseif(NOT STRATA_KERNELS STREQUAL "all")
    message(FATAL_ERROR "STRATA_KERNELS is '${STRATA_KERNELS}'; it may be native or all")
  endif()
  set(sources "")
  set(absent "")
  set(tables ${ARGN})
  while(tables)
    list(POP_FRONT tables file function)
    if(STRATA_KERNELS STREQUAL "all" OR file STREQUAL "kernels_scalar" OR file STREQUAL native)
      strata_kernel_parts(parts ${file})
      list(APPEND sources ${parts})
    else()
      string(APPEND absent "const Kernels* ${function}() { return nullptr; }\n")
    endif()
  endwhile()
  if(absent)
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/kernels_absent.cc @ONLY CONTENT
"// Made by CMake: the tables that this build is without (STRATA_KERNELS=native).
#include \"worker/backend/cpu/kernels/kernels.h\"

namespace strata::cpu {
@absent@
}  // namespace strata::cpu
")
    list(APPEND sources ${CMAKE_CURRENT_BINARY_DIR}/kernels_absent.cc)
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
