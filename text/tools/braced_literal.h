// Values as Gemma writes them: JSON without quotation marks around keys, and with a mark of its own
// before and behind texts, within which everything stands for itself. Pure; any thread.
#ifndef STRATA_TEXT_TOOLS_BRACED_LITERAL_H_
#define STRATA_TEXT_TOOLS_BRACED_LITERAL_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace strata {

// Finds where a value ends, in text that grows.
class BracedValueEnd {
 public:
  explicit BracedValueEnd(std::string quote) : quote_(std::move(quote)) {}

  // Looks at what of `text` it has not seen. The offset of the comma or closing bracket behind the
  // value, or of a special token that is no mark; nullopt: it goes on. `ended`: there is no more.
  std::optional<size_t> Find(std::string_view text, bool ended);

 private:
  enum class In { kValue, kText, kJsonText };

  std::string quote_;
  size_t at_ = 0;
  size_t depth_ = 0;
  In in_ = In::kValue;
  bool escaped_ = false;
};

// The value as JSON, where JSON's strings and keys are taken, too, and Python's constants. nullopt:
// it is none, or nests deeper than 64 levels.
std::optional<std::string> JsonOfBraced(std::string_view value, std::string_view quote);

}  // namespace strata

#endif  // STRATA_TEXT_TOOLS_BRACED_LITERAL_H_
