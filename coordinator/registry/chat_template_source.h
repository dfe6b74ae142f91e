// Where a checkpoint keeps its chat template and the special tokens that it writes.
#ifndef STRATA_COORDINATOR_REGISTRY_CHAT_TEMPLATE_SOURCE_H_
#define STRATA_COORDINATOR_REGISTRY_CHAT_TEMPLATE_SOURCE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace strata {

struct ChatTemplateSource {
  std::string source;  // Jinja; "" when there is none.
  std::string origin;  // The file it is from.
  // Other templates, (name, source): of additional_chat_templates, or of tokenizer_config.json's
  // list.
  std::vector<std::pair<std::string, std::string>> others;
  // What templates get as variables: ("pad_token", "<pad>"), ("image_token", "<image>"); see
  // TokenizerConfig::named.
  std::vector<std::pair<std::string, std::string>> tokens;
  std::string bos_token;  // "" when absent.
  std::string eos_token;
};

// `path` is a checkpoint folder, a file of one (tokenizer.json), a .gguf or a .jinja file. In a
// folder chat_template.jinja, with additional_chat_templates/NAME.jinja for others, wins over
// tokenizer_config.json's `chat_template`, which is a string or a list of {name, template} whose
// "default" is taken, and that over a .gguf file's own (GgufFileIn). NOT_FOUND (NO_CHAT_TEMPLATE)
// when there is none; INVALID_ARGUMENT names the file and field that is wrong.
absl::StatusOr<ChatTemplateSource> ReadChatTemplate(const std::string& path);

// Likewise for a folder, but none is no error.
absl::StatusOr<ChatTemplateSource> ReadFolderChatTemplate(const std::string& folder);

}  // namespace strata

#endif  // STRATA_COORDINATOR_REGISTRY_CHAT_TEMPLATE_SOURCE_H_
