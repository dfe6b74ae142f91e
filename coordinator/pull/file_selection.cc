#include "coordinator/pull/file_selection.h"

#include <algorithm>

#include "common/status.h"

namespace strata {
namespace {

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// A relative path of harmless segments.
bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > 512) {
    return false;
  }
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view segment = path.substr(at, end - at);
    if (segment.empty() || segment == "." || segment == "..") {
      return false;
    }
    at = end + 1;
  }
  return std::none_of(path.begin(), path.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '\\' || c == ':';
  });
}

bool IsWanted(std::string_view name) {
  if (name.find('/') != name.npos || name[0] == '.') {
    return false;
  }
  static constexpr std::string_view kEnds[] = {".safetensors", ".json", ".jinja", ".tiktoken"};
  static constexpr std::string_view kNames[] = {"tokenizer.model", "merges.txt", "vocab.txt",
                                                "tiktoken.model", "spiece.model"};
  return std::any_of(std::begin(kEnds), std::end(kEnds),
                     [name](std::string_view end) { return EndsWith(name, end); }) ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace

bool IsPlainName(std::string_view name) {
  return !name.empty() && name.size() <= 96 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

absl::StatusOr<std::pair<std::string, std::string>> SplitRepository(std::string_view repository) {
  const size_t slash = repository.find('/');
  const std::string_view org = repository.substr(0, slash);
  const std::string_view name =
      slash == repository.npos ? std::string_view() : repository.substr(slash + 1);
  if (!IsPlainName(org) || !IsPlainName(name)) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_REPOSITORY",
                 "'" + std::string(repository) + "' is not the name of a repository")
        .Hint("write ORG/NAME, as in meta-llama/Llama-3.2-1B-Instruct");
  }
  return std::pair(std::string(org), std::string(name));
}

absl::StatusOr<std::vector<std::string>> SelectFiles(const std::vector<std::string>& listed) {
  std::vector<std::string> wanted;
  for (const std::string& name : listed) {
    if (!IsSafePath(name)) {
      return Error(absl::StatusCode::kInvalidArgument, "UNSAFE_FILE_NAME",
                   "the server lists a file whose name could leave its folder")
          .Fact("file", name.substr(0, 200));
    }
    if (IsWanted(name)) {
      wanted.push_back(name);
    }
  }
  const auto is_weights = [](const std::string& name) { return EndsWith(name, ".safetensors"); };
  // Some repositories hold the weights a second time under this name.
  const auto is_copy = [&](const std::string& name) {
    return is_weights(name) && name.rfind("consolidated", 0) == 0;
  };
  const bool has_weights = std::any_of(wanted.begin(), wanted.end(), is_weights);
  const bool all_copies = std::all_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
    return !is_weights(name) || is_copy(name);
  });
  if (!has_weights) {
    return Error(absl::StatusCode::kFailedPrecondition, "NO_SAFETENSORS",
                 "the repository has no safetensors files")
        .Hint("weights in other formats are not fetched; look for a converted repository");
  }
  if (!all_copies) {
    wanted.erase(std::remove_if(wanted.begin(), wanted.end(), is_copy), wanted.end());
  }
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  return wanted;
}

}  // namespace strata
