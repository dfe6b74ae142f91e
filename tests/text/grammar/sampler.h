// Draws texts of a grammar.
#ifndef STRATA_TESTS_TEXT_GRAMMAR_SAMPLER_H_
#define STRATA_TESTS_TEXT_GRAMMAR_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"

namespace strata::testing {

// Of a pruned grammar that is not empty and outlives this.
class Sampler {
 public:
  Sampler(const Grammar& grammar, uint64_t seed);

  // Special tokens are their names between the bytes 0xff and 0xfe.
  std::string Draw();

 private:
  size_t HeightOf(const GrammarExpr& expr) const;
  void Append(const GrammarExpr& expr, size_t depth, std::string* text);

  const Grammar& grammar_;
  std::vector<size_t> heights_;  // Of each rule: rules within rules that its lowest text needs.
  std::mt19937_64 random_;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_TEXT_GRAMMAR_SAMPLER_H_
