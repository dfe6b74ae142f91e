#include <string>
#include <utility>

#include "text/tokenizer/decoder_steps.h"
#include "text/tokenizer/stage_parsers.h"

namespace strata {
namespace {

using Steps = std::vector<std::unique_ptr<DecoderStep>>;

// More than any text has.
constexpr size_t kMaxStripped = 1 << 20;

absl::Status ParseStrip(const JsonObject& object, Steps* steps) {
  ASSIGN_OR_RETURN(std::string character, object.Character("content"));
  ASSIGN_OR_RETURN(const size_t start, object.Count("start", 0, kMaxStripped));
  ASSIGN_OR_RETURN(const size_t stop, object.Count("stop", 0, kMaxStripped));
  steps->push_back(std::make_unique<StripStep>(std::move(character), start, stop));
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseDecoder(const Json& value, Steps* steps) {
  ASSIGN_OR_RETURN(const JsonObject object, JsonObject::Of(value, "decoder"));
  ASSIGN_OR_RETURN(const std::string type, object.String("type"));
  if (type == "ByteLevel") {
    steps->push_back(std::make_unique<ByteLevelStep>());
    return absl::OkStatus();
  }
  if (type == "ByteFallback") {
    steps->push_back(std::make_unique<ByteFallbackStep>());
    return absl::OkStatus();
  }
  if (type == "Fuse") {
    steps->push_back(std::make_unique<FuseStep>());
    return absl::OkStatus();
  }
  if (type == "Strip") {
    return ParseStrip(object, steps);
  }
  if (type == "Replace") {
    ASSIGN_OR_RETURN(TextPattern pattern, ParsePattern(object));
    ASSIGN_OR_RETURN(std::string content, object.String("content"));
    steps->push_back(std::make_unique<ReplaceStep>(std::move(pattern), std::move(content)));
    return absl::OkStatus();
  }
  if (type == "Metaspace") {
    ASSIGN_OR_RETURN(MetaspaceOptions options, ParseMetaspace(object));
    steps->push_back(std::make_unique<MetaspaceStep>(std::move(options.replacement),
                                                     options.prepend != PrependScheme::kNever));
    return absl::OkStatus();
  }
  if (type == "WordPiece") {
    ASSIGN_OR_RETURN(std::string prefix, object.String("prefix"));
    if (object.Find("cleanup") == nullptr) {
      return object.Wrong("cleanup", "there");
    }
    ASSIGN_OR_RETURN(const bool clean_up, object.Bool("cleanup", true));
    steps->push_back(std::make_unique<WordPieceStep>(std::move(prefix)));
    if (clean_up) {
      AddCleanUpSteps(/*of_word_pieces=*/true, steps);
    }
    return absl::OkStatus();
  }
  if (type == "BPEDecoder") {
    ASSIGN_OR_RETURN(std::string suffix, object.String("suffix"));
    if (suffix.empty()) {
      return object.Wrong("suffix", "a text");
    }
    steps->push_back(std::make_unique<WordEndStep>(std::move(suffix)));
    return absl::OkStatus();
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const Json* list, object.Array("decoders"));
    for (const Json& item : *list) {
      RETURN_IF_ERROR(ParseDecoder(item, steps));
    }
    return absl::OkStatus();
  }
  return TokenizerUnsupported("decoder", type);
}

}  // namespace strata
