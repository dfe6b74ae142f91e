// tokenizer.json to token ids and back. Const after construction; any thread.
#ifndef STRATA_TEXT_TOKENIZER_TOKENIZER_H_
#define STRATA_TEXT_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace strata {

struct FilesBesideTokenizer;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of `text` (UTF-8; INVALID_ARGUMENT with the byte offset otherwise). With
  // `add_special_tokens` the post-processor's template applies; added tokens inside the text are
  // found in either case.
  virtual absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text,
                                                       bool add_special_tokens) const = 0;
  // The same where more than `most` ids are of no use: of a text that has more it gives at least
  // one id too many, and does not look for those behind.
  virtual absl::StatusOr<std::vector<uint32_t>> EncodeUpTo(std::string_view text,
                                                           bool add_special_tokens,
                                                           size_t most) const {
    return Encode(text, add_special_tokens);
  }
  // The most bytes of a text that one id stands for. 0: not bounded, as where blanks or unknown
  // words of any length become one id or none.
  virtual size_t max_bytes_per_id() const { return 0; }
  // Ids past the vocabulary decode to nothing.
  virtual std::string Decode(std::span<const uint32_t> ids, bool skip_special_tokens) const = 0;

  // Decodes ids as they come: never emits half a character, nor takes anything back.
  class Stream {
   public:
    virtual ~Stream() = default;
    // What can be said after one more id.
    virtual std::string Add(uint32_t id) = 0;
    // What is left at the end.
    virtual std::string Finish() = 0;
  };
  // `context` (a prompt, may be empty) is decoded before and not shown. The tokenizer outlives it.
  virtual std::unique_ptr<Stream> NewStream(std::span<const uint32_t> context,
                                            bool skip_special_tokens) const = 0;

  virtual std::optional<uint32_t> TokenToId(std::string_view token) const = 0;
  // The bytes that `id` stands for where it may be a part of a character; nullopt where it is text
  // by itself, which depends on the ids before it.
  virtual std::optional<std::string> BytesOf(uint32_t /*id*/) const { return std::nullopt; }
  virtual uint32_t vocab_size() const = 0;  // Added tokens included.
  // For people: "byte-level BPE", "BPE with byte fallback", "Unigram", "SentencePiece BPE", ...
  virtual std::string kind() const = 0;
};

// From the bytes of a tokenizer.json, and of the files beside it that say more of its tokens
// (tokenizer_config.h). What is not supported is refused by name.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(std::string_view json);
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(std::string_view json,
                                                          const FilesBesideTokenizer& beside);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_TOKENIZER_H_
