#include "common/checkpoint/decoder_names.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/json_reader.h"

namespace strata {
namespace {

constexpr std::string_view kModelStart = "model.";
constexpr std::string_view kHeadStart = "lm_head.";
// Of the parts that a decoder's names consist of, below "model.".
constexpr std::string_view kOwn[] = {"layers.", "embed_tokens.", "norm."};
constexpr size_t kMostParts = 8;

// "vision_tower" of "model.vision_tower.patch_conv.weight".
std::string PartBeside(std::string_view name) {
  if (name.starts_with(kModelStart)) {
    name.remove_prefix(kModelStart.size());
  }
  return std::string(name.substr(0, name.find('.')));
}

}  // namespace

void TakeDecoderNames(const std::string& prefix, std::vector<TensorEntry>* tensors) {
  if (prefix.empty()) {
    return;
  }
  const auto starts = [&](const std::string& start) {
    return std::any_of(tensors->begin(), tensors->end(),
                       [&](const TensorEntry& tensor) { return tensor.name.starts_with(start); });
  };
  const std::string whole = absl::StrCat(prefix, "model.");
  const std::string inner = absl::StrCat("model.", prefix);
  const bool is_whole = starts(whole);
  const bool is_inner = !is_whole && starts(inner);
  const bool has_head = starts(absl::StrCat(prefix, "lm_head."));
  for (TensorEntry& tensor : *tensors) {
    std::string_view rest = tensor.name;
    if (rest.starts_with(kHeadStart) && !has_head) {
      tensor.name = prefix + tensor.name;
    } else if (is_inner && rest.starts_with(inner)) {
      tensor.name = whole + tensor.name.substr(inner.size());
    } else if (!is_whole && !is_inner && rest.starts_with(kModelStart)) {
      rest.remove_prefix(kModelStart.size());
      if (std::any_of(std::begin(kOwn), std::end(kOwn),
                      [&](std::string_view own) { return rest.starts_with(own); })) {
        tensor.name = prefix + tensor.name;
      }
    }
  }
}

std::string PartsLeftOut(const std::string& prefix, std::vector<std::string>* unexpected) {
  if (prefix.empty()) {
    return "";
  }
  std::map<std::string, size_t> parts;
  size_t all = 0;
  std::erase_if(*unexpected, [&](const std::string& name) {
    if (name.starts_with(prefix)) {
      return false;
    }
    ++parts[PartBeside(name)];
    ++all;
    return true;
  });
  if (all == 0) {
    return "";
  }
  std::vector<std::string> named;
  for (const auto& [part, count] : parts) {
    if (named.size() < kMostParts) {
      named.push_back(absl::StrCat(Quoted(part), " (", count, ")"));
    }
  }
  return absl::StrCat("of a model of several parts only the language model is loaded: ", all,
                      " tensors are left out, of ", absl::StrJoin(named, ", "),
                      parts.size() > kMostParts
                          ? absl::StrCat(" and ", parts.size() - kMostParts, " more parts")
                          : "");
}

}  // namespace strata
