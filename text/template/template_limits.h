// What a chat template may use. All of it is counted, so that a template that is refused on one
// machine is refused on every one, at the same place.
#ifndef STRATA_TEXT_TEMPLATE_TEMPLATE_LIMITS_H_
#define STRATA_TEXT_TEMPLATE_TEMPLATE_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace strata {

struct TemplateLimits {
  // Of a rendering: a node evaluated is one, and what goes over a value takes more the larger that
  // is (128 bytes or 8 characters of a string, or 4 items of a list, are one too).
  uint64_t max_steps = 2'000'000;
  size_t max_output_bytes = 8 << 20;
  size_t max_value_bytes = 16 << 20;  // Any one string or list, and all live ones together.
  int max_depth = 200;                // Nesting of source and of evaluation.
  size_t max_source_bytes = 1 << 20;
  size_t max_tokens = 300'000;       // Of the source's tags, and texts between them.
  size_t max_expressions = 200'000;  // Nodes of its tree.
};

// What a rendering took of it.
struct TemplateUse {
  uint64_t steps = 0;
  size_t output_bytes = 0;
  size_t value_bytes = 0;  // Of all live values, at the peak.
};

}  // namespace strata

#endif  // STRATA_TEXT_TEMPLATE_TEMPLATE_LIMITS_H_
