// The choices of one HTTP request on their way through the coordinator, and the answer that they
// make on the way out.
#ifndef STRATA_COORDINATOR_HTTP_GENERATION_RUN_H_
#define STRATA_COORDINATOR_HTTP_GENERATION_RUN_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "coordinator/http/http_answer.h"
#include "coordinator/http/http_backend.h"
#include "coordinator/http/http_server.h"
#include "coordinator/metrics/metrics.h"
#include "coordinator/service/request/request.h"
#include "strata/v1/inference.pb.h"

namespace strata {

// What a logprob takes of an answer in the making, about.
inline constexpr uint64_t kLogprobBytes = 512;

struct RunOptions {
  std::optional<TimePoint> deadline;
  uint32_t default_max_tokens = 512;  // Where a request has none.
  std::shared_ptr<Caller> caller;     // Null: no key is needed.
  HttpHeaders headers;                // Of the answer, whatever it is.
  // Of one that is not a stream, and so is held until its end: texts, and about kLogprobBytes for
  // each logprob. A longer one fails with OUT_OF_RANGE (ANSWER_TOO_LARGE).
  uint64_t max_answer_bytes = uint64_t{64} << 20;
  // Of which such an answer holds its part until it is sent. Null: it does not count.
  std::shared_ptr<HttpMemory> memory;
  AdmissionTimes times;  // As GenerationOptions.
  // Has another thread run what takes long: messages come on the engine's, which must not make a
  // whole answer of them. It takes everything, now or soon.
  std::function<void(std::function<void()> task)> elsewhere;
};

struct ChoiceRequest {
  v1::GenerateRequest request;           // Without prompt.
  std::shared_ptr<SharedPrompt> prompt;  // That of the other choices of it, too.
};

// Appends `count` choices of `prompt`. Those of one request differ by their number, so they share
// `seed` where it has none; request ids are `request_id`, then "request_id#1", ... The prompt
// itself is theirs together, so that it is held and tokenized once.
void AddChoices(v1::GenerateRequest prompt, uint32_t count, const std::string& request_id,
                uint64_t seed, std::vector<ChoiceRequest>* choices);

// Tokenizes and submits `requests`, one for each choice, and returns; `answer` is then given
// through `responder`. The first choice that fails fails the answer, and ends the others; so does
// the client when it goes away, or falls too far behind: before that the choices of a stream wait
// for it. On a thread that may wait for long texts.
void RunGenerations(HttpBackend* backend, std::vector<ChoiceRequest> requests, RunOptions options,
                    std::unique_ptr<HttpAnswer> answer, std::shared_ptr<HttpResponder> responder);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_GENERATION_RUN_H_
