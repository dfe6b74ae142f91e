// What an answer to a chat is held to for its calls of tools. Pure.
#ifndef STRATA_COORDINATOR_SERVICE_REQUEST_CALLS_WANTED_H_
#define STRATA_COORDINATOR_SERVICE_REQUEST_CALLS_WANTED_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/service/request/chat_answer.h"
#include "coordinator/service/request/model_runtime.h"
#include "strata/v1/admin.pb.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_limits.h"
#include "text/tools/offered_tools.h"
#include "text/tools/tool_formats.h"

namespace strata {

struct CallsWanted {
  std::shared_ptr<const OfferedTools> offered;  // May be none where messages have channels.
  const ToolFormat* format = nullptr;
  std::string only;  // The one tool that may be called; "": any.
  bool one_call = false;
  bool must_call = false;  // Else the answer may be text.

  // Equal for what becomes the same grammar with the same tokenizer and text.
  std::string Source() const;
};

// nullopt: its calls, if there are any, are not held to anything. They are where one has to come,
// where a tool is strict, and beside a constraint of the text (`has_constraint`); of a model that
// writes channels a constraint is one of answers without tools, too. `options`: how the model was
// loaded. INVALID_ARGUMENT (NOT_SUPPORTED): how it writes calls is not known.
absl::StatusOr<std::optional<CallsWanted>> CallsWantedOf(const ModelRuntime& model,
                                                         const v1::LoadOptions& options,
                                                         const ChatAnswer& answer,
                                                         bool has_constraint);

// Answers that are so. `vocab`: tokens that the model can say; `text`: what they follow where they
// are no calls; null: any text. Errors are GrammarOfCalls', and NOT_SUPPORTED where the model
// cannot say a token that calls have. The work is bounded by counts; it may be a second's.
absl::StatusOr<Grammar> GrammarOf(const CallsWanted& calls, const Tokenizer& tokenizer,
                                  uint32_t vocab, const Grammar* text, const GrammarLimits& limits);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_REQUEST_CALLS_WANTED_H_
