# The kernel cases for 64-bit ARM, built by a cross compiler and run by an emulator, which needs no
# library of such a machine; their digests must be those of this machine. Compiling them takes minutes.
find_program(STRATA_AARCH64_CXX aarch64-linux-gnu-g++)                      # g++-aarch64-linux-gnu
find_program(STRATA_AARCH64_RUN NAMES qemu-aarch64 qemu-aarch64-static)     # qemu-user
if(NOT STRATA_AARCH64_CXX OR NOT STRATA_AARCH64_RUN)
  add_test(NAME kernel_cases_neon
           COMMAND ${CMAKE_COMMAND} -E echo "skipped: no g++-aarch64-linux-gnu or no qemu-user")
  set_tests_properties(kernel_cases_neon PROPERTIES SKIP_REGULAR_EXPRESSION "skipped" LABELS "unit;long")
  return()
endif()

set(arm ${CMAKE_CURRENT_BINARY_DIR}/aarch64)
# This machine's other headers must stay out of sight.
file(MAKE_DIRECTORY ${arm}/include)
file(CREATE_LINK ${HWY_INCLUDEDIR}/hwy ${arm}/include/hwy SYMBOLIC)
set(objects)
foreach(source
    common/check.cc
    tests/worker/backend/kernel_cases.cc
    tests/worker/backend/kernel_cases_main.cc
    worker/backend/cpu/kernels/cpu_features.cc
    worker/backend/cpu/kernels/isa.cc
    worker/backend/cpu/kernels/isa/kernels_amx.cc
    worker/backend/cpu/kernels/isa/kernels_avx2.cc
    worker/backend/cpu/kernels/isa/kernels_avx2_intel.cc
    worker/backend/cpu/kernels/isa/kernels_avx512.cc
    worker/backend/cpu/kernels/isa/kernels_avx512vnni.cc
    worker/backend/cpu/kernels/isa/kernels_avx512vnni_intel.cc
    worker/backend/cpu/kernels/isa/kernels_avx512vnni_zen4.cc
    worker/backend/cpu/kernels/isa/kernels_avxvnni.cc
    worker/backend/cpu/kernels/isa/kernels_neon.cc
    worker/backend/cpu/kernels/isa/kernels_neondot.cc
    worker/backend/cpu/kernels/isa/kernels_scalar.cc
    worker/backend/cpu/kernels/isa/kernels_scalar_fma.cc)
  cmake_path(GET source STEM name)
  set(parts 0)
  # A table is compiled in parts; what is no table has one.
  if(name MATCHES "^kernels_(scalar|neon)")
    list(LENGTH STRATA_KERNEL_PARTS count)
    set(parts RANGE 1 ${count})
  endif()
  foreach(part ${parts})
    set(object ${arm}/${name}.${part}.o)
    set(definition "")
    if(part GREATER 0)
      set(definition -DSTRATA_KERNELS_PART=${part})
    endif()
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${STRATA_AARCH64_CXX} -std=c++20 -O2 -ffp-contract=off
              -Wall -Wextra -Wno-unused-parameter -I${CMAKE_SOURCE_DIR} -isystem ${arm}/include ${definition}
              -MD -MT ${object} -MF ${object}.d -c ${CMAKE_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${CMAKE_SOURCE_DIR}/${source}
      DEPFILE ${object}.d
      COMMENT "Building for aarch64: ${source} ${definition}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
endforeach()
add_custom_command(OUTPUT ${arm}/kernel_cases
  COMMAND ${STRATA_AARCH64_CXX} -static ${objects} -o ${arm}/kernel_cases
  DEPENDS ${objects}
  VERBATIM)
add_custom_target(kernel_cases_aarch64 DEPENDS ${arm}/kernel_cases)

add_executable(kernel_cases EXCLUDE_FROM_ALL kernel_cases.cc kernel_cases_main.cc)
add_dependencies(long_tests kernel_cases kernel_cases_aarch64)
target_link_libraries(kernel_cases PRIVATE strata_options strata_cpu_backend)
set_target_properties(kernel_cases PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
set(digests ${arm}/digests)
add_test(NAME kernel_cases COMMAND kernel_cases write ${digests})
set_tests_properties(kernel_cases PROPERTIES FIXTURES_SETUP kernel_digests)
# A processor without the dot product extension, and one with it.
add_test(NAME kernel_cases_neon
         COMMAND ${STRATA_AARCH64_RUN} -cpu cortex-a53 ${arm}/kernel_cases check ${digests}
                 scalar neon)
add_test(NAME kernel_cases_neondot
         COMMAND ${STRATA_AARCH64_RUN} -cpu max ${arm}/kernel_cases check ${digests}
                 scalar neon neondot)
set_tests_properties(kernel_cases_neon kernel_cases_neondot PROPERTIES
  FIXTURES_REQUIRED kernel_digests)
set_tests_properties(kernel_cases kernel_cases_neon kernel_cases_neondot PROPERTIES
  TIMEOUT ${STRATA_TEST_HANGS_S} LABELS "unit;long")
