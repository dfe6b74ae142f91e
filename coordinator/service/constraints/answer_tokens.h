// A model's tokens as the bytes that they add to an answer.
#ifndef STRATA_COORDINATOR_SERVICE_CONSTRAINTS_ANSWER_TOKENS_H_
#define STRATA_COORDINATOR_SERVICE_CONSTRAINTS_ANSWER_TOKENS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {

struct AnswerTokens {
  // By id, as many as the model has logits; special ones as TokenVocabulary has them. Those that
  // the tokenizer does not have are empty.
  std::vector<std::string> tokens;
  std::vector<int32_t> stop_ids;  // Of those that end an answer, which are empty too.
};

// CONSTRAINT_TOKENIZER where what a token says depends on those beside it.
absl::StatusOr<AnswerTokens> AnswerTokensOf(const Tokenizer& tokenizer, uint32_t logits,
                                            const std::vector<uint32_t>& stop_ids);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CONSTRAINTS_ANSWER_TOKENS_H_
