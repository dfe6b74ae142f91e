#include "text/template/chat_template.h"

#include <exception>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "common/status.h"
#include "text/template/evaluator.h"
#include "text/template/failure.h"
#include "text/template/parser.h"

namespace strata {
namespace {

absl::Status StatusOf(const jinja::Failure& failure) {
  using Kind = jinja::Failure::Kind;
  if (failure.kind == Kind::kRaised) {
    return Error(absl::StatusCode::kInvalidArgument, "TEMPLATE_RAISED", failure.message);
  }
  const std::string where = failure.line > 0
                                ? "chat template, line " + std::to_string(failure.line) + ": "
                                : "chat template: ";
  const std::string message = where + failure.message;
  switch (failure.kind) {
    case Kind::kSyntax:
      return Error(absl::StatusCode::kInvalidArgument, "TEMPLATE_SYNTAX", message);
    case Kind::kLimit:
      return Error(absl::StatusCode::kInvalidArgument, "TEMPLATE_LIMIT", message)
          .Hint("send fewer or shorter messages; the same ones are refused again");
    default:
      return Error(absl::StatusCode::kInvalidArgument, "TEMPLATE_ERROR", message);
  }
}

// The exceptions of this folder and of the standard library end here.
template <typename Function>
auto Guarded(Function function) -> absl::StatusOr<decltype(function())> {
  try {
    return function();
  } catch (const jinja::Failure& failure) {
    return StatusOf(failure);
  } catch (const std::bad_alloc&) {
    return Error(absl::StatusCode::kResourceExhausted, "TEMPLATE_MEMORY",
                 "chat template: the coordinator is out of memory")
        .Hint("send it again in a while");
  } catch (const std::exception& error) {
    return Error(absl::StatusCode::kInternal, "TEMPLATE_ERROR",
                 std::string("chat template: ") + error.what());
  }
}

class JinjaTemplate : public ChatTemplate {
 public:
  JinjaTemplate(std::unique_ptr<const jinja::Program> program, const TemplateLimits& limits)
      : program_(std::move(program)), limits_(limits) {}

  absl::StatusOr<std::string> Render(const nlohmann::ordered_json& variables, int64_t now,
                                     TemplateUse* use) const override {
    return Guarded([&] {
      jinja::Evaluator evaluator(*program_, limits_, now);
      const absl::Cleanup tell = [&] {
        if (use != nullptr) *use = evaluator.use();
      };
      return evaluator.Render(variables);
    });
  }

 private:
  const std::unique_ptr<const jinja::Program> program_;
  const TemplateLimits limits_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ParseChatTemplate(std::string_view source,
                                                                const TemplateLimits& limits) {
  return Guarded([&]() -> std::unique_ptr<ChatTemplate> {
    if (source.size() > limits.max_source_bytes) {
      jinja::FailLimit("the source is longer than " + std::to_string(limits.max_source_bytes) +
                       " bytes");
    }
    return std::make_unique<JinjaTemplate>(jinja::Parse(source, limits), limits);
  });
}

}  // namespace strata
