// Chat templates: the Jinja that published checkpoints use, as transformers runs it, with limits
// on everything. Const after construction; any thread.
#ifndef STRATA_TEXT_TEMPLATE_CHAT_TEMPLATE_H_
#define STRATA_TEXT_TEMPLATE_CHAT_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "text/template/template_limits.h"

namespace strata {

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // Renders with the members of `variables` (an object; key order is kept). `messages` ([]),
  // `tools` (none), `documents` (none) and `add_generation_prompt` (false) are always defined.
  // `now`: seconds since 1970, UTC, for strftime_now. An error carries raise_exception's argument
  // as its message, or what and where (line). `use`, unless null, becomes what it took, whether it
  // failed or not.
  virtual absl::StatusOr<std::string> Render(const nlohmann::ordered_json& variables, int64_t now,
                                             TemplateUse* use) const = 0;
  absl::StatusOr<std::string> Render(const nlohmann::ordered_json& variables, int64_t now) const {
    return Render(variables, now, nullptr);
  }
};

absl::StatusOr<std::unique_ptr<ChatTemplate>> ParseChatTemplate(std::string_view source,
                                                                const TemplateLimits& limits = {});

}  // namespace strata

#endif  // STRATA_TEXT_TEMPLATE_CHAT_TEMPLATE_H_
