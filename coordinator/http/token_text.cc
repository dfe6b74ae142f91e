#include "coordinator/http/token_text.h"

#include <algorithm>
#include <vector>

namespace strata {
namespace {

// More than the parts of any character, and enough for a word's beginning.
constexpr size_t kContext = 6;

}  // namespace

std::string TokenTexts::Text(uint32_t id) const {
  if (tokenizer_ == nullptr) {
    return "token_id:" + std::to_string(id);
  }
  const std::vector<uint32_t> context(before_.begin(), before_.end());
  const auto stream = tokenizer_->NewStream(context, /*skip_special_tokens=*/false);
  std::string text = stream->Add(id);
  return text + stream->Finish();
}

void TokenTexts::Advance(uint32_t id) {
  before_.push_back(id);
  if (before_.size() > kContext) before_.pop_front();
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace strata
