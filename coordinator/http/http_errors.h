// A failed status as HTTP says it: OpenAI's shape under /v1, LoRAX's flat one on its routes.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_ERRORS_H_
#define STRATA_COORDINATOR_HTTP_HTTP_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/json_body.h"

namespace strata {

enum class ErrorShape { kOpenAi, kLorax };

// 400 for what is wrong with a request, 404 for an unknown model, 409 for an id in flight or taken,
// 429 for a limit that has room again by itself, 499 for what was cancelled, 503 for what is not
// ready or what the server lacks, 504 for a deadline. 500 for what a stage says (the fact "stage"),
// whatever its code. docs/API.md lists the reasons of each.
int HttpStatusOf(const absl::Status& status);

// {"error": {"message", "type", "param", "code"}}
OrderedJson OpenAiError(const absl::Status& status);
// {"error", "error_type"}
OrderedJson LoraxError(const absl::Status& status);

// The whole answer; 429 and 503 say when to try again.
HttpResponse ErrorAnswer(const absl::Status& status, ErrorShape shape);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_ERRORS_H_
