#include <charconv>
#include <optional>

#include "text/tokenizer/decoder_steps.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

constexpr size_t kByteTokenSize = 6;

class ByteFallbackSink : public TokenSink {
 public:
  ByteFallbackSink(TokenSink* next, DecodeMode mode) : next_(next), mode_(mode) {}

  void Part(std::string_view text) override {
    if (too_long_) {
      next_->Part(text);
      return;
    }
    token_.append(text);
    if (token_.size() > kByteTokenSize) {
      EndRun();
      next_->Part(token_);
      token_.clear();
      too_long_ = true;
    }
  }
  void EndToken() override {
    const auto byte = too_long_ ? std::nullopt : ByteOfToken(token_);
    if (byte) {
      AddByte(*byte);
    } else {
      EndRun();
      if (!token_.empty()) {
        next_->Part(token_);
      }
      next_->EndToken();
    }
    token_.clear();
    too_long_ = false;
  }
  void End() override {
    EndRun();
    next_->End();
  }

 private:
  void AddByte(uint8_t byte) {
    in_run_ = true;
    if (spoiled_) {
      SayBad(1);
      return;
    }
    run_.push_back(static_cast<char>(byte));
    if (mode_ == DecodeMode::kWhole) {
      return;
    }
    const size_t complete = FirstInvalidUtf8(run_).value_or(run_.size());
    if (complete > 0) {
      next_->Part(std::string_view(run_).substr(0, complete));
      run_.erase(0, complete);
    }
    if (!run_.empty() && !BeginsCharacter(run_)) {
      Spoil();
    }
  }
  // Nothing more can make the run good.
  void Spoil() {
    spoiled_ = true;
    SayBad(run_.size());
    run_.clear();
  }
  void SayBad(size_t count) {
    for (; count > 0; --count) {
      next_->Part(kReplacementCharacter);
      next_->EndToken();
    }
  }
  void EndRun() {
    if (!in_run_) {
      return;
    }
    if (FirstInvalidUtf8(run_)) {
      Spoil();
    } else if (!spoiled_) {
      if (!run_.empty()) {
        next_->Part(run_);
      }
      next_->EndToken();
    }
    run_.clear();
    in_run_ = false;
    spoiled_ = false;
  }

  TokenSink* const next_;
  const DecodeMode mode_;
  std::string token_;
  bool too_long_ = false;  // The token has been handed on already.
  bool in_run_ = false;
  bool spoiled_ = false;  // The run is no UTF-8.
  std::string run_;       // Its bytes that have not been said.
};

}  // namespace

std::optional<uint8_t> ByteOfToken(std::string_view token) {
  if (token.size() != kByteTokenSize || !token.starts_with("<0x") || token.back() != '>') {
    return std::nullopt;
  }
  uint8_t byte = 0;
  const char* end = token.data() + kByteTokenSize - 1;
  const auto [stop, error] = std::from_chars(token.data() + 3, end, byte, 16);
  if (error != std::errc() || stop != end) {
    return std::nullopt;
  }
  return byte;
}

std::optional<std::string> ByteFallbackStep::BytesOf(std::string_view token) const {
  const auto byte = ByteOfToken(token);
  if (!byte.has_value()) return std::nullopt;
  return std::string(1, static_cast<char>(*byte));
}

std::unique_ptr<TokenSink> ByteFallbackStep::NewSink(TokenSink* next, DecodeMode mode) const {
  return std::make_unique<ByteFallbackSink>(next, mode);
}

}  // namespace strata
