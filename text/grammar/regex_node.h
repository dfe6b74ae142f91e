// Regular expressions as trees; each stands for a set of whole texts. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_REGEX_NODE_H_
#define STRATA_TEXT_GRAMMAR_REGEX_NODE_H_

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "text/grammar/char_set.h"

namespace strata {

struct RegexNode;
using RegexPtr = std::shared_ptr<const RegexNode>;  // Never null.

struct RegexNode {
  enum class Kind {
    kSet,        // One character of `set`.
    kConcat,     // All children in turn; none: the empty text.
    kAlternate,  // One of the children; none: nothing.
    kRepeat,     // The one child `min` to `max` times.
    kBegin,      // The empty text where the text begins. Not in finished expressions.
    kEnd,        // The empty text where it ends. Not in finished ones.
  };
  static constexpr size_t kNoLimit = static_cast<size_t>(-1);

  Kind kind;
  CharSet set = {};
  std::vector<RegexPtr> children = {};
  size_t min = 0;
  size_t max = kNoLimit;
};

RegexPtr RegexSet(CharSet set);
RegexPtr RegexConcat(std::vector<RegexPtr> children);
RegexPtr RegexAlternate(std::vector<RegexPtr> children);
RegexPtr RegexRepeat(RegexPtr child, size_t min, size_t max);
// Exactly this text, which is well-formed UTF-8.
RegexPtr RegexText(std::string_view text);

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_REGEX_NODE_H_
