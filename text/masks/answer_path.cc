#include "text/masks/answer_path.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "common/status.h"

namespace strata {
namespace {

// Of a set with more tokens none is looked for.
constexpr size_t kMostCompared = 1024;

bool IsStop(const MaskVocabulary& vocabulary, uint32_t id) {
  return std::find(vocabulary.stop_ids.begin(), vocabulary.stop_ids.end(),
                   static_cast<int32_t>(id)) != vocabulary.stop_ids.end();
}

// The tokens of the set; none where they are too many.
std::vector<uint32_t> FewIdsOf(std::span<const uint32_t> words) {
  size_t count = 0;
  for (const uint32_t word : words) {
    count += static_cast<size_t>(std::popcount(word));
    if (count > kMostCompared) {
      return {};
    }
  }
  std::vector<uint32_t> ids;
  ids.reserve(count);
  for (size_t i = 0; i < words.size(); ++i) {
    for (uint32_t left = words[i]; left != 0; left &= left - 1) {
      ids.push_back(static_cast<uint32_t>(i * 32 + static_cast<size_t>(std::countr_zero(left))));
    }
  }
  return ids;
}

}  // namespace

std::optional<ForcedToken> ForcedTokenOf(std::span<const uint32_t> words,
                                         const MaskVocabulary& vocabulary) {
  const std::vector<uint32_t> ids = FewIdsOf(words);
  std::string_view common;  // Each token begins with it, or is the beginning of it.
  for (const uint32_t id : ids) {
    if (IsStop(vocabulary, id)) {
      return std::nullopt;
    }
    common = std::max(common, std::string_view(vocabulary.tokens[id]),
                      [](auto a, auto b) { return a.size() < b.size(); });
  }
  if (ids.size() == 1) {
    return ForcedToken{ids.front(), true};
  }
  for (const uint32_t id : ids) {
    const std::string_view token = vocabulary.tokens[id];
    const size_t most = std::min(token.size(), common.size());
    const auto differ = std::mismatch(token.begin(), token.begin() + most, common.begin());
    if (const auto same = static_cast<size_t>(differ.first - token.begin()); same < most) {
      common = common.substr(0, same);
    }
  }
  std::optional<ForcedToken> longest;
  size_t length = 0;
  for (const uint32_t id : ids) {
    const std::string_view token = vocabulary.tokens[id];
    if (token.size() > length && token.size() <= common.size()) {
      length = token.size();
      longest = ForcedToken{id, false};
    }
  }
  return longest;
}

absl::Status AnswerPath::GoTo(std::span<const uint32_t> taken, std::span<const uint32_t> ahead) {
  RETURN_IF_ERROR(lost_);
  std::vector<uint32_t> wanted(taken.begin(), taken.end());
  wanted.insert(wanted.end(), ahead.begin(), ahead.end());
  size_t same = 0;
  while (same < std::min(ahead_.size(), wanted.size()) && ahead_[same].token == wanted[same]) {
    ++same;
  }
  if (same < ahead_.size()) {
    RETURN_IF_ERROR(lost_ = matcher_->GoBack(ahead_[same].before));
    ahead_.resize(same);
  }
  // What the answer has is not come back to.
  ahead_.erase(ahead_.begin(), ahead_.begin() + std::min(same, taken.size()));
  for (size_t i = same; i < wanted.size(); ++i) {
    if (i >= taken.size()) {
      const std::optional<AnswerMatcher::Place> before = matcher_->Here();
      if (!before.has_value()) {
        return Error(absl::StatusCode::kInternal, "MASK_FAILED",
                     "an answer's masks cannot go ahead of it");
      }
      ahead_.push_back({wanted[i], *before});
    }
    RETURN_IF_ERROR(lost_ = matcher_->Take(wanted[i]));
  }
  return absl::OkStatus();
}

std::optional<AnswerMask> AnswerPath::TryNext(uint32_t token) {
  const std::optional<AnswerMatcher::Place> before = matcher_->Here();
  if (!lost_.ok() || !before.has_value() || IsStop(vocabulary(), token)) {
    return std::nullopt;
  }
  absl::Status taken = matcher_->Take(token);
  absl::StatusOr<AnswerMask> mask = taken.ok() ? matcher_->Next() : taken;
  if (!mask.ok() || mask->complete) {
    lost_ = matcher_->GoBack(*before);
    return std::nullopt;
  }
  ahead_.push_back({token, *before});
  return *std::move(mask);
}

}  // namespace strata
