# Everything that comes from outside, by its Debian 12 package.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)                 # libprotobuf-dev, protobuf-compiler
find_package(absl REQUIRED)                     # libabsl-dev
find_package(gRPC CONFIG REQUIRED)              # libgrpc++-dev, protobuf-compiler-grpc
find_package(OpenSSL REQUIRED)                  # libssl-dev
find_package(spdlog REQUIRED)                   # libspdlog-dev
find_package(prometheus-cpp CONFIG REQUIRED COMPONENTS core pull)  # prometheus-cpp-dev
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)     # libpcre2-dev
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc) # libutf8proc-dev
pkg_check_modules(SQLITE3 REQUIRED IMPORTED_TARGET sqlite3)      # libsqlite3-dev
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)         # libcurl4-openssl-dev
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)           # libhwy-dev
if(STRATA_PLATFORM STREQUAL "linux")
  pkg_check_modules(SYSTEMD REQUIRED IMPORTED_TARGET libsystemd)  # libsystemd-dev
endif()
find_program(PROTOC protoc REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

if(STRATA_TESTS)
  find_package(GTest REQUIRED)                  # libgtest-dev, libgmock-dev
endif()
if(STRATA_BENCHMARKS)
  find_package(benchmark REQUIRED)              # libbenchmark-dev
endif()
