#include "text/tokenizer/pipeline_tokenizer.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/unicode/utf8.h"

namespace strata {

size_t PipelineTokenizer::MaxBytesPerId(const TokenizerStages& stages) {
  const size_t normalized = stages.normalizer == nullptr ? 1 : stages.normalizer->max_shrink();
  const size_t cut = stages.pre_tokenizer == nullptr ? 1 : stages.pre_tokenizer->max_shrink();
  const bool byte_alphabet =
      stages.pre_tokenizer != nullptr && stages.pre_tokenizer->makes_byte_alphabet()
          ? true
          : stages.normalizer != nullptr && stages.normalizer->makes_byte_alphabet();
  const size_t in_model = stages.model->max_bytes_per_id(byte_alphabet);
  if (normalized == 0 || cut == 0 || in_model == 0 || stages.added_tokens.max_bytes() == 0) {
    return 0;
  }
  // Those that are found in normalized text are as long there.
  return std::max(in_model * cut, stages.added_tokens.max_bytes()) * normalized;
}

absl::Status PipelineTokenizer::EncodeSegment(std::string_view text, bool at_start, size_t most,
                                              std::vector<uint32_t>* ids) const {
  NormalizedText segment{std::string(text), at_start};
  if (stages_.normalizer != nullptr) {
    RETURN_IF_ERROR(stages_.normalizer->Apply(&segment));
  }
  for (const AddedTokens::Part& part : stages_.added_tokens.Find(segment.text, true)) {
    if (ids->size() > most) {
      break;
    }
    if (part.id) {
      ids->push_back(*part.id);
      continue;
    }
    PreTokenized cut;
    cut.text = std::string(part.range.Of(segment.text));
    cut.max_bytes = segment.max_bytes;
    cut.at_start = segment.at_start && part.range.begin == 0;
    cut.pieces.push_back({0, static_cast<uint32_t>(cut.text.size())});
    if (stages_.pre_tokenizer != nullptr) {
      RETURN_IF_ERROR(stages_.pre_tokenizer->Apply(&cut));
    }
    RETURN_IF_ERROR(stages_.model->Tokenize(cut.text, cut.pieces, most, ids));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> PipelineTokenizer::Encode(std::string_view text,
                                                                bool add_special_tokens) const {
  return EncodeUpTo(text, add_special_tokens, std::numeric_limits<size_t>::max());
}

absl::StatusOr<std::vector<uint32_t>> PipelineTokenizer::EncodeUpTo(std::string_view text,
                                                                    bool add_special_tokens,
                                                                    size_t most) const {
  if (text.size() > kMaxTextBytes) {
    return Error(absl::StatusCode::kInvalidArgument, "TEXT_TOO_LONG",
                 absl::StrCat("the text has ", text.size(), " bytes"))
        .Limit(absl::StrCat("text_bytes=", kMaxTextBytes))
        .Hint("send a shorter text");
  }
  if (const auto offset = FirstInvalidUtf8(text)) {
    return Error(absl::StatusCode::kInvalidArgument, "TEXT_NOT_UTF8",
                 absl::StrCat("the text is no UTF-8 at byte ", *offset))
        .Fact("byte_offset", *offset);
  }
  std::vector<uint32_t> ids;
  bool at_start = true;
  for (const AddedTokens::Part& part : stages_.added_tokens.Find(text, /*normalized=*/false)) {
    if (ids.size() > most) {
      break;
    }
    if (part.id) {
      ids.push_back(*part.id);
    } else {
      RETURN_IF_ERROR(EncodeSegment(part.range.Of(text), at_start, most, &ids));
    }
    at_start = part.id && part.id == stages_.text_begins_behind;
  }
  if (add_special_tokens) {
    for (const auto& post_processor : stages_.post_processors) {
      ids = post_processor->Apply(std::move(ids));
    }
  }
  return ids;
}

std::optional<std::string_view> PipelineTokenizer::TokenOf(uint32_t id,
                                                           bool skip_special_tokens) const {
  if (const AddedToken* added = stages_.added_tokens.TokenOf(id)) {
    if (skip_special_tokens && added->special) {
      return std::nullopt;
    }
    return *stages_.added_tokens.DecodedAs(id);
  }
  const std::string* token = stages_.model->vocabulary().TokenOf(id);
  if (token == nullptr) {
    return std::nullopt;
  }
  return *token;
}

std::string PipelineTokenizer::Decode(std::span<const uint32_t> ids,
                                      bool skip_special_tokens) const {
  std::vector<std::string_view> tokens;
  tokens.reserve(ids.size());
  for (const uint32_t id : ids) {
    if (const auto token = TokenOf(id, skip_special_tokens)) {
      tokens.push_back(*token);
    }
  }
  return stages_.decoder->Decode(tokens);
}

class PipelineTokenizer::IdStream : public Tokenizer::Stream {
 public:
  IdStream(const PipelineTokenizer* tokenizer, std::span<const uint32_t> context,
           bool skip_special_tokens)
      : tokenizer_(tokenizer),
        skip_special_tokens_(skip_special_tokens),
        decoder_(tokenizer->stages_.decoder->NewStream()) {
    for (const uint32_t id : context) {
      Add(id);
    }
  }

  std::string Add(uint32_t id) override {
    std::string text;
    if (const auto token = tokenizer_->TokenOf(id, skip_special_tokens_)) {
      decoder_->Add(*token, &text);
    }
    return text;
  }
  std::string Finish() override {
    std::string text;
    decoder_->Finish(&text);
    return text;
  }

 private:
  const PipelineTokenizer* const tokenizer_;
  const bool skip_special_tokens_;
  const std::unique_ptr<DecoderStream> decoder_;
};

std::unique_ptr<Tokenizer::Stream> PipelineTokenizer::NewStream(std::span<const uint32_t> context,
                                                                bool skip_special_tokens) const {
  return std::make_unique<IdStream>(this, context, skip_special_tokens);
}

std::optional<std::string> PipelineTokenizer::BytesOf(uint32_t id) const {
  const auto token = TokenOf(id, /*skip_special_tokens=*/false);
  return token.has_value() ? stages_.decoder->BytesOf(*token) : std::nullopt;
}

std::optional<uint32_t> PipelineTokenizer::TokenToId(std::string_view token) const {
  if (const auto id = stages_.added_tokens.IdOf(token)) {
    return id;
  }
  return stages_.model->vocabulary().IdOf(token);
}

uint32_t PipelineTokenizer::vocab_size() const {
  return std::max(stages_.model->vocabulary().id_end(), stages_.added_tokens.id_end());
}

}  // namespace strata
