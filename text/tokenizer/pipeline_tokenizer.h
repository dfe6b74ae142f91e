// A tokenizer as a chain of stages.
#ifndef STRATA_TEXT_TOKENIZER_PIPELINE_TOKENIZER_H_
#define STRATA_TEXT_TOKENIZER_PIPELINE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/token_model.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {

struct TokenizerStages {
  std::unique_ptr<Normalizer> normalizer;       // May be null.
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // May be null.
  std::unique_ptr<TokenModel> model;
  std::vector<std::unique_ptr<PostProcessor>> post_processors;
  std::unique_ptr<Decoder> decoder;
  AddedTokens added_tokens;
  // An added token behind which a text begins anew (NormalizedText::at_start).
  std::optional<uint32_t> text_begins_behind = {};
  std::string kind = "";  // For people.
};

class PipelineTokenizer : public Tokenizer {
 public:
  // The longest text that is encoded.
  static constexpr size_t kMaxTextBytes = size_t{64} << 20;

  explicit PipelineTokenizer(TokenizerStages stages)
      : stages_(std::move(stages)), max_bytes_per_id_(MaxBytesPerId(stages_)) {}

  absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text,
                                               bool add_special_tokens) const override;
  absl::StatusOr<std::vector<uint32_t>> EncodeUpTo(std::string_view text, bool add_special_tokens,
                                                   size_t most) const override;
  size_t max_bytes_per_id() const override { return max_bytes_per_id_; }
  std::string Decode(std::span<const uint32_t> ids, bool skip_special_tokens) const override;
  std::unique_ptr<Stream> NewStream(std::span<const uint32_t> context,
                                    bool skip_special_tokens) const override;
  std::optional<uint32_t> TokenToId(std::string_view token) const override;
  std::optional<std::string> BytesOf(uint32_t id) const override;
  uint32_t vocab_size() const override;
  std::string kind() const override { return stages_.kind; }

 private:
  class IdStream;

  static size_t MaxBytesPerId(const TokenizerStages& stages);
  // Text between the added tokens that are found before normalization; ends once there are more
  // than `most` ids.
  absl::Status EncodeSegment(std::string_view text, bool at_start, size_t most,
                             std::vector<uint32_t>* ids) const;
  // What `id` decodes as; nothing for one that is past the vocabulary or left out.
  std::optional<std::string_view> TokenOf(uint32_t id, bool skip_special_tokens) const;

  const TokenizerStages stages_;
  const size_t max_bytes_per_id_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_PIPELINE_TOKENIZER_H_
