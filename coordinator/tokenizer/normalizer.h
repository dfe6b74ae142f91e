// First stage of a tokenizer: rewrites text before it is cut.
#ifndef STRATA_COORDINATOR_TOKENIZER_NORMALIZER_H_
#define STRATA_COORDINATOR_TOKENIZER_NORMALIZER_H_

#include <string>
#include <string_view>

namespace strata {

// Const and usable by any thread.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Well-formed UTF-8 to well-formed UTF-8.
  virtual std::string Normalize(std::string_view text) const = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_TOKENIZER_NORMALIZER_H_
