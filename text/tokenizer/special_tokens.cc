#include "text/tokenizer/special_tokens.h"

#include <charconv>
#include <string>
#include <utility>

#include "common/limits.h"
#include "text/tokenizer/json_object.h"

namespace strata {

absl::StatusOr<SpecialTokens> ParseAddedTokensDecoder(std::string_view config) {
  SpecialTokens specials;
  if (config.empty()) {
    return specials;
  }
  ASSIGN_OR_RETURN(const Json document, ParseJsonText(config, "tokenizer_config.json"));
  ASSIGN_OR_RETURN(const JsonObject file, JsonObject::Of(document, "tokenizer_config.json"));
  const Json* list = file.Find("added_tokens_decoder");
  if (list == nullptr) {
    return specials;
  }
  ASSIGN_OR_RETURN(const JsonObject checked, JsonObject::Of(*list, "added_tokens_decoder"));
  for (const auto& [key, value] : list->items()) {
    uint64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id >= kMaxVocabSize) {
      return TokenizerInvalid(absl::StrCat("added_tokens_decoder: \"", key, "\" is no id"));
    }
    ASSIGN_OR_RETURN(const JsonObject object, JsonObject::Of(value, "added token " + key));
    AddedToken& token = specials[id];
    ASSIGN_OR_RETURN(token.content, object.String("content"));
    ASSIGN_OR_RETURN(token.special, object.Bool("special", true));
    ASSIGN_OR_RETURN(token.lstrip, object.Bool("lstrip", false));
    ASSIGN_OR_RETURN(token.rstrip, object.Bool("rstrip", false));
    ASSIGN_OR_RETURN(token.single_word, object.Bool("single_word", false));
  }
  return specials;
}

absl::Status AddAddedTokensJson(std::string_view added_tokens, SpecialTokens* tokens) {
  if (added_tokens.empty()) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Json document, ParseJsonText(added_tokens, "added_tokens.json"));
  ASSIGN_OR_RETURN(const JsonObject file, JsonObject::Of(document, "added_tokens.json"));
  for (const auto& [content, id] : document.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxVocabSize || content.empty()) {
      return TokenizerInvalid(
          absl::StrCat(file.where(), ": token \"", content, "\" has no id of a token"));
    }
    tokens->try_emplace(id.get<uint64_t>(), AddedToken{content});
  }
  return absl::OkStatus();
}

}  // namespace strata
