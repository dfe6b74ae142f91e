// What HTTP asks of a request's head beyond its grammar: its target, whom it is for, and how its
// body is framed. Pure; the grammar itself is Beast's.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_HEAD_H_
#define STRATA_COORDINATOR_HTTP_HTTP_HEAD_H_

#include <optional>
#include <string>
#include <string_view>

#include "coordinator/http/http_server.h"

namespace strata {

// Why a request is refused before its body is read. Nothing in the texts needs an escape.
struct HeadProblem {
  int status = 400;
  std::string_view code;
  std::string message;
  HttpHeaders headers = {};
};

// "host", "host:port", "[::1]:port": what a Host header and an absolute target say.
struct HttpAuthority {
  std::string host;  // In lower case, without brackets and without a dot at its end; may be "".
  std::string port;  // Digits, or "".
};
// None: it is no host and port.
std::optional<HttpAuthority> ParseAuthority(std::string_view text);

// The bytes that "%XX" stand for; what is no such escape stays as it is.
std::string PercentDecoded(std::string_view text);

// Fills path (decoded, but for "%2F") and query (as it stands) of `request`, whose method and
// headers are there, by its target. Of "http://HOST/PATH" the host takes the place of what the
// header Host says.
std::optional<HeadProblem> ReadTarget(std::string_view target, HttpRequest* request);

// `version`: 11 of HTTP/1.1. `headers`: as they were sent, all of them.
std::optional<HeadProblem> CheckProtocol(int version, const HttpHeaders& headers);

// Whether two names of headers are the same, in whatever case.
bool SameHeaderName(std::string_view a, std::string_view b);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_HEAD_H_
