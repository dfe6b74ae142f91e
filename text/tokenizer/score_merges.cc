#include "text/tokenizer/score_merges.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

// Gemma's 262,144 tokens have half a million merges, and some 6 MB of texts are looked up.
constexpr size_t kMostScoreMerges = 16'000'000;
constexpr uint64_t kMostLookedUpBytes = uint64_t{256} << 20;

// Which texts may be tokens, by hashes that a part's follow from: a token's parts are looked at
// without their bytes.
class TextFilter {
 public:
  explicit TextFilter(const Vocabulary& vocabulary) {
    const size_t bits = std::bit_ceil(std::max<size_t>(1024, 16 * vocabulary.token_count()));
    words_.resize(bits / 64);
    shift_ = 64 - std::countr_zero(bits);
    size_t longest = 0;
    for (uint32_t id = 0; id < vocabulary.id_end(); ++id) {
      if (const std::string* token = vocabulary.TokenOf(id)) {
        longest = std::max(longest, token->size());
        uint64_t hash = 0;
        for (const char c : *token) {
          hash = Next(hash, c);
        }
        const uint64_t bit = BitOf(hash, token->size());
        words_[bit / 64] |= uint64_t{1} << bit % 64;
      }
    }
    powers_.resize(longest + 1, 1);
    for (size_t i = 1; i <= longest; ++i) {
      powers_[i] = powers_[i - 1] * kBase;
    }
  }

  static uint64_t Next(uint64_t hash, char c) { return hash * kBase + static_cast<uint8_t>(c) + 1; }
  // Of a text whose hash is `whole` without its beginning, of the hash `before`; `size` is what is
  // left.
  uint64_t Behind(uint64_t whole, uint64_t before, size_t size) const {
    return whole - before * powers_[size];
  }
  bool MayHave(uint64_t hash, size_t size) const {
    const uint64_t bit = BitOf(hash, size);
    return (words_[bit / 64] >> bit % 64 & 1) != 0;
  }

 private:
  static constexpr uint64_t kBase = 0x9ddfea08eb382d69;
  uint64_t BitOf(uint64_t hash, size_t size) const {
    hash ^= hash >> 29;
    return (hash + size) * 0x9e3779b97f4a7c15 >> shift_;
  }

  std::vector<uint64_t> words_;
  std::vector<uint64_t> powers_;  // Of kBase.
  int shift_ = 0;
};

struct Scored {
  float score = 0;
  uint32_t left_characters = 0;
  uint32_t right_characters = 0;
  BpeMerge merge;
};

bool BeginsCharacterAt(std::string_view text, size_t at) { return (text[at] & 0xc0) != 0x80; }

}  // namespace

absl::StatusOr<std::vector<BpeMerge>> MergesOfScores(const Vocabulary& vocabulary,
                                                     std::span<const float> scores,
                                                     const std::vector<bool>& merged,
                                                     ScoreMergeSteps* steps) {
  const TextFilter filter(vocabulary);
  std::vector<Scored> found;
  std::vector<uint64_t> hashes;  // Of the token's beginnings, by their sizes.
  ScoreMergeSteps done;
  for (uint32_t id = 0; id < vocabulary.id_end(); ++id) {
    const std::string* const token = merged[id] ? vocabulary.TokenOf(id) : nullptr;
    if (token == nullptr) {
      continue;
    }
    const std::string_view text = *token;
    uint32_t characters = 0;
    hashes.assign(1, 0);
    for (size_t i = 0; i < text.size(); ++i) {
      characters += BeginsCharacterAt(text, i) ? 1 : 0;
      hashes.push_back(TextFilter::Next(hashes.back(), text[i]));
    }
    uint32_t left_characters = 0;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if (!BeginsCharacterAt(text, cut)) {
        continue;
      }
      ++left_characters;
      ++done.cuts;
      const size_t rest = text.size() - cut;
      if (!filter.MayHave(hashes[cut], cut) ||
          !filter.MayHave(filter.Behind(hashes.back(), hashes[cut], rest), rest)) {
        continue;
      }
      done.bytes += text.size();
      const auto left = vocabulary.IdOf(text.substr(0, cut));
      const auto right = left ? vocabulary.IdOf(text.substr(cut)) : std::nullopt;
      if (right) {
        found.push_back({scores[id], left_characters, characters - left_characters,
                         BpeMerge{*left, *right, id}});
      }
      if (found.size() > kMostScoreMerges || done.bytes > kMostLookedUpBytes) {
        return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_TOO_LARGE",
                     "the tokens have too many others in them")
            .Limit(
                absl::StrCat("merges=", kMostScoreMerges, ",looked_up_bytes=", kMostLookedUpBytes));
      }
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Scored& a, const Scored& b) {
    return std::tuple(a.score, a.left_characters, a.right_characters) >
           std::tuple(b.score, b.left_characters, b.right_characters);
  });
  if (steps != nullptr) {
    *steps = done;
  }
  std::vector<BpeMerge> merges;
  merges.reserve(found.size());
  for (const Scored& one : found) {
    merges.push_back(one.merge);
  }
  return merges;
}

}  // namespace strata
