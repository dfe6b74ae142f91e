#include "text/tokenizer/stage_parsers.h"

#include <string>
#include <utility>

#include "common/limits.h"
#include "text/tokenizer/pre_tokenizers.h"
#include "text/unicode/characters.h"

namespace strata {
namespace {

constexpr size_t kMaxLiteralBytes = 4096;
// Longer than any text.
constexpr size_t kMaxFixedLength = size_t{1} << 40;

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
  ASSIGN_OR_RETURN(TextPattern pattern, ParsePattern(object));
  return std::make_unique<SplitPreTokenizer>(std::move(pattern), behavior, invert);
}

// "Whitespace": runs of word characters, and of what is neither that nor white space.
std::unique_ptr<PreTokenizer> MakeWhitespace() {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  parts.push_back(std::make_unique<CharacterPreTokenizer>(&IsWhiteSpace, SplitBehavior::kRemoved));
  parts.push_back(
      std::make_unique<CharacterPreTokenizer>(&IsWordCharacter, SplitBehavior::kContiguous));
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

// "BertPreTokenizer": words, and each punctuation character.
std::unique_ptr<PreTokenizer> MakeBert() {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  parts.push_back(std::make_unique<CharacterPreTokenizer>(&IsWhiteSpace, SplitBehavior::kRemoved));
  parts.push_back(
      std::make_unique<CharacterPreTokenizer>(&IsPunctuation, SplitBehavior::kIsolated));
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
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

// A token and its id: ["</s>", 2].
absl::StatusOr<uint32_t> ParseTokenPair(const JsonObject& object, const char* name) {
  ASSIGN_OR_RETURN(const Json* pair, object.Array(name));
  if (pair->size() != 2) {
    return object.Wrong(name, "a token and its id");
  }
  ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, ParseIds(Json::array({(*pair)[1]}), name));
  return ids[0];
}

// What TemplateProcessing puts around one text.
absl::StatusOr<std::unique_ptr<PostProcessor>> ParseTemplate(const JsonObject& object) {
  ASSIGN_OR_RETURN(const Json* single, object.Array("single"));
  std::vector<uint32_t> before;
  std::vector<uint32_t> after;
  bool text_seen = false;
  for (const Json& item : *single) {
    ASSIGN_OR_RETURN(const JsonObject part,
                     JsonObject::Of(item, "an item of post_processor's single"));
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
      return TokenizerInvalid(absl::StrCat("post_processor: single names the id \"", name,
                                           "\", which special_tokens lacks"));
    }
    ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, ParseIds((*known)[name]["ids"], name));
    std::vector<uint32_t>& side = text_seen ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!text_seen) {
    return TokenizerInvalid("post_processor: single lacks the text");
  }
  return std::make_unique<TemplatePostProcessor>(std::move(before), std::move(after));
}

}  // namespace

absl::StatusOr<TextPattern> ParsePattern(const JsonObject& object) {
  const Json* field = object.Find("pattern");
  if (field == nullptr) {
    return object.Wrong("pattern", "there");
  }
  ASSIGN_OR_RETURN(const JsonObject pattern,
                   JsonObject::Of(*field, absl::StrCat("pattern of ", object.where())));
  if (pattern.Find("String") == nullptr) {
    ASSIGN_OR_RETURN(const std::string expression, pattern.String("Regex"));
    return TextPattern::OfRegex(expression);
  }
  ASSIGN_OR_RETURN(std::string literal, pattern.String("String"));
  if (literal.empty() || literal.size() > kMaxLiteralBytes) {
    return pattern.Wrong("String", "a text of 1 to 4096 bytes");
  }
  return TextPattern::OfLiteral(std::move(literal));
}

absl::StatusOr<MetaspaceOptions> ParseMetaspace(const JsonObject& object) {
  MetaspaceOptions options;
  ASSIGN_OR_RETURN(options.replacement, object.Character("replacement"));
  ASSIGN_OR_RETURN(options.split, object.Bool("split", true));
  ASSIGN_OR_RETURN(const bool prefix, object.Bool("add_prefix_space", true));
  std::string scheme = prefix ? "always" : "never";
  if (object.Find("prepend_scheme") != nullptr) {
    ASSIGN_OR_RETURN(scheme, object.String("prepend_scheme"));
  }
  if (!prefix && scheme == "always") {  // The library writes the default of the new field.
    scheme = "never";
  }
  if (scheme == "first" && prefix) {
    options.prepend = PrependScheme::kFirst;
  } else if (scheme == "never") {
    options.prepend = PrependScheme::kNever;
  } else if (scheme != "always") {
    return object.Wrong("prepend_scheme",
                        "always, first or never, or contradicts add_prefix_space");
  }
  return options;
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> ParsePreTokenizer(const Json& value) {
  ASSIGN_OR_RETURN(const JsonObject object, JsonObject::Of(value, "pre_tokenizer"));
  ASSIGN_OR_RETURN(const std::string type, object.String("type"));
  if (type == "Split") {
    return ParseSplit(object);
  }
  if (type == "ByteLevel") {
    if (object.Find("add_prefix_space") == nullptr) {
      return object.Wrong("add_prefix_space", "there");  // It has no default.
    }
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
  if (type == "Metaspace") {
    ASSIGN_OR_RETURN(MetaspaceOptions options, ParseMetaspace(object));
    return std::make_unique<MetaspacePreTokenizer>(std::move(options));
  }
  if (type == "Whitespace") {
    return MakeWhitespace();
  }
  if (type == "WhitespaceSplit") {
    return std::make_unique<CharacterPreTokenizer>(&IsWhiteSpace, SplitBehavior::kRemoved);
  }
  if (type == "BertPreTokenizer") {
    return MakeBert();
  }
  if (type == "FixedLength") {
    ASSIGN_OR_RETURN(const size_t length, object.Count("length", 5, kMaxFixedLength));
    if (length == 0) {
      return object.Wrong("length", "above 0");
    }
    return std::make_unique<FixedLengthPreTokenizer>(length);
  }
  if (type == "CharDelimiterSplit") {
    ASSIGN_OR_RETURN(std::string delimiter, object.Character("delimiter"));
    return std::make_unique<SplitPreTokenizer>(TextPattern::OfLiteral(std::move(delimiter)),
                                               SplitBehavior::kRemoved, /*invert=*/false);
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
  return TokenizerUnsupported("pre_tokenizer", type);
}

absl::Status ParsePostProcessor(const Json& value,
                                std::vector<std::unique_ptr<PostProcessor>>* parts) {
  ASSIGN_OR_RETURN(const JsonObject object, JsonObject::Of(value, "post_processor"));
  ASSIGN_OR_RETURN(const std::string type, object.String("type"));
  if (type == "ByteLevel") {
    return absl::OkStatus();
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    ASSIGN_OR_RETURN(const uint32_t first, ParseTokenPair(object, "cls"));
    ASSIGN_OR_RETURN(const uint32_t last, ParseTokenPair(object, "sep"));
    parts->push_back(std::make_unique<TemplatePostProcessor>(std::vector<uint32_t>{first},
                                                             std::vector<uint32_t>{last}));
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
  return TokenizerUnsupported("post_processor", type);
}

absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const Json& value,
                                                         std::vector<int64_t>* ids) {
  if (!value.is_array()) {
    return TokenizerInvalid("added_tokens is not an array");
  }
  std::vector<AddedToken> tokens;
  for (const Json& item : value) {
    ASSIGN_OR_RETURN(const JsonObject object,
                     JsonObject::Of(item, absl::StrCat("added_tokens ", tokens.size())));
    AddedToken token;
    ASSIGN_OR_RETURN(token.content, object.String("content"));
    ASSIGN_OR_RETURN(token.special, object.Bool("special", false));
    ASSIGN_OR_RETURN(token.lstrip, object.Bool("lstrip", false));
    ASSIGN_OR_RETURN(token.rstrip, object.Bool("rstrip", false));
    ASSIGN_OR_RETURN(token.single_word, object.Bool("single_word", false));
    ASSIGN_OR_RETURN(token.normalized, object.Bool("normalized", !token.special));
    if (const Json* id = object.Find("id")) {
      if (!id->is_number_unsigned() || id->get<uint64_t>() >= kMaxVocabSize) {
        return object.Wrong("id", "in range");
      }
      ids->push_back(id->get<int64_t>());
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace strata
