#include "coordinator/http/token_text.h"

#include <algorithm>
#include <utility>

namespace strata {
namespace {

// More than the parts of any character, and enough for a word's beginning.
constexpr size_t kContext = 6;

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

std::vector<uint32_t> IdsBehindPrompt(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) {
    return {};
  }
  auto ids = tokenizer->Encode("a", /*add_special_tokens=*/false);
  return ids.ok() ? *std::move(ids) : std::vector<uint32_t>();
}

std::string TokenTexts::Text(uint32_t id) const {
  if (tokenizer_ == nullptr) {
    return "token_id:" + std::to_string(id);
  }
  const std::vector<uint32_t> context(before_.begin(), before_.end());
  const auto stream = tokenizer_->NewStream(context, /*skip_special_tokens=*/false);
  std::string text = stream->Add(id);
  text += stream->Finish();
  // What the ids before leave unfinished was called so already.
  if (text.starts_with(Unfinished())) text.erase(0, Unfinished().size());
  return text;
}

std::optional<std::string> TokenTexts::Bytes(uint32_t id) const {
  if (tokenizer_ == nullptr) {
    return std::nullopt;
  }
  std::string text = Text(id);
  if (!Unfinished().empty() || text.find(kReplacement) != std::string::npos) {
    if (auto bytes = tokenizer_->BytesOf(id)) return bytes;
  }
  return text;
}

void TokenTexts::Advance(uint32_t id) {
  before_.push_back(id);
  if (before_.size() > kContext) before_.pop_front();
  unfinished_.reset();
}

const std::string& TokenTexts::Unfinished() const {
  if (!unfinished_.has_value()) {
    const std::vector<uint32_t> context(before_.begin(), before_.end());
    unfinished_ = tokenizer_->NewStream(context, /*skip_special_tokens=*/false)->Finish();
  }
  return *unfinished_;
}

TextOffsets::TextOffsets(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {
  if (tokenizer_ != nullptr) {
    stream_ = tokenizer_->NewStream(IdsBehindPrompt(tokenizer_), /*skip_special_tokens=*/false);
  }
}

void TextOffsets::BeginPrompt(std::string text) {
  prompt_ = std::move(text);
  if (tokenizer_ != nullptr) {
    stream_ = tokenizer_->NewStream({}, /*skip_special_tokens=*/false);
  }
}

bool TextOffsets::IsSpecial(uint32_t id) const {
  const uint32_t ids[] = {id};
  return tokenizer_->Decode(ids, /*skip_special_tokens=*/true).empty() &&
         !tokenizer_->Decode(ids, /*skip_special_tokens=*/false).empty();
}

void TextOffsets::Add(uint32_t id) {
  const std::string said = stream_->Add(id);
  byte_ = std::min(byte_ + said.size(), prompt_.size());
  characters_ += CountCharacters(said);
}

size_t TextOffsets::OfPrompt(uint32_t id) {
  if (tokenizer_ == nullptr) {
    return 0;
  }
  if (IsSpecial(id)) {
    const uint32_t ids[] = {id};
    // What a normalizer changed may have put the text out of step, but not at its beginning.
    const std::string spelled = tokenizer_->Decode(ids, /*skip_special_tokens=*/false);
    const size_t found = byte_ == 0 ? (prompt_.starts_with(spelled) ? 0 : std::string::npos)
                                    : prompt_.find(spelled, byte_);
    if (found == std::string::npos) {
      return characters_;
    }
    characters_ += CountCharacters(std::string_view(prompt_).substr(byte_, found - byte_));
    byte_ = found;
  }
  const size_t at = characters_;
  Add(id);
  return at;
}

size_t TextOffsets::OfAnswer(uint32_t id) {
  if (tokenizer_ == nullptr) {
    return 0;
  }
  if (!std::exchange(in_answer_, true)) {
    characters_ = CountCharacters(prompt_);
  }
  const size_t at = characters_;
  if (!IsSpecial(id)) Add(id);
  return at;
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace strata
