#include "text/tokenizer/word_models.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

constexpr size_t kMaxShownBytes = 64;

// For a word that is no token, in a vocabulary without a token for such.
absl::Status UnknownWord(std::string_view word, const std::string& unknown_token) {
  size_t end = 0;
  while (end < word.size() && end < kMaxShownBytes) {
    NextChar(word, &end);
  }
  return Error(
             absl::StatusCode::kInvalidArgument, "TEXT_NOT_IN_VOCABULARY",
             absl::StrCat("the tokenizer has no token for \"", std::string(word.substr(0, end)),
                          "\", and its unk_token \"", unknown_token, "\" is not in its vocabulary"))
      .Hint("send token ids, or a text without it");
}

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    NextChar(text, &at);
  }
  return count;
}

}  // namespace

WordPieceModel::WordPieceModel(Vocabulary vocabulary, const WordPieceOptions& options)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      unknown_id_(vocabulary_.IdOf(options.unknown_token)) {
  for (uint32_t id = 0; id < vocabulary_.id_end(); ++id) {
    const std::string* token = vocabulary_.TokenOf(id);
    if (token == nullptr) {
      continue;
    }
    first_.Add(*token, id);
    if (token->starts_with(options_.prefix)) {
      next_.Add(std::string_view(*token).substr(options_.prefix.size()), id);
    }
  }
}

bool WordPieceModel::Cut(std::string_view word, std::vector<uint32_t>* ids) const {
  const size_t before = ids->size();
  for (size_t at = 0; at < word.size();) {
    const auto found = (at == 0 ? first_ : next_).Longest(word, at);
    if (!found) {
      ids->resize(before);
      return false;
    }
    ids->push_back(found->first);
    at += found->second;
  }
  return true;
}

absl::Status WordPieceModel::Tokenize(std::string_view text, std::span<const TextRange> pieces,
                                      size_t most, std::vector<uint32_t>* ids) const {
  for (const TextRange range : pieces) {
    if (ids->size() > most) {
      break;
    }
    const std::string_view word = range.Of(text);
    const bool fits =
        word.size() <= options_.max_characters || CountCharacters(word) <= options_.max_characters;
    if (fits && Cut(word, ids)) {
      continue;
    }
    if (!unknown_id_) {
      return UnknownWord(word, options_.unknown_token);
    }
    ids->push_back(*unknown_id_);
  }
  return absl::OkStatus();
}

WordLevelModel::WordLevelModel(Vocabulary vocabulary, const std::string& unknown_token)
    : vocabulary_(std::move(vocabulary)),
      unknown_token_(unknown_token),
      unknown_id_(vocabulary_.IdOf(unknown_token)) {}

absl::Status WordLevelModel::Tokenize(std::string_view text, std::span<const TextRange> pieces,
                                      size_t most, std::vector<uint32_t>* ids) const {
  for (const TextRange range : pieces) {
    if (ids->size() > most) {
      break;
    }
    const std::string_view word = range.Of(text);
    const auto id = vocabulary_.IdOf(word);
    if (!id && !unknown_id_) {
      return UnknownWord(word, unknown_token_);
    }
    ids->push_back(id ? *id : *unknown_id_);
  }
  return absl::OkStatus();
}

}  // namespace strata
