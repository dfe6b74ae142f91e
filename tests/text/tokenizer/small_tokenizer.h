// A small byte-level tokenizer.json to change in tests.
#ifndef STRATA_TESTS_TEXT_TOKENIZER_SMALL_TOKENIZER_H_
#define STRATA_TESTS_TEXT_TOKENIZER_SMALL_TOKENIZER_H_

#include <nlohmann/json.hpp>
#include <string>

#include "text/tokenizer/byte_alphabet.h"

namespace strata::testing {

// Ids 0 to 255 are the bytes; then "ab" 256, "abc" 257, "Ġa" 258; no added tokens.
inline nlohmann::json SmallTokenizer() {
  const auto Array = [](nlohmann::json::initializer_list_t items) {
    return nlohmann::json::array(items);
  };
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string token;
    AppendByteLevel(std::string(1, static_cast<char>(byte)), &token);
    vocab[token] = byte;
  }
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  vocab["Ġa"] = 258;
  return {
      {"version", "1.0"},
      {"added_tokens", nlohmann::json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", vocab},
        {"merges", Array({Array({"a", "b"}), Array({"ab", "c"}), Array({"Ġ", "a"})})}}}};
}

inline nlohmann::json Added(const std::string& content, nlohmann::json flags = {}) {
  nlohmann::json token = {
      {"id", 0},         {"content", content},   {"special", true},    {"lstrip", false},
      {"rstrip", false}, {"single_word", false}, {"normalized", false}};
  if (!flags.is_null()) {
    token.update(flags);
  }
  return token;
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_TEXT_TOKENIZER_SMALL_TOKENIZER_H_
