// The vocabulary and the merges of a tokenizer.json, read without a tree: of large models they are
// a million values, and nearly all of the file.
#ifndef STRATA_TEXT_TOKENIZER_LONG_LISTS_H_
#define STRATA_TEXT_TOKENIZER_LONG_LISTS_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata {

struct LongLists {
  // In the file's order. Tokens are views into the file, or into `texts`.
  std::vector<std::pair<std::string_view, uint64_t>> vocab;
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  std::deque<std::string> texts;  // Of strings with escapes.
  // The file, with an empty "vocab" and "merges".
  std::string rest;
};

// Takes them out of a file whose "model" says first that it is of the type "BPE", and has both.
// Nothing where the file is any other, or is wrong in either list: then it is to be read as a tree,
// which says what is wrong. `json` outlives the result.
std::optional<LongLists> TakeLongLists(std::string_view json);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_LONG_LISTS_H_
