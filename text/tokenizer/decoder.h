// Last stage of a tokenizer: tokens back to text, through steps that each rewrite tokens.
#ifndef STRATA_TEXT_TOKENIZER_DECODER_H_
#define STRATA_TEXT_TOKENIZER_DECODER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata {

// Takes tokens, each in parts of whole characters. Used by one thread at a time.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void Part(std::string_view text) = 0;  // More of the current token.
  virtual void EndToken() = 0;
  virtual void End() = 0;  // Behind the last token.
};

enum class DecodeMode {
  kWhole,   // What Hugging Face's decoder says.
  kStream,  // The same as soon as it is certain; see ByteFallbackStep for what is said before.
};

// Const and usable by any thread.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // At most so many bytes come out for each that goes in, and for each token.
  virtual size_t growth() const { return 1; }
  // The bytes that `token` stands for where it may be a part of a character.
  virtual std::optional<std::string> BytesOf(std::string_view /*token*/) const {
    return std::nullopt;
  }
  // Hands what becomes of the tokens to `next`, which outlives it, and as does the step.
  virtual std::unique_ptr<TokenSink> NewSink(TokenSink* next, DecodeMode mode) const = 0;
};

// Tokens as they come; used by one thread at a time.
class DecoderStream {
 public:
  DecoderStream(std::span<const std::unique_ptr<DecoderStep>> steps, DecodeMode mode);
  // Appends what is certain after one more token. What was appended is never taken back.
  void Add(std::string_view token, std::string* text);
  // Appends what is left at the end.
  void Finish(std::string* text);

 private:
  class Text;

  std::vector<std::unique_ptr<TokenSink>> sinks_;  // From the last to the first.
};

// Const and usable by any thread.
class Decoder {
 public:
  explicit Decoder(std::vector<std::unique_ptr<DecoderStep>> steps) : steps_(std::move(steps)) {}

  // The decoder outlives it.
  std::unique_ptr<DecoderStream> NewStream() const {
    return std::make_unique<DecoderStream>(steps_, DecodeMode::kStream);
  }
  // As the first step says that knows bytes.
  std::optional<std::string> BytesOf(std::string_view token) const;
  // All tokens at once.
  std::string Decode(std::span<const std::string_view> tokens) const;

 private:
  const std::vector<std::unique_ptr<DecoderStep>> steps_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_DECODER_H_
