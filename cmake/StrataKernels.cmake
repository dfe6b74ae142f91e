# Which tables of CPU kernels are compiled: they take most of the time of a build.

set(STRATA_KERNELS all CACHE STRING
    "all; native: the scalar kernels and those that this machine would choose of all; or tested: all, \
for tests, those two with all optimization")
set_property(CACHE STRATA_KERNELS PROPERTY STRINGS all native tested)

# strata_machine_kernels(OUT) sets OUT to the source files, without their endings, of the kernels that this
# machine can run. The last are those that a worker chooses.
function(strata_machine_kernels out)
  if(CMAKE_CROSSCOMPILING)
    message(FATAL_ERROR "STRATA_KERNELS is ${STRATA_KERNELS}, but this is a build for another machine; say all")
  endif()
  if(NOT DEFINED STRATA_MACHINE_KERNELS)
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
      RUN_OUTPUT_VARIABLE names)
    if(NOT compiled OR NOT ran EQUAL 0)
      message(FATAL_ERROR "which kernels this machine chooses is not known; say STRATA_KERNELS=all. ${said}")
    endif()
    string(STRIP "${names}" names)
    string(REPLACE "\n" ";" names "${names}")
    set(STRATA_MACHINE_KERNELS ${names} CACHE INTERNAL "the kernels that this machine can run")
  endif()
  set(${out} ${STRATA_MACHINE_KERNELS} PARENT_SCOPE)
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
# functions of the others return null. Of the tables that tests are to have, those that this machine
# can run but does not choose are optimized a little, and those that it cannot run not at all: it is
# only seen that they can be compiled.
function(strata_kernels out)
  set(machine "")
  set(native "")
  if(STRATA_KERNELS STREQUAL "native" OR STRATA_KERNELS STREQUAL "tested")
    strata_machine_kernels(machine)
    list(GET machine -1 native)
  elseif(NOT STRATA_KERNELS STREQUAL "all")
    message(FATAL_ERROR "STRATA_KERNELS is '${STRATA_KERNELS}'; it may be native, tested or all")
  endif()
  set(sources "")
  set(absent "")
  set(tables ${ARGN})
  while(tables)
    list(POP_FRONT tables file function)
    set(chosen NO)
    if(STRATA_KERNELS STREQUAL "all" OR file STREQUAL "kernels_scalar" OR file STREQUAL native)
      set(chosen YES)
    endif()
    if(chosen OR STRATA_KERNELS STREQUAL "tested")
      strata_kernel_parts(parts ${file})
      list(APPEND sources ${parts})
      if(NOT chosen)
        set(optimization -O0)
        if(file IN_LIST machine)
          set(optimization -O1)
        endif()
        set_source_files_properties(${parts} PROPERTIES COMPILE_OPTIONS ${optimization})
      endif()
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
