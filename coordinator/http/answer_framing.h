// The bytes of one answer as HTTP/1.1 has them.
#ifndef STRATA_COORDINATOR_HTTP_ANSWER_FRAMING_H_
#define STRATA_COORDINATOR_HTTP_ANSWER_FRAMING_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/http/http_server.h"

namespace strata {

// Either Whole, or Begin, any number of Piece, End: each appends to `out`. One thread at a time.
class AnswerFraming {
 public:
  // `head_only`: for HEAD, nothing follows a head. Without `chunked`, which is for who speaks HTTP
  // 1.1, a stream ends with its connection. `keep_alive`: the connection may go on after the
  // answer.
  AnswerFraming(bool head_only, bool chunked, bool keep_alive)
      : head_only_(head_only), chunked_(chunked), keep_alive_(keep_alive) {}

  void Whole(const HttpResponse& response, std::string* out);

  // `head.body` is the first piece.
  void Begin(const HttpResponse& head, std::string* out);
  void Piece(std::string_view piece, std::string* out) const;
  void End(std::string_view piece, std::string* out) const;

  // The connection ends with the answer. The head says so, if it is still to come.
  void Close() { keep_alive_ = false; }

  // The head has been said.
  bool begun() const { return begun_; }
  // Whether the connection ends with the answer, as far as is known.
  bool closes() const { return !keep_alive_; }

 private:
  // Without a length: of a stream.
  void Head(const HttpResponse& response, std::optional<size_t> length, std::string* out);

  const bool head_only_;
  const bool chunked_;
  bool keep_alive_;
  bool begun_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_ANSWER_FRAMING_H_
