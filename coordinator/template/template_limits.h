// What a chat template may use.
#ifndef STRATA_COORDINATOR_TEMPLATE_TEMPLATE_LIMITS_H_
#define STRATA_COORDINATOR_TEMPLATE_TEMPLATE_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace strata {

struct TemplateLimits {
  uint64_t max_steps = 2'000'000;  // Nodes evaluated.
  size_t max_output_bytes = 8 << 20;
  size_t max_value_bytes = 16 << 20;  // Any one string or list, and all live ones together.
  int max_depth = 200;                // Nesting of source and of evaluation.
  size_t max_source_bytes = 1 << 20;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_TEMPLATE_TEMPLATE_LIMITS_H_
