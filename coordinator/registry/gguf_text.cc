#include "coordinator/registry/gguf_text.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "common/checkpoint/gguf.h"
#include "common/checkpoint/gguf_model.h"
#include "common/status.h"
#include "common/utf8.h"

namespace strata {
namespace {

absl::Status Invalid(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_GGUF", what);
}

bool IsUtf8(std::string_view text) { return ReplaceInvalidUtf8(text) == text; }

}  // namespace

absl::StatusOr<std::string> GgufFileIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  ASSIGN_OR_RETURN(const std::vector<std::string> files, GgufFilesOf(names));
  return files.empty() ? "" : folder + "/" + files.front();
}

bool GgufHasTokenizer(const std::string& path) {
  const absl::StatusOr<GgufFile> file = ReadGgufFile(path);
  if (!file.ok()) {
    return false;
  }
  const GgufReader reader(&file->header);
  return reader.Find("tokenizer.ggml.model") != nullptr &&
         reader.Find("tokenizer.ggml.tokens") != nullptr;
}

absl::StatusOr<ChatTemplateSource> ReadGgufChatTemplate(const std::string& path) {
  ASSIGN_OR_RETURN(const GgufFile file, ReadGgufFile(path));
  GgufReader reader(&file.header);
  ChatTemplateSource out;
  out.source = reader.String("tokenizer.chat_template", "");
  out.origin = out.source.empty() ? "" : path;
  const std::vector<std::string_view> tokens = reader.Strings("tokenizer.ggml.tokens");
  const auto token = [&](const char* key) {
    const uint64_t id = reader.Uint(key, 0, UINT32_MAX, UINT32_MAX);
    return id < tokens.size() ? std::string(tokens[id]) : "";
  };
  out.bos_token = token("tokenizer.ggml.bos_token_id");
  out.eos_token = token("tokenizer.ggml.eos_token_id");
  RETURN_IF_ERROR(Annotate(reader.status(), path));
  for (const std::string* text : {&out.source, &out.bos_token, &out.eos_token}) {
    if (!IsUtf8(*text)) {
      return Invalid(path + ": the chat template or one of its tokens is no UTF-8");
    }
  }
  return out;
}

}  // namespace strata
