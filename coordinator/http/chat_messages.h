// Chat messages as OpenAI's clients write them.
#ifndef STRATA_COORDINATOR_HTTP_CHAT_MESSAGES_H_
#define STRATA_COORDINATOR_HTTP_CHAT_MESSAGES_H_

#include "coordinator/http/json_body.h"
#include "strata/v1/inference.pb.h"

namespace strata {

// `messages` (at least one, of texts) and `add_generation_prompt`. Contents that are arrays of
// text parts are joined. An assistant's message may have what it thought (`reasoning_content`,
// `thinking`, `reasoning`) in place of a content.
void ReadMessages(Fields* fields, v1::ChatInput* chat);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_CHAT_MESSAGES_H_
