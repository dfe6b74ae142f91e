// Text on its way from normalizers to the model.
#ifndef STRATA_TEXT_TOKENIZER_PRE_TOKENIZED_H_
#define STRATA_TEXT_TOKENIZER_PRE_TOKENIZED_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace strata {

// Bytes [begin, end) of a text.
struct TextRange {
  uint32_t begin = 0;
  uint32_t end = 0;

  std::string_view Of(std::string_view text) const { return text.substr(begin, end - begin); }
  bool operator==(const TextRange&) const = default;
};

// The longest that stages may make of a text of so many bytes: a file can say that each character
// becomes thousands, and what becomes of these.
size_t MaxGrownBytes(size_t bytes);
// INVALID_ARGUMENT for a text that has grown longer.
absl::Status CheckGrown(size_t bytes, size_t max_bytes);

// Some text between added tokens, cut into pieces. No piece is empty; they are in order and do not
// overlap, and text between them is dropped.
struct PreTokenized {
  std::string text;
  std::vector<TextRange> pieces;
  bool at_start = false;                          // Whether it begins the input.
  size_t max_bytes = MaxGrownBytes(text.size());  // What stages may make of it.
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_PRE_TOKENIZED_H_
