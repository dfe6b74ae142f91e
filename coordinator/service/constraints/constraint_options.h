// What constraints may cost a coordinator. A field's value here is its flag's default.
#ifndef STRATA_COORDINATOR_SERVICE_CONSTRAINTS_CONSTRAINT_OPTIONS_H_
#define STRATA_COORDINATOR_SERVICE_CONSTRAINTS_CONSTRAINT_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"

namespace strata {

struct ConstraintOptions {
  // Of a schema, a pattern, choices or a grammar, as text.
  size_t max_source_bytes = size_t{256} << 10;
  // Of the process that compiles one: until it has answered, and what it may have of memory.
  nanoseconds compile_timeout = std::chrono::seconds(30);
  uint64_t compile_memory = uint64_t{1} << 30;
  // Such processes at once, and constraints that wait for one.
  size_t compilers = 2;
  size_t waiting = 256;
  // What the tokens that may come next may take of a processor, once; all of an answer twice that,
  // and 5 ms for each.
  nanoseconds mask_time = std::chrono::seconds(1);
  // Compiled ones that are kept.
  size_t kept_bytes = size_t{256} << 20;
  // The program of these processes and its first arguments; limits follow. Empty: none is started.
  std::vector<std::string> program;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CONSTRAINTS_CONSTRAINT_OPTIONS_H_
