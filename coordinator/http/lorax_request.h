// Bodies of LoRAX's /, /generate and /generate_stream. Pure.
#ifndef STRATA_COORDINATOR_HTTP_LORAX_REQUEST_H_
#define STRATA_COORDINATOR_HTTP_LORAX_REQUEST_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "strata/v1/inference.pb.h"

namespace strata {

struct LoraxRequest {
  std::string model;  // "": the one that is loaded.
  std::string inputs;
  // Complete but for its model and id; always with logprobs. Its prompt: `inputs`, or with
  // apply_chat_template the messages that `inputs` is.
  v1::GenerateRequest request;
  bool stream = false;  // "stream", which only / looks at.
  bool details = false;
  bool prefill = false;        // decoder_input_details: the prompt's tokens are shown.
  bool full_text = false;      // return_full_text: the prompt is shown before the answer.
  uint32_t alternatives = 0;   // return_k_alternatives
  uint32_t best_of = 1;        // Answers that are made; the one of the best mean logprob is shown.
  uint32_t truncate = 0;       // Most tokens of the prompt, its last ones; 0: all of it.
  bool chat = false;           // apply_chat_template
  bool negative_seed = false;  // HasNegativeSeed.
};

// INVALID_ARGUMENT, which names the field (FieldOf). Fields that are not known are left alone.
absl::StatusOr<LoraxRequest> ParseLoraxRequest(std::string_view body);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_LORAX_REQUEST_H_
