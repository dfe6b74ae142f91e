// What a chat template gets of a conversation.
#ifndef STRATA_TEXT_TEMPLATE_CONVERSATION_H_
#define STRATA_TEXT_TEMPLATE_CONVERSATION_H_

#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace strata {

// Makes of each message what transformers (5.24) hands to a template: a field that is null goes,
// and what the assistant thought is there as `reasoning_content` and `thinking`, whichever of
// `reasoning_content`, `thinking` and `reasoning` gives it, the first of them if several do.
// What is no list of objects stays as it is.
void NormalizeMessages(nlohmann::ordered_json* messages);

// Adds a model's tokens, (name, token), to the variables that lack the name.
void AddTokens(const std::vector<std::pair<std::string, std::string>>& tokens,
               nlohmann::ordered_json* variables);

}  // namespace strata

#endif  // STRATA_TEXT_TEMPLATE_CONVERSATION_H_
