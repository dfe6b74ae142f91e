// The tokenizer and the chat template inside a GGUF file.
#ifndef STRATA_COORDINATOR_REGISTRY_GGUF_TEXT_H_
#define STRATA_COORDINATOR_REGISTRY_GGUF_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoint/gguf.h"
#include "coordinator/registry/chat_template_source.h"

namespace strata {

// The path of a folder's .gguf file, of a split one the first part, where the folder is one model
// as OpenCheckpoint takes it: of GGUF, and without model.safetensors. "" where it has none;
// INVALID_ARGUMENT where it has several models, or not all parts.
absl::StatusOr<std::string> GgufFileIn(const std::string& folder);

// tokenizer.chat_template and the tokens that the file names as beginning and end; `origin` is the
// path. What is not there is empty.
absl::StatusOr<ChatTemplateSource> ReadGgufChatTemplate(const std::string& path);

// tokenizer.ggml.* as a tokenizer.json. NOT_FOUND (NO_TOKENIZER) where the file has none;
// UNIMPLEMENTED names the kind, or the `tokenizer.ggml.pre`, that is not supported;
// INVALID_ARGUMENT the key that is wrong.
absl::StatusOr<std::string> ReadGgufTokenizer(const std::string& path);
// Of a header that was read.
absl::StatusOr<std::string> GgufTokenizerJson(const GgufHeader& header);

}  // namespace strata

#endif  // STRATA_COORDINATOR_REGISTRY_GGUF_TEXT_H_
