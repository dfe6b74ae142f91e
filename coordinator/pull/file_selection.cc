#include "coordinator/pull/file_selection.h"

#include <algorithm>
#include <limits>

#include "common/checkpoint/json_reader.h"
#include "common/file_limits.h"
#include "common/names.h"
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

bool IsPlainName(std::string_view name) { return CheckModelName(name).ok(); }

absl::StatusOr<std::pair<std::string, std::string>> SplitRepository(std::string_view repository) {
  RETURN_IF_ERROR(CheckRepositoryName(repository));
  const size_t slash = repository.find('/');
  return std::pair(std::string(repository.substr(0, slash)),
                   std::string(repository.substr(slash + 1)));
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
  std::stable_partition(wanted.begin(), wanted.end(),
                        [&](const std::string& name) { return !is_weights(name); });
  return wanted;
}

uint64_t MaxBytesOf(std::string_view name) {
  if (EndsWith(name, ".index.json")) {
    return kMaxSideFileBytes;
  }
  // Each with the limit of its reader; vocabularies and merges are parts of a tokenizer.
  if (name == "tokenizer.json" || name == "vocab.json" || name == "merges.txt" ||
      name == "vocab.txt") {
    return kMaxTokenizerBytes;
  }
  if (EndsWith(name, ".json")) {
    return kMaxConfigBytes;
  }
  if (EndsWith(name, ".jinja")) {
    return kMaxTemplateBytes;
  }
  if (EndsWith(name, ".tiktoken") || name == "tiktoken.model") {
    return kMaxTiktokenBytes;
  }
  if (EndsWith(name, ".model")) {
    return kMaxSentencePieceBytes;
  }
  return std::numeric_limits<uint64_t>::max();  // Weights: the disk is the limit.
}

}  // namespace strata
