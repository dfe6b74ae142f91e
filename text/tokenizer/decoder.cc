#include "text/tokenizer/decoder.h"

namespace strata {

// Where all parts of all tokens end up.
class DecoderStream::Text : public TokenSink {
 public:
  void Part(std::string_view text) override { out_->append(text); }
  void EndToken() override {}
  void End() override {}
  void Append(std::string* out) { out_ = out; }

 private:
  std::string* out_ = nullptr;
};

DecoderStream::DecoderStream(std::span<const std::unique_ptr<DecoderStep>> steps, DecodeMode mode) {
  sinks_.push_back(std::make_unique<Text>());
  for (size_t i = steps.size(); i > 0; --i) {
    sinks_.push_back(steps[i - 1]->NewSink(sinks_.back().get(), mode));
  }
}

void DecoderStream::Add(std::string_view token, std::string* text) {
  static_cast<Text&>(*sinks_.front()).Append(text);
  sinks_.back()->Part(token);
  sinks_.back()->EndToken();
}

void DecoderStream::Finish(std::string* text) {
  static_cast<Text&>(*sinks_.front()).Append(text);
  sinks_.back()->End();
}

std::optional<std::string> Decoder::BytesOf(std::string_view token) const {
  for (const auto& step : steps_) {
    if (auto bytes = step->BytesOf(token)) return bytes;
  }
  return std::nullopt;
}

std::string Decoder::Decode(std::span<const std::string_view> tokens) const {
  std::string text;
  DecoderStream stream(steps_, DecodeMode::kWhole);
  for (const std::string_view token : tokens) {
    stream.Add(token, &text);
  }
  stream.Finish(&text);
  return text;
}

}  // namespace strata
