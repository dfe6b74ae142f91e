// Chat messages as OpenAI's clients write them.
#ifndef STRATA_COORDINATOR_HTTP_CHAT_MESSAGES_H_
#define STRATA_COORDINATOR_HTTP_CHAT_MESSAGES_H_

#include <string>
#include <vector>

#include "coordinator/http/json_body.h"
#include "coordinator/http/ordered_body.h"
#include "strata/v1/inference.pb.h"

namespace strata {

// Members of a body that ReadMessages wants in order.
const std::vector<std::string>& MessageMembers();

// `messages` (at least one, of texts), with calls of tools and their results; `tools`,
// `tool_choice`, `parallel_tool_calls`; `add_generation_prompt`, `continue_final_message`,
// `chat_template_kwargs`, `reasoning_effort`, budgets of thought. Contents that are arrays of text
// parts are joined. An assistant's message may have calls, or what it thought (`reasoning_content`,
// `thinking`, `reasoning`), in place of a content. `body` is what `fields` were read from: tools
// keep the order of their keys.
void ReadMessages(Fields* fields, OrderedBody* body, v1::ChatInput* chat);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_CHAT_MESSAGES_H_
