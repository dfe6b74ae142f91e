// SentencePiece's own stages, where they differ from what Hugging Face's library makes of them.
#ifndef STRATA_TEXT_TOKENIZER_SENTENCEPIECE_STAGES_H_
#define STRATA_TEXT_TOKENIZER_SENTENCEPIECE_STAGES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/chars_map.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/token_model.h"

namespace strata {

// Text rewritten by the longest match of a map at each place, user-defined pieces left as they are;
// blanks become U+2581, with one more before the text.
class SentencePieceNormalizer : public Normalizer {
 public:
  struct Options {
    bool prefix = true;         // The one more,
    bool every_segment = true;  // also behind added tokens.
    bool remove_extra = false;  // No blanks around a text, and one between words.
  };
  SentencePieceNormalizer(CharsMap map, ByteTrie user_defined, Options options)
      : map_(std::move(map)), user_defined_(std::move(user_defined)), options_(options) {}
  absl::Status Apply(NormalizedText* text) const override;
  size_t max_shrink() const override { return options_.remove_extra || !map_.empty() ? 0 : 1; }

 private:
  // What stands for the beginning of `text`, and how long that is.
  std::pair<std::string_view, size_t> Next(std::string_view text) const;

  const CharsMap map_;
  const ByteTrie user_defined_;
  const Options options_;
};

// A model that never joins user-defined pieces to what is around them.
class FrozenPiecesModel : public TokenModel {
 public:
  // `user_defined`: pieces and their ids.
  FrozenPiecesModel(std::unique_ptr<TokenModel> model, ByteTrie user_defined)
      : model_(std::move(model)), user_defined_(std::move(user_defined)) {}
  const Vocabulary& vocabulary() const override { return model_->vocabulary(); }
  absl::Status Tokenize(std::string_view text, std::span<const TextRange> pieces, size_t most,
                        std::vector<uint32_t>* ids) const override;
  size_t max_bytes_per_id(bool byte_alphabet) const override {
    return model_->max_bytes_per_id(byte_alphabet);
  }

 private:
  const std::unique_ptr<TokenModel> model_;
  const ByteTrie user_defined_;
};

// Pieces to text: U+2581 becomes a blank, but for the one before the text; the unknown its surface;
// of a run of bytes each good character itself, and each other byte one U+FFFD.
class SentencePieceStep : public DecoderStep {
 public:
  struct Options {
    std::string unknown;  // The piece.
    std::string surface;
    bool strip = false;      // Blanks before the text: the first,
    bool strip_all = false;  // and all.
  };
  explicit SentencePieceStep(Options options) : options_(std::move(options)) {}
  size_t growth() const override { return options_.surface.size() + 3; }
  std::optional<std::string> BytesOf(std::string_view token) const override;
  std::unique_ptr<TokenSink> NewSink(TokenSink* next, DecodeMode mode) const override;

 private:
  const Options options_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_SENTENCEPIECE_STAGES_H_
