#include "coordinator/service/request/calls_wanted.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/call_grammar/call_grammar.h"

namespace strata {

std::string CallsWanted::Source() const {
  return absl::StrCat(std::string(format->name), "/", only, "/", one_call ? 1 : 0,
                      must_call ? 1 : 0, "/", offered->source());
}

absl::StatusOr<std::optional<CallsWanted>> CallsWantedOf(const ModelRuntime& model,
                                                         const v1::LoadOptions& options,
                                                         const ChatAnswer& answer,
                                                         bool has_constraint) {
  if (answer.offered == nullptr) {
    ASSIGN_OR_RETURN(const ToolFormat* const channels, ChannelsOf(model, options, answer));
    if (channels == nullptr || !has_constraint) {
      return std::nullopt;
    }
    ASSIGN_OR_RETURN(auto none, OfferedTools::Parse({}));
    return CallsWanted{.offered = std::move(none), .format = channels, .only = ""};
  }
  if (!answer.must_call && !answer.offered->HasStrict() && !has_constraint) {
    return std::nullopt;
  }
  ASSIGN_OR_RETURN(const ToolFormat* const format, ToolFormatOf(model, options));
  return CallsWanted{.offered = answer.offered,
                     .format = format,
                     .only = answer.only,
                     .one_call = answer.one_call,
                     .must_call = answer.must_call};
}

absl::StatusOr<Grammar> GrammarOf(const CallsWanted& calls, const Tokenizer& tokenizer,
                                  uint32_t vocab, const Grammar* text,
                                  const GrammarLimits& limits) {
  std::string beyond;
  auto grammar = GrammarOfCalls(*calls.offered, {.format = calls.format,
                                                 .only = calls.only,
                                                 .one_call = calls.one_call,
                                                 .may_be_text = !calls.must_call,
                                                 .text = text,
                                                 .special_token =
                                                     [&](std::string_view name) {
                                                       const auto id =
                                                           SpecialTokenOf(tokenizer, name);
                                                       if (id.value_or(0) >= vocab) beyond = name;
                                                       return id;
                                                     },
                                                 .limits = limits});
  if (!beyond.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "NOT_SUPPORTED",
                 absl::StrCat("calls are written with the token '", beyond,
                              "', which is none of the ", vocab, " that the model can say"))
        .Fact("field", "tools")
        .Hint("ask without tools that have to be called");
  }
  return grammar;
}

}  // namespace strata
