// An answer in the making: what the choices of one request say in, what HTTP says out. Pure; one
// thread at a time.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_ANSWER_H_
#define STRATA_COORDINATOR_HTTP_HTTP_ANSWER_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "coordinator/http/http_server.h"
#include "strata/v1/inference.pb.h"

namespace strata {

class HttpAnswer {
 public:
  virtual ~HttpAnswer() = default;

  virtual bool stream() const = 0;
  // Takes in the next message of a choice. Of a stream: the bytes that it says, or "".
  virtual std::string OnMessage(size_t choice, const v1::GenerateResponse& message) = 0;
  // Every choice has ended well: the last bytes of a stream, or the answer.
  virtual std::string EndOfStream() = 0;
  virtual HttpResponse Whole() = 0;
  // It failed: before anything was said, or in a stream.
  virtual HttpResponse Refusal(const absl::Status& status) const = 0;
  virtual std::string StreamError(const absl::Status& status) const = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_ANSWER_H_
