// Last stage of a tokenizer: tokens back to text.
#ifndef STRATA_COORDINATOR_TOKENIZER_DECODER_H_
#define STRATA_COORDINATOR_TOKENIZER_DECODER_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "coordinator/tokenizer/unicode.h"

namespace strata {

// Tokens as they come; used by one thread at a time.
class DecoderStream {
 public:
  virtual ~DecoderStream() = default;
  // Appends what is certain after one more token. What was appended is never taken back.
  virtual void Add(std::string_view token, std::string* text) = 0;
  // Appends what is left at the end.
  virtual void Finish(std::string* text) = 0;
};

// Const and usable by any thread.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual std::unique_ptr<DecoderStream> NewStream() const = 0;
  // All tokens at once. The same as a stream, unless a decoder says otherwise.
  virtual std::string Decode(std::span<const std::string_view> tokens) const {
    std::string text;
    const std::unique_ptr<DecoderStream> stream = NewStream();
    for (const std::string_view token : tokens) {
      stream->Add(token, &text);
    }
    stream->Finish(&text);
    return text;
  }
};

// "ByteLevel": tokens in the byte alphabet become bytes, all others their UTF-8.
class ByteLevelDecoder : public Decoder {
 public:
  std::unique_ptr<DecoderStream> NewStream() const override;
};

// A file without a decoder: tokens with blanks between them.
class JoiningDecoder : public Decoder {
 public:
  std::unique_ptr<DecoderStream> NewStream() const override;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_TOKENIZER_DECODER_H_
