// What a request's answer is held to, but for its grammar: where the text begins behind a thought,
// and how long that may be. Pure.
#ifndef STRATA_COORDINATOR_SERVICE_CONSTRAINTS_ANSWER_RULES_H_
#define STRATA_COORDINATOR_SERVICE_CONSTRAINTS_ANSWER_RULES_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "coordinator/service/request/calls_wanted.h"
#include "coordinator/service/request/chat_answer.h"
#include "coordinator/service/request/model_runtime.h"
#include "strata/v1/admin.pb.h"
#include "text/masks/answer_rule.h"

namespace strata {

// The thought that comes before the text of an answer to this chat; nullopt: there is none.
// `options`: how the model was loaded. `calls`: what its calls are held to. NOT_SUPPORTED where a
// budget is given and the model is not known to think, and where it writes thoughts as channels
// and calls otherwise, or lacks a token that channels have.
absl::StatusOr<std::optional<ThoughtRule>> ThoughtRuleOf(
    const ModelRuntime& model, const v1::LoadOptions& options, const ChatAnswer& chat,
    const std::optional<CallsWanted>& calls, const std::optional<uint32_t>& budget_tokens);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CONSTRAINTS_ANSWER_RULES_H_
