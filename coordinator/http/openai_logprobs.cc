#include "coordinator/http/openai_logprobs.h"

#include <algorithm>
#include <string>
#include <utility>

namespace strata {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

OrderedJson ChatEntry(const std::string& text, float logprob) {
  OrderedJson entry;
  entry["token"] = text;
  entry["logprob"] = ShortestDouble(logprob);
  // Half a character has no text to take bytes from.
  entry["bytes"] = nullptr;
  if (text.find(kReplacement) == std::string::npos) {
    entry["bytes"] = OrderedJson::array();
    for (const char c : text) {
      entry["bytes"].push_back(static_cast<unsigned char>(c));
    }
  }
  return entry;
}

}  // namespace

void CompletionLogprobs::AddText(const std::string& text) {
  tokens_.push_back(text);
  offsets_.push_back(offset_);
  offset_ += CountCharacters(text);
}

void CompletionLogprobs::AddFirst(uint32_t id) {
  AddText(texts_->Text(id));
  logprobs_.push_back(nullptr);
  top_.push_back(nullptr);
  texts_->Advance(id);
}

void CompletionLogprobs::Add(const v1::TokenLogprob& token, uint32_t top) {
  const std::string text = texts_->Text(token.token_id());
  AddText(text);
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
  OrderedJson entry = ChatEntry(texts->Text(token.token_id()), token.logprob());
  entry["top_logprobs"] = OrderedJson::array();
  for (const auto& best : token.top()) {
    if (entry["top_logprobs"].size() < top) {
      entry["top_logprobs"].push_back(ChatEntry(texts->Text(best.token_id()), best.logprob()));
    }
  }
  texts->Advance(token.token_id());
  return entry;
}

}  // namespace strata
