// tokenizer.json, ranks of tiktoken or a model of SentencePiece's, a text that it encodes and
// decodes again, and the tokenizer_config.json, special_tokens_map.json and added_tokens.json
// beside it, with a line of "----" between them.
#include <algorithm>

#include "common/check.h"
#include "common/status.h"
#include "tests/fuzz/input.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/tiktoken.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_config.h"

namespace strata {
namespace {

// Texts are as long as a fuzzer makes them; ids are few at most.
constexpr size_t kMaxText = 2048;

void UseTokenizer(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.Encode(text.substr(0, kMaxText), special);
    if (!ids.ok()) {
      STRATA_CHECK(!ReasonOf(ids.status()).empty());
      continue;
    }
    for (const uint32_t id : *ids) {
      STRATA_CHECK(id < tokenizer.vocab_size());
    }
    // A text is refused by its bytes only where it has more ids than may be.
    const size_t per_id = tokenizer.max_bytes_per_id();
    STRATA_CHECK(per_id == 0 || std::min(text.size(), kMaxText) <= ids->size() * per_id);
    for (const size_t most : {ids->size() / 2, ids->size()}) {
      const auto some = tokenizer.EncodeUpTo(text.substr(0, kMaxText), special, most);
      STRATA_CHECK(!some.ok() || (most == ids->size() ? *some == *ids : some->size() > most));
    }
    (void)tokenizer.Decode(*ids, special);
    const auto stream = tokenizer.NewStream({}, special);
    for (const uint32_t id : *ids) {
      stream->Add(id);
    }
    stream->Finish();
  }
  // Ids that a model may answer, and some that it may not.
  std::vector<uint32_t> ids = {0, 1, tokenizer.vocab_size() - 1, tokenizer.vocab_size(), ~0u};
  for (const char c : text.substr(0, 64)) {
    ids.push_back(static_cast<uint8_t>(c));
  }
  (void)tokenizer.Decode(ids, true);
  const auto stream = tokenizer.NewStream(ids, false);
  for (const uint32_t id : ids) {
    stream->Add(id);
  }
  stream->Finish();
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  const auto texts = fuzz::Sections(data, size, 5);
  auto tokenizer = ParseTokenizer(
      texts[0], {std::string(texts[2]), std::string(texts[3]), std::string(texts[4])});
  if (!tokenizer.ok()) {
    STRATA_CHECK(!ReasonOf(tokenizer.status()).empty());
    tokenizer = ParseTiktoken(texts[0], "qwen.tiktoken", texts[2]);
  }
  if (!tokenizer.ok()) {
    STRATA_CHECK(!ReasonOf(tokenizer.status()).empty());
    tokenizer = ParseSentencePiece(texts[0], texts[2], texts[4]);
  }
  if (tokenizer.ok()) {
    UseTokenizer(**tokenizer, texts[1]);
  } else {
    STRATA_CHECK(!ReasonOf(tokenizer.status()).empty());
  }
  return 0;
}
