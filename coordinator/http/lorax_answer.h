// Answers of LoRAX's routes, whole and as streams. Pure.
#ifndef STRATA_COORDINATOR_HTTP_LORAX_ANSWER_H_
#define STRATA_COORDINATOR_HTTP_LORAX_ANSWER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/http/http_answer.h"
#include "coordinator/http/lorax_request.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {

// What is not in the request's body.
struct LoraxContext {
  std::string model;
  bool stream = false;
  bool in_array = false;                       // / answers with an array of one.
  std::shared_ptr<const Tokenizer> tokenizer;  // May be null.
  std::vector<uint32_t> stop_ids;              // The model's; a token of these ends the answer.
  std::vector<uint32_t> prompt_ids;            // For decoder_input_details.
  // Since the request arrived. What the engine does not account for was its validation. May be
  // null.
  std::function<double()> elapsed_ms;
};

// Of `request.best_of` choices; of one in a stream. A stream is an event for each token; the last
// one, which has the whole text, is followed by nothing.
std::unique_ptr<HttpAnswer> MakeLoraxAnswer(const LoraxRequest& request, LoraxContext context);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_LORAX_ANSWER_H_
