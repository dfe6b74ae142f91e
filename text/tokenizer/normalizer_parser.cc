#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/precompiled.h"
#include "text/tokenizer/stage_parsers.h"

namespace strata {
namespace {

using MadeNormalizer = absl::StatusOr<std::unique_ptr<Normalizer>>;

// Those that have no fields; null for others.
std::unique_ptr<Normalizer> MakePlain(std::string_view type) {
  static constexpr std::pair<std::string_view, NormalForm> kForms[] = {
      {"NFC", NormalForm::kNfc},
      {"NFD", NormalForm::kNfd},
      {"NFKC", NormalForm::kNfkc},
      {"NFKD", NormalForm::kNfkd},
  };
  static constexpr std::pair<std::string_view, CharacterNormalizer::Map> kMaps[] = {
      {"Lowercase", &CharacterNormalizer::Lowercase},
      {"StripAccents", &CharacterNormalizer::StripAccents},
      {"Nmt", &CharacterNormalizer::Nmt},
  };
  for (const auto& [name, form] : kForms) {
    if (type == name) {
      return std::make_unique<UnicodeNormalizer>(form);
    }
  }
  for (const auto& [name, map] : kMaps) {
    if (type == name) {
      return std::make_unique<CharacterNormalizer>(map);
    }
  }
  return type == "ByteLevel" ? std::make_unique<ByteLevelNormalizer>() : nullptr;
}

MadeNormalizer ParseSequence(const JsonObject& object) {
  ASSIGN_OR_RETURN(const Json* list, object.Array("normalizers"));
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const Json& item : *list) {
    ASSIGN_OR_RETURN(std::unique_ptr<Normalizer> part, ParseNormalizer(item));
    parts.push_back(std::move(part));
  }
  return std::make_unique<SequenceNormalizer>(std::move(parts));
}

MadeNormalizer ParsePrecompiled(const JsonObject& object) {
  std::string charsmap;
  if (object.Find("precompiled_charsmap") != nullptr) {
    ASSIGN_OR_RETURN(const std::string text, object.String("precompiled_charsmap"));
    if (!absl::Base64Unescape(text, &charsmap)) {
      return object.Wrong("precompiled_charsmap", "base64");
    }
  }
  ASSIGN_OR_RETURN(std::unique_ptr<PrecompiledNormalizer> made,
                   PrecompiledNormalizer::Make(charsmap));
  return std::unique_ptr<Normalizer>(std::move(made));
}

MadeNormalizer ParseBert(const JsonObject& object) {
  // They have no defaults in a file, but for strip_accents.
  for (const char* name : {"clean_text", "handle_chinese_chars", "lowercase"}) {
    if (object.Find(name) == nullptr) {
      return object.Wrong(name, "there");
    }
  }
  BertNormalizer::Options options;
  ASSIGN_OR_RETURN(options.clean_text, object.Bool("clean_text", true));
  ASSIGN_OR_RETURN(options.split_chinese, object.Bool("handle_chinese_chars", true));
  ASSIGN_OR_RETURN(options.lowercase, object.Bool("lowercase", true));
  ASSIGN_OR_RETURN(options.strip_accents, object.Bool("strip_accents", options.lowercase));
  return std::make_unique<BertNormalizer>(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> ParseNormalizer(const Json& value) {
  ASSIGN_OR_RETURN(const JsonObject object, JsonObject::Of(value, "normalizer"));
  ASSIGN_OR_RETURN(const std::string type, object.String("type"));
  if (std::unique_ptr<Normalizer> plain = MakePlain(type)) {
    return plain;
  }
  if (type == "Sequence") {
    return ParseSequence(object);
  }
  if (type == "Prepend") {
    ASSIGN_OR_RETURN(std::string prefix, object.String("prepend"));
    return std::make_unique<PrependNormalizer>(std::move(prefix));
  }
  if (type == "Replace") {
    ASSIGN_OR_RETURN(TextPattern pattern, ParsePattern(object));
    ASSIGN_OR_RETURN(std::string content, object.String("content"));
    return std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content));
  }
  if (type == "Strip") {
    ASSIGN_OR_RETURN(const bool left, object.Bool("strip_left", true));
    ASSIGN_OR_RETURN(const bool right, object.Bool("strip_right", true));
    return std::make_unique<StripNormalizer>(left, right);
  }
  if (type == "BertNormalizer") {
    return ParseBert(object);
  }
  if (type == "Precompiled") {
    return ParsePrecompiled(object);
  }
  return TokenizerUnsupported("normalizer", type);
}

}  // namespace strata
