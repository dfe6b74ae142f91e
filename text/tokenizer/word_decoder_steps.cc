// Steps of decoding for vocabularies of words and their parts.
#include <algorithm>

#include "text/tokenizer/decoder_steps.h"

namespace strata {
namespace {

class WordPieceSink : public TokenSink {
 public:
  WordPieceSink(TokenSink* next, std::string_view prefix) : next_(next), prefix_(prefix) {}

  void Part(std::string_view text) override { token_.append(text); }
  void EndToken() override {
    std::string_view token = token_;
    if (!first_) {
      if (token.starts_with(prefix_)) {
        token.remove_prefix(prefix_.size());
      } else {
        next_->Part(" ");
      }
    }
    first_ = false;
    if (!token.empty()) {
      next_->Part(token);
    }
    token_.clear();
    next_->EndToken();
  }
  void End() override { next_->End(); }

 private:
  TokenSink* const next_;
  const std::string_view prefix_;
  std::string token_;
  bool first_ = true;
};

// Holds a token back from its first suffix on, until it is known not to be the last.
class WordEndSink : public TokenSink {
 public:
  WordEndSink(TokenSink* next, std::string_view suffix) : next_(next), suffix_(suffix) {}

  void Part(std::string_view text) override {
    Release(" ");
    token_.append(text);
  }
  void EndToken() override {
    Release(" ");  // Of the one before an empty token.
    const size_t at = std::min(token_.find(suffix_), token_.size());
    Say(std::string_view(token_).substr(0, at));
    held_ = token_.substr(at);
    token_.clear();
    open_ = true;
  }
  void End() override {
    Release("");
    next_->End();
  }

 private:
  void Say(std::string_view text) {
    if (!text.empty()) {
      next_->Part(text);
    }
  }
  void Release(std::string_view end_of_word) {
    if (!open_) {
      return;
    }
    std::string_view left = held_;
    for (size_t at = left.find(suffix_); at != std::string_view::npos; at = left.find(suffix_)) {
      Say(left.substr(0, at));
      Say(end_of_word);
      left.remove_prefix(at + suffix_.size());
    }
    Say(left);
    next_->EndToken();
    open_ = false;
  }

  TokenSink* const next_;
  const std::string_view suffix_;
  std::string token_;
  std::string held_;
  bool open_ = false;  // Whether a token is held back.
};

}  // namespace

std::unique_ptr<TokenSink> WordPieceStep::NewSink(TokenSink* next, DecodeMode) const {
  return std::make_unique<WordPieceSink>(next, prefix_);
}

std::unique_ptr<TokenSink> WordEndStep::NewSink(TokenSink* next, DecodeMode) const {
  return std::make_unique<WordEndSink>(next, suffix_);
}

void AddCleanUpSteps(bool of_word_pieces, std::vector<std::unique_ptr<DecoderStep>>* steps) {
  const auto replace = [steps](const char* from, const char* to) {
    steps->push_back(std::make_unique<ReplaceStep>(TextPattern::OfLiteral(from), to));
  };
  for (const char* mark : {" .", " ?", " !", " ,"}) {
    replace(mark, mark + 1);
  }
  replace(" ' ", "'");
  replace(" n't", "n't");
  replace(" 'm", "'m");
  if (of_word_pieces) {
    replace(" do not", " don't");
  }
  for (const char* ending : {" 's", " 've", " 're"}) {
    replace(ending, ending + 1);
  }
}

}  // namespace strata
