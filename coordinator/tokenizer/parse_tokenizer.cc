#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "coordinator/tokenizer/decoder_steps.h"
#include "coordinator/tokenizer/pipeline_tokenizer.h"
#include "coordinator/tokenizer/stage_parsers.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace strata {
namespace {

constexpr size_t kMaxTokenizerBytes = size_t{100} << 20;
constexpr int kMaxNesting = 64;
constexpr size_t kMaxValues = 16'000'000;
// Bytes of text for one of a token. Blanks in place of marks are all that real files write.
constexpr size_t kMaxDecoderGrowth = 65536;

// Refuses what would take far more memory as a tree than as a file.
absl::Status CheckShape(std::string_view json) {
  if (json.size() > kMaxTokenizerBytes) {
    return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_TOO_LARGE",
                 absl::StrCat("tokenizer.json has ", json.size(), " bytes"))
        .Limit(absl::StrCat("tokenizer_bytes=", kMaxTokenizerBytes));
  }
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

// `value` may be null.
absl::StatusOr<std::unique_ptr<Decoder>> MakeDecoder(const Json* value) {
  std::vector<std::unique_ptr<DecoderStep>> steps;
  if (value != nullptr) {
    RETURN_IF_ERROR(ParseDecoder(*value, &steps));
  } else {
    steps.push_back(std::make_unique<JoinStep>());
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

// Of a file that was read: models without a type are told apart by what they have.
std::string KindOf(const JsonObject& file, const Json& model) {
  const auto flag = model.find("byte_fallback");
  const bool fallback = flag != model.end() && flag->is_boolean() && flag->get<bool>();
  const std::string bytes = fallback ? " with byte fallback" : "";
  if (model.find("merges") == model.end()) {
    return "Unigram" + bytes;
  }
  const bool byte_level = HasType(file.Find("pre_tokenizer"), "ByteLevel") ||
                          HasType(file.Find("normalizer"), "ByteLevel") ||
                          HasType(file.Find("decoder"), "ByteLevel");
  return byte_level ? "byte-level BPE" : "BPE" + bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(std::string_view json) {
  RETURN_IF_ERROR(CheckShape(json));
  ASSIGN_OR_RETURN(const Json document, ParseJsonText(json, "tokenizer.json"));
  ASSIGN_OR_RETURN(const JsonObject file, JsonObject::Of(document, "tokenizer.json"));
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
  ASSIGN_OR_RETURN(stages.decoder, MakeDecoder(file.Find("decoder")));
  const Json* model = file.Find("model");
  if (model == nullptr) {
    return file.Wrong("model", "there");
  }
  ASSIGN_OR_RETURN(stages.model, ParseTokenModel(*model));
  stages.kind = KindOf(file, *model);
  std::vector<AddedToken> added;
  if (const Json* list = file.Find("added_tokens")) {
    ASSIGN_OR_RETURN(added, ParseAddedTokens(*list));
  }
  ASSIGN_OR_RETURN(stages.added_tokens,
                   AddedTokens::Make(added, stages.model->vocabulary(), stages.normalizer.get()));
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

}  // namespace strata
