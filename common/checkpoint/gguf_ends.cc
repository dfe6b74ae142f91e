#include "common/checkpoint/gguf_ends.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "common/checkpoint/json_reader.h"
#include "common/status.h"

namespace strata {
namespace {

// Texts of tokens that end an answer or a turn in published models.
constexpr std::string_view kEnds[] = {
    "</s>",       "<eos>",      "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>",
    "<|eom_id|>", "<|im_end|>", "<|end|>",       "<|return|>",    "<|call|>"};
// Kinds of tokens by ggml's number.
constexpr int64_t kControlToken = 3;
constexpr int64_t kUserDefinedToken = 4;

// Most files name one end, and chats end with another one's text. A vocabulary that cannot be read
// is the tokenizer's to refuse.
void AddEndsByText(const GgufHeader& header, nlohmann::json* ends) {
  GgufReader reader(&header);
  const std::vector<std::string_view> tokens = reader.Strings("tokenizer.ggml.tokens");
  const std::vector<int64_t> kinds = reader.Ints("tokenizer.ggml.token_type");
  const auto has = [&](std::string_view text) {
    return std::find(tokens.begin(), tokens.end(), text) != tokens.end();
  };
  // There it ends a part of an answer.
  const bool parts = has("<|return|>") && has("<|call|>");
  for (size_t id = 0; id < tokens.size(); ++id) {
    const bool special = kinds.size() != tokens.size() || kinds[id] == kControlToken ||
                         kinds[id] == kUserDefinedToken;
    const bool end = std::find(std::begin(kEnds), std::end(kEnds), tokens[id]) != std::end(kEnds);
    if (special && end && !(parts && tokens[id] == "<|end|>") &&
        std::find(ends->begin(), ends->end(), nlohmann::json(id)) == ends->end()) {
      ends->push_back(id);
    }
  }
}

}  // namespace

absl::Status WriteGgufEnds(const GgufHeader& header, nlohmann::json* config,
                           nlohmann::json* generation) {
  GgufReader reader(&header);
  const auto vocab = (*config)["vocab_size"].get<uint64_t>();
  nlohmann::json ends = nlohmann::json::array();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (reader.Find(key) != nullptr) {
      const uint64_t id = reader.Uint(key, 0, UINT32_MAX, 0);
      if (id < vocab && std::find(ends.begin(), ends.end(), nlohmann::json(id)) == ends.end()) {
        ends.push_back(id);
      }
    }
  }
  AddEndsByText(header, &ends);
  *generation = nlohmann::json::object();
  if (!ends.empty()) {
    (*config)["eos_token_id"] = ends;
    (*generation)["eos_token_id"] = ends;
  }
  constexpr char kBos[] = "tokenizer.ggml.bos_token_id";
  if (reader.Find(kBos) != nullptr) {
    (*config)["bos_token_id"] = reader.Uint(kBos, 0, vocab - 1, 0);
  }
  return reader.status();
}

}  // namespace strata
