// What several routes' bodies say in the same words.
#ifndef STRATA_COORDINATOR_HTTP_SAMPLING_FIELDS_H_
#define STRATA_COORDINATOR_HTTP_SAMPLING_FIELDS_H_

#include <cstdint>

#include "coordinator/http/json_body.h"
#include "strata/v1/inference.pb.h"

namespace strata {

// Choices of one body at most: prompts times best_of.
inline constexpr uint32_t kMaxChoices = 128;

// temperature, top_k (also -1: off), top_p, min_p, typical_p, the penalties, logit_bias, seed,
// stop, ignore_eos (also as ignore_eos_token) and min_tokens, into `request`. Ranges are left to
// ValidateSampling, but for what would not fit.
void ReadSampling(Fields* fields, v1::GenerateRequest* request);

// Whether "seed" is a negative number. Answers tell it as it was sent: as one without a sign it
// would have more than the 53 bits that every reader of JSON keeps.
bool HasNegativeSeed(const Fields& fields);
OrderedJson SeedJson(uint64_t seed, bool negative);

// An array of token ids. False, and BAD_FIELD with `name`, if it is no such.
bool ReadTokenIds(const Json& json, const std::string& name, Fields* fields, v1::TokenIds* ids);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_SAMPLING_FIELDS_H_
