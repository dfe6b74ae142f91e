// What of a GGUF file is text: its chat template, and whether it has a tokenizer
// (text/tokenizer/gguf_tokenizer.h).
#ifndef STRATA_COORDINATOR_REGISTRY_GGUF_TEXT_H_
#define STRATA_COORDINATOR_REGISTRY_GGUF_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/registry/chat_template_source.h"

namespace strata {

// The path of a folder's .gguf file, of a split one the first part, where the folder is one model
// as OpenCheckpoint takes it: of GGUF, and without model.safetensors. "" where it has none;
// INVALID_ARGUMENT where it has several models, or not all parts.
absl::StatusOr<std::string> GgufFileIn(const std::string& folder);

// tokenizer.chat_template and the tokens that the file names as beginning and end; `origin` is the
// path. What is not there is empty.
absl::StatusOr<ChatTemplateSource> ReadGgufChatTemplate(const std::string& path);

// Whether the file can be read and says what its tokens are, of whatever kind.
bool GgufHasTokenizer(const std::string& path);

}  // namespace strata

#endif  // STRATA_COORDINATOR_REGISTRY_GGUF_TEXT_H_
