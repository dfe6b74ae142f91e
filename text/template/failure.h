// How an error leaves the depths of the template engine. Thrown and caught inside this folder
// only; the interface (chat_template.h) speaks absl::Status.
#ifndef STRATA_TEXT_TEMPLATE_FAILURE_H_
#define STRATA_TEXT_TEMPLATE_FAILURE_H_

#include <string>
#include <utility>

namespace strata::jinja {

struct Failure {
  enum class Kind {
    kSyntax,   // The source is not a template.
    kRuntime,  // An operation that Python or the sandbox refuses.
    kRaised,   // raise_exception: the message is the template's own.
    kLimit,    // More steps, depth, output or memory than allowed.
  };
  Kind kind;
  std::string message;
  int line = 0;  // 1-based line of the source; 0: not known yet.
};

[[noreturn]] inline void Fail(std::string message) {
  throw Failure{Failure::Kind::kRuntime, std::move(message)};
}
[[noreturn]] inline void FailLimit(std::string message) {
  throw Failure{Failure::Kind::kLimit, std::move(message)};
}
[[noreturn]] inline void FailSyntax(std::string message, int line) {
  throw Failure{Failure::Kind::kSyntax, std::move(message), line};
}

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_FAILURE_H_
