#include "coordinator/tokenizer/stage_parsers.h"

#include <string>
#include <utility>

#include "common/limits.h"
#include "coordinator/tokenizer/normalizers.h"
#include "coordinator/tokenizer/pre_tokenizers.h"
#include "coordinator/tokenizer/unicode.h"

namespace strata {
namespace {

std::string Quoted(std::string_view kind, std::string_view type) {
  return absl::StrCat(std::string(kind), " \"", std::string(type), "\"");
}

absl::StatusOr<SplitBehavior> ParseBehavior(const JsonObject& object) {
  ASSIGN_OR_RETURN(const std::string name, object.String("behavior"));
  const auto behavior = SplitBehaviorOf(name);
  if (!behavior) {
    return object.Wrong("behavior", "a known one");
  }
  return *behavior;
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> ParseSplit(const JsonObject& object) {
  ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseBehavior(object));
  ASSIGN_OR_RETURN(const bool invert, object.Bool("invert", false));
  const Json* field = object.Find("pattern");
  if (field == nullptr) {
    return object.Wrong("pattern", "there");
  }
  ASSIGN_OR_RETURN(const JsonObject pattern, JsonObject::Of(*field, "pattern of Split"));
  if (pattern.Find("String") != nullptr) {
    ASSIGN_OR_RETURN(std::string literal, pattern.String("String"));
    if (literal.empty()) {
      return pattern.Wrong("String", "a text");
    }
    return std::make_unique<LiteralPreTokenizer>(std::move(literal), behavior, invert);
  }
  ASSIGN_OR_RETURN(const std::string expression, pattern.String("Regex"));
  ASSIGN_OR_RETURN(std::unique_ptr<Regex> regex, Regex::Compile(expression));
  return std::make_unique<SplitPreTokenizer>(std::move(regex), behavior, invert);
}

absl::StatusOr<std::vector<uint32_t>> ParseIds(const Json& value, const std::string& where) {
  if (!value.is_array()) {
    return TokenizerInvalid(absl::StrCat(where, ": ids is not an array"));
  }
  std::vector<uint32_t> ids;
  for (const Json& id : value) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxVocabSize) {
      return TokenizerInvalid(absl::StrCat(where, ": an id is out of range"));
    }
    ids.push_back(id.get<uint32_t>());
  }
  return ids;
}

// What TemplateProcessing puts around one text.
absl::StatusOr<std::unique_ptr<PostProcessor>> ParseTemplate(const JsonObject& object) {
  ASSIGN_OR_RETURN(const Json* single, object.Array("single"));
  std::vector<uint32_t> before;
  std::vector<uint32_t> after;
  bool text_seen = false;
  for (const Json& item : *single) {
    ASSIGN_OR_RETURN(const JsonObject part, JsonObject::Of(item, "item of a template"));
    if (part.Find("Sequence") != nullptr) {
      if (text_seen) {
        return TokenizerUnsupported("a template with the text twice");
      }
      text_seen = true;
      continue;
    }
    const Json* token = part.Find("SpecialToken");
    if (token == nullptr) {
      return part.Wrong("SpecialToken", "there, nor is Sequence");
    }
    ASSIGN_OR_RETURN(const JsonObject special, JsonObject::Of(*token, "SpecialToken"));
    ASSIGN_OR_RETURN(const std::string name, special.String("id"));
    const Json* known = object.Find("special_tokens");
    if (known == nullptr || !known->is_object() || !known->contains(name) ||
        !(*known)[name].is_object() || !(*known)[name].contains("ids")) {
      return TokenizerInvalid(
          absl::StrCat("the template names \"", name, "\", which special_tokens lacks"));
    }
    ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, ParseIds((*known)[name]["ids"], name));
    std::vector<uint32_t>& side = text_seen ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!text_seen) {
    return TokenizerInvalid("a template lacks the text");
  }
  return std::make_unique<TemplatePostProcessor>(std::move(before), std::move(after));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> ParseNormalizer(const Json& value) {
  ASSIGN_OR_RETURN(const JsonObject object, JsonObject::Of(value, "normalizer"));
  ASSIGN_OR_RETURN(const std::string type, object.String("type"));
  static constexpr std::pair<std::string_view, NormalForm> kForms[] = {
      {"NFC", NormalForm::kNfc},
      {"NFD", NormalForm::kNfd},
      {"NFKC", NormalForm::kNfkc},
      {"NFKD", NormalForm::kNfkd},
  };
  for (const auto& [name, form] : kForms) {
    if (type == name) {
      return std::make_unique<UnicodeNormalizer>(form);
    }
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const Json* list, object.Array("normalizers"));
    std::vector<std::unique_ptr<Normalizer>> parts;
    for (const Json& item : *list) {
      ASSIGN_OR_RETURN(std::unique_ptr<Normalizer> part, ParseNormalizer(item));
      parts.push_back(std::move(part));
    }
    return std::make_unique<SequenceNormalizer>(std::move(parts));
  }
  return TokenizerUnsupported(Quoted("normalizer", type));
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> ParsePreTokenizer(const Json& value) {
  ASSIGN_OR_RETURN(const JsonObject object, JsonObject::Of(value, "pre_tokenizer"));
  ASSIGN_OR_RETURN(const std::string type, object.String("type"));
  if (type == "Split") {
    return ParseSplit(object);
  }
  if (type == "ByteLevel") {
    ASSIGN_OR_RETURN(const bool prefix, object.Bool("add_prefix_space", true));
    ASSIGN_OR_RETURN(const bool use_regex, object.Bool("use_regex", true));
    return ByteLevelPreTokenizer::Make(prefix, use_regex);
  }
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, object.Bool("individual_digits", false));
    return std::make_unique<CharacterPreTokenizer>(
        &IsNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (object.Find("behavior") != nullptr) {
      ASSIGN_OR_RETURN(behavior, ParseBehavior(object));
    }
    return std::make_unique<CharacterPreTokenizer>(&IsPunctuation, behavior);
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const Json* list, object.Array("pretokenizers"));
    std::vector<std::unique_ptr<PreTokenizer>> parts;
    for (const Json& item : *list) {
      ASSIGN_OR_RETURN(std::unique_ptr<PreTokenizer> part, ParsePreTokenizer(item));
      parts.push_back(std::move(part));
    }
    return std::make_unique<SequencePreTokenizer>(std::move(parts));
  }
  return TokenizerUnsupported(Quoted("pre_tokenizer", type));
}

absl::Status ParsePostProcessor(const Json& value,
                                std::vector<std::unique_ptr<PostProcessor>>* parts) {
  ASSIGN_OR_RETURN(const JsonObject object, JsonObject::Of(value, "post_processor"));
  ASSIGN_OR_RETURN(const std::string type, object.String("type"));
  if (type == "ByteLevel") {
    return absl::OkStatus();
  }
  if (type == "TemplateProcessing") {
    ASSIGN_OR_RETURN(std::unique_ptr<PostProcessor> part, ParseTemplate(object));
    parts->push_back(std::move(part));
    return absl::OkStatus();
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const Json* list, object.Array("processors"));
    for (const Json& item : *list) {
      RETURN_IF_ERROR(ParsePostProcessor(item, parts));
    }
    return absl::OkStatus();
  }
  return TokenizerUnsupported(Quoted("post_processor", type));
}

absl::StatusOr<std::unique_ptr<Decoder>> ParseDecoder(const Json& value) {
  ASSIGN_OR_RETURN(const JsonObject object, JsonObject::Of(value, "decoder"));
  ASSIGN_OR_RETURN(const std::string type, object.String("type"));
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevelDecoder>();
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const Json* list, object.Array("decoders"));
    if (list->size() == 1) {
      return ParseDecoder((*list)[0]);
    }
    for (const Json& item : *list) {  // Names what is in the way.
      if (auto part = ParseDecoder(item); !part.ok()) {
        return part.status();
      }
    }
  }
  return TokenizerUnsupported(Quoted("decoder", type));
}

absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const Json& value) {
  if (!value.is_array()) {
    return TokenizerInvalid("added_tokens is not an array");
  }
  std::vector<AddedToken> tokens;
  for (const Json& item : value) {
    ASSIGN_OR_RETURN(const JsonObject object,
                     JsonObject::Of(item, absl::StrCat("added token ", tokens.size())));
    AddedToken token;
    ASSIGN_OR_RETURN(token.content, object.String("content"));
    ASSIGN_OR_RETURN(token.special, object.Bool("special", false));
    ASSIGN_OR_RETURN(token.lstrip, object.Bool("lstrip", false));
    ASSIGN_OR_RETURN(token.rstrip, object.Bool("rstrip", false));
    ASSIGN_OR_RETURN(token.single_word, object.Bool("single_word", false));
    ASSIGN_OR_RETURN(token.normalized, object.Bool("normalized", !token.special));
    if (const Json* id = object.Find("id");
        id != nullptr && (!id->is_number_unsigned() || id->get<uint64_t>() >= kMaxVocabSize)) {
      return object.Wrong("id", "in range");
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace strata
