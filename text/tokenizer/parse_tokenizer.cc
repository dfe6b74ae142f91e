#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/file_limits.h"
#include "text/tokenizer/decoder_steps.h"
#include "text/tokenizer/long_lists.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/stage_parsers.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_config.h"

namespace strata {
namespace {

constexpr int kMaxNesting = 64;
constexpr size_t kMaxValues = 16'000'000;
// Bytes of text for one of a token. Blanks in place of marks are all that real files write.
constexpr size_t kMaxDecoderGrowth = 65536;
// transformers' fix_mistral_regex puts Tekken's pattern in place of the first split of larger
// vocabularies, which some tokenizer.json of Mistral's have wrong.
constexpr size_t kLeastOfMistralFix = 100000;
constexpr char kTekkenPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

absl::Status CheckSize(std::string_view json) {
  if (json.size() > kMaxTokenizerBytes) {
    return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_TOO_LARGE",
                 absl::StrCat("tokenizer.json has ", json.size(), " bytes"))
        .Limit(absl::StrCat("tokenizer_bytes=", kMaxTokenizerBytes));
  }
  return absl::OkStatus();
}

// Refuses what would take far more memory as a tree than as a file.
absl::Status CheckShape(std::string_view json) {
  int depth = 0;
  size_t values = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxNesting) {
        return TokenizerInvalid(absl::StrCat("tokenizer.json is nested too deeply at byte ", i));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && ++values > kMaxValues) {
      return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_TOO_LARGE",
                   "tokenizer.json has too many values")
          .Limit(absl::StrCat("json_values=", kMaxValues));
    }
  }
  return absl::OkStatus();
}

// `value` may be null. With `clean_up` blanks before punctuation go in the end.
absl::StatusOr<std::unique_ptr<Decoder>> MakeDecoder(const Json* value, bool clean_up) {
  std::vector<std::unique_ptr<DecoderStep>> steps;
  if (value != nullptr) {
    RETURN_IF_ERROR(ParseDecoder(*value, &steps));
  } else {
    steps.push_back(std::make_unique<JoinStep>());
  }
  if (clean_up) {
    steps.push_back(std::make_unique<FuseStep>());
    AddCleanUpSteps(/*of_word_pieces=*/false, &steps);
  }
  size_t growth = 1;
  for (const auto& step : steps) {
    growth *= step->growth();
    if (growth > kMaxDecoderGrowth) {
      return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_TOO_LARGE",
                   "decoder: its replacements make too much text of a token")
          .Limit(absl::StrCat("decoder_growth=", kMaxDecoderGrowth));
    }
  }
  return std::make_unique<Decoder>(std::move(steps));
}

// Whether a stage, or one of those in it, is of this type.
bool HasType(const Json* stage, std::string_view type) {
  if (stage == nullptr || !stage->is_object()) {
    return false;
  }
  const auto own = stage->find("type");
  if (own != stage->end() && own->is_string() && own->get_ref<const std::string&>() == type) {
    return true;
  }
  for (const Json& member : *stage) {
    if (member.is_array() && std::any_of(member.begin(), member.end(), [type](const Json& inner) {
          return HasType(&inner, type);
        })) {
      return true;
    }
  }
  return false;
}

// Whether the first cut is by Tekken's pattern.
bool HasTekkenSplit(const Json* stage) {
  if (stage == nullptr || !stage->is_object() || !stage->contains("pretokenizers")) {
    return false;
  }
  const Json& first = (*stage)["pretokenizers"];
  return first.is_array() && !first.empty() && first[0].is_object() &&
         first[0].contains("pattern") && first[0]["pattern"] == Json{{"Regex", kTekkenPattern}};
}

// Of a file that was read: models without a type are told apart by what they have.
std::string KindOf(const JsonObject& file, const Json& model) {
  const auto flag = model.find("byte_fallback");
  const bool fallback = flag != model.end() && flag->is_boolean() && flag->get<bool>();
  const std::string bytes = fallback ? " with byte fallback" : "";
  const std::string_view type = TokenModelType(model);
  if (type != "BPE") {
    return std::string(type) + bytes;
  }
  const bool byte_level = HasType(file.Find("pre_tokenizer"), "ByteLevel") ||
                          HasType(file.Find("normalizer"), "ByteLevel") ||
                          HasType(file.Find("decoder"), "ByteLevel");
  return byte_level ? "byte-level BPE" : "BPE" + bytes;
}

// `lists`, which may be null, are what `json` lacks.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTree(std::string_view json, const LongLists* lists,
                                                     const FilesBesideTokenizer& beside) {
  RETURN_IF_ERROR(CheckShape(json));
  ASSIGN_OR_RETURN(const Json document, ParseJsonText(json, "tokenizer.json"));
  ASSIGN_OR_RETURN(const JsonObject file, JsonObject::Of(document, "tokenizer.json"));
  ASSIGN_OR_RETURN(const TokenizerConfig config, ParseTokenizerConfig(beside));
  if (config.other_tokenizer_files) {
    return TokenizerUnsupported(
        "tokenizer_config.json with other fast_tokenizer_files than tokenizer.json");
  }
  // "truncation" and "padding" are the training script's; callers here never want them.
  TokenizerStages stages;
  if (const Json* normalizer = file.Find("normalizer")) {
    ASSIGN_OR_RETURN(stages.normalizer, ParseNormalizer(*normalizer));
  }
  if (const Json* pre_tokenizer = file.Find("pre_tokenizer")) {
    ASSIGN_OR_RETURN(stages.pre_tokenizer, ParsePreTokenizer(*pre_tokenizer));
  }
  if (const Json* post_processor = file.Find("post_processor")) {
    RETURN_IF_ERROR(ParsePostProcessor(*post_processor, &stages.post_processors));
  }
  const Json* model = file.Find("model");
  if (model == nullptr) {
    return file.Wrong("model", "there");
  }
  ASSIGN_OR_RETURN(stages.model, ParseTokenModel(*model, lists));
  const bool clean_up =
      config.clean_up_spaces && (TokenModelType(*model) != "BPE" || config.clean_up_spaces_of_bpe);
  ASSIGN_OR_RETURN(stages.decoder, MakeDecoder(file.Find("decoder"), clean_up));
  stages.kind = KindOf(file, *model);
  if (config.fix_mistral_regex && !HasTekkenSplit(file.Find("pre_tokenizer")) &&
      stages.model->vocabulary().id_count() > kLeastOfMistralFix) {
    return TokenizerUnsupported(
        "tokenizer_config.json with fix_mistral_regex for another pre_tokenizer than Tekken's");
  }
  std::vector<AddedToken> added;
  std::vector<int64_t> ids;
  if (const Json* list = file.Find("added_tokens")) {
    ASSIGN_OR_RETURN(added, ParseAddedTokens(*list, &ids));
  }
  std::vector<AddedToken> later = config.TokensBeside(added, ids);
  ASSIGN_OR_RETURN(
      stages.added_tokens,
      AddedTokens::Make(std::move(added), stages.model->vocabulary(), stages.normalizer.get(),
                        std::move(later), config.split_special_tokens));
  std::vector<uint32_t> around;
  for (const auto& processor : stages.post_processors) {
    around = processor->Apply(std::move(around));
  }
  auto tokenizer = std::make_unique<PipelineTokenizer>(std::move(stages));
  for (const uint32_t id : around) {
    if (id >= tokenizer->vocab_size()) {
      return TokenizerInvalid(absl::StrCat("post_processor adds the id ", id,
                                           " to a text, and vocab and added_tokens have ",
                                           tokenizer->vocab_size()));
    }
  }
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(std::string_view json) {
  return ParseTokenizer(json, FilesBesideTokenizer());
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(std::string_view json,
                                                          const FilesBesideTokenizer& beside) {
  RETURN_IF_ERROR(CheckSize(json));
  if (const std::optional<LongLists> lists = TakeLongLists(json)) {
    auto tokenizer = ParseTree(lists->rest, &*lists, beside);
    if (tokenizer.ok()) {
      return tokenizer;
    }
  }
  // What is wrong is said of the whole file.
  return ParseTree(json, nullptr, beside);
}

}  // namespace strata
