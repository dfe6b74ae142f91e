// Whether a text follows a grammar, by Earley's algorithm over the grammar as it is: slow, and
// independent of what makes masks. Immutable; any thread.
#ifndef STRATA_TEXT_GRAMMAR_RECOGNIZER_H_
#define STRATA_TEXT_GRAMMAR_RECOGNIZER_H_

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/grammar/grammar.h"

namespace strata {

class Recognizer {
 public:
  // SCHEMA_TOO_COMPLEX where counts written out take more than `max_states`.
  static absl::StatusOr<Recognizer> Make(const Grammar& grammar, size_t max_states);

  struct Verdict {
    bool complete = false;  // The text follows the grammar.
    // The bytes up to the first character that no text of the grammar has there; the text's size
    // where it is the beginning of one. Of a pruned grammar.
    size_t prefix = 0;
  };
  Verdict Check(std::string_view text) const;

 private:
  struct State {
    size_t rule = 0;
    bool final = false;
    std::vector<size_t> silent;
    std::vector<std::pair<CharSet, size_t>> moves;
    std::vector<std::pair<size_t, size_t>> calls;  // Rule; where it goes on.
  };
  class Builder;
  class Run;

  std::vector<State> states_;
  std::vector<size_t> starts_;  // Of each rule.
  size_t root_ = 0;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_RECOGNIZER_H_
