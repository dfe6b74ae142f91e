#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

constexpr size_t kMaxContentBytes = 4096;

bool EndsWithWord(std::string_view text) {
  size_t start = 0;
  return !text.empty() && IsWordCharacter(CharBefore(text, text.size(), &start));
}

bool StartsWithWord(std::string_view text) {
  size_t at = 0;
  return !text.empty() && IsWordCharacter(NextChar(text, &at));
}

absl::StatusOr<std::string> Normalized(const std::string& content, const Normalizer& normalizer) {
  NormalizedText text{content, /*at_start=*/true};
  RETURN_IF_ERROR(normalizer.Apply(&text));
  return std::move(text.text);
}

}  // namespace

absl::Status AddedTokens::Number(const std::vector<AddedToken>& tokens, const Vocabulary& model,
                                 const Normalizer* normalizer) {
  auto next = std::max(static_cast<uint32_t>(model.id_count()), id_end_);
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) {
      continue;
    }
    if (token.content.size() > kMaxContentBytes) {
      return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
                   absl::StrCat("an added token is ", token.content.size(), " bytes long"))
          .Limit(absl::StrCat("added_token_bytes=", kMaxContentBytes));
    }
    uint32_t id = 0;
    if (const auto known = IdOf(token.content)) {
      id = *known;
    } else if (const auto in_model = model.IdOf(token.content)) {
      id = *in_model;
    } else {
      id = next++;
    }
    if (id >= kMaxVocabSize) {
      return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
                   "there are more tokens than can be")
          .Limit(absl::StrCat("vocab=", kMaxVocabSize));
    }
    id_end_ = std::max(id_end_, id + 1);
    ids_[token.content] = id;
    AddedToken& kept = tokens_[id];
    const bool was_special = kept.special;
    kept = token;
    kept.special |= was_special;
    if (token.normalized && normalizer != nullptr) {
      ASSIGN_OR_RETURN(std::string text, Normalized(token.content, *normalizer));
      if (text != token.content) {
        decoded_[id] = std::move(text);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<AddedTokens> AddedTokens::Make(std::vector<AddedToken> tokens,
                                              const Vocabulary& model, const Normalizer* normalizer,
                                              std::vector<AddedToken> later, bool split_special) {
  AddedTokens added;
  added.split_special_ = split_special;
  RETURN_IF_ERROR(added.Number(tokens, model, normalizer));
  RETURN_IF_ERROR(added.Number(later, model, normalizer));
  std::move(later.begin(), later.end(), std::back_inserter(tokens));
  for (const auto& [id, token] : added.tokens_) {
    const bool bounded = added.max_bytes_ > 0 && !token.lstrip && !token.rstrip;
    added.max_bytes_ = bounded ? std::max(added.max_bytes_, added.DecodedAs(id)->size()) : 0;
  }
  // Where two tokens are looked for by the same content, a special one wins, then the first.
  for (const bool special : {true, false}) {
    for (const AddedToken& token : tokens) {
      const auto id = added.IdOf(token.content);
      const AddedToken* kept = id ? added.TokenOf(*id) : nullptr;
      if (kept == nullptr || kept->special != special) {
        continue;
      }
      if (kept->normalized) {
        added.normalized_.Add(*added.DecodedAs(*id), *id);
      } else {
        added.raw_.Add(kept->content, *id);
      }
    }
  }
  return added;
}

std::vector<AddedTokens::Part> AddedTokens::Find(std::string_view text, bool normalized) const {
  const ByteTrie& trie = normalized ? normalized_ : raw_;
  std::vector<Part> parts;
  const auto add = [&parts](size_t begin, size_t end, std::optional<uint32_t> id) {
    parts.push_back({{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}, id});
  };
  size_t said = 0;  // What parts cover.
  for (size_t at = 0; at < text.size();) {
    const auto match = trie.Longest(text, at);
    if (!match) {
      ++at;
      continue;
    }
    const auto [id, length] = *match;
    size_t begin = at;
    size_t end = at + length;
    at = end;
    const AddedToken& token = tokens_.find(id)->second;
    if (split_special_ && token.special) {
      continue;
    }
    if (token.single_word &&
        (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) {
      begin = std::max(TrailingWhiteSpace(text.substr(0, begin)), said);
    }
    if (token.rstrip) {
      end += LeadingWhiteSpace(text.substr(end));
    }
    if (said < begin) {
      add(said, begin, std::nullopt);
    }
    add(begin, end, id);
    said = end;
  }
  if (said < text.size()) {
    add(said, text.size(), std::nullopt);
  }
  return parts;
}

std::optional<uint32_t> AddedTokens::IdOf(std::string_view content) const {
  const auto found = ids_.find(absl::string_view(content.data(), content.size()));
  if (found == ids_.end()) {
    return std::nullopt;
  }
  return found->second;
}

const AddedToken* AddedTokens::TokenOf(uint32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

const std::string* AddedTokens::DecodedAs(uint32_t id) const {
  if (const auto found = decoded_.find(id); found != decoded_.end()) {
    return &found->second;
  }
  const AddedToken* token = TokenOf(id);
  return token == nullptr ? nullptr : &token->content;
}

}  // namespace strata
