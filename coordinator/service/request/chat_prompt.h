// The prompt that a chat template makes of a conversation. Pure.
#ifndef STRATA_COORDINATOR_SERVICE_REQUEST_CHAT_PROMPT_H_
#define STRATA_COORDINATOR_SERVICE_REQUEST_CHAT_PROMPT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "strata/v1/inference.pb.h"
#include "text/template/chat_template.h"

namespace strata {

struct ChatPromptOptions {
  // The model's tokens, (name, token).
  std::vector<std::pair<std::string, std::string>> tokens;
  // Templates that put a call's arguments behind one another as text, and so want them as one.
  bool arguments_as_text = false;
};

// Whether `chat_template` wants a call's arguments as text: as an object it cannot write them.
bool WantsArgumentsAsText(const ChatTemplate& chat_template);

// Errors are Render's, and BAD_FIELD. Where the template refuses the conversation, it is given once
// more with its system messages as one, at its beginning, if there are several or late ones; and
// with empty contents in place of missing ones.
absl::StatusOr<std::string> RenderChatPrompt(const ChatTemplate& chat_template,
                                             const ChatPromptOptions& options,
                                             const v1::ChatInput& chat, int64_t now);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_REQUEST_CHAT_PROMPT_H_
