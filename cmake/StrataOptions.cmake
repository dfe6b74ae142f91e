# Compiler settings that every target of ours takes, as the interface target strata_options.
find_program(CCACHE ccache)
if(CCACHE)
  # It knows what precompiled headers hold, and is to be told that it may.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

add_library(strata_options INTERFACE)
target_compile_options(strata_options INTERFACE
  -Wall -Wextra -Wno-unused-parameter
  # One rounding per operation, whatever the instruction set: an fma is written as one.
  -ffp-contract=off)
target_include_directories(strata_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(strata_options INTERFACE -Wno-restrict)  # False alarms: GCC bug 105651.
  # Precompiled headers are used where flags are those that they were compiled with, and by ccache where the
  # preprocessor leaves them in what it writes.
  target_compile_options(strata_options INTERFACE -pthread -fpch-preprocess)
  if(STRATA_UNITS)
    # To the compiler each source of a unit but the first is a header.
    target_compile_options(strata_options INTERFACE -Wno-subobject-linkage)
    # False alarms of the same kind, about precompiled headers, which are not taken for a system's. A build
    # without units has these warnings.
    target_compile_options(strata_options INTERFACE
      -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(strata_options INTERFACE -Wthread-safety)
endif()
if(STRATA_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "STRATA_FUZZ needs clang: libFuzzer is part of it")
  endif()
  target_compile_options(strata_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(strata_options INTERFACE -fsanitize=address,undefined)
elseif(STRATA_SANITIZE STREQUAL "address")
  target_compile_options(strata_options INTERFACE -fsanitize=address,undefined
    -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(strata_options INTERFACE -fsanitize=address,undefined)
  if(STRATA_SANITIZE_QUICK)
    # A check at each access, a third of the time that compiling takes.
    target_compile_options(strata_options INTERFACE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
elseif(STRATA_SANITIZE STREQUAL "thread")
  # Where the macro is set, protobuf's headers lay out maps otherwise than Debian's library does.
  target_compile_options(strata_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer
    -U__SANITIZE_THREAD__)
  target_link_options(strata_options INTERFACE -fsanitize=thread)
elseif(STRATA_SANITIZE)
  message(FATAL_ERROR "STRATA_SANITIZE is '${STRATA_SANITIZE}'; it may be address, thread or empty")
endif()

if(STRATA_SANITIZE)
  target_compile_definitions(strata_options INTERFACE STRATA_SANITIZED=1)
endif()

if(NOT STRATA_PLATFORM)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(STRATA_PLATFORM linux)
  else()
    set(STRATA_PLATFORM posix)
  endif()
endif()
