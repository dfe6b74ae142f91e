#include "coordinator/registry/tokenizer_file.h"

#include <algorithm>

namespace strata {

bool IsTiktokenFile(std::string_view name) {
  return name.ends_with(".tiktoken") || name == "tiktoken.model";
}

std::string TokenizerFileOf(std::span<const std::string> names) {
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (has("tokenizer.json")) {
    return "tokenizer.json";
  }
  const auto found = std::find_if(names.begin(), names.end(),
                                  [](const std::string& name) { return IsTiktokenFile(name); });
  return found != names.end() ? *found : has(kSentencePieceFile) ? kSentencePieceFile : "";
}

}  // namespace strata
