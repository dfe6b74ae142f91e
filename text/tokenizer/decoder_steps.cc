#include "text/tokenizer/decoder_steps.h"

#include <algorithm>
#include <vector>

#include "text/tokenizer/byte_alphabet.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

// False where a character stands for no byte.
bool BytesOfCharacters(std::string_view token, std::string* bytes) {
  bytes->clear();
  for (size_t at = 0; at < token.size();) {
    const auto byte = ByteOfCharacter(NextChar(token, &at));
    if (!byte.has_value()) return false;
    bytes->push_back(static_cast<char>(*byte));
  }
  return true;
}

class ByteLevelSink : public TokenSink {
 public:
  explicit ByteLevelSink(TokenSink* next) : next_(next) {}

  void Part(std::string_view text) override { token_.append(text); }
  void EndToken() override {
    text_.clear();
    assembler_.Add(BytesOfCharacters(token_, &bytes_) ? bytes_ : token_, &text_);
    token_.clear();
    Say();
  }
  void End() override {
    text_.clear();
    assembler_.Finish(&text_);
    Say();
    next_->EndToken();
    next_->End();
  }

 private:
  void Say() {
    if (!text_.empty()) {
      next_->Part(text_);
    }
  }

  TokenSink* const next_;
  std::string token_;
  std::string bytes_;
  std::string text_;
  Utf8Assembler assembler_;
};

class FuseSink : public TokenSink {
 public:
  explicit FuseSink(TokenSink* next) : next_(next) {}
  void Part(std::string_view text) override { next_->Part(text); }
  void EndToken() override {}
  void End() override {
    next_->EndToken();
    next_->End();
  }

 private:
  TokenSink* const next_;
};

// Holds back what may be the beginning of a match.
class ReplaceSink : public TokenSink {
 public:
  ReplaceSink(TokenSink* next, const TextPattern* pattern, std::string_view content)
      : next_(next), pattern_(pattern), content_(content) {}

  void Part(std::string_view text) override {
    held_.append(text);
    const std::string& literal = pattern_->literal();
    if (literal.empty()) {
      return;  // An expression may want all of the token.
    }
    size_t said = 0;
    for (size_t at = held_.find(literal); at != std::string::npos; at = held_.find(literal, said)) {
      Say(std::string_view(held_).substr(said, at - said));
      Say(content_);
      said = at + literal.size();
    }
    size_t open = std::min(held_.size() - said, literal.size() - 1);
    while (open > 0 && !literal.starts_with(std::string_view(held_).substr(held_.size() - open))) {
      --open;
    }
    Say(std::string_view(held_).substr(said, held_.size() - open - said));
    held_.erase(0, held_.size() - open);
  }
  void EndToken() override {
    if (!held_.empty() && pattern_->literal().empty()) {
      std::vector<TextRange> matches;
      if (pattern_->FindAll(held_, &matches).ok()) {  // Else it stays as it is.
        held_ = ReplaceMatches(held_, matches, content_);
      }
    }
    Say(held_);
    held_.clear();
    next_->EndToken();
  }
  void End() override { next_->End(); }

 private:
  void Say(std::string_view text) {
    if (!text.empty()) {
      next_->Part(text);
    }
  }

  TokenSink* const next_;
  const TextPattern* const pattern_;
  const std::string_view content_;
  std::string held_;
};

// Holds back so many of the character as may turn out to be the token's last ones.
class StripSink : public TokenSink {
 public:
  StripSink(TokenSink* next, std::string_view character, size_t start, size_t stop)
      : next_(next), character_(character), start_(start), stop_(stop), left_(start) {}

  void Part(std::string_view text) override {
    while (left_ > 0 && text.starts_with(character_)) {
      text.remove_prefix(character_.size());
      --left_;
    }
    if (text.empty()) {
      return;
    }
    left_ = 0;
    std::string_view body = text;
    size_t ends = 0;  // In how many of the character.
    while (body.ends_with(character_)) {
      body.remove_suffix(character_.size());
      ++ends;
    }
    if (!body.empty()) {
      Release(held_);
      next_->Part(body);
    }
    held_ += ends;
    if (held_ > stop_) {
      Release(held_ - stop_);
    }
  }
  void EndToken() override {
    held_ = 0;
    left_ = start_;
    next_->EndToken();
  }
  void End() override { next_->End(); }

 private:
  void Release(size_t count) {
    held_ -= count;
    for (; count > 0; --count) {
      next_->Part(character_);
    }
  }

  TokenSink* const next_;
  const std::string_view character_;
  const size_t start_;
  const size_t stop_;
  size_t left_;      // To drop from this token's beginning.
  size_t held_ = 0;  // Of the character.
};

class MetaspaceSink : public TokenSink {
 public:
  MetaspaceSink(TokenSink* next, std::string_view replacement, bool drop_in_first)
      : next_(next), replacement_(replacement), drop_(drop_in_first) {}

  void Part(std::string_view text) override {
    while (!text.empty()) {
      const size_t at = std::min(text.find(replacement_), text.size());
      if (at > 0) {
        next_->Part(text.substr(0, at));
      }
      if (at < text.size() && !drop_) {
        next_->Part(" ");
      }
      text.remove_prefix(std::min(at + replacement_.size(), text.size()));
    }
  }
  void EndToken() override {
    drop_ = false;
    next_->EndToken();
  }
  void End() override { next_->End(); }

 private:
  TokenSink* const next_;
  const std::string_view replacement_;
  bool drop_;  // Whether this token loses its replacements.
};

class JoinSink : public TokenSink {
 public:
  explicit JoinSink(TokenSink* next) : next_(next) {}
  void Part(std::string_view text) override {
    if (between_) {
      next_->Part(" ");
    }
    between_ = false;
    next_->Part(text);
  }
  void EndToken() override { between_ = true; }
  void End() override { next_->End(); }

 private:
  TokenSink* const next_;
  bool between_ = false;
};

}  // namespace

std::optional<std::string> ByteLevelStep::BytesOf(std::string_view token) const {
  std::string bytes;
  return BytesOfCharacters(token, &bytes) ? bytes : std::string(token);
}

std::unique_ptr<TokenSink> ByteLevelStep::NewSink(TokenSink* next, DecodeMode) const {
  return std::make_unique<ByteLevelSink>(next);
}

std::unique_ptr<TokenSink> FuseStep::NewSink(TokenSink* next, DecodeMode) const {
  return std::make_unique<FuseSink>(next);
}

std::unique_ptr<TokenSink> ReplaceStep::NewSink(TokenSink* next, DecodeMode) const {
  return std::make_unique<ReplaceSink>(next, &pattern_, content_);
}

std::unique_ptr<TokenSink> StripStep::NewSink(TokenSink* next, DecodeMode) const {
  return std::make_unique<StripSink>(next, character_, start_, stop_);
}

std::unique_ptr<TokenSink> MetaspaceStep::NewSink(TokenSink* next, DecodeMode) const {
  return std::make_unique<MetaspaceSink>(next, replacement_, prepended_);
}

std::unique_ptr<TokenSink> JoinStep::NewSink(TokenSink* next, DecodeMode) const {
  return std::make_unique<JoinSink>(next);
}

}  // namespace strata
