// The steps of decoding there are, by their names in the file.
#ifndef STRATA_TEXT_TOKENIZER_DECODER_STEPS_H_
#define STRATA_TEXT_TOKENIZER_DECODER_STEPS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/decoder.h"
#include "text/tokenizer/text_pattern.h"

namespace strata {

// "ByteLevel": tokens in the byte alphabet become bytes, all others their UTF-8; then one text.
class ByteLevelStep : public DecoderStep {
 public:
  std::optional<std::string> BytesOf(std::string_view token) const override;
  std::unique_ptr<TokenSink> NewSink(TokenSink* next, DecodeMode mode) const override;
};

// The byte that a token like <0x0A> stands for.
std::optional<uint8_t> ByteOfToken(std::string_view token);

// "ByteFallback": each run of tokens <0x00> to <0xFF> becomes the text of these bytes, or one
// U+FFFD for each of them if they are no UTF-8 as a whole. A stream says a character as soon as it
// is complete, and cannot take it back if the run turns out bad behind it: so much it says more.
class ByteFallbackStep : public DecoderStep {
 public:
  std::optional<std::string> BytesOf(std::string_view token) const override;
  std::unique_ptr<TokenSink> NewSink(TokenSink* next, DecodeMode mode) const override;
};

// "Fuse": all tokens become one.
class FuseStep : public DecoderStep {
 public:
  std::unique_ptr<TokenSink> NewSink(TokenSink* next, DecodeMode mode) const override;
};

// "Replace": each match in a token becomes `content`.
class ReplaceStep : public DecoderStep {
 public:
  ReplaceStep(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  size_t growth() const override {
    return content_.size() <= pattern_.literal().size() ? 1 : content_.size() + 1;
  }
  std::unique_ptr<TokenSink> NewSink(TokenSink* next, DecodeMode mode) const override;

 private:
  const TextPattern pattern_;
  const std::string content_;
};

// "Strip": drops up to so many of one character from the ends of each token.
class StripStep : public DecoderStep {
 public:
  StripStep(std::string character, size_t start, size_t stop)
      : character_(std::move(character)), start_(start), stop_(stop) {}
  std::unique_ptr<TokenSink> NewSink(TokenSink* next, DecodeMode mode) const override;

 private:
  const std::string character_;
  const size_t start_;
  const size_t stop_;
};

// "Metaspace": the replacement becomes a blank; in the first token nothing, if texts are prepended.
class MetaspaceStep : public DecoderStep {
 public:
  MetaspaceStep(std::string replacement, bool prepended)
      : replacement_(std::move(replacement)), prepended_(prepended) {}
  std::unique_ptr<TokenSink> NewSink(TokenSink* next, DecodeMode mode) const override;

 private:
  const std::string replacement_;
  const bool prepended_;
};

// "WordPiece": a token that begins with the prefix goes on with the word before it, any other is a
// word of its own.
class WordPieceStep : public DecoderStep {
 public:
  explicit WordPieceStep(std::string prefix) : prefix_(std::move(prefix)) {}
  size_t growth() const override { return 2; }
  std::unique_ptr<TokenSink> NewSink(TokenSink* next, DecodeMode mode) const override;

 private:
  const std::string prefix_;
};

// "BPEDecoder": the suffix at the end of a word becomes a blank, and in the last token nothing.
class WordEndStep : public DecoderStep {
 public:
  explicit WordEndStep(std::string suffix) : suffix_(std::move(suffix)) {}
  std::unique_ptr<TokenSink> NewSink(TokenSink* next, DecodeMode mode) const override;

 private:
  const std::string suffix_;  // Not empty.
};

// Takes blanks away before punctuation and English endings, in each token: transformers'
// clean_up_tokenization_spaces, or what the "WordPiece" decoder calls so, which has one more.
void AddCleanUpSteps(bool of_word_pieces, std::vector<std::unique_ptr<DecoderStep>>* steps);

// A file without a decoder: tokens with blanks between them.
class JoinStep : public DecoderStep {
 public:
  std::unique_ptr<TokenSink> NewSink(TokenSink* next, DecodeMode mode) const override;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_DECODER_STEPS_H_
