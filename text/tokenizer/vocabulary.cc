#include "text/tokenizer/vocabulary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

// Ids that no token has, beyond as many as there are tokens: padding of embeddings is smaller.
constexpr uint64_t kMaxGap = 1 << 16;

}  // namespace

absl::StatusOr<Vocabulary> Vocabulary::Make(std::vector<std::pair<std::string, uint64_t>> tokens,
                                            Twice twice) {
  const uint64_t limit = std::min<uint64_t>(kMaxVocabSize, 2 * tokens.size() + kMaxGap);
  uint64_t end = 0;
  for (const auto& [token, id] : tokens) {
    if (id >= limit) {
      return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
                   absl::StrCat("token \"", token, "\" has the id ", id, ", out of range for ",
                                tokens.size(), " tokens"))
          .Limit(absl::StrCat("token_id<", limit));
    }
    end = std::max(end, id + 1);
  }
  Vocabulary vocabulary;
  vocabulary.id_count_ = tokens.size();  // Those that share one are refused.
  vocabulary.tokens_.resize(end);
  vocabulary.present_.resize(end);
  vocabulary.ids_.reserve(tokens.size());
  for (auto& entry : tokens) {
    const uint64_t id = entry.second;
    if (vocabulary.present_[id]) {
      return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
                   absl::StrCat("tokens \"", vocabulary.tokens_[id], "\" and \"", entry.first,
                                "\" have the same id ", id));
    }
    vocabulary.present_[id] = true;
    vocabulary.tokens_[id] = std::move(entry.first);
    const std::string& kept = vocabulary.tokens_[id];
    const auto [at, added] =
        vocabulary.ids_.try_emplace(absl::string_view(kept), static_cast<uint32_t>(id));
    if (!added && twice == Twice::kLastWins) {
      at->second = static_cast<uint32_t>(id);
    } else if (!added) {
      return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
                   absl::StrCat("token \"", kept, "\" is in the vocabulary twice"));
    }
  }
  return vocabulary;
}

std::optional<uint32_t> Vocabulary::IdOf(std::string_view token) const {
  const auto found = ids_.find(absl::string_view(token.data(), token.size()));
  if (found == ids_.end()) {
    return std::nullopt;
  }
  return found->second;
}

const std::string* Vocabulary::TokenOf(uint32_t id) const {
  return id < tokens_.size() && present_[id] ? &tokens_[id] : nullptr;
}

size_t Vocabulary::LongestToken(bool characters) const {
  size_t longest = 0;
  for (const std::string& token : tokens_) {
    const auto follows = [](char c) { return (c & 0xc0) == 0x80; };
    const auto more = std::count_if(token.begin(), token.end(), follows);
    longest = std::max(longest, token.size() - (characters ? static_cast<size_t>(more) : 0));
  }
  return longest;
}

}  // namespace strata
