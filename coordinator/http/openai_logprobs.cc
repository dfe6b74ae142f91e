#include "coordinator/http/openai_logprobs.h"

#include <string>
#include <utility>

namespace strata {
namespace {

OrderedJson ChatEntry(const TokenTexts& texts, uint32_t id, float logprob) {
  OrderedJson entry;
  entry["token"] = texts.Text(id);
  entry["logprob"] = ShortestDouble(logprob);
  entry["bytes"] = nullptr;
  if (const auto bytes = texts.Bytes(id)) {
    entry["bytes"] = OrderedJson::array();
    for (const char c : *bytes) {
      entry["bytes"].push_back(static_cast<unsigned char>(c));
    }
  }
  return entry;
}

}  // namespace

void CompletionLogprobs::BeginPrompt(std::string text, uint32_t first) {
  offsets_in_text_.BeginPrompt(std::move(text));
  tokens_.push_back(texts_->Text(first));
  offsets_.push_back(offsets_in_text_.OfPrompt(first));
  logprobs_.push_back(nullptr);
  top_.push_back(nullptr);
  texts_->Advance(first);
}

void CompletionLogprobs::AddOfPrompt(const v1::TokenLogprob& token, uint32_t top) {
  Add(token, top, offsets_in_text_.OfPrompt(token.token_id()));
}

void CompletionLogprobs::AddOfAnswer(const v1::TokenLogprob& token, uint32_t top) {
  Add(token, top, offsets_in_text_.OfAnswer(token.token_id()));
}

void CompletionLogprobs::Add(const v1::TokenLogprob& token, uint32_t top, size_t offset) {
  const std::string text = texts_->Text(token.token_id());
  tokens_.push_back(text);
  offsets_.push_back(offset);
  logprobs_.push_back(ShortestDouble(token.logprob()));
  if (top == 0) {
    top_.push_back(nullptr);
  } else {
    // The best ones, and the token itself. Of two that are called the same the likelier is kept.
    OrderedJson best = OrderedJson::object();
    for (const auto& entry : token.top()) {
      const std::string name = texts_->Text(entry.token_id());
      if (!best.contains(name)) best[name] = ShortestDouble(entry.logprob());
    }
    if (!best.contains(text)) best[text] = ShortestDouble(token.logprob());
    top_.push_back(std::move(best));
  }
  texts_->Advance(token.token_id());
}

OrderedJson CompletionLogprobs::Take() {
  OrderedJson taken;
  taken["tokens"] = std::exchange(tokens_, OrderedJson::array());
  taken["token_logprobs"] = std::exchange(logprobs_, OrderedJson::array());
  taken["top_logprobs"] = std::exchange(top_, OrderedJson::array());
  taken["text_offset"] = std::exchange(offsets_, OrderedJson::array());
  return taken;
}

OrderedJson ChatLogprob(const v1::TokenLogprob& token, uint32_t top, TokenTexts* texts) {
  OrderedJson entry = ChatEntry(*texts, token.token_id(), token.logprob());
  entry["top_logprobs"] = OrderedJson::array();
  for (const auto& best : token.top()) {
    if (entry["top_logprobs"].size() < top) {
      entry["top_logprobs"].push_back(ChatEntry(*texts, best.token_id(), best.logprob()));
    }
  }
  texts->Advance(token.token_id());
  return entry;
}

}  // namespace strata
