#include "coordinator/registry/tokenizer_file.h"

#include <algorithm>

namespace strata {

bool IsTiktokenFile(std::string_view name) {
  return name.ends_with(".tiktoken") || name == "tiktoken.model";
}

std::string TokenizerFileOf(std::span<const std::string> names) {
  if (std::find(names.begin(), names.end(), "tokenizer.json") != names.end()) {
    return "tokenizer.json";
  }
  const auto found = std::find_if(names.begin(), names.end(),
                                  [](const std::string& name) { return IsTiktokenFile(name); });
  return found == names.end() ? "" : *found;
}

}  // namespace strata
